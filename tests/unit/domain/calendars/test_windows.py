from __future__ import annotations

import pytest

from tests.unit.domain.calendars.builders import blackout, closed, errors_of


@pytest.mark.parametrize(
    ("window", "expected"),
    [
        ("Sat,Sun 00:00-24:00", "2026-01-03 00:00 – 2026-01-05 00:00"),
        ("sat, SUNDAY", "2026-01-03 00:00 – 2026-01-05 00:00"),
        ("Fri-Mon", "2026-01-02 00:00 – 2026-01-06 00:00"),
        ("Mon-Fri 22:00-06:00", "2025-12-31 22:00 – 2026-01-01 06:00"),
        ("Sun 22:00 - 24:00", "2026-01-04 22:00 – 2026-01-05 00:00"),
        ("Sun 22:00-00:00", "2026-01-04 22:00 – 2026-01-05 00:00"),
        ("daily 12:00-13:00", "2026-01-01 12:00 – 2026-01-01 13:00"),
        ("day 15", "2026-01-15 00:00 – 2026-01-16 00:00"),
        ("days 10-12 8:30-9:00", "2026-01-10 08:30 – 2026-01-10 09:00"),
        ("day L", "2026-01-31 00:00 – 2026-02-01 00:00"),
        ("Dec 24", "2026-12-24 00:00 – 2026-12-25 00:00"),
        ("December 24-26", "2026-12-24 00:00 – 2026-12-27 00:00"),
        ("Feb 29", "2028-02-29 00:00 – 2028-03-01 00:00"),
        ("2026-12-24", "2026-12-24 00:00 – 2026-12-25 00:00"),
        ("2026-12-24/2026-12-26", "2026-12-24 00:00 – 2026-12-27 00:00"),
        ("2026-12-24 12:00-13:00", "2026-12-24 12:00 – 2026-12-24 13:00"),
        ("2026-12-24T08:00/2026-12-26", "2026-12-24 08:00 – 2026-12-27 00:00"),
        ("2026-12-24T08:00 / 2026-12-24T09:30", "2026-12-24 08:00 – 2026-12-24 09:30"),
        ("2026-12-24T08:00Z/2026-12-24T11:00+02:00", "2026-12-24 08:00 – 2026-12-24 09:00"),
    ],
)
def test_windows_are_where_they_say(window: str, expected: str) -> None:
    assert closed("2026-01-01", blackout(window), 1) == [expected]


def test_a_span_over_midnight_belongs_to_the_day_it_begins_on() -> None:
    nights = blackout("Fri 22:00-06:00")

    assert closed("2026-01-01", nights, 2) == [
        "2026-01-02 22:00 – 2026-01-03 06:00",
        "2026-01-09 22:00 – 2026-01-10 06:00",
    ]


def test_days_of_the_month_may_be_listed() -> None:
    assert closed("2026-02-02", blackout("day 1,15,L")) == [
        "2026-02-15 00:00 – 2026-02-16 00:00",
        "2026-02-28 00:00 – 2026-03-02 00:00",
        "2026-03-15 00:00 – 2026-03-16 00:00",
    ]


@pytest.mark.parametrize(
    ("window", "error"),
    [
        ("", "the days are missing"),
        ("12:00-13:00", "the days are missing"),
        ("frı", 'there is no weekday "Frı": did you mean Fri?'),
        ("Satt", 'there is no weekday "Satt": did you mean Sat?'),
        ("Mon-Fry", 'there is no weekday "Fry": did you mean Friday?'),
        ("Sat,", 'there is no weekday "": write '),
        ("Decembre 24", 'there is no month "Decembre": did you mean December?'),
        ("Sat Sun", 'there is no month "Sat": write "Sat,Sun 00:00-06:00"'),
        ("Sat Sun Mon", 'not a window: write "Sat,Sun 00:00-06:00"'),
        ("day 32", "day 32 does not exist (1–31)"),
        ("day 5-3", 'days "5-3" run backwards'),
        ("Feb 30", "there is no such date in any year"),
        ("daily 12:00", '"12:00" is not a span of the day such as 22:00-06:00'),
        ("daily 12:00-12:00", '"12:00-12:00" covers nothing'),
        ("daily 24:00-06:00", '"24:00-06:00" covers nothing'),
        ("daily 05:61-06:00", "there is no time 05:61"),
        ("daily 20:00-25:00", "there is no time 25:00"),
        ("2026-02-30", '"2026-02-30" is not an ISO 8601 time'),
        ("2026-12-24T08:00", "has no end: write START/END"),
        ("2026-12-24T08:00/", '"" is not an ISO 8601 time'),
        ("2026-12-24/2026-12-23", "ends before it begins"),
        ("2026-12-24T08:00/2026-12-24T08:00", "ends before it begins"),
        ("2026-12-24T08:00Z/2026-12-24T09:00", "one end has an offset"),
        ("2026-12-24T08:00:00.5/2026-12-25", "finer than a second"),
        ("2026-01-01/2032-01-01", "lasts longer than five years"),
        ("1969-12-31", "outside the years 1970 to 9998"),
        ("9999-01-01", "outside the years 1970 to 9998"),
        ("10000-01-01", "is not an ISO 8601 time"),
        ("Sat" + ",Sat" * 50, "203 characters, at most 200 are read"),
    ],
)
def test_a_wrong_window_is_refused_with_the_reason(window: str, error: str) -> None:
    (message,) = errors_of("Sat", window)

    assert message.startswith("windows[1]  ")
    assert error in message
