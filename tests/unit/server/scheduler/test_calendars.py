"""Due times inside the windows of calendars."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
import yaml
from structlog.testing import capture_logs

from rota.domain.calendars import Calendar, Holidays, Inside, blackout
from rota.domain.errors import Invalid
from rota.domain.jobfile import read_file
from rota.domain.states import RunState
from rota.operations import calendars, definitions
from rota.operations.definitions import find_job
from rota.operations.why import why
from rota.ports.records import NewCalendar
from testkit.clock import START
from tests.unit.server.scheduler.timeline import Answer, Timeline

pytestmark = pytest.mark.anyio

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
# Time passes from 12:00 UTC on: the window is from hour 2 to hour 5.
AFTERNOON = "daily 14:00-17:00"


def hours(*numbers: float) -> list[timedelta]:
    return [number * HOUR for number in numbers]


async def apply(
    timeline: Timeline,
    schedule: str,
    *windows: str,
    inside: str = "skip",
    names: Sequence[str] = ("quiet",),
    **fields: Any,
) -> None:
    """A job that uses the calendar `quiet`, both in one file."""
    job = {
        "name": "job",
        "steps": [{"run": "true"}],
        "schedule": schedule,
        "overlap": "allow",
        "calendars": list(names),
        **fields,
    }
    calendar = {"name": "quiet", "windows": list(windows or [AFTERNOON]), "inside": inside}
    file = read_file(yaml.safe_dump({"calendars": [calendar], "jobs": [job]}), name="test")
    await definitions.apply(timeline.engine, file, actor="test")


async def save(timeline: Timeline, *windows: str, inside: Inside = Inside.SKIP) -> None:
    calendar = Calendar("quiet", windows, inside=inside)
    await calendars.save_calendar(timeline.engine, "default", calendar, actor="test")


def skipped(first: timedelta, last: timedelta, count: int) -> Answer:
    return Answer(first, last, count, "SKIPPED", "calendar quiet")


async def test_due_times_inside_are_skipped_as_one_entry(timeline: Timeline) -> None:
    await apply(timeline, "every 1h")

    await timeline.pass_time(6 * HOUR)

    assert await timeline.due_times() == hours(1, 5, 6)
    ledger = await timeline.ledger()
    assert [entry for entry in ledger if entry.state == "SKIPPED"] == [
        skipped(2 * HOUR, 4 * HOUR, 3)
    ]


async def test_the_end_of_a_window_is_outside(timeline: Timeline) -> None:
    await apply(timeline, "0 14,17 * * *")

    await timeline.pass_time(6 * HOUR)

    assert await timeline.due_times() == hours(5)


async def test_the_last_due_time_inside_runs_when_the_window_ends(timeline: Timeline) -> None:
    await apply(timeline, "30 * * * *", inside="run_after")

    await timeline.pass_time(4.75 * HOUR)
    [*_, waiting] = await timeline.runs()
    await timeline.pass_time(0.25 * HOUR)
    [*_, released] = await timeline.runs()

    assert (waiting.due_at - START, waiting.state) == (4.5 * HOUR, RunState.SCHEDULED)
    assert waiting.eligible_at == START + 5 * HOUR
    assert [reason.message for reason in waiting.reasons] == [
        "calendar quiet keeps it until 2030-01-01 17:00:00 UTC"
    ]
    assert (await why(timeline.engine, waiting)).passed == ("time",)
    assert (released.id, released.state, released.reasons) == (waiting.id, RunState.QUEUED, ())
    assert [answer for answer in await timeline.ledger() if answer.state == "SKIPPED"] == [
        skipped(2.5 * HOUR, 3.5 * HOUR, 2)
    ]


async def test_spread_shifts_the_release_after_the_window(timeline: Timeline) -> None:
    await apply(timeline, "30 4 * * *", "daily 04:00-05:00", inside="run_after", spread="10m")

    await timeline.pass_time(16.75 * HOUR)

    [run] = await timeline.runs()
    assert run.eligible_at is not None
    assert timedelta(0) < run.eligible_at - (START + 17 * HOUR) < 10 * MINUTE


async def test_lateness_counts_from_the_end_of_the_window(timeline: Timeline) -> None:
    await apply(timeline, "30 16 * * *", inside="run_after", start_within="1m")
    await timeline.pass_time(5 * HOUR)

    await timeline.end_runs()

    [run] = await timeline.runs()
    assert (run.state, run.lateness_seconds) == (RunState.COMPLETED, 0)


async def test_a_calendar_that_skips_wins(timeline: Timeline) -> None:
    other = NewCalendar("default", Calendar("other", ("daily 15:00-16:00",)))
    await timeline.store.save_calendars([other], actor="test")
    names = ["quiet", "other"]
    await apply(timeline, "30 15 * * *", inside="run_after", names=names)

    await timeline.pass_time(6 * HOUR)

    assert await timeline.ledger() == [
        Answer(3.5 * HOUR, 3.5 * HOUR, 1, "SKIPPED", "calendar other")
    ]


async def test_run_once_runs_at_the_first_due_time_outside(timeline: Timeline) -> None:
    await apply(timeline, "0 14-20 * * *", run_once=True)

    await timeline.pass_time(10 * HOUR)

    assert await timeline.due_times() == hours(5)
    assert (await find_job(timeline.engine, "job")).finished_at == START + 5 * HOUR


async def test_run_once_that_waits_finishes_the_job(timeline: Timeline) -> None:
    await apply(timeline, "0 14-20 * * *", inside="run_after", run_once=True)

    await timeline.pass_time(10 * HOUR)

    [run] = await timeline.runs()
    assert (run.due_at - START, run.queued_at) == (2 * HOUR, START + 5 * HOUR)


async def test_an_interval_from_completion_goes_on_after_the_window(timeline: Timeline) -> None:
    await apply(timeline, "every 1h", "daily 13:30-17:30", interval_from="completion")
    await timeline.pass_time(HOUR)
    await timeline.end_runs()
    await timeline.scheduler.run_once()

    await timeline.pass_time(6 * HOUR)

    assert await timeline.due_times() == hours(1, 6)
    assert skipped(2 * HOUR, 5 * HOUR, 4) in await timeline.ledger()


async def test_what_was_missed_inside_was_ruled_out_anyway(timeline: Timeline) -> None:
    await apply(timeline, "every 1h")
    timeline.be_down(6.5 * HOUR)

    await timeline.scheduler.run_once()

    assert await timeline.due_times() == hours(6)
    assert (await timeline.ledger())[:3] == [
        Answer(HOUR, HOUR, 1, "MISSED", "downtime"),
        skipped(2 * HOUR, 4 * HOUR, 3),
        Answer(5 * HOUR, 5 * HOUR, 1, "MISSED", "downtime"),
    ]


async def test_the_policy_chooses_among_due_times_outside(timeline: Timeline) -> None:
    """The last one is caught up, but not while the window is on."""
    await apply(timeline, "every 1h")
    timeline.be_down(3.5 * HOUR)

    await timeline.scheduler.run_once()

    [run] = await timeline.runs()
    assert (run.due_at - START, run.state) == (HOUR, RunState.SCHEDULED)
    assert run.eligible_at == START + 5 * HOUR


async def test_a_day_of_a_one_second_job_inside_is_one_row(timeline: Timeline) -> None:
    await apply(timeline, "every 1s", "2030-01-01T12:00/2030-01-03T00:00")

    await timeline.pass_time(20 * SECOND)
    timeline.be_down(DAY)
    await timeline.scheduler.run_once()

    assert await timeline.ledger() == [skipped(SECOND, DAY + 20 * SECOND, DAY // SECOND + 20)]


async def test_a_changed_calendar_counts_from_the_next_due_time_on(timeline: Timeline) -> None:
    await apply(timeline, "every 1h")
    await timeline.pass_time(2 * HOUR)

    await save(timeline, "daily 14:00-14:30")
    await timeline.pass_time(HOUR)

    assert await timeline.due_times() == hours(1, 3)


async def apply_beside_weekdays(timeline: Timeline) -> None:
    """The job uses a second calendar, which leaves it only the weekends."""
    weekdays = Calendar("weekdays", ("Mon-Fri",))
    await calendars.save_calendar(timeline.engine, "default", weekdays, actor="test")
    await apply(timeline, "every 1h", names=("quiet", "weekdays"))


async def test_a_calendar_that_leaves_a_job_no_time_is_refused(timeline: Timeline) -> None:
    await apply_beside_weekdays(timeline)

    with pytest.raises(Invalid, match="job job"):
        await save(timeline, "Sat,Sun")


async def test_a_calendar_may_leave_no_time_to_a_job_that_its_file_frees(
    timeline: Timeline,
) -> None:
    await apply_beside_weekdays(timeline)

    await apply(timeline, "every 1h", "Sat,Sun", names=("quiet",))
    await timeline.pass_time(2 * HOUR)

    assert await timeline.due_times() == hours(1, 2)


async def test_a_change_between_look_and_fire_is_obeyed(timeline: Timeline) -> None:
    await apply(timeline, "every 1m", "daily 20:00-21:00")
    timeline.be_down(59 * SECOND)
    await timeline.scheduler.run_once()  # the schedule is in memory now

    await save(timeline, "daily 12:00-13:00")
    timeline.be_down(SECOND)
    await timeline.scheduler.timekeeper.fire_due()
    assert await timeline.ledger() == []
    await timeline.scheduler.run_once()

    assert await timeline.ledger() == [skipped(MINUTE, MINUTE, 1)]


async def test_a_run_that_waits_keeps_its_release(timeline: Timeline) -> None:
    await apply(timeline, "30 16 * * *", inside="run_after")
    await timeline.pass_time(4.5 * HOUR)

    await save(timeline, "daily 14:00-23:00", inside=Inside.RUN_AFTER)
    await timeline.pass_time(0.5 * HOUR)

    [run] = await timeline.runs()
    assert run.queued_at == START + 5 * HOUR


async def test_without_the_package_of_holidays_nothing_fires_and_the_log_says_so(
    timeline: Timeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    await apply(timeline, "every 1h")
    await apply(timeline, "every 1h", name="free", calendars=[])
    holidays = Calendar("quiet", holidays=Holidays("DE", "BB"))
    monkeypatch.setattr(blackout, "_package", lambda: None)
    await timeline.store.save_calendars([NewCalendar("default", holidays, 1)], actor="other")

    with capture_logs() as logs:
        timeline.be_down(HOUR)
        await timeline.scheduler.run_once()
        await timeline.scheduler.run_once()

    assert await timeline.ledger() == []
    assert await timeline.due_times("free") == hours(1)
    [told] = logs
    assert (told["event"], told["calendar"]) == ("calendar.unreadable", "quiet")
    assert "pip install rota[holidays]" in told["error"]
