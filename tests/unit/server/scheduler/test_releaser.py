from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any, cast

import pytest

from rota.domain.states import RunState
from rota.operations import pauses
from rota.ports.queue import TIMES, Queue
from rota.server.scheduler.releaser import Releaser, ReleaserConfig
from testkit.clock import START, FakeClock
from tests.unit.server.scheduler.timeline import Timeline

pytestmark = pytest.mark.anyio

SECOND = timedelta(seconds=1)
HOUR = timedelta(hours=1)


async def trigger_later(timeline: Timeline, delay: timedelta) -> str:
    job = await timeline.apply(None, name="later")
    [run] = await timeline.scene.trigger(job.id, at=timeline.ticker.instant + delay)
    return run


async def pause(timeline: Timeline, length: timedelta) -> None:
    job = await timeline.apply("every 1h", name="paused")
    until = timeline.ticker.instant + length
    await pauses.pause(timeline.engine, job, actor="test", until=until)


async def test_a_run_goes_at_its_time_and_not_before(timeline: Timeline) -> None:
    run = await trigger_later(timeline, SECOND)
    releaser, taker = timeline.scheduler.releaser, timeline.engine.queue.takes("default")

    assert await releaser.run_once() == 0
    timeline.be_down(SECOND)
    assert await releaser.run_once() == 1

    ticket = await taker.take(timedelta(0))
    assert ticket is not None
    assert list(ticket.runs) == [run]
    assert await timeline.scene.state(run) is RunState.QUEUED


async def test_all_that_waits_for_a_time_is_done_in_one_turn(timeline: Timeline) -> None:
    await timeline.apply("every 1h", name="chained", interval_from="completion")
    await timeline.pass_time(HOUR)
    await timeline.end_runs()
    await trigger_later(timeline, SECOND)
    await pause(timeline, SECOND)
    timeline.be_down(SECOND)

    assert await timeline.scheduler.releaser.run_once() == 3

    assert not (await timeline.job("paused")).paused
    assert (await timeline.job("chained")).next_at == START + 2 * HOUR


class OneWait(Exception):
    """The loop has done its work and waits."""

    def __init__(self, length: timedelta) -> None:
        self.length = length


class WaitingQueue:
    """Whoever waits for a wake-up is stopped there."""

    def __init__(self) -> None:
        self.topics: tuple[str, ...] = ()
        self.is_open = False

    def listen(self, *topics: str) -> Any:
        self.topics, self.is_open = topics, True
        return self

    async def wait(self, timeout: timedelta) -> None:
        raise OneWait(timeout)

    def close(self) -> None:
        self.is_open = False


async def waits(timeline: Timeline) -> timedelta:
    """How long the loop waits for a wake-up before it looks again."""
    queue = WaitingQueue()
    engine = replace(timeline.engine, queue=cast("Queue", queue))
    config = ReleaserConfig(interval=10 * SECOND)
    releaser = Releaser(engine, FakeClock(timeline.ticker), timeline.shards, config)
    with pytest.raises(OneWait) as stopped:
        await releaser.run()
    assert (queue.topics, queue.is_open) == ((TIMES,), False)
    return stopped.value.length


async def test_with_nothing_to_come_it_looks_at_its_interval(timeline: Timeline) -> None:
    assert await waits(timeline) == 10 * SECOND


async def test_it_wakes_up_for_the_next_run(timeline: Timeline) -> None:
    await trigger_later(timeline, 3 * SECOND)

    assert await waits(timeline) == 3 * SECOND


async def test_it_wakes_up_for_the_next_end_of_a_pause(timeline: Timeline) -> None:
    await pause(timeline, 2 * SECOND)
    await trigger_later(timeline, 3 * SECOND)

    assert await waits(timeline) == 2 * SECOND


async def test_what_is_far_away_is_looked_for_later(timeline: Timeline) -> None:
    await trigger_later(timeline, HOUR)

    assert await waits(timeline) == 10 * SECOND
