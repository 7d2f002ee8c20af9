"""Export of the job file: documents written back and compared, its JSON Schema, its reference."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType
from typing import Any

import yaml

from rota.domain.jobfile.calendars import CALENDAR, HOLIDAYS
from rota.domain.jobfile.cart_fields import BETWEEN, CART, FAILURES, ITEM, ITEMS_FROM
from rota.domain.jobfile.declarations import LIMIT, RESOURCE
from rota.domain.jobfile.demands import AFTER, FOLLOW, RATE_LIMIT
from rota.domain.jobfile.external import PARTS_OF_EXTERNAL, SECTIONS_OF_EXTERNAL
from rota.domain.jobfile.fields import DEFAULTS, FILE, JOB, JOB_GROUPS
from rota.domain.jobfile.files import ARTIFACTS, GIT, SOURCE, UPLOAD
from rota.domain.jobfile.http import PARTS_OF_HTTP, SECTIONS_OF_HTTP
from rota.domain.jobfile.kinds import Schema
from rota.domain.jobfile.parts import DST, INPUT, MISFIRE, PROBE, RETRY, STEP
from rota.domain.jobfile.sections import Field, Section
from rota.domain.jobfile.text import BOOLEAN, DECIMAL, FLOAT, NOT_FINITE, NULL, PREFIXED
from rota.domain.jobfile.walls import MOUNT, RUN_LIMITS

_NEVER_FOLD = 1 << 30
# One pattern for all that reading would not take as text, whatever PyYAML's YAML 1.1 thinks.
_NOT_TEXT = re.compile(
    "^(?:"
    + "|".join(it.pattern for it in (NULL, BOOLEAN, DECIMAL, PREFIXED, FLOAT, NOT_FINITE))
    + ")$"
)


class _Dumper(yaml.SafeDumper):
    """Dumper in block style, lists indented under their key, scripts as literal blocks."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def represent_text(self, text: str) -> yaml.ScalarNode:
        style = None if text.isprintable() else "|" if _is_block(text) else '"'
        return self.represent_scalar("tag:yaml.org,2002:str", text, style)


def _is_block(text: str) -> bool:
    """Return whether a literal block shows the text as it is, to the last blank."""
    lines = text.removesuffix("\n").split("\n")
    return bool(lines[-1]) and all(line.isprintable() and not line.endswith(" ") for line in lines)


_Dumper.add_representer(str, _Dumper.represent_text)
_Dumper.add_implicit_resolver("tag:rota,not-text", _NOT_TEXT, None)


def to_yaml(
    documents: Iterable[Mapping[str, Any]],
    beside: Mapping[str, Sequence[Mapping[str, Any]]] = MappingProxyType({}),
) -> str:
    """Write a job file of these jobs and of what stands beside them, by field; skip empty parts.

    The project that the jobs share is written at the top.
    """
    jobs = [dict(document) for document in documents]
    projects = {job.get("project") for job in jobs}
    head: dict[str, Any] = {}
    if len(projects) == 1 and (project := projects.pop()) is not None:
        head = {"project": project}
        jobs = [{name: job[name] for name in job if name != "project"} for job in jobs]
    head |= {name: list(entries) for name, entries in beside.items() if entries}
    return to_block(head | {"jobs": jobs})


def to_block(value: Mapping[str, Any]) -> str:
    """Write any document in block style."""
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=_NEVER_FOLD)


_SECTIONS = (JOB, DEFAULTS, STEP, PROBE, RETRY, MISFIRE, DST, INPUT, SOURCE, CALENDAR, HOLIDAYS)
_SECTIONS_OF_FILES = (GIT, UPLOAD, ARTIFACTS)
_SECTIONS_OF_WALLS = (RUN_LIMITS, MOUNT)
_SECTIONS_OF_ORDER = (RATE_LIMIT, AFTER, FOLLOW, LIMIT, RESOURCE)
_SECTIONS_OF_CARTS = (CART, ITEM, ITEMS_FROM, FAILURES, BETWEEN)


def json_schema() -> Schema:
    """Return the schema of a whole file, in draft 2020-12; a single job's is `$defs/job` in it.

    A document that passes it may still break a rule that a schema cannot say: an impossible cron
    expression, a name that is there twice.
    """
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Rota job file",
        **FILE.definition(),
        "$defs": {
            section.title: section.definition()
            for section in (
                *_SECTIONS,
                *_SECTIONS_OF_FILES,
                *_SECTIONS_OF_WALLS,
                *SECTIONS_OF_HTTP,
                *SECTIONS_OF_EXTERNAL,
                *_SECTIONS_OF_ORDER,
                *_SECTIONS_OF_CARTS,
            )
        },
    }


_INTRODUCTION = """\
# Job file

A job file is YAML, read as YAML 1.2 (only `true` and `false` are booleans; `yes`, `on` and dates
are text), or JSON. Keys that are unknown or there twice are refused, and so are tags. A field left
empty counts as not written.

What has an anchor (`&name`) may be used again by an alias (`*name`), and a mapping be merged into
another one by `<<: *name` or `<<: [*one, *other]`: keys that are written win, then those of the
mapping named first. An alias counts as all that it stands for: a file has at most 300,000 keys and
values and 4 MiB of text with all of them written out. What is wrong inside is told where it is
written, what is wrong with the whole where the alias stands. For whole jobs, [defaults](#defaults)
say it shorter; `rota job export` writes everything out.

Durations are written `200ms`, `30s`, `1h30m` or `PT1H30M`; sizes `512KiB`, `100MiB` or `2GB`;
times in ISO 8601. A time without an offset is in the job's time zone.
"""

_DEFAULTS = """\
## Defaults

`defaults` takes the fields of a job except {own}. A job's own value wins; mappings such as `env`
and `retry` are merged key by key, and a field that the job leaves empty (`timeout:`) takes no
default.
"""

_ITEM_FILES = """\
## Files of items

A `.csv` file is UTF-8, separated by commas. Its first line names the columns: `key`, perhaps
`order`, and the inputs of the cart's job. An empty cell counts as not given.

```csv
key,order,host,replicas
db-001,10,db-001.example.org,2
db-002,20,db-002.example.org,
```

A `.json` or `.jsonl` file has a list of [items](#item), or one of them per line:

```json
{"key": "db-001", "order": 10, "with": {"host": "db-001.example.org", "replicas": 2}}
```

A file has at most 100,000 items and 64 million characters, and a line at most one million.
"""

_PARTS = {
    "Step": STEP,
    "Retry": RETRY,
    "Probe": PROBE,
    "Misfire": MISFIRE,
    "Daylight saving": DST,
    "Input": INPUT,
    "Source": SOURCE,
    "Git": GIT,
    "Upload": UPLOAD,
    "Artifacts": ARTIFACTS,
    **PARTS_OF_HTTP,
    **PARTS_OF_EXTERNAL,
    "Run limits": RUN_LIMITS,
    "Mount": MOUNT,
    "Rate limit": RATE_LIMIT,
    "After": AFTER,
    "Follow": FOLLOW,
    "Limit": LIMIT,
    "Resource": RESOURCE,
    "Calendar": CALENDAR,
    "Holidays": HOLIDAYS,
    "Cart": CART,
    "Item": ITEM,
    "Items from workers": ITEMS_FROM,
    "Failures": FAILURES,
    "Between": BETWEEN,
}


def reference() -> str:
    """Write the whole reference page."""
    return "\n".join(_blocks())


def _blocks() -> Iterator[str]:
    yield _INTRODUCTION
    yield _part("## File", FILE.fields)
    yield _DEFAULTS.format(own=_own_fields())
    yield "## Job\n"
    for title, fields in JOB_GROUPS.items():
        yield _part(f"### {title}", fields)
    for title, section in _PARTS.items():
        yield _part(f"## {title}", section.fields)
    yield _ITEM_FILES


def _own_fields() -> str:
    rows = [row for group in JOB_GROUPS.values() for row in group]
    return ", ".join(f"`{row.name}`" for row in rows if not row.shared)


def _part(heading: str, fields: Iterable[Field]) -> str:
    rows = list(fields)
    lines = [heading, "", "| field | value | default | meaning |", "|---|---|---|---|"]
    lines += [_row(row) for row in rows if row.is_available]
    later = ", ".join(f"`{row.name}`" for row in rows if not row.is_available)
    lines += ["", f"Known, but not available in this version: {later}."] if later else []
    return "\n".join([*lines, ""])


def _row(row: Field) -> str:
    default = "required" if row.required else _code(row.default)
    examples = f" For example {', '.join(map(_code, row.examples))}." if row.examples else ""
    return f"| `{row.name}` | {_kind(row)} | {default} | {row.doc}{examples} |"


def _kind(row: Field) -> str:
    if isinstance(row.kind, Section):
        return f"a [mapping](#{_anchor(row.kind)})"
    return row.kind.words


def _anchor(section: Section) -> str:
    titles = {part.title: title for title, part in _PARTS.items()}
    return titles.get(section.title, section.title).lower().replace(" ", "-")


def _code(value: object) -> str:
    if value is None:
        return ""
    text = value if isinstance(value, str) else json.dumps(value)
    return f"`{text}`"


class Change(StrEnum):
    """Effect of saving a job or a calendar."""

    NEW = "new"
    CHANGED = "changed"
    UNCHANGED = "unchanged"
    REMOVED = "removed"


def differences(old: Mapping[str, Any], new: Mapping[str, Any], at: str = "") -> list[str]:
    """List where two documents differ, one line a place."""
    lines: list[str] = []
    for key in sorted(old.keys() | new.keys()):
        lines += difference(old.get(key), new.get(key), f"{at}.{key}" if at else key)
    return lines


def difference(old: Any, new: Any, at: str) -> list[str]:
    """List where two values of one place differ."""
    if old == new:
        return []
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        return differences(old, new, at)
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        pairs = enumerate(zip(old, new, strict=True))
        return [line for i, (a, b) in pairs for line in difference(a, b, f"{at}[{i}]")]
    return [f"{at}  {_short(old)} → {_short(new)}"]


def _short(value: Any) -> str:
    text = "(none)" if value is None else value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "…"


def digest_of(document: Mapping[str, Any]) -> str:
    """Return a short digest of a document, equal for equal content."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
