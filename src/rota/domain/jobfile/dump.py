"""Documents written as a job file that people can read, and that reads back unchanged."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import yaml

from rota.domain.jobfile.scalars import BOOLEAN, DECIMAL, FLOAT, NOT_FINITE, NULL, PREFIXED

_NEVER_FOLD = 1 << 30
# One pattern for all that reading would not take as text, whatever PyYAML's YAML 1.1 thinks.
_NOT_TEXT = re.compile(
    "^(?:"
    + "|".join(it.pattern for it in (NULL, BOOLEAN, DECIMAL, PREFIXED, FLOAT, NOT_FINITE))
    + ")$"
)


class _Dumper(yaml.SafeDumper):
    """Block style, lists indented under their key, scripts as literal blocks."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def represent_text(self, text: str) -> yaml.ScalarNode:
        style = None if text.isprintable() else "|" if _is_block(text) else '"'
        return self.represent_scalar("tag:yaml.org,2002:str", text, style)


def _is_block(text: str) -> bool:
    """Whether a literal block shows the text as it is, to the last blank."""
    lines = text.removesuffix("\n").split("\n")
    return bool(lines[-1]) and all(line.isprintable() and not line.endswith(" ") for line in lines)


_Dumper.add_representer(str, _Dumper.represent_text)
_Dumper.add_implicit_resolver("tag:rota,not-text", _NOT_TEXT, None)


def to_yaml(
    documents: Iterable[Mapping[str, Any]],
    beside: Mapping[str, Sequence[Mapping[str, Any]]] = MappingProxyType({}),
) -> str:
    """A job file of these jobs and of what stands beside them, by field; parts that are empty go.

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
    """Any document in block style."""
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=_NEVER_FOLD)
