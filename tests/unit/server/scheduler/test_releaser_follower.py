"""Completed runs are followed by themselves, and each once."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from rota.domain.states import RunState
from rota.ports.queue import FOLLOWED, TIMES
from rota.server.scheduler.releaser import Follower, FollowerConfig
from tests.unit.server.scheduler.timeline import Timeline

pytestmark = pytest.mark.anyio


@pytest.fixture
def follower(timeline: Timeline) -> Follower:
    return Follower(timeline.engine, timeline.shards)


async def completed_runs(timeline: Timeline, count: int) -> None:
    """Runs of a job that another one follows."""
    upstream = await timeline.scene.job("extract")
    await timeline.scene.job("load", after=("extract",))
    await timeline.scene.trigger(upstream, count)
    await timeline.end_runs()


async def test_several_followers_answer_each_completion_once(
    timeline: Timeline, follower: Follower
) -> None:
    await completed_runs(timeline, 20)
    others = [Follower(timeline.engine, timeline.shards) for _ in range(3)]

    await asyncio.gather(*(each.run_once() for each in (follower, *others)))

    assert [run.state for run in await timeline.runs("load")] == [RunState.QUEUED] * 20


async def test_a_completion_wakes_it_and_it_wakes_the_workers(
    timeline: Timeline, follower: Follower
) -> None:
    followed, taker = timeline.engine.queue.listen(FOLLOWED), timeline.engine.queue.takes
    tickets = taker("default")
    upstream = await timeline.scene.job("extract")
    await timeline.scene.job("load", after=("extract",))
    await timeline.scene.trigger(upstream)
    await tickets.take(timedelta(seconds=5))
    works = await timeline.start_runs()
    await timeline.scene.finish(timeline.session, works)

    assert await followed.wait(timedelta(seconds=5))
    assert await follower.run_once() == 1

    ticket = await tickets.take(timedelta(seconds=5))
    assert ticket is not None
    assert list(ticket.runs) == [run.id for run in await timeline.runs("load")]
    followed.close()
    tickets.close()


async def test_many_completions_are_followed_batch_by_batch(timeline: Timeline) -> None:
    await completed_runs(timeline, 5)
    follower = Follower(timeline.engine, timeline.shards, FollowerConfig(batch_size=2))

    assert [await follower.run_once() for _ in range(4)] == [2, 2, 1, 0]


async def test_due_runs_that_may_go_are_announced(timeline: Timeline, follower: Follower) -> None:
    upstream = await timeline.scene.job("extract")
    report = await timeline.scene.job(
        "report", next_at=timeline.ticker.instant + timedelta(hours=1), after=("extract",)
    )
    due = await timeline.scene.scheduled_run(report)
    await timeline.scene.trigger(upstream)
    timeline.be_down(timedelta(minutes=1))
    await timeline.end_runs()
    listener = timeline.engine.queue.listen(TIMES)

    await follower.run_once()

    assert await listener.wait(timedelta(seconds=5)) is not None
    assert await timeline.scene.state(due.id) is RunState.SCHEDULED
    listener.close()


async def test_a_server_that_does_not_lead_follows_nothing(
    timeline: Timeline, follower: Follower
) -> None:
    await completed_runs(timeline, 1)
    timeline.shards.hold({}, until=1e12)

    assert await follower.run_once() == 0
    assert await timeline.runs("load") == []
