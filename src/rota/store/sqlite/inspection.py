"""A look at a SQLite file that a server may have open."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from rota.domain.errors import NotFound
from rota.store.inspection import StoreInspection
from rota.store.sqlite.connection import translated


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
