"""Intervals that count from the end of the previous run."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from rota.domain.job import Job
from rota.operations import pauses
from tests.unit.server.scheduler.timeline import Answer, Timeline

pytestmark = pytest.mark.anyio

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)


async def define(timeline: Timeline, **fields: Any) -> Job:
    return await timeline.apply("every 1h", interval_from="completion", **fields)


async def first_run_ends_after(timeline: Timeline, length: timedelta) -> None:
    await timeline.pass_time(HOUR)
    works = await timeline.start_runs()
    await timeline.pass_time(length)
    await timeline.scene.finish(timeline.session, works)


async def test_the_next_due_time_is_an_interval_after_the_end(timeline: Timeline) -> None:
    await define(timeline)
    await first_run_ends_after(timeline, 25 * MINUTE)

    await timeline.pass_time(2 * HOUR)

    assert await timeline.due_times() == [HOUR, 2 * HOUR + 25 * MINUTE]


async def test_nothing_is_due_while_a_run_goes_on(timeline: Timeline) -> None:
    await define(timeline)

    await first_run_ends_after(timeline, 10 * HOUR)

    assert await timeline.due_times() == [HOUR]


async def test_a_cancelled_run_is_followed_by_the_next(timeline: Timeline) -> None:
    await define(timeline)
    await timeline.pass_time(HOUR)
    [run] = await timeline.runs()
    await timeline.store.cancel([run.id], actor="test")

    await timeline.pass_time(HOUR)

    assert await timeline.due_times() == [HOUR, 2 * HOUR]


async def test_the_attempt_after_a_lost_worker_is_waited_for(timeline: Timeline) -> None:
    await define(timeline)
    await timeline.pass_time(HOUR)
    works = await timeline.start_runs()
    await timeline.store.lose(timeline.session, [work.fence for work in works])
    await timeline.pass_time(3 * HOUR)
    assert await timeline.due_times() == [HOUR]

    await timeline.end_runs()
    await timeline.pass_time(HOUR)

    assert await timeline.due_times() == [HOUR, 5 * HOUR]


async def test_a_due_time_inside_a_pause_is_skipped_once(timeline: Timeline) -> None:
    job = await define(timeline)
    await timeline.pass_time(HOUR)
    await timeline.end_runs()
    await timeline.pass_time(MINUTE)
    await pauses.pause(timeline.engine, job, actor="test")
    await timeline.pass_time(5 * HOUR)
    await pauses.resume(timeline.engine, await timeline.job(), actor="test")

    await timeline.pass_time(HOUR)

    assert await timeline.ledger() == [
        Answer(1 * HOUR, 1 * HOUR, 1, "COMPLETED", ""),
        Answer(2 * HOUR, 2 * HOUR, 1, "SKIPPED", "paused"),
        Answer(7 * HOUR + MINUTE, 7 * HOUR + MINUTE, 1, "QUEUED", ""),
    ]


async def test_a_run_that_ends_inside_a_pause_is_not_made_up_for(timeline: Timeline) -> None:
    job = await define(timeline)
    await timeline.pass_time(HOUR)
    works = await timeline.start_runs()
    await pauses.pause(timeline.engine, job, actor="test")
    await timeline.scene.finish(timeline.session, works)
    await timeline.pass_time(5 * HOUR)
    await pauses.resume(timeline.engine, await timeline.job(), actor="test")

    await timeline.pass_time(HOUR)

    assert [(answer.first, answer.cause) for answer in await timeline.ledger()] == [
        (1 * HOUR, ""),
        (2 * HOUR, "paused"),
        (7 * HOUR, ""),
    ]


async def test_a_run_that_goes_on_through_a_pause_sets_the_next_due_time(
    timeline: Timeline,
) -> None:
    job = await define(timeline)
    await timeline.pass_time(HOUR)
    works = await timeline.start_runs()
    await pauses.pause(timeline.engine, job, actor="test")
    await timeline.pass_time(HOUR)
    await pauses.resume(timeline.engine, await timeline.job(), actor="test")
    await timeline.scene.finish(timeline.session, works)

    await timeline.pass_time(HOUR)

    assert await timeline.due_times() == [HOUR, 3 * HOUR]


async def test_an_edit_of_something_else_changes_nothing(timeline: Timeline) -> None:
    await define(timeline)
    await timeline.pass_time(HOUR)
    works = await timeline.start_runs()
    await define(timeline, description="another")
    await timeline.pass_time(2 * HOUR)
    await timeline.scene.finish(timeline.session, works)

    await timeline.pass_time(HOUR)

    assert await timeline.due_times() == [HOUR, 4 * HOUR]


async def test_an_edit_of_the_interval_counts_from_the_edit(timeline: Timeline) -> None:
    await define(timeline)
    await timeline.pass_time(HOUR)
    await timeline.end_runs()

    await timeline.apply("every 3h", interval_from="completion")
    await timeline.pass_time(10 * HOUR)

    assert await timeline.due_times() == [HOUR, 4 * HOUR]


async def test_downtime_delays_and_makes_no_crowd(timeline: Timeline) -> None:
    await define(timeline)
    await timeline.pass_time(HOUR)
    await timeline.end_runs()
    await timeline.pass_time(MINUTE)
    timeline.be_down(10 * HOUR)

    await timeline.scheduler.run_once()

    assert await timeline.due_times() == [HOUR, 2 * HOUR]


async def test_a_missed_due_time_has_no_run_to_wait_for(timeline: Timeline) -> None:
    await define(timeline, misfire={"policy": "none"})
    timeline.be_down(HOUR + MINUTE)

    await timeline.scheduler.run_once()

    assert not (await timeline.job()).waits
    await timeline.pass_time(HOUR)
    assert await timeline.due_times() == [2 * HOUR + MINUTE]


async def test_it_ends_where_the_schedule_does(timeline: Timeline) -> None:
    job = await define(timeline, ends="2030-01-01T13:30:00Z")
    await timeline.pass_time(HOUR)
    await timeline.end_runs()

    await timeline.pass_time(HOUR)

    assert await timeline.due_times() == [HOUR]
    assert await timeline.store.ended_waits(10) == []
    assert not (await timeline.job(job.name)).waits
