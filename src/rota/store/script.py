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
2  project        its policy, who may use pools;    its change, pools given away; what is saved
                  that it is there                  in it (share)
3  calendar       its version, and who uses it      a change; a job that begins to use it (share)
4  shard          owner and epoch that may fire     firing (share); taking over
5  token          whether it is valid               sessions that it opens (share), joining,
                                                    renewal, revocation, disabling its worker
6  session        its lease and its free room       claims (key share, and an advisory lock before);
                                                    renewals; ends of sessions, resume, drain
7  cart           its rules, counters and state     its steps and commands, bad ends of its runs;
                                                    releases (share)
8  cart_template  version, where its schedule is    saving it; the cart of a due time
9  schedule       the gate of its job: what counts  firing, releases, cancel, pause, edit, delete,
                  there, whether it is paused       backfills, ends of runs that count there;
                                                    submissions (share, if the job has no limit)
10 run            its state                         every step of a run; then `shape`, `rekeying`
   external_      of another system's attempt:      every step of it, under the lock of its run
   attempt        its reports, its next deadline
11 shared_key     who has a key, its bucket         claims of runs that take keys, quotas of waiting
                                                    runs, dependency rings, forgetting keys
12 kept_key       what is kept of a key             the key keeper
13 reservation    a worker that is kept free        claims of runs that ask for resources
14 chain          whether it has runs               `Effects.conclude`
15 pool, tally,   sums                              `Effects.conclude`
   start_delay,
   meta
   binding        who has a role; last admins of    roles and principals: nothing else but projects
                  the installation                  (share), before; a worker's sessions after

- Whoever looks for *any* row skips those that are locked: it never waits, and needs no place here.
- Rows 14 and 15 are shared by all jobs, so they are locked once, at the end of a transaction.
- What has to be read to know which locks are needed is read again under them, and the script
  raises `LookAgain` if it has changed.

Where a script departs from this, a comment says why. `docs/decisions/0010-one-order-of-locks.md`
tells how this came about.

Statements
----------

The named statements are in `.sql` files, each beside the module that uses it.

A statement follows a line `-- name: NAME` and a line that says what it does. Parameters are
`:name`; `= ANY(:name)` takes a list. What PostgreSQL says differently is an annotation between
these lines and the statement, or, where that is not enough, a statement of the same name in
`postgres/`. `INDEXED BY` is for SQLite only. Annotations:

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

    -- rows: NAME, NAME, …
        names those of a `Columns`, in their order. SQLite is given all of them as one JSON
        array of rows: `value ->> 0` of `json_each(:rows)` is a value of the first. PostgreSQL's
        statement takes each as an array: `unnest(:a::text[], …)`. Arrays of numbers are cheaper as
        text that is cast (`:b::text::bigint[]`), as the driver would look at each number.

Written around a column, `coalesce` keeps it out of the access path: an index on what is few (ids,
what is not final) leads, never one that grows with history. A batch compares states of runs so.

PostgreSQL keeps the plans of what runs pass for a minute (`PINNED` in its driver), even one that
was made when the store was empty: keys must lead there whatever the tables hold (`test_plans.py`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any, Protocol, TypeAlias, TypeVar

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
class Together:
    """Changes of different tables that none of them reads: PostgreSQL gets them in one round trip.

    They lock rows in their order. The answer is empty.
    """

    changes: tuple[Many, ...]


@dataclass(frozen=True, slots=True)
class Columns:
    """One named statement about many rows, given in columns; its answer is the rows it returned.

    An empty column is NULL in every row. See `-- rows:` above.
    """

    name: str
    columns: Mapping[str, Sequence[Any]]
    parameters: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Change:
    """One named statement that changes a set of rows; its answer is empty.

    It must change exactly so many rows, or the script fails.
    """

    name: str
    parameters: Mapping[str, Any]
    rows: int


@dataclass(frozen=True, slots=True)
class Lock:
    """Rows to lock until the end of the transaction; its answer is empty.

    Locked by a statement of the dialect, `lock_NAME`. A store with one writer needs none.
    """

    name: str
    parameters: Mapping[str, Any]


class LookAgain(Exception):
    """Something that a script read before it had its locks has changed: it is to run once more."""


Step: TypeAlias = Query | Many | Columns | Change | Lock | Together
Script: TypeAlias = Generator[Step, Rows, T]
MakeScript: TypeAlias = Callable[[int], Script[T]]  # given the store's now, in microseconds


def query(name: str, /, **parameters: Any) -> Query:
    return Query(name, parameters)


def change(name: str, rows: int, /, **parameters: Any) -> Change:
    return Change(name, parameters, rows)


def lock(name: str, /, **parameters: Any) -> Lock:
    return Lock(name, parameters)


_NAME = re.compile(r"^-- name: (\w+)$")
_SUFFIX = re.compile(r"^-- postgres: (.+)$")
_MANY = re.compile(r"^-- many: (.+)$")
_ROWS = re.compile(r"^-- rows: (.+)$")
_PARAMETER = re.compile(r"(?<![:\w]):([a-z_]+)")
_INSERT = re.compile(r"(INSERT INTO \w+ \([^)]*\))\s+VALUES \(([^)]*)\)\s*(.*)", re.DOTALL)
_UPDATE = re.compile(r"UPDATE (\w+) SET (.*)\sWHERE (.*)", re.DOTALL)
_HINT = re.compile(r" INDEXED BY \w+")
_COMPARED = re.compile(r"(?:(?<=^)|(?<=\bAND ))(\w+)(?= (?:=|IN) )")


@dataclass(frozen=True, slots=True)
class Statement:
    name: str
    text: str  # with :parameters
    parameters: tuple[str, ...]  # in order of first appearance
    suffix: str = ""  # in PostgreSQL
    many: str = ""  # types of the parameters, if PostgreSQL takes many rows at once
    columns: tuple[str, ...] = ()  # of its parameter `rows`


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
    columns = tuple(filter(None, _noted(_ROWS, lines).split(", ")))
    return Statement(name, text, parameters, _noted(_SUFFIX, lines), _noted(_MANY, lines), columns)


def _noted(annotation: re.Pattern[str], lines: list[str]) -> str:
    """The text of all lines of an annotation."""
    return " ".join(match.group(1) for line in lines if (match := annotation.match(line)))


def expanded(statement: Statement) -> Statement:
    """A shared statement as PostgreSQL takes it."""
    text = _HINT.sub("", statement.text)
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


OnCommit: TypeAlias = Callable[[], None]


def no_effects() -> None:
    """For transactions that concern nobody else."""


class Urgency(IntEnum):
    """The order in which waiting transactions go: leases above all, people last."""

    RENEW = 0
    FIRE = 1
    GLANCE = 2  # who is that, what time is it: asked by the most urgent too
    CLAIM = 3
    FINISH = 4
    API = 5


class Driver(Protocol):
    """Runs scripts in transactions."""

    async def write(
        self, make: MakeScript[T], urgency: Urgency, on_commit: OnCommit = no_effects
    ) -> T:
        """Run a script in a transaction, and again if it lost against another one.

        Returns once it is durable. Cancelling the caller does not stop it. `on_commit` is called on
        the event loop, once, if it was committed, whether or not the caller still waits.
        """
        ...

    async def read(self, make: MakeScript[T], urgency: Urgency = Urgency.API) -> T: ...

    async def close(self) -> None: ...


class Ticker(Protocol):
    """A clock that a store can be given: microseconds since 1970, never going back."""

    def now(self) -> int: ...


@dataclass(frozen=True, slots=True)
class StoreInspection:
    """A look at a store without opening it as a server would: nothing is written."""

    place: str  # where it is, without secrets
    schema: int  # number of its latest migration; 0: it has none yet
    now: int | None  # its clock, in microseconds; None: it cannot say
    damage: str = ""  # "": it looks whole
    is_pooled: bool = False  # whether somebody stands between who may mix up connections
