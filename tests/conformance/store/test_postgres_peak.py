"""Schedules that are all due at one instant, fired by four servers beside busy workers."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import timedelta

import pytest

from rota.domain.ids import SHARD_COUNT, JobId, ServerId
from rota.ports.records import DueSchedule, Firing, JobQuery, Ownership, PlannedRun
from rota.store.postgres.opening import PostgresStore, open_postgres
from testkit.builders import MINUTE, Scene, new_job, new_server
from testkit.clock import FakeTicker
from testkit.servers.postgres import PostgresServer

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

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
