from __future__ import annotations

from datetime import datetime, timedelta

from rota.domain.schedule import DueRange, following, pass_over
from rota.domain.spec import IntervalFrom
from tests.unit.domain.schedule.builders import timetable, utc

HOURLY = timetable("0 * * * *")
AFTER_THE_RUN = timetable("every 1h", interval_from=IntervalFrom.COMPLETION)


def at(clock: str) -> datetime:
    return utc(f"2026-05-04 {clock}")


class TestPassingOver:
    def test_all_from_the_cursor_to_the_end_is_one_stretch(self) -> None:
        over = pass_over(HOURLY, at("10:00"), at("12:30"))

        assert over.passed == DueRange(at("10:00"), at("12:00"), 3)
        assert over.next_at == at("13:00")

    def test_both_ends_belong_to_it(self) -> None:
        over = pass_over(HOURLY, at("10:00"), at("12:00"))

        assert over.passed == DueRange(at("10:00"), at("12:00"), 3)

    def test_a_cursor_that_is_to_come_stays(self) -> None:
        over = pass_over(HOURLY, at("10:00"), at("09:59"))

        assert (over.passed, over.next_at) == (None, at("10:00"))

    def test_a_cursor_that_the_timetable_does_not_name_is_passed_over_too(self) -> None:
        over = pass_over(HOURLY, at("10:20"), at("10:30"))

        assert over.passed == DueRange(at("10:20"), at("10:20"), 1)
        assert over.next_at == at("11:00")

    def test_what_counts_from_the_end_of_a_run_has_one_due_time(self) -> None:
        over = pass_over(AFTER_THE_RUN, at("10:20"), at("18:00"))

        assert over.passed == DueRange(at("10:20"), at("10:20"), 1)
        assert over.next_at == at("19:00")


def test_a_due_time_that_does_not_run_is_followed_by_the_next() -> None:
    assert following(HOURLY, at("10:00")) == at("11:00")
    assert following(AFTER_THE_RUN, at("10:20")) == at("11:20")


def test_passing_over_a_century_of_seconds_takes_no_walk() -> None:
    seconds = timetable("* * * * * *")

    over = pass_over(seconds, utc("2026-01-01 00:00"), utc("2126-01-01 00:00"))

    assert over.passed is not None
    assert over.passed.count == timedelta(days=36_524) // timedelta(seconds=1) + 1
