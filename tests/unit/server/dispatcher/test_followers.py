"""Who hears that a run, whose output somebody may follow at another server, has ended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from rota.operations.engine import Engine
from rota.ports.queue import WATCHED, output
from rota.ports.work import Dispatch, Fence, Progress, ReportAnswer, Start, StepNote, Watch
from rota.queue.local import LocalQueue
from rota.server.dispatcher.floor import Floor
from testkit.builders import Scene, hello, outcome, reported

pytestmark = pytest.mark.anyio


class Bus(LocalQueue):
    """Notes what other servers would hear about output."""

    def __init__(self) -> None:
        super().__init__()
        self.told: asyncio.Queue[str] = asyncio.Queue()

    def announce(self, topic: str, payload: str = "") -> None:
        super().announce(topic, payload)
        if topic.startswith(output("")):
            self.told.put_nowait(topic)


@pytest.fixture
def bus() -> Bus:
    return Bus()


@pytest.fixture
def floor(engine: Engine, bus: Bus) -> Floor:
    return Floor(replace(engine, queue=bus))


@asynccontextmanager
async def serving(floor: Floor) -> AsyncIterator[None]:
    task = asyncio.create_task(floor.run())
    try:
        async with asyncio.timeout(10):
            yield
    finally:
        task.cancel()
        await asyncio.wait([task])


async def test_the_end_of_a_run_that_nobody_follows_is_told_to_nobody(
    scene: Scene, floor: Floor, bus: Bus
) -> None:
    [run] = await scene.trigger(await scene.job())
    welcome = await floor.register(hello())
    await floor.claim_for(welcome.session)

    answer = await floor.report(welcome.session, reported(outcome(Fence(run, 1))))

    assert answer == ReportAnswer()
    assert bus.told.empty()


async def test_whoever_follows_a_run_elsewhere_hears_of_its_end(
    scene: Scene, floor: Floor, bus: Bus
) -> None:
    [run] = await scene.trigger(await scene.job())
    welcome = await floor.register(hello())

    async with serving(floor):
        assert isinstance(await floor.next_order(welcome.session, welcome.stream), Dispatch)
        bus.announce(WATCHED, run)
        assert await floor.next_order(welcome.session, welcome.stream) == Watch((run,))
        await floor.report(welcome.session, reported(outcome(Fence(run, 1))))

    assert bus.told.get_nowait() == output(run)


async def test_whoever_begins_to_follow_a_run_too_late_hears_of_its_end(
    scene: Scene, floor: Floor, bus: Bus
) -> None:
    [run] = await scene.trigger(await scene.job())
    welcome = await floor.register(hello())

    async with serving(floor):
        await floor.next_order(welcome.session, welcome.stream)
        await floor.report(welcome.session, reported(outcome(Fence(run, 1))))
        bus.announce(WATCHED, run)

        assert await bus.told.get() == output(run)


async def some_turns() -> None:
    """Let the loops of the floor do what they have to do by now."""
    for _ in range(10):
        await asyncio.sleep(0)  # noqa: TID251 (a turn of the loop, no time)


async def test_whoever_follows_a_run_elsewhere_before_it_is_claimed_hears_that_it_is(
    scene: Scene, floor: Floor, bus: Bus
) -> None:
    [run] = await scene.trigger(await scene.job())
    async with serving(floor):
        await some_turns()
        bus.announce(WATCHED, run)
        await some_turns()
        welcome = await floor.register(hello())
        assert isinstance(await floor.next_order(welcome.session, welcome.stream), Dispatch)

        assert await floor.next_order(welcome.session, welcome.stream) == Watch((run,))
        assert await bus.told.get() == output(run)


async def test_notes_progress_and_starts_of_followed_runs_are_told_and_of_no_others(
    scene: Scene, floor: Floor, bus: Bus
) -> None:
    job = await scene.job()
    followed, other = await scene.trigger(job, 2)
    welcome = await floor.register(hello(slots=2))
    session = welcome.session

    async with serving(floor):
        await floor.next_order(session, welcome.stream)
        bus.announce(WATCHED, followed)
        await floor.next_order(session, welcome.stream)
        await bus.told.get()
        for run in (other, followed):
            await floor.start(session, [Start(run, 1, 1)])
            await floor.progress(session, [Progress(run, 1, 1, None)])
            await floor.note(session, [StepNote(run, 1, 1)])

    assert [bus.told.get_nowait() for _ in range(bus.told.qsize())] == [output(followed)] * 3
