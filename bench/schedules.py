"""A store with very many schedules, made without waiting for as many calls."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rota.blobs.files import open_files
from rota.domain.ids import JobId, micros, shard_of
from rota.domain.jobfile import read_file
from rota.domain.schedule import Timetable
from rota.operations import definitions, specs
from rota.operations.engine import Engine
from rota.ports.store import Store
from rota.queue.local import LocalIdleWorkers, LocalQueue
from rota.store.sqlite.opening import open_sqlite

_JOB_FILE = 'jobs: [{name: job, schedule: "*/5 * * * *", steps: [{run: [/bin/true]}]}]'
_SET = "bench"
FAR_AWAY = datetime(2100, 1, 1, tzinfo=UTC)  # no copy is due before
_MILLISECOND = 1_000  # in the store's microseconds
# What tells one copy of the job's rows from another, by table and column.
TABLES = {
    "job": {"id": "id", "name": "name", "shard": "shard"},
    "job_version": {"job_id": "id"},
    "schedule": {"job_id": "id", "next_at": "next_at", "shard": "shard"},
}


def job_id(number: int) -> JobId:
    """The id of one of the jobs that `fill` makes."""
    return JobId(f"j_{number:012}")


def timetable() -> Timetable:
    """The due times that all these jobs have."""
    [entry] = read_file(_JOB_FILE, name=_SET).jobs
    table = specs.timetable(entry.spec, FAR_AWAY)
    assert table is not None
    return table


async def fill(path: Path, count: int) -> None:
    """Make a store with so many jobs, each every five minutes, but not before `FAR_AWAY`.

    One is defined as any job is; the others are copies of its rows.
    """
    await _define(path)
    connection = sqlite3.connect(path)
    try:
        connection.execute("PRAGMA synchronous = OFF")
        for table, columns in TABLES.items():
            _copy(connection, table, columns, count)
        connection.commit()
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    finally:
        connection.close()


async def _define(path: Path) -> None:
    store = await open_sqlite(path)
    try:
        await define_one(store, path.parent / "blobs")
    finally:
        await store.close()


async def define_one(store: Store, blobs_folder: Path) -> None:
    """The job of which the others are copies."""
    async with await open_files(blobs_folder) as blobs:
        engine = Engine(store, LocalQueue(), blobs, LocalIdleWorkers())
        await definitions.apply(engine, read_file(_JOB_FILE, name=_SET), actor="bench")


def _copy(connection: sqlite3.Connection, table: str, columns: dict[str, str], count: int) -> None:
    found = connection.execute(f"SELECT * FROM {table}")  # noqa: S608 (a name of our own)
    names = [column[0] for column in found.description]
    original = dict(zip(names, found.fetchone(), strict=True))
    places = ", ".join(f":{name}" for name in names)
    insert = f"INSERT INTO {table} VALUES ({places})"  # noqa: S608 (names of our own)
    connection.execute(f"DELETE FROM {table}")  # noqa: S608 (a name of our own)
    connection.executemany(insert, copies(original, columns, count))


def copies(
    original: dict[str, Any], columns: dict[str, str], count: int
) -> Iterator[dict[str, Any]]:
    """A job's row in one of the `TABLES`, so many times, each for a job of its own."""
    far_away = micros(FAR_AWAY)
    for number in range(count):
        made: dict[str, object] = {
            "id": job_id(number),
            "name": f"job-{number}",
            "next_at": far_away + number * _MILLISECOND,
            "shard": shard_of(job_id(number)),
        }
        yield original | {column: made[kind] for column, kind in columns.items()}
