from __future__ import annotations

from datetime import timedelta

import pytest
from tests.unit.scheduler.timeline import Timeline

from rota.domain.states import RunState
from rota.scheduler.sweeper import Sweeper
from rota.testing.clock import FakeClock

pytestmark = pytest.mark.anyio

MINUTE = timedelta(minutes=1)


@pytest.fixture
def sweeper(timeline: Timeline) -> Sweeper:
    return Sweeper(timeline.backends, FakeClock(timeline.ticker), timeline.shards)


async def test_there_may_be_nothing_to_sweep_up(timeline: Timeline, sweeper: Sweeper) -> None:
    job = await timeline.apply(None, deadline="1m")
    await timeline.scene.trigger(job.id)

    assert await sweeper.run_once() == 0


async def test_what_passed_its_deadline_ends_and_who_waited_for_it_is_offered(
    timeline: Timeline, sweeper: Sweeper
) -> None:
    job = await timeline.apply(None, deadline="1m", max_concurrency=1)
    [first] = await timeline.scene.trigger(job.id)
    timeline.be_down(MINUTE / 2)
    [second] = await timeline.scene.trigger(job.id)
    timeline.be_down(MINUTE / 2)
    taker = timeline.backends.queue.takes("default")

    assert await sweeper.run_once() == 2

    states = await timeline.scene.states([first, second])
    ticket = await taker.take(timedelta(0))
    assert states == [RunState.TIMED_OUT, RunState.QUEUED]
    assert ticket is not None
    assert list(ticket.runs) == [second]
