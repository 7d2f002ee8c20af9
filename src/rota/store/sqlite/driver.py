"""Runs scripts on SQLite: one writer thread with group commit, a few readers.

Tests in virtual time use a driver without threads instead, on one connection.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import re
import sqlite3
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from rota.domain.errors import Conflict, RotaError, StaleTransition, Unavailable
from rota.store.script import (
    Change,
    Columns,
    Lock,
    MakeScript,
    OnCommit,
    Query,
    Row,
    Rows,
    Script,
    Statement,
    Step,
    Ticker,
    Together,
    Urgency,
    no_effects,
    shared_statements,
)

T = TypeVar("T")

OLDEST_SQLITE = (3, 38, 0)  # the first with the operator ->>
_BUSY_SECONDS = 10.0
_STATEMENTS = 500  # that stay compiled: all of them
_PRAGMAS = (
    "journal_mode = WAL",
    "synchronous = FULL",  # what is acknowledged survives a power cut
    "temp_store = MEMORY",
    "cache_size = -16384",
    "wal_autocheckpoint = 4000",
)
_DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)

_LIST = re.compile(r"= ANY\(:(\w+)\)")
_PARAMETER = re.compile(r"(?<![:\w]):([a-z_]+)")
_MAX_GROUP = 64  # scripts that share one commit
_GROUP_SECONDS = 0.02  # after this a group takes no more: who comes next waits for its commit
_READERS = 3
_MARK_EVERY = 1_000_000  # microseconds between writes of the clock's high-water mark


def connect(path: Path) -> sqlite3.Connection:
    """A connection with the settings every part relies on."""
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        raise Unavailable(
            f"SQLite {sqlite3.sqlite_version} is too old",
            code="sqlite_too_old",
            hint="use a Python built with SQLite 3.38 or later",
        )
    connection = sqlite3.connect(
        path,
        timeout=_BUSY_SECONDS,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=_STATEMENTS,
    )
    connection.row_factory = sqlite3.Row
    try:
        for pragma in _PRAGMAS:
            connection.execute(f"PRAGMA {pragma}")
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def translated(error: sqlite3.Error) -> RotaError:
    """A driver's exception as one of Rota's, which says what to do."""
    if isinstance(error, sqlite3.IntegrityError):
        return Conflict(f"the store has it already: {error}", code="already_exists")
    if getattr(error, "sqlite_errorcode", 0) & 0xFF in _DAMAGE:
        return Unavailable(
            f"the store's file is damaged: {error}",
            code="store_damaged",
            hint="restore it from a backup, or set ROTA_HOME to another folder",
        )
    return Unavailable(
        f"the store cannot be used: {error}",
        hint="check free space and permissions of the data folder (rota doctor)",
    )


@dataclass(order=True, slots=True)
class _Task:
    urgency: Urgency
    number: int
    make: MakeScript[Any] = field(compare=False)
    future: asyncio.Future[Any] = field(compare=False)
    on_commit: OnCommit = field(compare=False)


def in_sqlite(statement: Statement) -> str:
    """A statement in SQLite's words: a list travels as a JSON array."""
    return _LIST.sub(r"IN (SELECT value FROM json_each(:\1))", statement.text)


def in_sqlite_for_one(statement: Statement) -> str:
    """A statement where each list has one value, which takes half the time."""
    return _LIST.sub(r"= :\1", statement.text)


class _Prepared:
    """A statement, ready to be bound."""

    def __init__(self, statement: Statement) -> None:
        self._lists = frozenset(_LIST.findall(statement.text))
        self._columns = statement.columns
        self.text = in_sqlite(statement)
        self._for_one = in_sqlite_for_one(statement)
        self.positional = _PARAMETER.sub(
            lambda match: f"?{statement.parameters.index(match.group(1)) + 1}", self.text
        )

    def bind(self, query: Query | Change) -> tuple[str, Mapping[str, Any]]:
        """The text to execute, and its values."""
        if not self._lists:
            return self.text, query.parameters
        lists = {name: list(query.parameters[name]) for name in self._lists}
        if all(len(values) == 1 for values in lists.values()):
            return self._for_one, {**query.parameters, **{k: v[0] for k, v in lists.items()}}
        encoded = {name: msgspec.json.encode(values).decode() for name, values in lists.items()}
        return self.text, {**query.parameters, **encoded}

    def with_rows(self, step: Columns) -> Mapping[str, Any]:
        """The values of a step, its columns as rows."""
        columns = [step.columns[name] or itertools.repeat(None) for name in self._columns]
        rows = msgspec.json.encode(list(zip(*columns, strict=False))).decode()
        return {**step.parameters, "rows": rows}


@cache
def _prepared_statements() -> Mapping[str, _Prepared]:
    return {name: _Prepared(statement) for name, statement in shared_statements().items()}


def _drive(connection: sqlite3.Connection, script: Script[T]) -> T:
    """Execute the statements of a script one after another; returns what it returns."""
    try:
        step = next(script)
        while True:
            try:
                rows = _execute(connection, step)
            except StaleTransition as error:
                # Raised inside the script, which may know better what to tell its caller.
                step = script.throw(error)
            else:
                step = script.send(rows)
    except StopIteration as stop:
        answer: T = stop.value
        return answer


def _execute(connection: sqlite3.Connection, step: Step) -> Rows:
    if isinstance(step, Lock):
        return ()  # there is no other writer
    if isinstance(step, Together):
        for each in step.changes:
            _execute(connection, each)
        return ()
    prepared = _prepared_statements()[step.name]
    if isinstance(step, Query):
        rows: list[Row] = connection.execute(*prepared.bind(step)).fetchall()
        return rows
    if isinstance(step, Columns):
        return connection.execute(prepared.text, prepared.with_rows(step)).fetchall()
    if isinstance(step, Change):
        changed = connection.execute(*prepared.bind(step)).rowcount
        _expect(step.name, step.rows, changed)
        return ()
    cursor = connection.executemany(prepared.positional, step.rows)
    if step.exactly:
        _expect(step.name, len(step.rows), cursor.rowcount)
    return ()


def _expect(name: str, rows: int, changed: int) -> None:
    if changed != rows:
        raise StaleTransition(f"{name}: {rows} rows, {changed} changed")


class SqliteDriver:
    """Owns the file's connections. Writes go through one thread, in order of urgency."""

    def __init__(self, path: Path, clock: Ticker) -> None:
        self._path = path
        self._clock = clock
        self._waiting: list[_Task] = []
        self._numbers = itertools.count()
        self._changed = threading.Condition()
        self._is_closed = False
        self._marked_at = 0
        self._loop = asyncio.get_running_loop()
        self._local = threading.local()
        self._readers = ThreadPoolExecutor(_READERS, "rota-store-reader")
        self._reader_connections: list[sqlite3.Connection] = []
        self._connection = connect(path)
        self._writer = threading.Thread(
            target=self._write_loop, name="rota-store-writer", daemon=True
        )
        self._writer.start()

    async def write(
        self, make: MakeScript[T], urgency: Urgency, on_commit: OnCommit = no_effects
    ) -> T:
        """Run a script in a transaction and return once it is durable."""
        future: asyncio.Future[T] = self._loop.create_future()
        with self._changed:
            if self._is_closed:
                raise Unavailable("the store is closed")
            heapq.heappush(
                self._waiting, _Task(urgency, next(self._numbers), make, future, on_commit)
            )
            self._changed.notify()
        return await future

    async def read(self, make: MakeScript[T], urgency: Urgency = Urgency.API) -> T:
        """Run a script that only reads, on a snapshot of its own; there is no need to queue."""
        if self._is_closed:
            raise Unavailable("the store is closed")
        return await self._loop.run_in_executor(self._readers, self._read, make)

    async def close(self) -> None:
        """Finish what was handed in, then stop."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        await self._loop.run_in_executor(None, self._writer.join)
        self._readers.shutdown(wait=True)
        for connection in self._reader_connections:
            connection.close()

    def _read(self, make: MakeScript[T]) -> T:
        connection: sqlite3.Connection | None = getattr(self._local, "connection", None)
        try:
            if connection is None:
                connection = connect(self._path)
                connection.execute("PRAGMA query_only = ON")
                self._local.connection = connection
                self._reader_connections.append(connection)
            connection.execute("BEGIN")
            try:
                return _drive(connection, make(self._clock.now()))
            finally:
                connection.execute("ROLLBACK")
        except sqlite3.Error as error:
            raise translated(error) from error

    def _write_loop(self) -> None:
        try:
            while self._wait_for_work():
                self._tell(*self._commit_group())
        finally:
            self._is_closed = True
            rest = list(iter(self._next_task, None))
            self._tell(rest, [Unavailable("the store is closed")] * len(rest))
            self._connection.close()

    def _tell(self, tasks: Sequence[_Task], answers: Sequence[Any]) -> None:
        with suppress(RuntimeError):  # the loop is gone: nobody waits any more
            self._loop.call_soon_threadsafe(_answer, tasks, answers)

    def _wait_for_work(self) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._is_closed)
            return bool(self._waiting)

    def _next_task(self, least: Urgency = Urgency.API) -> _Task | None:
        """The most urgent of those that are at least so urgent."""
        with self._changed:
            is_there = self._waiting and self._waiting[0].urgency <= least
            return heapq.heappop(self._waiting) if is_there else None

    def _commit_group(self) -> tuple[list[_Task], list[Any]]:
        """Run what waits, most urgent first, and commit it together.

        Only time is kept apart: what is due does not wait until what can wait is done as well.
        """
        tasks: list[_Task] = []
        answers: list[Any] = []
        full_at = time.monotonic() + _GROUP_SECONDS
        least = Urgency.API
        try:
            # IMMEDIATE, as a transaction that first reads and then writes fails, whatever the busy
            # timeout, if another process has written in between.
            self._connection.execute("BEGIN IMMEDIATE")
            while len(tasks) < _MAX_GROUP and (task := self._next_task(least)):
                tasks.append(task)
                answers.append(self._run(task))
                if task.urgency <= Urgency.FIRE:
                    least = Urgency.FIRE
                if time.monotonic() > full_at:
                    break
            self._mark()
            self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            with suppress(sqlite3.Error):
                self._connection.execute("ROLLBACK")
            with suppress(sqlite3.Error):  # a full disk may have room again without the log
                self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            # BEGIN itself failed: somebody has to be told, or this would go round in silence.
            if not tasks and (task := self._next_task()):
                tasks.append(task)
            answers = [translated(error)] * len(tasks)
        return tasks, answers

    def _run(self, task: _Task) -> Any:
        """One script inside the group; its failure undoes it alone."""
        connection = self._connection
        connection.execute("SAVEPOINT script")
        try:
            answer = _drive(connection, task.make(self._clock.now()))
        except Exception as error:
            if not connection.in_transaction:
                raise  # disk full, I/O: SQLite has undone the whole group
            connection.execute("ROLLBACK TO script")
            answer = translated(error) if isinstance(error, sqlite3.Error) else error
        connection.execute("RELEASE script")
        return answer

    def _mark(self) -> None:
        now = self._clock.now()
        if now - self._marked_at >= _MARK_EVERY:
            mark = _prepared_statements()["set_meta"].positional
            self._connection.execute(mark, ("clock", str(now)))
            self._marked_at = now


def _answer(tasks: Sequence[_Task], answers: Sequence[Any]) -> None:
    for task, answer in zip(tasks, answers, strict=True):
        is_waited_for = not task.future.done()  # its caller may have been cancelled
        if isinstance(answer, BaseException):
            if is_waited_for:
                task.future.set_exception(answer)
            continue
        # Before the caller goes on, and also if there is none any more: the commit has happened.
        task.on_commit()
        if is_waited_for:
            task.future.set_result(answer)


class InlineSqliteDriver:
    """Runs each script at once in the task that asks, on one connection: no threads, no queue.

    For tests in virtual time, where several stores share it. Nothing is durable that the caller
    does not commit: a script is a savepoint, so that it may be part of a transaction of the caller.
    """

    def __init__(self, connection: sqlite3.Connection, clock: Ticker) -> None:
        self._connection = connection
        self._clock = clock
        self._is_closed = False

    async def write(
        self, make: MakeScript[T], urgency: Urgency, on_commit: OnCommit = no_effects
    ) -> T:
        """Run a script whole or not at all."""
        self._refuse_if_closed()
        connection = self._connection
        connection.execute("SAVEPOINT script")
        try:
            answer = self._drive(make)
        except BaseException:
            connection.execute("ROLLBACK TO script")
            raise
        finally:
            connection.execute("RELEASE script")
        on_commit()
        return answer

    async def read(self, make: MakeScript[T], urgency: Urgency = Urgency.API) -> T:
        """Run a script that only reads."""
        self._refuse_if_closed()
        before = self._connection.total_changes
        answer = self._drive(make)
        # Cheaper than `query_only`, which would be switched on and off for each read.
        assert self._connection.total_changes == before, "a script that must only read has written"
        return answer

    async def close(self) -> None:
        """Take nothing more. The connection is the caller's."""
        self._is_closed = True

    def _refuse_if_closed(self) -> None:
        if self._is_closed:
            raise Unavailable("the store is closed")

    def _drive(self, make: MakeScript[T]) -> T:
        try:
            return _drive(self._connection, make(self._clock.now()))
        except sqlite3.Error as error:
            raise translated(error) from error
