from __future__ import annotations

from rota.domain.calendars import Blackout
from rota.domain.firing import DueStart, RuledOut, SkippedNext, next_start, skip_next_start
from rota.domain.schedule import DueRange, Timetable
from rota.domain.spec import IntervalFrom
from tests.unit.domain.calendars.builders import blackout, waiting
from tests.unit.domain.schedule.builders import timetable, utc

FRIDAY = utc("2026-01-02 09:00")
SATURDAY = utc("2026-01-03 09:00")
SUNDAY = utc("2026-01-04 09:00")
MONDAY = utc("2026-01-05 09:00")
DAILY = timetable("0 9 * * *")
WEEKENDS = blackout("Sat,Sun", name="weekends")
WAITING = waiting("Sat,Sun", name="weekends")


def chain(interval: str) -> Timetable:
    return timetable(interval, interval_from=IntervalFrom.COMPLETION)


def test_without_calendars_the_next_due_time_runs() -> None:
    assert next_start(DAILY, [], SATURDAY) == DueStart(SATURDAY, SATURDAY)


def test_due_times_that_a_calendar_skips_are_passed_over() -> None:
    assert next_start(DAILY, [WEEKENDS], SATURDAY) == DueStart(MONDAY, MONDAY)


def test_of_those_that_wait_for_a_window_the_last_runs() -> None:
    assert next_start(DAILY, [WAITING], SATURDAY) == DueStart(SUNDAY, utc("2026-01-05"), "weekends")


def test_a_job_that_runs_once_waits_with_its_first_due_time() -> None:
    once = timetable("0 9 * * *", run_once=True)

    found = next_start(once, [WAITING], SATURDAY)

    assert found == DueStart(SATURDAY, utc("2026-01-05"), "weekends")


def test_a_chain_leaps_over_a_window_step_by_step() -> None:
    found = next_start(chain("7h"), [WEEKENDS], SATURDAY)

    assert found == DueStart(utc("2026-01-05 03:00"), utc("2026-01-05 03:00"))


def test_a_chain_waits_with_the_due_time_that_it_has() -> None:
    assert next_start(chain("7h"), [WAITING], SATURDAY) == DueStart(
        SATURDAY, utc("2026-01-05"), "weekends"
    )


def test_a_schedule_that_ends_inside_a_window_has_no_next_start() -> None:
    ending = timetable("0 9 * * *", ends=utc("2026-01-04 12:00"))

    assert next_start(ending, [WEEKENDS], SATURDAY) is None
    assert skip_next_start(ending, [WEEKENDS], SATURDAY) is None


def test_years_of_windows_are_passed_quickly_by_a_dense_schedule() -> None:
    closed: list[Blackout] = [blackout("2026-01-01/2030-01-01")]

    found = next_start(timetable("every 100ms"), closed, SATURDAY)

    assert found is not None
    assert found.due == utc("2030-01-02")


def test_skipping_leaves_out_the_first_that_would_run() -> None:
    skipped = skip_next_start(DAILY, [WEEKENDS], SATURDAY)

    assert skipped == SkippedNext(
        (RuledOut(DueRange(SATURDAY, SUNDAY, 2), "calendar weekends"),),
        MONDAY,
        utc("2026-01-06 09:00"),
    )


def test_skipping_one_that_waits_tells_those_before_it_too() -> None:
    skipped = skip_next_start(DAILY, [WAITING], SATURDAY)

    assert skipped == SkippedNext(
        (RuledOut(DueRange(SATURDAY, SATURDAY, 1), "calendar weekends"),), SUNDAY, MONDAY
    )


def test_skipping_in_a_chain_goes_on_from_the_time_skipped() -> None:
    skipped = skip_next_start(chain("7h"), [], FRIDAY)

    assert skipped == SkippedNext((), FRIDAY, utc("2026-01-02 16:00"))
