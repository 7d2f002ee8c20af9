"""Claims, ends and keepers that race for the same keys."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from rota.domain.ids import SessionId
from rota.domain.keys import Resource, Sharing
from rota.domain.states import RunState
from rota.ports.records import RunQuery
from rota.ports.work import Work
from rota.store.postgres.connections import PoolSizes
from rota.store.postgres.opening import open_postgres
from testkit.builders import Scene
from testkit.clock import FakeTicker
from testkit.servers.postgres import PostgresServer

pytestmark = [pytest.mark.anyio, pytest.mark.slow]
UNITS = 3
LIVE = (RunState.CLAIMED, RunState.PROCESSING)


@pytest.fixture
async def servers(
    postgres_server: PostgresServer, database: str, clock: FakeTicker
) -> AsyncIterator[list[Scene]]:
    """Some that share a store."""
    async with AsyncExitStack() as until:
        scenes = []
        for _ in range(4):
            sizes = PoolSizes(work=4, api=2)
            opened = await open_postgres(
                postgres_server.address(database), clock=clock, sizes=sizes
            )
            until.push_async_callback(opened.close)
            scenes.append(Scene(opened, clock))
        yield scenes


async def declare(scene: Scene, total: int) -> None:
    lock = Resource("default", "lock", total=total, sharing=Sharing.COUNTED)
    await scene.store.save_declarations([lock], actor="editor")


async def live(scene: Scene) -> int:
    return len(await scene.store.runs(RunQuery(states=LIVE, limit=1_000)))


async def claim_at_once(servers: list[Scene], workers: list[SessionId]) -> list[list[Work]]:
    """One run for each, as far as there are any."""
    return await asyncio.gather(
        *(servers[n % len(servers)].claim(worker, 1) for n, worker in enumerate(workers))
    )


async def test_claims_that_race_for_the_last_unit_never_exceed_it(servers: list[Scene]) -> None:
    first = servers[0]
    await declare(first, total=200)
    job = await first.job(uses={"lock": 1})
    workers = [await first.worker(f"worker-{n}", slots=1) for n in range(200)]
    await first.trigger(job, 50)
    for worker, works in zip(workers, await claim_at_once(servers, workers), strict=True):
        await first.finish(worker, works)  # from here on all are equally quick
    await first.trigger(job, 200)
    await declare(first, total=1)

    claimed = await claim_at_once(servers, workers)

    assert sum(map(len, claimed)) == 1
    assert await live(first) == 1
    assert len(await first.store.runs(RunQuery(states=[RunState.BLOCKED], limit=1_000))) == 199


async def test_units_are_never_exceeded_while_runs_come_end_and_go_on(
    servers: list[Scene],
) -> None:
    first = servers[0]
    await declare(first, total=UNITS)
    job = await first.job(uses={"lock": 1})
    workers = [await first.worker(f"worker-{n}", slots=4) for n in range(4)]
    most, ended = 0, 0

    async def work(scene: Scene, worker: SessionId) -> None:
        nonlocal most, ended
        held: list[Work] = []
        while ended < 60:
            held += await scene.claim(worker, 2)
            most = max(most, await live(scene))
            accepted = (await scene.finish(worker, held[:1])).accepted
            ended += len(accepted)
            held = held[1:]
            await scene.store.release_keys(10)

    async def submit(scene: Scene) -> None:
        for _ in range(10):
            await scene.trigger(job, 3)

    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        for scene, worker in zip(servers, workers, strict=True):
            group.create_task(work(scene, worker))
        group.create_task(submit(servers[1]))
        group.create_task(submit(servers[2]))

    assert most == UNITS
    uses = await first.store.key_uses(["resource:default/lock"])
    assert uses["resource:default/lock"].state.held == 0
