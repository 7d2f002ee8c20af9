"""What a member of one project costs the store, in an installation with a thousand others.

Lists, events and streams of a project read the same statements and the same rows as where there is
no other project.
"""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from pathlib import Path

import asyncpg
import pytest

from rota.domain.states import RunState
from rota.ports.carts import CartQuery
from rota.ports.records import JobQuery, RunQuery
from rota.ports.store import Store
from rota.store.postgres.opening import open_postgres
from testkit.builders import Scene
from testkit.clock import FakeTicker
from testkit.new_stores import open_new_sqlite
from testkit.servers.postgres import PostgresServer
from tests.budgets.counting import VM_STEPS, Counts, counted_postgres, counted_sqlite, rows_read
from tests.budgets.test_budgets import postgres_server as postgres_server

pytestmark = pytest.mark.anyio

PROJECT = "mine"
OTHERS, EACH = 1_000, 100  # projects, and jobs and runs of each
ACTIVE = [RunState.SCHEDULED, RunState.BLOCKED, RunState.QUEUED, RunState.PROCESSING]
QUEUED = RunQuery(project=PROJECT, states=[RunState.QUEUED], served={"default"})
ENDED = [RunState.COMPLETED, RunState.FAILED]

# A job, a run and an event of each number; every tenth run waits. What is between is of others.
ROWS = """
INSERT INTO job (id, project, name, version, shard, set_name, created_by, created_at, updated_at,
    enabled)
SELECT 'j_' || n, 'p' || (n % {projects}), 'job-' || n, 1, n % 256, 'file', 'user', n, n, 1
FROM {numbers};
INSERT INTO job_version (job_id, version, document, digest, rules, created_by, created_at)
SELECT 'j_' || n, 1, '{{}}', '', '{{}}', 'user', 1 FROM {numbers};
INSERT INTO schedule (job_id, shard, next_at, anchor, version)
SELECT 'j_' || n, n % 256, 9000000000000000, 0, 1 FROM {numbers};
INSERT INTO run (id, project, job_id, job, job_version, trigger, state, due_at, release_at,
    priority, pool, chain, shape, delivery, max_attempts, expected, created_by, created_at,
    ended_at)
SELECT 'r_' || n, 'p' || (n % {projects}), 'j_' || n, 'job-' || n, 1, 'manual',
    CASE WHEN n % 10 = 0 THEN 'QUEUED' ELSE 'COMPLETED' END, n, n, 5, 'default', 'default/5/x', '',
    'at_least_once', 1, 1.0, 'user', n, CASE WHEN n % 10 <> 0 THEN n END
FROM {numbers};
INSERT INTO cart (id, project, name, shard, document, rules, state, items, created_by, created_at,
    ended_at)
SELECT 'c_' || n, 'p' || (n % {projects}), 'cart-' || n, 1, '{{}}', '{{}}', 'COMPLETED', 1, 'user',
    n, n FROM {numbers};
INSERT INTO chain (id, pool, priority, share, tag, active)
SELECT 'far/5/p' || n, 'far', 5, 'p' || n, 0, 1 FROM {numbers};
"""
SQLITE_NUMBERS = """(WITH RECURSIVE number (n) AS (
    SELECT {first} UNION ALL SELECT n + 1 FROM number WHERE n < {last}) SELECT n FROM number)"""
POSTGRES_NUMBERS = "generate_series({first}, {last}) AS n"
SQLITE_EVENTS = """
INSERT INTO event (kind, at, actor, project, ids, data)
SELECT 'run.finished', n, 'w_1', 'p' || (n % {projects}), '["r_' || n || '"]', '{{}}'
FROM {numbers};
"""
POSTGRES_EVENTS = """
INSERT INTO event (seq, tick, kind, at, actor, project, ids, data)
SELECT (1 << 16) + nextval('event_number'), 1, 'run.finished', n, 'w_1', 'p' || (n % {projects}),
    '["r_' || n || '"]', '{{}}' FROM {numbers};
"""


async def _names(store: Store) -> object:
    """What the things are called that events are about."""
    events = await store.events(0, 10, projects=(PROJECT,))
    return await store.names([each for event in events for each in event.ids], projects=(PROJECT,))


async def _quiet(store: Store) -> object:
    """A look for what is new, where nothing of the project is."""
    events = await store.events(0, 10_000, projects=(PROJECT,))
    return await store.events(events[-1].seq, 500, projects=(PROJECT,))


Ask = Callable[[Store], Awaitable[object]]
LOOKS: Mapping[str, Ask] = {
    "jobs": lambda store: store.jobs(JobQuery(project=PROJECT)),
    "my jobs": lambda store: store.jobs(JobQuery(project=PROJECT, created_by="editor")),
    "runs": lambda store: store.runs(RunQuery(project=PROJECT)),
    "my runs": lambda store: store.runs(RunQuery(project=PROJECT, created_by="user")),
    "waiting runs": lambda store: store.runs(RunQuery(project=PROJECT, states=ACTIVE)),
    "queued runs": lambda store: store.runs(QUEUED),
    "ended runs": lambda store: store.runs(RunQuery(project=PROJECT, states=ENDED)),
    "carts": lambda store: store.carts(CartQuery(project=PROJECT)),
    "events": lambda store: store.events(0, 100, projects=(PROJECT,)),
    "a tail": lambda store: store.position_before_latest(20, projects=(PROJECT,)),
    "a stream that begins": lambda store: store.last_event(),
    "a quiet stream": _quiet,
    "names": _names,
}


def rows(numbers: str, events: str, first: int, last: int) -> str:
    """Statements that add what other projects have, one of everything for each number."""
    among = numbers.format(first=first, last=last)
    return (ROWS + events).format(projects=OTHERS, numbers=among)


async def fill(scene: Scene) -> None:
    """What the one project has."""
    job_ids = [await scene.job(f"job-{number}") for number in range(10)]
    for job_id in job_ids:
        await scene.trigger(job_id, 3)
    worker = await scene.worker(slots=15)
    works = await scene.claim(worker)
    await scene.finish(worker, works[:10])
    await scene.trigger(await scene.job("away", pool="far"))
    await scene.trigger(job_ids[0], at=scene.clock.instant + timedelta(hours=1))


async def cost_on_sqlite(
    others: int, folder: Path, patch: pytest.MonkeyPatch
) -> dict[str, tuple[int, int]]:
    """Statements and steps of each look, with so many jobs and runs of others before and after."""
    counts, clock = Counts(), FakeTicker()
    path, half = folder / "rota.db", others // 2
    with counted_sqlite(counts, patch):  # also those that are opened when they are needed
        store = await open_new_sqlite(path, clock=clock)
        try:
            await add_to_sqlite(path, 1, half)
            await fill(await Scene(store, clock).in_project(PROJECT))
            await add_to_sqlite(path, half + 1, others)
            return {name: await cost(look, store, counts) for name, look in LOOKS.items()}
        finally:
            await store.close()


async def add_to_sqlite(path: Path, first: int, last: int) -> None:
    if last < first:
        return
    with sqlite3.connect(path) as connection:
        connection.executescript(rows(SQLITE_NUMBERS, SQLITE_EVENTS, first, last))
    connection.close()


async def cost(look: Ask, store: Store, counts: Counts) -> tuple[int, int]:
    """The least of some calls: now and then a store has something to do beside them."""
    found = []
    for _ in range(5):
        counts.statements = counts.steps = 0
        with counts.counting():
            assert await look(store) is not None
        found.append((counts.statements, counts.steps))
    assert min(found) > (0, 0)
    return min(found)


async def test_a_member_reads_no_more_of_sqlite_beside_a_thousand_projects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "alone").mkdir()
    (tmp_path / "crowd").mkdir()

    alone = await cost_on_sqlite(0, tmp_path / "alone", monkeypatch)
    crowd = await cost_on_sqlite(OTHERS * EACH, tmp_path / "crowd", monkeypatch)

    sys.stdout.write(f"alone {alone}\ncrowd {crowd}\n")
    for name, (statements, steps) in crowd.items():
        assert statements == alone[name][0], name
        assert steps <= alone[name][1] + 2 * VM_STEPS, (name, steps, alone[name][1])


async def test_a_member_reads_no_more_of_postgres_beside_a_thousand_projects(
    postgres_server: PostgresServer,
) -> None:
    alone = await cost_on_postgres(0, postgres_server)
    crowd = await cost_on_postgres(OTHERS * EACH, postgres_server)

    sys.stdout.write(f"alone {alone}\ncrowd {crowd}\n")
    for name, (statements, read) in crowd.items():
        assert statements == alone[name][0], name
        # Beside many it goes by an index, whose entries count as rows; alone it reads the table.
        assert read <= 2 * alone[name][1] + 10, (name, read, alone[name][1])


async def cost_on_postgres(others: int, server: PostgresServer) -> dict[str, tuple[int, int]]:
    """Statements and rows read of each look; rows are told when a store is closed."""
    clock, half = FakeTicker(), others // 2
    database = await server.create()
    store = await open_postgres(server.address(database), clock=clock)
    try:
        await add_to_postgres(server, database, 1, half)
        await fill(await Scene(store, clock).in_project(PROJECT))
        await add_to_postgres(server, database, half + 1, others)
    finally:
        await store.close()
    found = {
        name: (
            await look_at_postgres(look, server, database),
            await read_by(look, server, database),
        )
        for name, look in LOOKS.items()
    }
    await server.drop(database)
    return found


async def add_to_postgres(server: PostgresServer, database: str, first: int, last: int) -> None:
    connection = await asyncpg.connect(server.address(database))
    try:
        if last >= first:
            await connection.execute(rows(POSTGRES_NUMBERS, POSTGRES_EVENTS, first, last))
        await connection.execute("ANALYZE")
    finally:
        await connection.close()


async def look_at_postgres(look: Ask, server: PostgresServer, database: str) -> int:
    counts = Counts()
    with counted_postgres(counts, server.port) as port:
        store = await open_postgres(server.address(database, port), clock=FakeTicker())
        try:
            await look(store)
            with counts.counting():
                await look(store)
        finally:
            await store.close()
    return counts.statements


async def read_by(look: Ask, server: PostgresServer, database: str) -> int:
    """Rows that a look reads, less those that opening a store does."""
    told = [await rows_read(server, database)]
    for looks in (0, 1):
        store = await open_postgres(server.address(database), clock=FakeTicker())
        try:
            for _ in range(looks):
                await look(store)
        finally:
            await store.close()
        told.append(await rows_read(server, database))
    opening, both = told[1] - told[0], told[2] - told[1]
    return both - opening
