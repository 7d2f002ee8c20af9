"""What is due goes to a worker that has nothing to do, without the detour of a ticket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta

import pytest

from rota.domain.ids import JobId
from rota.domain.states import RunState
from rota.operations import firing
from rota.operations.engine import Engine
from rota.ports.queue import Ticket
from rota.ports.records import Fired
from rota.ports.work import Beat, Dispatch, Welcome
from rota.queue.local import LocalQueue, LocalTaker
from rota.server.dispatcher.floor import Floor, FloorConfig
from testkit.builders import Scene, firing_of, hello
from testkit.new_stores import connected

pytestmark = pytest.mark.anyio
NEVER = timedelta(hours=1)


class DeafTaker(LocalTaker):
    async def take(self, timeout: timedelta) -> Ticket | None:
        assert isinstance(self._queue, DeafQueue)
        self._queue.waiting.release()
        return await super().take(timeout)


class DeafQueue(LocalQueue):
    """Nobody hears of any work."""

    def __init__(self) -> None:
        super().__init__()
        self.offered: list[str] = []  # runs that somebody might have heard of
        self.waiting = asyncio.Semaphore(0)  # as often as somebody began to wait for a ticket

    def offer(self, pool: str, runs: Sequence[str] = ()) -> None:
        self.offered += runs

    def takes(self, pool: str) -> DeafTaker:
        return DeafTaker(self, pool)


@pytest.fixture
def deaf(engine: Engine) -> Engine:
    return replace(engine, queue=connected(engine.store, DeafQueue()))


@asynccontextmanager
async def idle(engine: Engine, *workers: str) -> AsyncIterator[tuple[Floor, list[Welcome]]]:
    """Workers that have found nothing to do."""
    floor = Floor(engine, FloorConfig(poll_interval=NEVER))
    welcomes = [await floor.register(hello(name)) for name in workers]
    serving = asyncio.create_task(floor.run())
    try:
        async with asyncio.timeout(20):
            assert isinstance(engine.queue, DeafQueue)
            for _ in workers:
                await engine.queue.waiting.acquire()
            yield floor, welcomes
    finally:
        serving.cancel()
        await asyncio.wait([serving])


async def fire(scene: Scene, engine: Engine, name: str) -> Fired:
    job = await scene.job(name, next_at=scene.clock.instant)
    await engine.specs.find(engine.store, [(job, 1)])  # as whoever looks ahead does
    return await firing.fire(
        engine, [firing_of(await scene.show_job(job))], await scene.ownership()
    )


async def jobs_of(floor: Floor, welcome: Welcome) -> list[JobId]:
    order = await floor.next_order(welcome.session, welcome.stream)
    assert isinstance(order, Dispatch)
    return [JobId(work.job_id) for work in order.batch.works()]


async def test_what_is_due_is_dispatched_though_no_ticket_comes(scene: Scene, deaf: Engine) -> None:
    async with idle(deaf, "worker") as (floor, [welcome]):
        fired = await fire(scene, deaf, "job")

        assert await jobs_of(floor, welcome) == list(fired.accepted)
    assert isinstance(deaf.queue, DeafQueue)
    assert deaf.queue.offered == []


async def test_workers_take_turns(scene: Scene, deaf: Engine) -> None:
    async with idle(deaf, "one", "two") as (floor, [one, two]):
        fired = [await fire(scene, deaf, name) for name in ("a", "b")]

        given = await jobs_of(floor, one) + await jobs_of(floor, two)
        assert set(given) == fired[0].accepted | fired[1].accepted


async def test_a_worker_that_stops_is_given_nothing(scene: Scene, deaf: Engine) -> None:
    async with idle(deaf, "worker") as (floor, [welcome]):
        await floor.beat(welcome.session, Beat(stopping=True))

        await fire(scene, deaf, "job")

    assert isinstance(deaf.queue, DeafQueue)
    [waiting] = deaf.queue.offered
    assert await scene.state(waiting) == RunState.QUEUED


async def test_without_a_worker_runs_wait(scene: Scene, deaf: Engine) -> None:
    await fire(scene, deaf, "job")

    assert isinstance(deaf.queue, DeafQueue)
    [waiting] = deaf.queue.offered
    assert await scene.state(waiting) == RunState.QUEUED
