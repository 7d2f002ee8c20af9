from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from time import perf_counter

from rota.domain.calendars import next_windows
from tests.unit.domain.calendars.builders import blackout, closed, end
from tests.unit.domain.memory import bytes_kept_by
from tests.unit.domain.schedule.builders import utc

MICROSECOND = timedelta(microseconds=1)


def test_the_first_instant_is_inside_and_the_end_is_not() -> None:
    weekend = blackout("Sat,Sun")

    assert not weekend.is_inside(utc("2026-01-03") - MICROSECOND)
    assert weekend.is_inside(utc("2026-01-03"))
    assert weekend.is_inside(utc("2026-01-05") - MICROSECOND)
    assert not weekend.is_inside(utc("2026-01-05"))


def test_windows_follow_the_clocks_of_their_zone() -> None:
    noon = blackout("daily 12:00-13:00", timezone="Europe/Berlin")

    assert noon.is_inside(utc("2026-01-01 11:30"))
    assert noon.is_inside(utc("2026-07-01 10:30"))
    assert not noon.is_inside(utc("2026-07-01 11:30"))


def test_a_window_that_begins_in_a_gap_begins_after_it() -> None:
    """Clocks in Berlin go from 02:00 to 03:00 on 29 March 2026."""
    night = blackout("daily 02:30-04:00", timezone="Europe/Berlin")

    assert closed("2026-03-28 12:00", night, 1) == ["2026-03-29 03:00 – 2026-03-29 04:00"]


def test_a_window_inside_a_gap_does_not_come() -> None:
    night = blackout("daily 02:15-02:45", timezone="Europe/Berlin")

    assert closed("2026-03-28 12:00", night, 1) == ["2026-03-30 02:15 – 2026-03-30 02:45"]


def test_a_window_that_comes_twice_is_one_stretch_until_its_second_end() -> None:
    """Clocks in Berlin go from 03:00 back to 02:00 on 25 October 2026, at 01:00 UTC."""
    night = blackout("daily 02:15-02:45", timezone="Europe/Berlin")

    (window,) = next_windows(night, utc("2026-10-24 12:00"), 1)

    assert (window.begins, window.ends) == (utc("2026-10-25 00:15"), utc("2026-10-25 01:45"))


def test_a_day_stays_closed_when_clocks_go_back_over_its_midnight() -> None:
    """Clocks in St John's went from 00:01 back to 23:01 on 1 November 2009, at 02:31 UTC."""
    saturday = blackout("Sat", timezone="America/St_Johns")

    assert saturday.is_inside(utc("2009-11-01 02:30:30"))
    assert end("2009-10-31 12:00", saturday) == "2009-11-01 03:30:00"


def test_a_day_that_a_zone_leaves_out_is_not_missed() -> None:
    """There was no 30 December 2011 in Apia, a Friday."""
    friday = blackout("Fri", timezone="Pacific/Apia")

    assert closed("2011-12-26", friday, 1) == ["2012-01-06 00:00 – 2012-01-07 00:00"]


def test_the_end_of_an_instant_outside_is_itself() -> None:
    assert end("2026-01-02 23:59:59.999999", blackout("Sat")) == "2026-01-02 23:59:59.999999"


def test_the_end_is_outside_of_all_calendars() -> None:
    weekend, monday = blackout("Sat,Sun"), blackout("Mon 00:00-09:00")

    assert end("2026-01-03 12:00", weekend, monday) == "2026-01-05 09:00:00"
    assert end("2026-01-03 12:00", monday, weekend) == "2026-01-05 09:00:00"
    assert end("2026-01-03 12:00") == "2026-01-03 12:00:00"


def test_calendars_that_together_never_end_have_no_end() -> None:
    assert end("2026-01-03", blackout("Mon-Fri"), blackout("Sat,Sun")) == ""


def test_the_end_of_a_long_blackout_is_found() -> None:
    years = blackout("2026-01-01/2028-12-31", "2029-01-01/2030-06-30", timezone="Asia/Tokyo")

    assert end("2026-05-01", years) == "2030-06-30 15:00:00"
    assert closed("2028-02-03", years) == ["2026-01-01 00:00 – 2030-07-01 00:00"]


def test_windows_that_touch_are_told_as_one() -> None:
    assert closed("2026-01-01", blackout("Sat", "Sun 00:00-12:00", "Fri 20:00-02:00"), 1) == [
        "2026-01-02 20:00 – 2026-01-04 12:00"
    ]


def test_a_window_under_way_is_told_with_its_true_beginning() -> None:
    assert closed("2026-01-04 12:00", blackout("Sat,Sun"), 1) == [
        "2026-01-03 00:00 – 2026-01-05 00:00"
    ]


def test_years_of_windows_are_told_without_a_break() -> None:
    windows = next_windows(blackout("daily 12:00-13:00"), utc("2026-01-01"), 1_000)

    assert len(windows) == 1_000
    assert all(
        after.begins - before.begins == timedelta(days=1) for before, after in pairwise(windows)
    )


def test_windows_beyond_five_years_are_not_looked_for() -> None:
    far = blackout("2040-01-01")

    assert closed("2026-01-01", far) == []
    assert closed("2039-01-01", far) == ["2040-01-01 00:00 – 2040-01-02 00:00"]


def test_the_ends_of_time_have_an_answer() -> None:
    last = datetime.max.replace(tzinfo=UTC)
    for zone in ("UTC", "America/New_York", "Pacific/Pago_Pago"):
        friday = blackout("Fri", timezone=zone)

        assert friday.is_inside(last)
        assert end(last.isoformat(), friday) == ""
        assert next_windows(friday, last, 5) == ()
        assert not friday.is_inside(datetime(1970, 1, 1, 12, tzinfo=UTC))


def test_many_years_are_visited_in_bounded_memory() -> None:
    weekend = blackout("Sat,Sun", name="long-lived")

    grown = bytes_kept_by(
        lambda: [weekend.is_inside(utc(f"{year}-07-01")) for year in range(1970, 2400)]
    )

    assert grown < 200_000
    assert weekend.is_inside(utc("2026-01-03"))


def test_a_question_takes_far_less_than_a_millisecond() -> None:
    mixed = blackout("Mon-Fri 22:00-06:00", "Sat,Sun", "day 1,L", timezone="America/New_York")
    times = [utc("2026-01-01") + timedelta(minutes=11 * step) for step in range(20_000)]

    started = perf_counter()
    for time in times:
        mixed.is_inside(time)

    assert perf_counter() - started < 2
