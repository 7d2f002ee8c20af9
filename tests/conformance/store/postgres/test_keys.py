"""Runs that wait for a shared key cost nobody else anything, however many there are."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from rota.domain.ids import JobId, SessionId
from rota.domain.keys import Resource
from rota.domain.states import RunState
from rota.store.postgres.opening import open_postgres
from testkit.builders import Scene
from testkit.clock import FakeTicker
from testkit.servers.postgres import PostgresServer
from tests.conformance.store.key_scenes import declare
from tests.meter import Meter

pytestmark = pytest.mark.anyio

FEW, MANY = 1_000, 50_000
BATCH = 1_000
ROUNDS = 20


@asynccontextmanager
async def opened(server: PostgresServer, database: str, clock: FakeTicker) -> AsyncIterator[Scene]:
    store = await open_postgres(server.address(database), clock=clock)
    yield Scene(store, clock)
    await store.close()


async def block(scene: Scene, job: JobId, count: int) -> None:
    """Have so many runs more wait for a key that somebody holds."""
    for _ in range(0, count, BATCH):
        [first, *_] = await scene.trigger(job, BATCH)
        assert await scene.state(first) is RunState.BLOCKED


async def serve(scene: Scene, worker: SessionId, job: JobId) -> None:
    """Submit, claim and end runs of another job, one by one."""
    for _ in range(ROUNDS):
        [run] = await scene.trigger(job)
        claimed = await scene.claim(worker)
        assert [work.run for work in claimed] == [run]
        await scene.finish(worker, claimed)


async def test_many_blocked_runs_do_not_slow_the_claims_of_others(
    postgres_server: PostgresServer, database: str, clock: FakeTicker
) -> None:
    meter = Meter(postgres_server, database)

    async def pages_of_service() -> int:
        await postgres_server.execute("VACUUM ANALYZE", database)
        async with opened(postgres_server, database, clock) as scene:
            await serve(scene, worker, other)  # a new server looks around first
        before = await meter.pages()
        async with opened(postgres_server, database, clock) as scene:
            await serve(scene, worker, other)
        return await meter.pages() - before

    async with opened(postgres_server, database, clock) as scene:
        await declare(scene, Resource("default", "lock"))
        waiting = await scene.job("waiting", uses={"lock": 1})
        other = await scene.job("other")
        worker = await scene.worker(slots=5)
        await scene.trigger(waiting)
        await scene.claim(worker)  # it holds the lock
        await block(scene, waiting, FEW)

    beside_few = await pages_of_service()
    async with opened(postgres_server, database, clock) as scene:
        await block(scene, waiting, MANY - FEW)
    beside_many = await pages_of_service()

    assert beside_many < 1.3 * beside_few
