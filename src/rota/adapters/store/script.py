"""Transactions written once for every SQL dialect.

A *script* is a generator that yields queries and is sent their rows. It holds the order of
statements and the decisions between them (taken in `domain`), and does no I/O itself: a driver
runs it, SQLite's in its writer thread, PostgreSQL's on a connection of a pool.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

T = TypeVar("T")
Row: TypeAlias = Mapping[str, Any]
Rows: TypeAlias = Sequence[Row]


@dataclass(frozen=True, slots=True)
class Query:
    """One named statement; its answer is the rows it returned."""

    name: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Many:
    """The same named statement for each row; values in the order the statement names them.

    Its answer is empty. Every row must change exactly one row of the store, or the script fails.
    """

    name: str
    rows: Sequence[tuple[Any, ...]]
    exactly: bool = True  # False: rows that change nothing are fine (insert or ignore)


Script: TypeAlias = Generator[Query | Many, Rows, T]
MakeScript: TypeAlias = Callable[[int], Script[T]]  # given the store's now, in microseconds


def query(name: str, /, **parameters: Any) -> Query:
    return Query(name, parameters)
