"""Runs that wait for shared keys go as soon as there is room, woken or not."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from rota.domain.ids import RunId
from rota.domain.keys import Limit, Resource, Sharing
from rota.domain.states import RunState
from rota.ports.queue import KEYS
from rota.ports.work import Work
from rota.server.scheduler.releaser import KeyKeeper, KeyKeeperConfig
from tests.unit.server.scheduler.timeline import Timeline

pytestmark = pytest.mark.anyio
LOCK = Resource("default", "lock", sharing=Sharing.MUTEX)


@pytest.fixture
def keeper(timeline: Timeline) -> KeyKeeper:
    return KeyKeeper(timeline.engine, timeline.shards)


async def blocked_run(timeline: Timeline) -> tuple[Work, RunId]:
    """A run that holds a lock, and one that waits for it."""
    await timeline.store.save_declarations([LOCK], actor="editor")
    job = await timeline.scene.job(uses={"lock": 1})
    _, second = await timeline.scene.trigger(job, 2)
    [work] = await timeline.scene.claim(timeline.session, 10)
    return work, second


async def test_the_end_of_a_run_wakes_it(timeline: Timeline) -> None:
    work, _ = await blocked_run(timeline)
    listener = timeline.engine.queue.listen(KEYS)

    await timeline.scene.finish(timeline.session, [work])

    assert await listener.wait(timedelta(seconds=5)) == {""}
    listener.close()


async def test_what_a_lost_wake_up_forgot_goes_with_the_next_look(timeline: Timeline) -> None:
    work, second = await blocked_run(timeline)
    interval = timedelta(milliseconds=10)
    keeper = KeyKeeper(timeline.engine, timeline.shards, KeyKeeperConfig(interval))
    loop = asyncio.create_task(keeper.run())

    await timeline.scene.finish(timeline.session, [work])

    async with asyncio.timeout(10):
        while await timeline.scene.state(second) is not RunState.QUEUED:
            pass
    loop.cancel()
    await asyncio.gather(loop, return_exceptions=True)


async def test_several_keepers_let_no_more_go_than_there_is_room_for(
    timeline: Timeline, keeper: KeyKeeper
) -> None:
    work, second = await blocked_run(timeline)
    await timeline.scene.finish(timeline.session, [work])
    others = [KeyKeeper(timeline.engine, timeline.shards) for _ in range(3)]

    counts = await asyncio.gather(*(each.run_once() for each in (keeper, *others)))

    assert sum(counts) == 1
    assert await timeline.scene.state(second) is RunState.QUEUED


async def test_tokens_come_by_the_clock(timeline: Timeline, keeper: KeyKeeper) -> None:
    limit = Limit("default", "mail", tokens=1, per=timedelta(seconds=20), burst=1)
    await timeline.store.save_declarations([limit], actor="editor")
    job = await timeline.scene.job(rate_limits={"mail": 1})
    _, second = await timeline.scene.trigger(job, 2)
    await timeline.scene.claim(timeline.session, 10)

    early = await keeper.run_once()
    timeline.be_down(timedelta(seconds=20))
    late = await keeper.run_once()

    assert (early, late) == (0, 1)
    assert await timeline.scene.state(second) is RunState.QUEUED


async def test_a_queue_that_stands_still_is_not_looked_at_without_end(
    timeline: Timeline, keeper: KeyKeeper
) -> None:
    limit = Limit("default", "mail", tokens=1_000, per=timedelta(seconds=1), burst=1)
    await timeline.store.save_declarations([limit], actor="editor")
    job = await timeline.scene.job(rate_limits={"mail": 1})
    _, second = await timeline.scene.trigger(job, 2)

    looks = 0
    end = timeline.ticker.instant + timedelta(seconds=1)
    while timeline.ticker.instant < end:
        looks += 1
        await keeper.run_once()
        timeline.be_down(keeper.pause)
    await timeline.scene.claim(timeline.session, 1)
    timeline.be_down(timedelta(milliseconds=1))

    assert looks < 20
    assert await keeper.run_once() == 1
    assert await timeline.scene.state(second) is RunState.QUEUED


async def test_only_one_server_keeps_keys(timeline: Timeline, keeper: KeyKeeper) -> None:
    work, second = await blocked_run(timeline)
    await timeline.scene.finish(timeline.session, [work])
    timeline.shards.hold({}, until=1e12)

    assert await keeper.run_once() == 0
    assert await timeline.scene.state(second) is RunState.BLOCKED
