"""A due time cannot have two runs, whatever the code above the tables does."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import asyncpg
import pytest

from rota.store.sqlite.opening import open_sqlite
from rota.store.store import SqlStore
from testkit.builders import Scene
from testkit.clock import FakeTicker
from tests.conformance.store.rivals import Rival

pytestmark = pytest.mark.anyio

COLUMNS = """id, project, job_id, job, job_version, trigger, state, due_at, release_at, priority,
    pool, chain, shape, delivery, max_attempts, expected, created_by, created_at"""
AGAIN = f"INSERT INTO run ({COLUMNS}) SELECT {COLUMNS} FROM run"


async def fire_once(scene: Scene) -> None:
    job_id = await scene.job(next_at=scene.clock.instant)
    await scene.fire(job_id)


async def test_sqlite_refuses_the_id_of_a_run_twice(tmp_path: Path, clock: FakeTicker) -> None:
    path = tmp_path / "rota.db"
    store = await open_sqlite(path, clock=clock)
    await fire_once(Scene(store, clock))
    await store.close()

    with closing(sqlite3.connect(path)) as database:
        assert database.execute("SELECT count(*) FROM run").fetchone() == (1,)
        with pytest.raises(sqlite3.IntegrityError, match=r"UNIQUE.*run\.id"):
            database.execute(AGAIN)


async def test_postgres_refuses_the_id_of_a_run_twice(
    postgres_store: SqlStore, clock: FakeTicker, rival: Rival
) -> None:
    await fire_once(Scene(postgres_store, clock))

    with pytest.raises(asyncpg.UniqueViolationError, match="run_id"):
        await rival.execute(AGAIN)
