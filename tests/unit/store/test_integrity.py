"""`rota doctor` believes `PRAGMA quick_check`, so that must believe a healthy store.

SQLite misreads a NOT NULL column that stands between the key columns of a WITHOUT ROWID table.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from rota.store.sqlite.opening import open_sqlite

pytestmark = pytest.mark.anyio

_VALUES = {"TEXT": "x", "INTEGER": 1_000, "REAL": 0.5, "BLOB": b"x"}


def fill(connection: sqlite3.Connection, table: str) -> None:
    columns = connection.execute(f"PRAGMA table_info({table})").fetchall()
    values = [_VALUES[kind] for _, _, kind, *_ in columns]
    marks = ", ".join("?" * len(values))
    connection.execute(f"INSERT INTO {table} VALUES ({marks})", values)


async def test_a_store_with_a_row_in_every_table_passes_its_check(tmp_path: Path) -> None:
    path = tmp_path / "rota.db"
    await (await open_sqlite(path)).close()

    with closing(sqlite3.connect(path)) as connection:
        found = connection.execute(
            "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
        )
        tables = [name for (name,) in found]
        for table in tables:
            fill(connection, table)
        connection.commit()
        verdict = connection.execute("PRAGMA quick_check").fetchall()

    assert len(tables) > 15
    assert verdict == [("ok",)]
