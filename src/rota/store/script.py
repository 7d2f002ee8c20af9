"""Transactions written once for every SQL dialect.

A *script* is a generator that yields queries and is sent their rows. It holds the order of
statements and the decisions between them (taken in `domain`), and does no I/O itself: a driver
runs it, SQLite's in its writer thread, PostgreSQL's on a connection of a pool.

Where transactions run beside one another, no rule rests on their isolation: a script locks what it
decides about before it looks. All take their locks in one order, sorted by id inside each kind, so
that none waits for one that waits for it:

    idempotency, calendar, shard, session, cart, template (of carts), schedule (the gate of a job),
    run, shape, shared_key, reservation, chain, counters (pool, start_delay, tally)

Who takes which, and why, is told in `docs/decisions/0010-one-order-of-locks.md`.
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


@dataclass(frozen=True, slots=True)
class Lock:
    """Rows to lock until the end of the transaction; its answer is empty.

    Locked by a statement of the dialect, `lock_NAME`. A store with one writer needs none.
    """

    name: str
    parameters: Mapping[str, Any]


class LookAgain(Exception):
    """What a script saw before it had its locks has changed: it is to run once more."""


Step: TypeAlias = Query | Many | Lock
Script: TypeAlias = Generator[Step, Rows, T]
MakeScript: TypeAlias = Callable[[int], Script[T]]  # given the store's now, in microseconds


def query(name: str, /, **parameters: Any) -> Query:
    return Query(name, parameters)


def lock(name: str, /, **parameters: Any) -> Lock:
    return Lock(name, parameters)
