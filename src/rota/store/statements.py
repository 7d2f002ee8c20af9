"""Loads the named statements from the `.sql` files.

Each statement follows a line `-- name: NAME` and a line that says what it does. Parameters are
`:name`; `= ANY(:name)` takes a list. A dialect folder overrides statements of the shared files.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable

_NAME = re.compile(r"^-- name: (\w+)$")
_PARAMETER = re.compile(r"(?<![:\w]):([a-z_]+)")


@dataclass(frozen=True, slots=True)
class Statement:
    name: str
    text: str  # with :parameters
    parameters: tuple[str, ...]  # in order of first appearance


@cache
def shared_statements() -> Mapping[str, Statement]:
    """The statements every dialect understands."""
    return load(resources.files("rota.store"))


@cache
def statements_of(dialect: str) -> Mapping[str, Statement]:
    """All statements as a dialect says them, with those that only it has."""
    own = load(resources.files(f"rota.store.{dialect}"))
    return {**shared_statements(), **own}


def load(folder: Traversable) -> dict[str, Statement]:
    """All statements of a folder's `.sql` files, by name."""
    statements: dict[str, Statement] = {}
    for file in sorted(folder.iterdir(), key=lambda file: file.name):
        if file.name.endswith(".sql"):
            for statement in _parse(file.read_text("utf-8")):
                if statement.name in statements:
                    raise ValueError(f"statement {statement.name} is defined twice")
                statements[statement.name] = statement
    return statements


def _parse(text: str) -> Iterator[Statement]:
    name, lines = "", list[str]()
    for line in [*text.splitlines(), "-- name: end"]:
        match = _NAME.match(line)
        if match:
            if name:
                yield _statement(name, lines)
            name, lines = match.group(1), []
        elif not line.startswith("--"):
            lines.append(line)


def _statement(name: str, lines: list[str]) -> Statement:
    text = "\n".join(lines).strip().rstrip(";")
    return Statement(name, text, tuple(dict.fromkeys(_PARAMETER.findall(text))))
