from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from rota.domain import schedule
from rota.domain.schedule import Kind
from rota.domain.spec import Dst, Fold, Gap, IntervalFrom
from tests.unit.domain.schedule.builders import ANCHOR, local_times, timetable, upcoming, utc

SKIP_AND_BOTH = Dst(Gap.SKIP, Fold.BOTH)


def test_several_expressions_give_their_union_without_duplicates() -> None:
    table = timetable("0 */12 * * *", "0 0 * * *", "2026-01-02T06:00")

    assert upcoming("2026-01-01", table, 4) == [
        "2026-01-01 12:00:00",
        "2026-01-02 00:00:00",
        "2026-01-02 06:00:00",
        "2026-01-02 12:00:00",
    ]
    assert table.kinds == (Kind.ELAPSED, Kind.FIXED, Kind.ONCE)
    assert table.count(utc("2026-01-01"), utc("2026-01-02 12:00")) == 4
    assert table.last_at_or_before(utc("2026-01-02 11:00")) == utc("2026-01-02 06:00")


def test_the_bounds_are_due_and_nothing_lies_outside() -> None:
    table = timetable("@daily", starts=utc("2026-02-01"), ends=utc("2026-02-03"))

    assert upcoming("2026-01-01", table, 9) == [
        "2026-02-01 00:00:00",
        "2026-02-02 00:00:00",
        "2026-02-03 00:00:00",
    ]
    assert table.count(utc("2020-01-01"), utc("2030-01-01")) == 3
    assert table.last_at_or_before(utc("2026-01-31")) is None
    assert table.last_at_or_before(utc("2030-01-01")) == utc("2026-02-03")


def test_intervals_count_elapsed_time_from_the_anchor() -> None:
    table = timetable("90m", timezone="Europe/Berlin", anchor=utc("2026-03-29 00:10"))

    assert upcoming("2026-03-29 00:10", table, 2) == ["2026-03-29 01:40:00", "2026-03-29 03:10:00"]
    assert table.last_at_or_before(utc("2026-03-29 00:09")) is None


def test_intervals_count_from_the_start_if_there_is_one() -> None:
    table = timetable("1h", starts=utc("2026-02-01 00:15"))

    assert upcoming("2026-01-01", table, 2) == ["2026-02-01 00:15:00", "2026-02-01 01:15:00"]


def test_the_resolution_is_below_a_second() -> None:
    table = timetable("100ms")

    assert table.next_after(ANCHOR) == ANCHOR + timedelta(milliseconds=100)
    assert table.count(ANCHOR, ANCHOR + timedelta(days=1)) == 864_000


def test_a_due_time_is_never_before_the_instant_asked_for() -> None:
    table = timetable("* * * * * *")
    just_before = utc("2026-01-01 00:00:05") - timedelta(microseconds=1)

    assert table.next_after(just_before) == utc("2026-01-01 00:00:05")
    assert table.next_after(utc("2026-01-01 00:00:05")) == utc("2026-01-01 00:00:06")
    assert table.last_at_or_before(just_before) == utc("2026-01-01 00:00:04")


def test_completion_counts_from_the_end_of_the_previous_run() -> None:
    table = timetable("10m", interval_from=IntervalFrom.COMPLETION, ends=utc("2026-01-02"))

    assert table.after_completion(utc("2026-01-01 00:03")) == utc("2026-01-01 00:13")
    assert table.after_completion(utc("2026-01-01 23:55")) is None
    assert len(table.upcoming(ANCHOR, 5)) == 1


def test_completion_leads_to_nothing_before_the_schedule_starts() -> None:
    starts = utc("2026-01-03")
    table = timetable("10m", interval_from=IntervalFrom.COMPLETION, starts=starts)

    assert table.after_completion(utc("2026-01-01")) == starts
    assert table.after_completion(starts) == utc("2026-01-03 00:10")


def test_only_the_first_of_a_run_once_schedule_is_upcoming() -> None:
    table = timetable("@daily", run_once=True)

    assert upcoming("2026-01-01 12:00", table, 5) == ["2026-01-02 00:00:00"]


@pytest.mark.parametrize("expression", ["@yearly", "* * * * * *", "36500d"])
@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "Pacific/Kiritimati", "Pacific/Niue"])
def test_time_ends_with_the_year_9999(expression: str, zone: str) -> None:
    table = timetable(expression, timezone=zone)
    end = datetime.max.replace(tzinfo=UTC)
    last = table.last_at_or_before(end)

    assert table.next_after(end) is None
    assert last is not None
    assert table.next_after(last) is None
    assert table.next_after(last - timedelta(seconds=1)) == last
    assert table.count(last - timedelta(seconds=1), end) == 1
    assert table.release_at(last) <= end


@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo", "America/New_York"])
def test_time_begins_with_the_year_1970(zone: str) -> None:
    table = timetable("@hourly", timezone=zone)
    begin = datetime.min.replace(tzinfo=UTC)

    assert table.next_after(begin) == utc("1970-01-01")
    assert table.last_at_or_before(begin) is None
    assert table.count(begin, utc("1970-01-01 02:00")) == 3


def test_a_start_before_1970_changes_nothing() -> None:
    table = timetable("@daily", starts=utc("1960-01-01"))

    assert table.next_after(utc("1950-01-01")) == utc("1970-01-01")
    assert table.last_at_or_before(utc("1969-12-31 23:59")) is None


class TestGap:
    def test_a_fixed_time_runs_right_after_it(self) -> None:
        table = timetable("30 2 * * *", timezone="Europe/Berlin")

        assert local_times("2026-03-28 00:00", table) == [
            "2026-03-28 02:30+01:00",
            "2026-03-29 03:00+02:00",
            "2026-03-30 02:30+02:00",
        ]

    def test_several_fixed_times_in_it_give_one_run(self) -> None:
        table = timetable("0,15,30,45 2,3 * * *", timezone="America/New_York")

        assert local_times("2026-03-08 06:59", table, 2) == [
            "2026-03-08 03:00-04:00",
            "2026-03-08 03:15-04:00",
        ]

    def test_fixed_times_in_it_are_left_out_on_request(self) -> None:
        table = timetable("30 2 * * *", timezone="Europe/Berlin", dst=SKIP_AND_BOTH)

        assert local_times("2026-03-28 12:00", table, 1) == ["2026-03-30 02:30+02:00"]

    def test_elapsed_times_in_it_do_not_exist(self) -> None:
        table = timetable("*/30 * * * *", timezone="Europe/Berlin")

        assert local_times("2026-03-29 00:00", table) == [
            "2026-03-29 01:30+01:00",
            "2026-03-29 03:00+02:00",
            "2026-03-29 03:30+02:00",
        ]

    def test_a_seconds_field_changes_nothing(self) -> None:
        table = timetable("*/10 30 2 * * *", timezone="Europe/Berlin")

        assert upcoming("2026-03-29 00:00", table, 2) == [
            "2026-03-29 01:00:00",
            "2026-03-30 00:30:00",
        ]

    def test_a_jump_of_more_than_three_hours_is_not_one(self) -> None:
        table = timetable("30 2 * * *", timezone="Pacific/Apia")

        assert local_times("2011-12-29 00:00", table, 3) == [
            "2011-12-29 02:30-10:00",
            "2011-12-31 02:30+14:00",
            "2012-01-01 02:30+14:00",
        ]


class TestFold:
    def test_a_fixed_time_runs_the_first_time(self) -> None:
        table = timetable("30 2 * * *", timezone="Europe/Berlin")

        assert local_times("2026-10-25 00:00", table, 2) == [
            "2026-10-25 02:30+02:00",
            "2026-10-26 02:30+01:00",
        ]

    def test_a_fixed_time_is_not_repeated_for_one_who_asks_between(self) -> None:
        table = timetable("30 2 * * *", timezone="Europe/Berlin")

        assert local_times("2026-10-25 01:10", table, 1) == ["2026-10-26 02:30+01:00"]
        assert table.last_at_or_before(utc("2026-10-25 12:00")) == utc("2026-10-25 00:30")

    def test_a_fixed_time_runs_twice_on_request(self) -> None:
        table = timetable("30 2 * * *", timezone="Europe/Berlin", dst=SKIP_AND_BOTH)

        assert local_times("2026-10-25 00:00", table, 2) == [
            "2026-10-25 02:30+02:00",
            "2026-10-25 02:30+01:00",
        ]

    def test_elapsed_times_all_run(self) -> None:
        table = timetable("*/30 * * * *", timezone="Europe/Berlin")

        assert local_times("2026-10-25 00:00", table, 4) == [
            "2026-10-25 02:30+02:00",
            "2026-10-25 02:00+01:00",
            "2026-10-25 02:30+01:00",
            "2026-10-25 03:00+01:00",
        ]


@pytest.mark.parametrize(
    ("zone", "expression", "after", "due"),
    [
        (
            "Australia/Lord_Howe",
            "15 2 * * *",
            "2026-10-02 16:00",
            ["2026-10-04 02:30+11:00", "2026-10-05 02:15+11:00"],
        ),
        (
            "Australia/Lord_Howe",
            "45 1 * * *",
            "2026-04-04 12:00",
            ["2026-04-05 01:45+11:00", "2026-04-06 01:45+10:30"],
        ),
        (
            "Africa/Cairo",
            "0 0 * * *",
            "2025-04-23 22:00",
            ["2025-04-25 01:00+03:00", "2025-04-26 00:00+03:00"],
        ),
        (
            "Africa/Casablanca",
            "30 2 * * *",
            "2025-04-05 12:00",
            ["2025-04-06 03:00+01:00", "2025-04-07 02:30+01:00"],
        ),
        (
            "Europe/Dublin",
            "30 1 * * *",
            "2026-03-28 12:00",
            ["2026-03-29 02:00+01:00", "2026-03-30 01:30+01:00"],
        ),
        (
            "Antarctica/Troll",
            "30 1 * * *",
            "2026-03-28 12:00",
            ["2026-03-29 03:00+02:00", "2026-03-30 01:30+02:00"],
        ),
        (
            "Pacific/Kwajalein",
            "0 6 * * *",
            "1993-08-20 00:00",
            ["1993-08-20 06:00-12:00", "1993-08-22 06:00+12:00"],
        ),
    ],
)
def test_known_oddities(zone: str, expression: str, after: str, due: list[str]) -> None:
    assert local_times(after, timetable(expression, timezone=zone), 2) == due


def test_a_day_of_every_second_is_counted_without_walking() -> None:
    table = timetable("* * * * * *", timezone="Europe/Berlin")

    assert table.count(utc("2026-03-28 23:00"), utc("2026-03-29 22:00")) == 23 * 3600
    assert table.count(utc("1990-01-01"), utc("2090-01-01")) == 36_525 * 86_400


def test_the_package_exports_what_it_names() -> None:
    assert sorted(schedule.__all__) == schedule.__all__
    assert all(hasattr(schedule, name) for name in schedule.__all__)
