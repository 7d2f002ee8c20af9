"""Due times that passed before somebody changed their job: the change does not lose them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from rota.operations import definitions, pauses
from rota.ports.records import LedgerEntry
from testkit.clock import START
from tests.unit.server.scheduler.timeline import Answer, Timeline

pytestmark = pytest.mark.anyio

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)


async def down_for_three_hours(timeline: Timeline, **fields: Any) -> None:
    await timeline.apply("0 * * * *", **fields)
    timeline.be_down(3 * HOUR + MINUTE)


async def test_downtime_before_a_pause_is_downtime(timeline: Timeline) -> None:
    await down_for_three_hours(timeline)

    await pauses.pause(timeline.engine, await timeline.job(), actor="test")
    await timeline.pass_time(2 * HOUR)
    await pauses.resume(timeline.engine, await timeline.job(), actor="test")

    assert await timeline.ledger() == [
        Answer(1 * HOUR, 2 * HOUR, 2, "MISSED", "downtime"),
        Answer(3 * HOUR, 3 * HOUR, 1, "QUEUED", ""),
        Answer(4 * HOUR, 5 * HOUR, 2, "SKIPPED", "paused"),
    ]


async def test_what_was_due_before_a_pause_waits_for_its_end(timeline: Timeline) -> None:
    await down_for_three_hours(timeline)

    await pauses.pause(timeline.engine, await timeline.job(), actor="test")

    [run] = await timeline.runs()
    assert [reason.gate for reason in run.reasons] == ["pause"]


async def test_what_is_overdue_is_not_the_next_one_to_skip(timeline: Timeline) -> None:
    await down_for_three_hours(timeline, misfire={"policy": "none"})

    await pauses.skip_next(timeline.engine, await timeline.job(), actor="test")

    assert await timeline.ledger() == [
        Answer(1 * HOUR, 3 * HOUR, 3, "MISSED", "downtime"),
        Answer(4 * HOUR, 4 * HOUR, 1, "SKIPPED", "skip next"),
    ]


async def test_a_one_off_time_runs_though_the_job_was_changed_first(timeline: Timeline) -> None:
    await timeline.apply("2030-01-01T13:00:00Z")
    timeline.be_down(3 * HOUR)

    await timeline.apply("2030-01-01T13:00:00Z", timezone="Europe/London")

    [run] = await timeline.runs()
    assert (run.due_at, run.job_version) == (START + HOUR, 1)


async def test_a_job_that_runs_once_does_so_though_it_was_changed_first(
    timeline: Timeline,
) -> None:
    await timeline.apply("0 13 * * *", run_once=True)
    timeline.be_down(3 * HOUR)

    await timeline.apply("0 13 * * *", run_once=True, description="another")
    await timeline.pass_time(2 * DAY)

    assert await timeline.due_times() == [HOUR]


async def test_an_edit_that_keeps_the_due_times_is_not_for_those_that_passed(
    timeline: Timeline,
) -> None:
    await down_for_three_hours(timeline)

    await timeline.apply("0 * * * *", priority=7)
    await timeline.pass_time(HOUR)

    assert [run.job_version for run in await timeline.runs()] == [1, 2]


async def test_calendars_of_the_old_version_decide_about_its_due_times(
    timeline: Timeline,
) -> None:
    job = {"name": "job", "schedule": "0 * * * *", "steps": [{"run": "true"}]}
    calendar = {"name": "lunch", "windows": ["daily 13:00-14:30"]}
    await timeline.apply_file({"calendars": [calendar], "jobs": [{**job, "calendars": ["lunch"]}]})
    timeline.be_down(3 * HOUR + MINUTE)

    await timeline.apply("30 * * * *")

    assert await timeline.ledger() == [
        Answer(1 * HOUR, 2 * HOUR, 2, "SKIPPED", "calendar lunch"),
        Answer(3 * HOUR, 3 * HOUR, 1, "QUEUED", ""),
    ]


async def ledger_of_the_deleted(timeline: Timeline) -> list[LedgerEntry]:
    job = await timeline.job()
    await definitions.delete(timeline.engine, job, actor="test")
    return await timeline.store.ledger(job.id, START, START + DAY, 10)


async def test_a_deleted_job_leaves_no_due_time_of_its_pause_open(timeline: Timeline) -> None:
    await timeline.apply("0 * * * *")
    await pauses.pause(timeline.engine, await timeline.job(), actor="test")
    await timeline.pass_time(3 * HOUR + MINUTE)

    [entry] = await ledger_of_the_deleted(timeline)

    assert (entry.count, entry.state, entry.cause) == (3, "SKIPPED", "paused")


async def test_a_deleted_job_leaves_no_due_time_of_an_outage_open(timeline: Timeline) -> None:
    await down_for_three_hours(timeline)

    [entry] = await ledger_of_the_deleted(timeline)

    assert (entry.count, entry.state, entry.cause) == (3, "MISSED", "deleted")
