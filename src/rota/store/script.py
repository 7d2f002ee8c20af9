"""Transactions written once for every SQL dialect.

A *script* is a generator that yields queries and is sent their rows. It has the order of statements
and the decisions between them (taken in `domain`), and does no I/O itself: a driver runs it,
SQLite's in its writer thread, PostgreSQL's on a connection of a pool.

Order of locks
--------------

Where transactions run beside one another, no rule rests on their isolation (READ COMMITTED): a
script locks the row that stands for a rule before it looks. All scripts take their locks in this
order, sorted by id inside each kind and each kind once, so that none waits for one that waits for
it:

   row            stands for                        locked by
   -------------  --------------------------------  ------------------------------------------------
1  idempotency    one answer to a key               submissions, backfills: their first statement
2  calendar       its version, and who uses it      a change; a job that begins to use it (share)
3  shard          owner and epoch that may fire     firing (share); taking over
4  session        its lease and its free room       claims (key share, and an advisory lock before);
                                                    renewals; ends of sessions, resume, drain
5  cart           its rules, counters and state     its steps and commands, bad ends of its runs;
                                                    releases (share)
6  cart_template  version, where its schedule is    saving it; the cart of a due time
7  schedule       the gate of its job: what counts  firing, releases, cancel, pause, edit, delete,
                  there, whether it is paused       backfills, ends of runs that count there;
                                                    submissions (share, if the job has no limit)
8  run            its state                         every step of a run; then `shape`, `rekeying`
9  shared_key     who has a key, its bucket         claims of runs that take keys, quotas of waiting
                                                    runs, dependency rings, forgetting keys
10 kept_key       what is kept of a key             the key keeper
11 reservation    a worker that is kept free        claims of runs that ask for resources
12 chain          whether it has runs               `Effects.conclude`
13 pool, tally,   sums                              `Effects.conclude`
   start_delay

- Whoever looks for *any* row skips those that are locked: it never waits, and needs no place here.
- Rows 12 and 13 are shared by all jobs, so they are locked once, at the end of a transaction.
- What has to be read to know which locks are needed is read again under them, and the script
  raises `LookAgain` if it has changed.

Where a script departs from this, a comment says why. `docs/decisions/0010-one-order-of-locks.md`
tells how this came about.
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
    """A named statement for each row; values in the order the statement names them.

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
    """Something that a script read before it had its locks has changed: it is to run once more."""


Step: TypeAlias = Query | Many | Lock
Script: TypeAlias = Generator[Step, Rows, T]
MakeScript: TypeAlias = Callable[[int], Script[T]]  # given the store's now, in microseconds


def query(name: str, /, **parameters: Any) -> Query:
    return Query(name, parameters)


def lock(name: str, /, **parameters: Any) -> Lock:
    return Lock(name, parameters)
