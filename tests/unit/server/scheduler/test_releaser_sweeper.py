from __future__ import annotations

from datetime import timedelta

import pytest

from rota.domain.states import RunState
from rota.server.scheduler.releaser import Sweeper, SweeperConfig
from testkit.clock import FakeClock
from tests.unit.server.scheduler.timeline import Timeline

pytestmark = pytest.mark.anyio

MINUTE = timedelta(minutes=1)
YEAR = timedelta(days=365)


@pytest.fixture
def sweeper(timeline: Timeline) -> Sweeper:
    return Sweeper(timeline.engine, FakeClock(timeline.ticker), timeline.shards)


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
    taker = timeline.engine.queue.takes("default")

    assert await sweeper.run_once() == 2

    states = await timeline.scene.states([first, second])
    ticket = await taker.take(timedelta(0))
    assert states == [RunState.TIMED_OUT, RunState.QUEUED]
    assert ticket is not None
    assert list(ticket.runs) == [second]


async def test_workers_that_left_long_ago_are_forgotten_batch_by_batch(timeline: Timeline) -> None:
    config = SweeperConfig(batch_size=2)
    sweeper = Sweeper(timeline.engine, FakeClock(timeline.ticker), timeline.shards, config)
    for number in range(3):
        await timeline.store.end_session(await timeline.scene.worker(f"gone-{number}"))
    timeline.be_down(YEAR)
    known = []

    for _ in range(2):
        await sweeper.run_once()
        sessions = await timeline.store.sessions(alive_only=False)
        known.append(sorted((each.alive for each in sessions), reverse=True))

    assert known == [[True, False], [True]]


async def test_whom_to_forget_is_looked_for_once_an_hour(
    timeline: Timeline, sweeper: Sweeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = []

    async def forget(limit: int) -> int:
        looks.append(timeline.ticker.instant)
        return 0

    monkeypatch.setattr(timeline.store, "forget_sessions", forget)
    for _ in range(5):
        await sweeper.run_once()
        timeline.be_down(MINUTE * 20)

    assert [later - looks[0] for later in looks] == [timedelta(0), timedelta(hours=1)]
