"""Opening the file: lock, migrations, clock; and a look at one that a server may have open."""

from __future__ import annotations

import fcntl
import os
import sqlite3
import time
from contextlib import ExitStack, closing
from importlib import resources
from pathlib import Path

from rota.domain.errors import Conflict, NotFound, Unavailable
from rota.store.script import StoreInspection, Ticker
from rota.store.sqlite.driver import SqliteDriver, connect, translated
from rota.store.store import SqlStore

_MIGRATIONS = resources.files("rota.store.sqlite").joinpath("migrations")


class SqliteStore(SqlStore):
    """A store in one file; with `exclusive`, this process is the only server on it."""

    def __init__(self, driver: SqliteDriver, lock: int | None) -> None:
        super().__init__(driver)
        self._lock = lock

    async def close(self) -> None:
        await super().close()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


async def open_sqlite(
    path: Path, *, exclusive: bool = True, clock: Ticker | None = None
) -> SqliteStore:
    """Open or create the store. `Conflict` if another server has it, `Unavailable` if it cannot."""
    with ExitStack() as undo:
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            lock = _lock(path) if exclusive else None
            if lock is not None:
                undo.callback(os.close, lock)
            mark = _prepare(path)
            store = SqliteStore(SqliteDriver(path, clock or FileClock(mark)), lock)
        except OSError as error:
            raise Unavailable(
                f"the data folder {path.parent} cannot be used: {error.strerror or error}",
                hint="make it writable, free some space, or set ROTA_HOME to another folder",
            ) from error
        except sqlite3.Error as error:
            raise translated(error) from error
        undo.pop_all()
    return store


def _lock(path: Path) -> int:
    descriptor = os.open(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        owner = os.pread(descriptor, 32, 0).decode(errors="replace").strip()
        os.close(descriptor)
        raise Conflict(
            f"another rota server (pid {owner or 'unknown'}) already uses {path.parent}",
            code="already_running",
            hint="stop it first, or set ROTA_HOME to another folder",
        ) from error
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, str(os.getpid()).encode(), 0)
    return descriptor


def _prepare(path: Path) -> int:
    """Bring the schema up to date; returns the clock's high-water mark in microseconds."""
    # SQLite would create it as the umask allows, and gives its log the mode of the file.
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    connection = connect(path)
    try:
        migrate(connection)
        row = connection.execute("SELECT value FROM meta WHERE key = 'clock'").fetchone()
        return int(row["value"]) if row else 0
    finally:
        connection.close()


def migrate(connection: sqlite3.Connection) -> None:
    """Apply the migrations that are missing, each whole or not at all."""
    migrations = {int(file.name.split("_")[0]): file for file in _MIGRATIONS.iterdir()}
    _refuse_newer(connection, max(migrations))
    for number, file in sorted(migrations.items()):
        connection.execute("BEGIN IMMEDIATE")
        # Read under the lock: another process may have migrated while this one waited.
        if _version(connection) < number:
            for statement in _statements(file.read_text("utf-8")):
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {number}")
        connection.execute("COMMIT")


def _version(connection: sqlite3.Connection) -> int:
    [version] = connection.execute("PRAGMA user_version").fetchone()
    return int(version)


def _refuse_newer(connection: sqlite3.Connection, newest: int) -> None:
    version = _version(connection)
    if version > newest:
        raise Conflict(
            f"the store was made by a newer Rota (schema {version}, this one knows {newest})",
            code="store_is_newer",
            hint="upgrade Rota",
        )


def _statements(text: str) -> list[str]:
    # Not left to `executescript`: it commits before it begins, and half a migration could stay.
    code = "\n".join(line.split("--")[0] for line in text.splitlines())
    return [statement for statement in code.split(";") if statement.strip()]


class FileClock:
    """Monotonic time over a stored high-water mark.

    A step of the wall clock while the store is open changes nothing; a wall clock that is behind
    the mark when the store is opened is not believed. So no due time is ever met twice.
    """

    def __init__(self, mark: int) -> None:
        wall = time.time_ns() // 1000  # noqa: TID251 - where the store's own clock comes from
        self._base = max(wall, mark)
        self._started = _boottime()

    def now(self) -> int:
        return self._base + _boottime() - self._started


def _boottime() -> int:
    # Counts on while the machine is suspended, unlike CLOCK_MONOTONIC.
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000


def inspect_sqlite(path: Path) -> StoreInspection:
    """`NotFound` where there is none yet, `Unavailable` where it cannot be read."""
    if not path.exists():
        raise NotFound(f"{path} is not created yet", code="no_store")
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as reading:
            [result] = reading.execute("PRAGMA quick_check").fetchone()
            [schema] = reading.execute("PRAGMA user_version").fetchone()
            mark = reading.execute("SELECT value FROM meta WHERE key = 'clock'").fetchone()
    except sqlite3.Error as error:
        raise translated(error) from error
    damage = "" if result == "ok" else str(result)
    return StoreInspection(str(path), int(schema), int(mark[0]) if mark else None, damage)
