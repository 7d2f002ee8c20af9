"""Runs scripts on PostgreSQL: one transaction each, side by side with those of other servers."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, TypeVar

import asyncpg
import msgspec

from rota.domain.errors import RotaError, StaleTransition, Unavailable
from rota.store.postgres.connections import (
    DRIVER_ERRORS,
    NOW,
    ClosedMeanwhile,
    Connection,
    Pools,
    application_name,
    begin,
    translated,
    undo,
)
from rota.store.script import (
    Change,
    Columns,
    Lock,
    LookAgain,
    MakeScript,
    Many,
    OnCommit,
    Query,
    Rows,
    Script,
    Statement,
    Step,
    Ticker,
    Together,
    Urgency,
    no_effects,
    statements_of,
)

T = TypeVar("T")
_LIST = re.compile(r"= ANY\(:(\w+)\)")
_LITERAL = re.compile(r":(\w+)::text::\w+\[\]")
_PARAMETER = re.compile(r"(?<![:\w]):([a-z_]+)")
_BOUND = re.compile(r"\$(\d+)")
_PLAIN_INSERT = re.compile(r"INSERT INTO (\w+) \(([\w\s,]+)\)\s+SELECT \* FROM unnest\([^()]*\)")
_MANY = 500  # rows that are copied into a table: that costs a third of arrays, and more to begin
_TRIES = 10
_PAUSE_SECONDS = 0.02
# All that a transaction needs is set with its beginning, in the same round trip. A server that is
# stopped in the middle of one must not hold its locks for ever. Keys lead, and lists are read from
# their end, whatever the statistics say: of tables where rows come and go they are always wrong.
_SETTINGS = """
    SET LOCAL jit = off;
    SET LOCAL enable_seqscan = off;
    SET LOCAL enable_hashjoin = off;
    SET LOCAL enable_mergejoin = off;
    SET LOCAL statement_timeout = '35s';
    SET LOCAL idle_in_transaction_session_timeout = '2s'
"""
BEGIN_WRITE = f"BEGIN ISOLATION LEVEL READ COMMITTED; {_SETTINGS}"
BEGIN_READ = f"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; {_SETTINGS}"
# To plan a statement for one run takes longer than to execute it, and left alone PostgreSQL plans
# most of them each time: it expects lists of ten, so that a plan for one looks cheaper. What people
# read and change has filters and comes rarely: it is planned for its values. A plan that is kept
# finds its rows by key, one by one: bitmaps would read the entries of dead rows again each time.
PINNED = "SET LOCAL plan_cache_mode = force_generic_plan; SET LOCAL enable_bitmapscan = off"
# Whoever waits for a lock keeps a connection from others. A renewal outlasts whoever may lock its
# session while waiting for a gate; people wait as long as for anything else.
_LOCK_TIMEOUTS = {
    Urgency.RENEW: "3s",
    Urgency.FIRE: "1s",
    Urgency.GLANCE: "1s",
    Urgency.CLAIM: "2s",
    Urgency.FINISH: "2s",
}
# Scripts take locks in one order. A deadlock is still possible where somebody works on the database
# by hand, or where the end of a run pauses its cart: then the whole script is run again.
_COME_AGAIN = (
    LookAgain,
    ClosedMeanwhile,
    asyncpg.DeadlockDetectedError,
    asyncpg.SerializationError,
    asyncpg.InvalidCachedStatementError,
)


class Prepared:
    """A statement in PostgreSQL's words, ready to be bound."""

    def __init__(self, statement: Statement) -> None:
        self.parameters = statement.parameters
        self.lists = frozenset(_LIST.findall(statement.text))
        self.literals = frozenset(_LITERAL.findall(statement.text))
        self.is_batch = "unnest(" in statement.text
        self.text = _PARAMETER.sub(
            lambda match: f"${statement.parameters.index(match.group(1)) + 1}", statement.text
        )
        self.target = _target(statement.text)

    def bind(self, parameters: Mapping[str, Any]) -> list[Any]:
        return [self._bound(name, parameters[name]) for name in self.parameters]

    def _bound(self, name: str, value: Any) -> Any:
        if name in self.literals:
            return _literal(value)
        return list(value) if name in self.lists else value


def _literal(numbers: Iterable[int]) -> str:
    """An array of numbers as text, as the driver asks each number of an array what it is."""
    return f"{{{msgspec.json.encode(list(numbers)).decode()[1:-1]}}}"


def _target(text: str) -> tuple[str, list[str]] | None:
    """Table and columns of a statement that inserts its rows as they are; None: of any other."""
    match = _PLAIN_INSERT.fullmatch(text.strip().rstrip(";"))
    return (match[1], re.findall(r"\w+", match[2])) if match else None


@cache
def _prepared_statements() -> Mapping[str, Prepared]:
    statements = statements_of("postgres")
    return {name: Prepared(statement) for name, statement in statements.items()}


class PostgresDriver:
    """Runs each script as one transaction, and once more if it lost against another."""

    def __init__(self, pools: Pools, clock: Ticker | None) -> None:
        self._pools = pools
        self._clock = clock
        self._statements = dict(_prepared_statements())
        self._is_closed = False
        self._writes: set[asyncio.Task[Any]] = set()  # those under way
        self._settings = ""

    def act_for(self, server: str) -> None:
        """Let others see whose transactions these are, from now on."""
        name = application_name(server).replace("'", "''")
        self._settings = f"; SET LOCAL application_name = '{name}'"

    async def write(
        self, make: MakeScript[T], urgency: Urgency, on_commit: OnCommit = no_effects
    ) -> T:
        """Run a script in a transaction and return once it is durable.

        In a task of its own: whoever is cancelled during a COMMIT could not know whether that
        happened, and nobody would be notified of it.
        """
        write = self._run(make, urgency, _begin_write(urgency), on_commit)
        task = asyncio.create_task(write)
        self._writes.add(task)
        task.add_done_callback(self._writes.discard)
        return await asyncio.shield(task)

    async def read(self, make: MakeScript[T], urgency: Urgency = Urgency.API) -> T:
        """Run a script that only reads, on a snapshot of its own."""
        return await self._run(make, urgency, BEGIN_READ)

    async def close(self) -> None:
        self._is_closed = True
        while self._writes:
            await asyncio.wait(self._writes)
        await self._pools.close()

    async def _run(
        self,
        make: MakeScript[T],
        urgency: Urgency,
        opening: str,
        on_commit: OnCommit = no_effects,
    ) -> T:
        collided = False
        for tries in range(1, _TRIES + 1):
            try:
                answer = await self._once(make, urgency, opening)
            except _COME_AGAIN as error:
                if tries == _TRIES:
                    raise _given_up(error) from error
                await _pause(tries)
            except asyncpg.UniqueViolationError as error:
                if collided or tries == _TRIES:
                    raise translated(error) from error
                collided = True  # the second look sees what the other has written
            except DRIVER_ERRORS as error:
                raise translated(error) from error
            else:
                on_commit()
                return answer
        raise AssertionError("unreachable")

    async def _once(self, make: MakeScript[T], urgency: Urgency, opening: str) -> T:
        if self._is_closed:
            raise Unavailable("the store is closed")
        async with self._pools.connection(urgency) as connection:
            try:
                await begin(connection, opening + self._settings)
                answer = await self._drive(connection, make(await self._now(connection)))
                await connection.execute("COMMIT")
            except BaseException:
                await undo(connection)
                raise
            return answer

    async def _now(self, connection: Connection) -> int:
        if self._clock is not None:
            return self._clock.now()
        now: int = await connection.fetchval(NOW)
        return now

    async def _drive(self, connection: Connection, script: Script[T]) -> T:
        try:
            step = next(script)
            while True:
                try:
                    rows = await self._execute(connection, step)
                except StaleTransition as error:
                    step = script.throw(error)
                else:
                    step = script.send(rows)
        except StopIteration as stop:
            answer: T = stop.value
            return answer

    async def _execute(self, connection: Connection, step: Step) -> Rows:
        match step:
            case Query():
                prepared = self._statements[step.name]
                rows: list[Any] = await connection.fetch(
                    prepared.text, *prepared.bind(step.parameters)
                )
                return rows
            case Columns():
                prepared = self._statements[step.name]
                values = {**step.columns, **step.parameters}
                found: list[Any] = await connection.fetch(prepared.text, *prepared.bind(values))
                return found
            case Lock():
                prepared = self._statements[f"lock_{step.name}"]
                await connection.execute(prepared.text, *prepared.bind(step.parameters))
            case Change():
                prepared = self._statements[step.name]
                tag = await connection.execute(prepared.text, *prepared.bind(step.parameters))
                _expect(step.name, step.rows, _count(tag))
            case Together():
                await self._change_together(connection, step.changes)
            case Many():
                changed = await self._change(connection, step)
                if step.exactly:
                    _expect(step.name, len(step.rows), changed)
        return ()

    async def _change_together(self, connection: Connection, changes: Sequence[Many]) -> None:
        """Make several changes in one statement: a round trip costs more than most of them."""
        values = [column for change in changes for column in zip(*change.rows, strict=True)]
        text = _joined(tuple(self._statements[change.name].text for change in changes))
        [counts] = await connection.fetch(text, *values)
        for change, changed in zip(changes, counts, strict=True):
            if change.exactly:
                _expect(change.name, len(change.rows), changed)

    async def _change(self, connection: Connection, step: Many) -> int:
        prepared = self._statements[step.name]
        if prepared.target and len(step.rows) >= _MANY:
            table, columns = prepared.target
            copy = connection.copy_records_to_table
            return _count(await copy(table, columns=columns, records=step.rows))
        if prepared.is_batch and step.rows:
            return _count(await connection.execute(prepared.text, *zip(*step.rows, strict=True)))
        return sum([_count(await connection.execute(prepared.text, *row)) for row in step.rows])


@cache
def _joined(texts: tuple[str, ...]) -> str:
    """One statement that makes several changes, in their order, and counts the rows of each."""
    parts: list[str] = []
    bound = 0
    for number, text in enumerate(texts):
        moved = _moved(text.rstrip().rstrip(";"), bound)
        parts.append(f"change_{number} AS ({moved} RETURNING 1)")
        bound += max(map(int, _BOUND.findall(text)))
    # Read in this order, and so made in this order: the order of locks depends on it.
    counts = [f"(SELECT count(*) FROM change_{n})" for n in range(len(texts))]  # noqa: S608
    return f"WITH {', '.join(parts)} SELECT {', '.join(counts)}"


def _moved(text: str, by: int) -> str:
    """A statement whose parameters come after others."""
    return _BOUND.sub(lambda match: f"${int(match[1]) + by}", text)


def _given_up(error: Exception) -> RotaError:
    if isinstance(error, ClosedMeanwhile):
        return translated(error)
    return Unavailable(f"others were quicker {_TRIES} times: {error}", hint="try again")


def _begin_write(urgency: Urgency) -> str:
    if urgency is Urgency.API:
        return BEGIN_WRITE
    return f"{BEGIN_WRITE}; {PINNED}; SET LOCAL lock_timeout = '{_LOCK_TIMEOUTS[urgency]}'"


def _expect(name: str, rows: int, changed: int) -> None:
    if changed != rows:
        raise StaleTransition(f"{name}: {rows} rows, {changed} changed")


def _count(tag: str) -> int:
    """How many rows a statement changed, by the last word of its answer."""
    return int(tag.rsplit(" ", 1)[-1])


async def _pause(tries: int) -> None:
    seconds = random.uniform(0, _PAUSE_SECONDS * tries)  # noqa: S311 - so that two part ways
    await asyncio.sleep(seconds)  # noqa: TID251 - milliseconds, which nobody's clock has to know
