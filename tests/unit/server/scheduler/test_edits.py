"""Schedules that change while they run: forwards only, and nothing twice."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from rota.operations import pauses
from tests.unit.server.scheduler.timeline import Answer, Timeline

pytestmark = pytest.mark.anyio

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)


async def test_another_expression_counts_from_the_edit(timeline: Timeline) -> None:
    await timeline.apply("0 * * * *", overlap="allow")
    await timeline.pass_time(HOUR + MINUTE)

    await timeline.apply("30 * * * *", overlap="allow")
    await timeline.pass_time(2 * HOUR)

    assert await timeline.due_times() == [HOUR, HOUR + 30 * MINUTE, 2 * HOUR + 30 * MINUTE]


async def test_another_zone_replays_nothing(timeline: Timeline) -> None:
    """Three in Berlin was an hour before three in UTC, which has run."""
    await timeline.apply("0 15 * * *", timezone="UTC", overlap="allow")
    await timeline.pass_time(4 * HOUR)

    await timeline.apply("0 15 * * *", timezone="Europe/Berlin", overlap="allow")
    await timeline.pass_time(DAY)

    assert await timeline.due_times() == [3 * HOUR, DAY + 2 * HOUR]


async def test_an_edit_of_something_else_does_not_move_the_schedule(timeline: Timeline) -> None:
    await timeline.apply("every 1h")
    await timeline.pass_time(30 * MINUTE)

    changed = await timeline.apply("every 1h", description="another", priority=7)
    await timeline.pass_time(30 * MINUTE)

    assert changed.version == 2
    assert await timeline.due_times() == [HOUR]


@pytest.mark.parametrize(
    ("change", "still_due"),
    [
        ({"dst": {"gap": "skip"}}, [2.5, 3.5]),
        ({"starts": "2030-01-01T15:00:00Z"}, [3]),
        ({"ends": "2030-01-01T13:45:00Z"}, []),
        ({"run_once": True}, [2.5]),
        ({"interval_from": "completion"}, [2.5]),
    ],
)
async def test_an_edit_of_what_decides_the_due_times_counts_from_the_edit(
    timeline: Timeline, change: dict[str, Any], still_due: list[float]
) -> None:
    await timeline.apply("every 1h", overlap="allow")
    await timeline.pass_time(1.5 * HOUR)

    await timeline.apply("every 1h", overlap="allow", **change)
    await timeline.pass_time(2 * HOUR)

    assert await timeline.due_times() == [HOUR, *(hour * HOUR for hour in still_due)]


async def test_going_back_to_an_older_schedule_replays_nothing(timeline: Timeline) -> None:
    await timeline.apply("0 * * * *", overlap="allow")
    await timeline.pass_time(2 * HOUR)
    await timeline.apply("0 0 * * *", overlap="allow")

    await timeline.apply("0 * * * *", overlap="allow")
    await timeline.pass_time(HOUR)

    assert await timeline.due_times() == [HOUR, 2 * HOUR, 3 * HOUR]


async def test_a_skipped_due_time_stays_skipped_through_an_edit(timeline: Timeline) -> None:
    job = await timeline.apply("0 * * * *", overlap="allow")
    await pauses.skip_next(timeline.engine, job, actor="test")

    await timeline.apply("*/30 * * * *", overlap="allow")
    await timeline.pass_time(90 * MINUTE)

    assert await timeline.due_times() == [90 * MINUTE]
    assert sum(answer.count for answer in await timeline.ledger()) == 2


async def test_a_skipped_due_time_stays_skipped_through_two_edits(timeline: Timeline) -> None:
    job = await timeline.apply("0 * * * *", overlap="allow")
    await pauses.skip_next(timeline.engine, job, actor="test")
    await timeline.apply("30 * * * *", overlap="allow")

    await timeline.apply("0 * * * *", overlap="allow")
    await timeline.pass_time(2 * HOUR)

    assert await timeline.due_times() == [2 * HOUR]


async def test_the_only_due_time_stays_skipped_though_others_are_added(timeline: Timeline) -> None:
    job = await timeline.apply("2030-01-01T13:00:00Z", overlap="allow")
    await pauses.skip_next(timeline.engine, job, actor="test")

    await timeline.apply(["2030-01-01T13:00:00Z", "2030-01-01T15:00:00Z"], overlap="allow")
    await timeline.pass_time(4 * HOUR)

    assert await timeline.due_times() == [3 * HOUR]


async def test_what_a_pause_holds_after_a_skip_and_two_edits_is_in_the_ledger(
    timeline: Timeline,
) -> None:
    job = await timeline.apply("0 * * * *")
    await pauses.skip_next(timeline.engine, job, actor="test")
    await timeline.apply("30 * * * *")
    await timeline.apply("0 * * * *")
    await pauses.pause(timeline.engine, await timeline.job(), actor="test")
    await timeline.pass_time(4 * HOUR)

    await pauses.resume(timeline.engine, await timeline.job(), actor="test")

    assert await timeline.ledger() == [
        Answer(HOUR, HOUR, 1, "SKIPPED", "skip next"),
        Answer(2 * HOUR, 4 * HOUR, 3, "SKIPPED", "paused"),
    ]


async def test_what_an_outage_left_open_is_answered_by_the_old_schedule(
    timeline: Timeline,
) -> None:
    await timeline.apply("0 * * * *", overlap="allow")
    timeline.be_down(3 * HOUR + MINUTE)

    await timeline.apply("30 * * * *", overlap="allow")
    await timeline.pass_time(29 * MINUTE)

    assert await timeline.ledger() == [
        Answer(HOUR, 2 * HOUR, 2, "MISSED", "downtime"),
        Answer(3 * HOUR, 3 * HOUR, 1, "QUEUED", ""),
        Answer(3 * HOUR + 30 * MINUTE, 3 * HOUR + 30 * MINUTE, 1, "QUEUED", ""),
    ]


async def test_what_a_pause_held_until_the_edit_is_skipped(timeline: Timeline) -> None:
    job = await timeline.apply("0 * * * *")
    await pauses.pause(timeline.engine, job, actor="test")
    await timeline.pass_time(2 * HOUR + MINUTE)
    await timeline.apply("30 * * * *")
    await timeline.pass_time(HOUR)

    await pauses.resume(timeline.engine, await timeline.job(), actor="test")

    assert await timeline.ledger() == [
        Answer(HOUR, 2 * HOUR, 2, "SKIPPED", "paused"),
        Answer(2 * HOUR + 30 * MINUTE, 2 * HOUR + 30 * MINUTE, 1, "SKIPPED", "paused"),
    ]


async def test_a_job_that_its_file_switches_on_again_is_not_caught_up(timeline: Timeline) -> None:
    await timeline.apply("every 1h", misfire={"policy": "all"})
    await timeline.apply("every 1h", misfire={"policy": "all"}, enabled=False)
    await timeline.pass_time(3 * HOUR + MINUTE)

    await timeline.apply("every 1h", misfire={"policy": "all"})
    await timeline.pass_time(HOUR)

    assert await timeline.ledger() == [
        Answer(HOUR, 3 * HOUR, 3, "SKIPPED", "disabled"),
        Answer(4 * HOUR, 4 * HOUR, 1, "QUEUED", ""),
    ]


async def test_an_edit_of_a_paused_job_does_not_unpause_it(timeline: Timeline) -> None:
    job = await timeline.apply("every 1h")
    await pauses.pause(timeline.engine, job, actor="test")

    await timeline.apply("every 1h", description="another")
    await timeline.pass_time(2 * HOUR)

    assert await timeline.due_times() == []


class TestRunOnce:
    async def test_only_the_first_matching_time_runs(self, timeline: Timeline) -> None:
        await timeline.apply("0 * * * *", run_once=True)

        await timeline.pass_time(5 * HOUR)

        assert await timeline.due_times() == [HOUR]
        assert (await timeline.job()).finished_at is not None

    async def test_applying_it_again_does_not_fire_it_again(self, timeline: Timeline) -> None:
        await timeline.apply("0 * * * *", run_once=True)
        await timeline.pass_time(HOUR)

        await timeline.apply("0 * * * *", run_once=True)
        await timeline.apply("0 * * * *", run_once=True, description="another")
        await timeline.pass_time(5 * HOUR)

        assert await timeline.due_times() == [HOUR]
        assert (await timeline.job()).finished_at is not None

    async def test_another_time_fires_it_once_more(self, timeline: Timeline) -> None:
        await timeline.apply("0 * * * *", run_once=True)
        await timeline.pass_time(HOUR)

        await timeline.apply("30 * * * *", run_once=True)
        await timeline.pass_time(5 * HOUR)

        assert await timeline.due_times() == [HOUR, 90 * MINUTE]

    async def test_it_is_not_finished_by_due_times_that_were_missed(
        self, timeline: Timeline
    ) -> None:
        await timeline.apply("0 * * * *", run_once=True, misfire={"policy": "none"})
        timeline.be_down(HOUR + MINUTE)
        await timeline.scheduler.run_once()
        assert (await timeline.job()).finished_at is None

        await timeline.pass_time(HOUR)

        assert await timeline.due_times() == [2 * HOUR]

    async def test_downtime_does_not_lose_it(self, timeline: Timeline) -> None:
        await timeline.apply("0 * * * *", run_once=True)
        timeline.be_down(30 * DAY)

        await timeline.scheduler.run_once()

        assert await timeline.due_times() == [HOUR]
