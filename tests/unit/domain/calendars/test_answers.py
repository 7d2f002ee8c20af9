from __future__ import annotations

from rota.domain.calendars import Allowed, BlackoutAnswer, ReleasedAt, SkippedBy, blackout_answer
from rota.domain.firing import fold_into_window
from tests.unit.domain.calendars.builders import blackout, waiting
from tests.unit.domain.schedule.builders import utc

SATURDAY = utc("2026-01-03 12:00")
SUNDAY = utc("2026-01-04 12:00")
MONDAY = utc("2026-01-05")


def told(answers: tuple[BlackoutAnswer, ...]) -> list[str]:
    """`run`, `skip` or `wait` for each answer."""
    words = {Allowed: "run", SkippedBy: "skip", ReleasedAt: "wait"}
    return [words[type(answer)] for answer in answers]


def test_a_due_time_outside_is_allowed() -> None:
    assert blackout_answer([], SATURDAY) == Allowed()
    assert blackout_answer([blackout("Sun")], SATURDAY) == Allowed()


def test_a_calendar_that_skips_is_named_as_the_cause() -> None:
    answer = blackout_answer([blackout("Sun"), blackout("Sat", name="weekends")], SATURDAY)

    assert answer == SkippedBy("weekends")
    assert isinstance(answer, SkippedBy)
    assert answer.cause == "calendar weekends"


def test_a_calendar_that_lets_wait_releases_at_its_end() -> None:
    weekend = waiting("Sat,Sun", name="weekends")

    assert blackout_answer([weekend], SATURDAY) == ReleasedAt(MONDAY, "weekends")


def test_skipping_wins_over_waiting() -> None:
    answer = blackout_answer([waiting("Sat,Sun"), blackout("Sat", name="strict")], SATURDAY)

    assert answer == SkippedBy("strict")


def test_a_run_waits_for_the_end_of_all_calendars() -> None:
    answer = blackout_answer([waiting("Sat", name="first"), blackout("Sun")], SATURDAY)

    assert answer == ReleasedAt(MONDAY, "first")


def test_a_due_time_that_would_wait_for_ever_is_skipped() -> None:
    answer = blackout_answer([waiting("Sat,Sun", name="weekends"), waiting("Mon-Fri")], SATURDAY)

    assert answer == SkippedBy("weekends")


def test_only_the_last_due_time_of_a_window_runs() -> None:
    weekend = waiting("Sat,Sun", name="weekends")

    answers = fold_into_window([weekend], [utc("2026-01-02"), SATURDAY, SUNDAY, MONDAY], None)

    assert answers == (Allowed(), SkippedBy("weekends"), ReleasedAt(MONDAY, "weekends"), Allowed())


def test_each_window_has_its_run() -> None:
    noon = waiting("daily 12:00-13:00")
    due_times = [utc(f"2026-01-0{day} 12:{minute}") for day in (1, 2) for minute in ("10", "50")]

    assert told(fold_into_window([noon], due_times, None)) == ["skip", "wait", "skip", "wait"]


def test_a_due_time_yet_to_come_runs_instead_of_those_before_it() -> None:
    weekend = [waiting("Sat,Sun")]

    assert told(fold_into_window(weekend, [SATURDAY], SUNDAY)) == ["skip"]
    assert told(fold_into_window(weekend, [SATURDAY], MONDAY)) == ["wait"]
    assert told(fold_into_window(weekend, [SATURDAY], utc("2026-01-10"))) == ["wait"]


def test_a_later_due_time_that_is_skipped_does_not_take_the_run_away() -> None:
    calendars = [waiting("Sat,Sun"), blackout("Sun", name="strict")]

    assert told(fold_into_window(calendars, [SATURDAY, SUNDAY], None)) == ["wait", "skip"]
    assert told(fold_into_window(calendars, [SATURDAY], SUNDAY)) == ["wait"]


def test_without_calendars_everything_runs() -> None:
    assert told(fold_into_window([], [SATURDAY, SUNDAY], MONDAY)) == ["run", "run"]
