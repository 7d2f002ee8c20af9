"""Runs scripts on SQLite: one writer thread with group commit, a few readers."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import re
import sqlite3
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from rota.adapters.store.queries import Statement, shared_statements
from rota.adapters.store.script import MakeScript, Many, Query, Row, Rows, Script
from rota.adapters.store.sqlite.clock import Ticker
from rota.adapters.store.store import Urgency
from rota.domain.errors import RotaError, StaleTransition, Unavailable

T = TypeVar("T")
_LIST = re.compile(r"= ANY\(:(\w+)\)")
_MAX_GROUP = 64  # scripts that share one commit
_READERS = 3
_BUSY_SECONDS = 10.0
_MARK_EVERY = 1_000_000  # microseconds between writes of the clock's high-water mark


@dataclass(order=True, slots=True)
class _Task:
    urgency: Urgency
    number: int
    make: MakeScript[Any] = field(compare=False)
    future: asyncio.Future[Any] = field(compare=False)


class _Prepared:
    """A statement in SQLite's words."""

    def __init__(self, statement: Statement) -> None:
        self.lists = frozenset(_LIST.findall(statement.text))
        self.text = _LIST.sub(r"IN (SELECT value FROM json_each(:\1))", statement.text)
        self.positional = re.sub(
            r"(?<![:\w]):([a-z_]+)",
            lambda match: f"?{statement.parameters.index(match.group(1)) + 1}",
            self.text,
        )

    def bind(self, query: Query) -> dict[str, Any]:
        values = dict(query.parameters)
        for name in self.lists:
            values[name] = msgspec.json.encode(list(values[name])).decode()
        return values


class SqliteDriver:
    """Owns the file's connections. Writes go through one thread, in order of urgency."""

    def __init__(self, path: Path, clock: Ticker) -> None:
        self._path = path
        self._clock = clock
        self._statements = {n: _Prepared(s) for n, s in shared_statements().items()}
        self._waiting: list[_Task] = []
        self._numbers = itertools.count()
        self._changed = threading.Condition()
        self._is_closed = False
        self._marked_at = 0
        self._loop = asyncio.get_running_loop()
        self._local = threading.local()
        self._readers = ThreadPoolExecutor(_READERS, "rota-store-reader")
        self._reader_connections: list[sqlite3.Connection] = []
        self._writer = threading.Thread(target=self._write_loop, name="rota-store-writer", daemon=True)
        self._writer.start()

    async def write(self, make: MakeScript[T], urgency: Urgency) -> T:
        """Run a script in a transaction and return once it is durable."""
        future: asyncio.Future[T] = self._loop.create_future()
        with self._changed:
            if self._is_closed:
                raise Unavailable("the store is closed")
            heapq.heappush(self._waiting, _Task(urgency, next(self._numbers), make, future))
            self._changed.notify()
        return await future

    async def read(self, make: MakeScript[T]) -> T:
        """Run a script that only reads, on a snapshot of its own."""
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
                return self._drive(connection, make(self._clock.now()))
            finally:
                connection.execute("ROLLBACK")
        except sqlite3.Error as error:
            raise translated(error) from error

    def _write_loop(self) -> None:
        connection = connect(self._path)
        while tasks := self._take():
            answers = self._commit(connection, tasks)
            with suppress(RuntimeError):  # the loop is gone: nobody waits any more
                self._loop.call_soon_threadsafe(_answer, tasks, answers)
        connection.close()

    def _take(self) -> list[_Task]:
        with self._changed:
            while not self._waiting and not self._is_closed:
                self._changed.wait()
            count = min(len(self._waiting), _MAX_GROUP)
            return [heapq.heappop(self._waiting) for _ in range(count)]

    def _commit(self, connection: sqlite3.Connection, tasks: Sequence[_Task]) -> list[Any]:
        try:
            connection.execute("BEGIN IMMEDIATE")
            now = self._clock.now()
            answers = [self._run(connection, task, now) for task in tasks]
            self._mark(connection, now)
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            with suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
            return [translated(error)] * len(tasks)
        return answers

    def _run(self, connection: sqlite3.Connection, task: _Task, now: int) -> Any:
        """One script inside the group; its failure undoes it alone."""
        connection.execute("SAVEPOINT script")
        try:
            answer = self._drive(connection, task.make(now))
        except sqlite3.OperationalError:
            raise  # disk full, I/O: the whole group is lost
        except Exception as error:
            connection.execute("ROLLBACK TO script")
            answer = translated(error) if isinstance(error, sqlite3.Error) else error
        connection.execute("RELEASE script")
        return answer

    def _mark(self, connection: sqlite3.Connection, now: int) -> None:
        if now - self._marked_at >= _MARK_EVERY:
            connection.execute(
                "INSERT OR REPLACE INTO meta (key, value) VALUES ('clock', ?)", (str(now),)
            )
            self._marked_at = now

    def _drive(self, connection: sqlite3.Connection, script: Script[T]) -> T:
        try:
            step = next(script)
            while True:
                step = script.send(self._execute(connection, step))
        except StopIteration as stop:
            answer: T = stop.value
            return answer

    def _execute(self, connection: sqlite3.Connection, step: Query | Many) -> Rows:
        prepared = self._statements[step.name]
        if isinstance(step, Query):
            rows: list[Row] = connection.execute(prepared.text, prepared.bind(step)).fetchall()
            return rows
        cursor = connection.executemany(prepared.positional, step.rows)
        if step.exactly and cursor.rowcount != len(step.rows):
            raise StaleTransition(f"{step.name}: {len(step.rows)} rows, {cursor.rowcount} changed")
        return ()


def _answer(tasks: Sequence[_Task], answers: Sequence[Any]) -> None:
    for task, answer in zip(tasks, answers, strict=True):
        if task.future.done():
            continue
        if isinstance(answer, BaseException):
            task.future.set_exception(answer)
        else:
            task.future.set_result(answer)


def connect(path: Path) -> sqlite3.Connection:
    """A connection with the settings every part relies on."""
    connection = sqlite3.connect(
        path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
    )
    connection.row_factory = sqlite3.Row
    for pragma in (
        "journal_mode = WAL",
        "synchronous = FULL",
        "temp_store = MEMORY",
        "cache_size = -16384",
        "wal_autocheckpoint = 4000",
    ):
        connection.execute(f"PRAGMA {pragma}")
    return connection


def translated(error: sqlite3.Error) -> RotaError:
    """A driver's exception in Rota's words."""
    if isinstance(error, sqlite3.OperationalError):
        return Unavailable(
            f"the store cannot be used: {error}",
            hint="check free space and permissions of the data folder (rota doctor)",
        )
    return Unavailable(f"the store refused a statement: {error}", code="store_error")


