"""A connection to the file, and its errors in Rota's words."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from rota.domain.errors import Conflict, RotaError, Unavailable

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
