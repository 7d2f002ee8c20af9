"""Due times that passed while nobody was there."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from rota.domain.states import RunState
from tests.unit.server.scheduler.timeline import Answer, Timeline, new_scheduler

pytestmark = pytest.mark.anyio

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)


def hours(*numbers: float) -> list[timedelta]:
    return [number * HOUR for number in numbers]


async def outage(timeline: Timeline, length: timedelta, **misfire: Any) -> None:
    """An hourly job runs twice, then nobody is there for a while."""
    await timeline.apply("every 1h", misfire=misfire, overlap="allow")
    await timeline.pass_time(2 * HOUR + MINUTE)
    timeline.be_down(length)
    await timeline.scheduler.run_once()


@pytest.mark.parametrize(
    ("misfire", "caught_up"),
    [
        ({"policy": "none"}, []),
        ({"policy": "last"}, [7]),
        ({"policy": "first"}, [3]),
        ({"policy": "all"}, [3, 4, 5, 6, 7]),
        ({"policy": "all", "max": 2}, [6, 7]),
        ({"policy": "all", "within": "3h"}, [5, 6, 7]),
        ({"policy": "first", "within": "3h"}, [5]),
        ({"policy": "last", "within": "30s"}, []),
    ],
)
async def test_the_policy_says_what_is_still_run(
    timeline: Timeline, misfire: dict[str, Any], caught_up: list[float]
) -> None:
    await outage(timeline, 5 * HOUR, **misfire)

    assert await timeline.due_times() == hours(1, 2, *caught_up)
    answered = sum(answer.count for answer in await timeline.ledger())
    assert answered == 7


async def test_the_rest_is_missed_for_downtime_as_one_stretch(timeline: Timeline) -> None:
    await outage(timeline, 5 * HOUR, policy="last")

    ledger = await timeline.ledger()
    assert [entry for entry in ledger if entry.state == "MISSED"] == [
        Answer(3 * HOUR, 6 * HOUR, 4, "MISSED", "downtime")
    ]


async def test_the_schedule_goes_on_after_now(timeline: Timeline) -> None:
    await outage(timeline, 1_000 * HOUR)

    await timeline.pass_time(HOUR)

    assert (await timeline.due_times())[-2:] == hours(1_002, 1_003)


async def test_a_day_of_a_one_second_job_costs_a_handful_of_rows(timeline: Timeline) -> None:
    await timeline.apply("* * * * * *")
    await timeline.pass_time(3 * SECOND)
    rows_before = len(await timeline.entries())
    timeline.be_down(DAY)

    await timeline.scheduler.run_once()

    ledger = await timeline.ledger()
    assert len(ledger) - rows_before <= 5
    assert sum(answer.count for answer in ledger) == 3 + DAY // SECOND
    assert [answer.first for answer in ledger] == sorted({answer.first for answer in ledger})


async def test_what_is_a_little_late_is_not_missed(timeline: Timeline) -> None:
    await timeline.apply("every 1s", misfire={"policy": "none"}, overlap="allow")
    timeline.be_down(2 * SECOND)

    await timeline.scheduler.run_once()

    assert await timeline.due_times() == [SECOND, 2 * SECOND]


async def test_a_one_off_time_runs_however_late(timeline: Timeline) -> None:
    await timeline.apply("2030-01-02T00:00:00Z")
    timeline.be_down(400 * DAY)

    await timeline.scheduler.run_once()

    [run] = await timeline.runs()
    assert (run.due_at.day, run.state) == (2, RunState.QUEUED)


async def test_a_one_off_time_with_a_window_is_missed_after_it(timeline: Timeline) -> None:
    await timeline.apply("2030-01-02T00:00:00Z", misfire={"within": "1h"})
    timeline.be_down(400 * DAY)

    await timeline.scheduler.run_once()

    assert await timeline.ledger() == [Answer(12 * HOUR, 12 * HOUR, 1, "MISSED", "downtime")]


async def test_two_schedulers_answer_each_due_time_once(timeline: Timeline) -> None:
    await timeline.apply("every 1h", misfire={"policy": "all"}, overlap="allow")
    other = new_scheduler(timeline.engine, timeline.shards, timeline.ticker)
    await other.run_once()
    timeline.be_down(3 * HOUR)

    await timeline.scheduler.run_once()
    await other.run_once()

    assert await timeline.due_times() == hours(1, 2, 3)
    assert sum(answer.count for answer in await timeline.ledger()) == 3


async def test_a_scheduler_that_restarts_more_often_than_the_interval_fires(
    timeline: Timeline,
) -> None:
    await timeline.apply("every 1m")

    for _ in range(12):
        again = new_scheduler(timeline.engine, timeline.shards, timeline.ticker)
        timeline.be_down(10 * SECOND)
        await again.run_once()

    assert await timeline.due_times() == [MINUTE, 2 * MINUTE]
