"""The reference page of the job file, in Markdown."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from rota.domain.jobfile.calendars import CALENDAR, HOLIDAYS
from rota.domain.jobfile.cart_fields import BETWEEN, CART, FAILURES, ITEM, ITEMS_FROM
from rota.domain.jobfile.declarations import LIMIT, RESOURCE
from rota.domain.jobfile.demands import AFTER, RATE_LIMIT
from rota.domain.jobfile.fields import FILE, JOB_GROUPS
from rota.domain.jobfile.parts import DST, INPUT, MISFIRE, RETRY, SOURCE, STEP
from rota.domain.jobfile.sections import Field, Section

_INTRODUCTION = """\
# Job file

A job file is YAML, read as YAML 1.2 (only `true` and `false` are booleans; `yes`, `on` and dates
are text), or JSON. Keys that are unknown or there twice are refused, and so are anchors, aliases
and tags. A field left empty counts as not written.

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
    "Misfire": MISFIRE,
    "Daylight saving": DST,
    "Input": INPUT,
    "Source": SOURCE,
    "Rate limit": RATE_LIMIT,
    "After": AFTER,
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
    """The whole page."""
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
