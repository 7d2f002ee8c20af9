"""Firing on PostgreSQL: among very many schedules, and by four servers at one instant."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta

import pytest

from rota.domain.ids import SHARD_COUNT, JobId, ServerId, micros
from rota.ports.records import DueSchedule, Firing, JobQuery, Ownership, PlannedRun
from rota.store.postgres.opening import PostgresStore, open_postgres
from testkit.builders import ALL_SHARDS, MINUTE, Scene, new_job, new_server
from testkit.clock import FakeTicker
from testkit.servers.postgres import PostgresServer
from tests.meter import Meter

pytestmark = pytest.mark.anyio
JOBS = 2_000
SAVED_AT_ONCE = 500
FIRED_AT_ONCE = 50
SERVERS = 4
SLOTS = 50
SECOND = timedelta(seconds=1)
DEADLOCKS = "SELECT deadlocks FROM pg_stat_database WHERE datname = '{}'"
CONNECTED = "SELECT FROM pg_stat_activity WHERE datname = '{}'"


@pytest.fixture
async def stores(
    postgres_server: PostgresServer, database: str, clock: FakeTicker
) -> AsyncIterator[list[PostgresStore]]:
    """One of each server."""
    async with AsyncExitStack() as opened:
        made: list[PostgresStore] = []
        for _ in range(SERVERS):
            made.append(await open_postgres(postgres_server.address(database), clock=clock))
            opened.push_async_callback(made[-1].close)
        yield made


async def save_jobs(scene: Scene) -> None:
    now = scene.clock.instant
    for first in range(0, JOBS, SAVED_AT_ONCE):
        names = [f"job-{number}" for number in range(first, first + SAVED_AT_ONCE)]
        jobs = [new_job(name, now, next_at=now + MINUTE) for name in names]
        await scene.store.save_jobs(jobs, removed=(), actor="editor")


async def share_shards(stores: list[PostgresStore]) -> list[Ownership]:
    """Who comes later gets some of those who came before, once they have given them up."""
    names = [ServerId(f"s_{number}") for number in range(SERVERS)]
    for name, store in zip(names, stores, strict=True):
        await store.join(new_server(name))
    held: list[Ownership] = []
    for _ in range(2):
        held = [
            Ownership(name, (await store.keep_shards(name, stopping=False)).shards)
            for name, store in zip(names, stores, strict=True)
        ]
    assert sum(len(each.epochs) for each in held) == SHARD_COUNT
    return held


async def fire_all(scene: Scene, ownership: Ownership) -> list[JobId]:
    """Everything that is due, as one server; what a busy gate held up comes with the next look."""
    store, soon = scene.store, scene.clock.instant + SECOND
    fired: list[JobId] = []
    while due := await store.due_schedules(soon, JOBS, list(ownership.epochs)):
        for first in range(0, len(due), FIRED_AT_ONCE):
            firings = [as_firing(each) for each in due[first : first + FIRED_AT_ONCE]]
            fired.extend((await store.fire(firings, ownership)).accepted)
    return fired


def as_firing(due: DueSchedule) -> Firing:
    return Firing(
        job_id=due.job_id,
        shard=due.shard,
        job_version=due.job_version,
        schedule_version=due.schedule_version,
        claimed_next_at=due.next_at,
        runs=[PlannedRun(due.next_at, due.next_at)],
        answered=(),
        next_at=due.next_at + MINUTE,
    )


async def work(scene: Scene, name: str, firing: asyncio.Task[list[list[JobId]]]) -> list[str]:
    """Take and end runs until there are no more to come: their ids."""
    worker = await scene.worker(name, slots=SLOTS)
    done: list[str] = []
    while True:
        is_last = firing.done()
        works = await scene.claim(worker, SLOTS)
        await scene.finish(worker, works)
        done.extend(each.run for each in works)
        if is_last and not works:
            return done


async def deadlocks(server: PostgresServer, database: str) -> int:
    """Counted for good only when whoever met one has gone."""
    while await server.execute(CONNECTED.format(database)):
        pass
    [row] = await server.execute(DEADLOCKS.format(database))
    return int(row["deadlocks"])


@pytest.mark.slow
async def test_each_is_fired_once_and_nobody_meets_a_deadlock(
    stores: list[PostgresStore], postgres_server: PostgresServer, database: str, clock: FakeTicker
) -> None:
    scenes = [Scene(store, clock) for store in stores]
    await save_jobs(scenes[0])
    held = await share_shards(stores)
    clock.advance(MINUTE)

    async with asyncio.TaskGroup() as group:
        firing = group.create_task(gather_firings(scenes, held))
        working = [
            group.create_task(work(scene, f"worker-{number}", firing))
            for number, scene in enumerate(scenes)
        ]

    jobs = [job.id for job in await stores[0].jobs(JobQuery(limit=2 * JOBS))]
    fired = firing.result()
    runs = [run for task in working for run in task.result()]
    assert all(fired)
    assert Counter(job for each in fired for job in each) == Counter(jobs)
    assert len(jobs) == len(runs) == len(set(runs)) == JOBS
    for store in stores:
        await store.close()
    assert await deadlocks(postgres_server, database) == 0


async def gather_firings(scenes: list[Scene], held: list[Ownership]) -> list[list[JobId]]:
    return list(await asyncio.gather(*map(fire_all, scenes, held)))


FEW, MANY = 5_000, 100_000
DUE = 100  # so few that going through all schedules once would be seen
COPIES = """
INSERT INTO job (id, project, name, version, shard, set_name, created_by, created_at, updated_at,
    enabled)
SELECT 'j_' || n, project, 'job-' || n, version, n % 256, set_name, created_by, created_at,
    updated_at, enabled
FROM job CROSS JOIN generate_series({first}, {last}) AS n WHERE id = '{job}';
INSERT INTO job_version SELECT 'j_' || n, version, document, digest, rules, created_by, created_at
FROM job_version CROSS JOIN generate_series({first}, {last}) AS n WHERE job_id = '{job}';
INSERT INTO schedule (job_id, shard, next_at, anchor, version)
SELECT 'j_' || n, n % 256, next_at + n, anchor, version
FROM schedule CROSS JOIN generate_series({first}, {last}) AS n WHERE job_id = '{job}';
VACUUM ANALYZE
"""
MOVE = """
UPDATE schedule SET next_at = {due_at}
WHERE job_id IN (SELECT 'j_' || n FROM generate_series({first}, {count}, {step}) AS n)
"""


class ManySchedules:
    """Copies of a job, none of them due by itself."""

    def __init__(self, server: PostgresServer, database: str, clock: FakeTicker) -> None:
        self._server = server
        self._database = database
        self._clock = clock
        self._meter = Meter(server, database)
        self._count = 0
        self._steps = 0

    async def grow_to(self, count: int, job: JobId) -> None:
        bounds = {"first": self._count + 1, "last": count}
        for statement in COPIES.format(job=job, **bounds).split(";"):
            await self._server.execute(statement, self._database)
        self._count = count

    async def pages_of_step(self) -> int:
        """What firing some looks at that are due at one instant, scattered over all of them.

        They are others each time.
        """
        self._steps += 1
        due_at, step = micros(self._clock.instant), self._count // DUE
        move = MOVE.format(due_at=due_at, first=self._steps, count=self._count, step=step)
        await self._server.execute(move, self._database)
        before = await self._meter.pages()
        async with self.opened() as scene:
            due = await scene.store.due_schedules(scene.clock.instant + MINUTE, DUE, ALL_SHARDS)
            fired = await scene.fire_all([as_firing(each) for each in due])
        assert len(fired.accepted) == DUE
        return await self._meter.pages() - before

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Scene]:
        store = await open_postgres(self._server.address(self._database), clock=self._clock)
        yield Scene(store, self._clock)
        await store.close()


async def test_a_due_step_among_many_schedules_costs_what_it_does_among_few(
    postgres_server: PostgresServer, database: str, clock: FakeTicker
) -> None:
    schedules = ManySchedules(postgres_server, database, clock)
    async with schedules.opened() as scene:
        job_id = await scene.job(next_at=clock.instant + 60 * MINUTE)

    await schedules.grow_to(FEW, job_id)
    await schedules.pages_of_step()  # with its first one a server takes its shards
    among_few = await schedules.pages_of_step()
    await schedules.grow_to(MANY, job_id)
    among_many = await schedules.pages_of_step()

    assert among_many < 1.3 * among_few
