"""No schedule is blocked in silence, whatever its overlap policy."""

from __future__ import annotations

from datetime import timedelta

import pytest

from rota.domain.calendars import Calendar, Inside
from rota.domain.ids import micros
from rota.ports.records import NewCalendar
from rota.ports.work import Outcome
from rota.server.scheduler.watches import CongestionWatch
from testkit.builders import reported
from testkit.clock import FakeClock
from tests.unit.server.scheduler.timeline import Timeline

pytestmark = pytest.mark.anyio

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)


async def look(timeline: Timeline) -> None:
    await CongestionWatch(timeline.engine, FakeClock(timeline.ticker), timeline.shards).run_once()


async def is_stuck(timeline: Timeline) -> bool:
    return (await timeline.job()).stuck_since is not None


async def told(timeline: Timeline) -> list[str]:
    events = await timeline.store.events(0, 10_000)
    return [event.kind for event in events if event.kind in ("job.stuck", "job.drained")]


@pytest.mark.parametrize("overlap", ["skip", "queue_one", "queue_all", "cancel_previous"])
async def test_a_run_that_never_ends_is_noticed(timeline: Timeline, overlap: str) -> None:
    await timeline.apply("every 10m", overlap=overlap)
    await timeline.pass_time(10 * MINUTE)
    works = await timeline.start_runs()
    await timeline.pass_time(50 * MINUTE)
    await look(timeline)
    assert not await is_stuck(timeline)

    await timeline.pass_time(HOUR)
    await look(timeline)
    await look(timeline)

    assert await is_stuck(timeline)
    await timeline.scene.finish(timeline.session, works)
    while await timeline.end_runs():
        pass
    await timeline.pass_time(10 * MINUTE)
    await look(timeline)
    assert not await is_stuck(timeline)
    assert await told(timeline) == ["job.stuck", "job.drained"]


async def test_a_job_that_usually_takes_long_is_given_longer(timeline: Timeline) -> None:
    await timeline.apply("every 30m")
    await timeline.pass_time(30 * MINUTE)
    [work] = await timeline.start_runs()
    began = micros(timeline.ticker.instant)
    await timeline.pass_time(20 * MINUTE)
    ended = micros(timeline.ticker.instant)
    outcome = Outcome(work.run, work.number, "COMPLETED", began, ended)
    await timeline.store.finish(timeline.session, reported(outcome))
    await timeline.pass_time(10 * MINUTE)
    await timeline.start_runs()

    await timeline.pass_time(2 * HOUR)
    await look(timeline)
    assert not await is_stuck(timeline)

    await timeline.pass_time(2 * HOUR)
    await look(timeline)
    assert await is_stuck(timeline)


async def test_more_than_a_hundred_waiting_runs_are_noticed_at_once(timeline: Timeline) -> None:
    await timeline.apply("every 1s", overlap="queue_all")
    await timeline.pass_time(101 * timedelta(seconds=1))
    await look(timeline)
    assert not await is_stuck(timeline)

    await timeline.pass_time(timedelta(seconds=1))
    await look(timeline)

    assert await is_stuck(timeline)


async def test_the_time_that_a_calendar_kept_a_run_does_not_count(timeline: Timeline) -> None:
    calendar = Calendar("quiet", ("daily 13:00-23:30",), inside=Inside.RUN_AFTER)
    await timeline.store.save_calendars([NewCalendar("default", calendar, 0)], actor="test")
    await timeline.apply("every 6h", calendars=["quiet"])  # due at 18:00, and again at midnight

    await timeline.pass_time(12 * HOUR + 10 * MINUTE)
    await look(timeline)
    assert not await is_stuck(timeline)

    await timeline.pass_time(25 * MINUTE)
    await look(timeline)
    assert await is_stuck(timeline)
