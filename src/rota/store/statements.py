"""Loads the named statements from the `.sql` files.

A statement follows a line `-- name: NAME` and a line that says what it does. Parameters are
`:name`; `= ANY(:name)` takes a list. What PostgreSQL says differently is an annotation between
these lines and the statement, or, where that is not enough, a statement of the same name in
`postgres/`:

    -- postgres: TEXT
        is appended to the statement: an order and a lock (`ORDER BY id FOR NO KEY UPDATE`). SQLite
        has one writer and needs no locks.

    -- many: NAME TYPE, NAME TYPE, …
    -- many: … ; ORDER BY COLUMNS
        gives the types of all parameters, in their order. A statement for one row then changes
        many at once, whose values come as arrays:

        INSERT INTO t (a, b) VALUES (:a, 'x') …
            -> INSERT INTO t (a, b) SELECT new.a, 'x' FROM unnest(:a::text[]) AS new (a) …
        UPDATE t SET b = :b WHERE a = :a
            -> UPDATE t SET b = new.b FROM unnest(…) AS new (b, a) WHERE t.a = new.a

        With ORDER BY rows are locked in one order, whoever inserts them.

Written around a column, `coalesce` keeps it out of the access path: an index on what is few (ids,
what is not final) leads, never one that grows with history. A batch compares states of runs so.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable

_NAME = re.compile(r"^-- name: (\w+)$")
_SUFFIX = re.compile(r"^-- postgres: (.+)$")
_MANY = re.compile(r"^-- many: (.+)$")
_PARAMETER = re.compile(r"(?<![:\w]):([a-z_]+)")
_INSERT = re.compile(r"(INSERT INTO \w+ \([^)]*\))\s+VALUES \(([^)]*)\)\s*(.*)", re.DOTALL)
_UPDATE = re.compile(r"UPDATE (\w+) SET (.*)\sWHERE (.*)", re.DOTALL)
_COMPARED = re.compile(r"(?:(?<=^)|(?<=\bAND ))(\w+)(?= (?:=|IN) )")


@dataclass(frozen=True, slots=True)
class Statement:
    name: str
    text: str  # with :parameters
    parameters: tuple[str, ...]  # in order of first appearance
    suffix: str = ""  # in PostgreSQL
    many: str = ""  # types of the parameters, if PostgreSQL takes many rows at once


@cache
def shared_statements() -> Mapping[str, Statement]:
    """The statements every dialect understands."""
    return load(resources.files("rota.store"))


@cache
def statements_of(dialect: str) -> Mapping[str, Statement]:
    """All statements as a dialect says them, with those that only it has."""
    own = load(resources.files(f"rota.store.{dialect}"))
    return {**{name: expanded(each) for name, each in shared_statements().items()}, **own}


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
        else:
            lines.append(line)


def _statement(name: str, lines: list[str]) -> Statement:
    text = "\n".join(line for line in lines if not line.startswith("--")).strip().rstrip(";")
    parameters = tuple(dict.fromkeys(_PARAMETER.findall(text)))
    return Statement(name, text, parameters, _noted(_SUFFIX, lines), _noted(_MANY, lines))


def _noted(annotation: re.Pattern[str], lines: list[str]) -> str:
    """The text of all lines of an annotation."""
    return " ".join(match.group(1) for line in lines if (match := annotation.match(line)))


def expanded(statement: Statement) -> Statement:
    """A shared statement as PostgreSQL takes it."""
    text = statement.text
    if statement.many:
        types, _, order = statement.many.partition(";")
        text = _for_many(statement, _arrays(statement, types), order.strip())
    if statement.suffix:
        text = f"{text}\n{statement.suffix}"
    return replace(statement, text=text)


def _arrays(statement: Statement, types: str) -> str:
    typed = dict(each.split() for each in types.split(","))
    if tuple(typed) != statement.parameters:
        raise ValueError(f"statement {statement.name} has {statement.parameters}, not {types}")
    return ", ".join(f":{name}::{kind}[]" for name, kind in typed.items())


def _for_many(statement: Statement, arrays: str, order: str) -> str:
    rows = f"unnest({arrays})"
    named = f"{rows}\n    AS new ({', '.join(statement.parameters)})"
    if match := _INSERT.fullmatch(statement.text):
        into, values, rest = match.groups()
        columns = _of_new(values)
        is_plain = not order and columns == ", ".join(f"new.{p}" for p in statement.parameters)
        columns, source = ("*", rows) if is_plain else (columns, named)
        select = f"SELECT {columns} FROM {source}"  # noqa: S608 - our own words, values are bound
        return "\n".join(part for part in (into, select, order, rest) if part)
    if match := _UPDATE.fullmatch(statement.text):
        table, assignments, conditions = match.groups()
        compared = _of_new(_COMPARED.sub(lambda m: _column(table, m.group(1)), conditions))
        update = f"UPDATE {table} SET {_of_new(assignments)}"  # noqa: S608 - as above
        return f"{update}\nFROM {named}\nWHERE {compared}"
    raise ValueError(f"statement {statement.name} cannot be said of many rows")


def _of_new(text: str) -> str:
    """Values of the batch in place of parameters."""
    return _PARAMETER.sub(r"new.\1", " ".join(text.split()))


def _column(table: str, name: str) -> str:
    column = f"{table}.{name}"
    return f"coalesce({column}, '')" if column == "run.state" else column
