from __future__ import annotations

import re

import pytest

from rota.domain.schedule.expressions import read_coming_instant, read_instant
from rota.domain.schedule.zones import load_zone
from tests.unit.domain.schedule.builders import utc

BERLIN = load_zone("Europe/Berlin")


@pytest.mark.parametrize(
    ("text", "instant"),
    [
        ("2027-01-01T12:00:00Z", "2027-01-01 12:00"),
        ("2027-01-01t12:00+02:00", "2027-01-01 10:00"),
        ("2027-01-01T12:00", "2027-01-01 11:00"),
        ("2027-07-01T12:00", "2027-07-01 10:00"),
        ("2027-07-01", "2027-06-30 22:00"),
        ("2027-03-28T02:30", "2027-03-28 01:00"),
        ("2027-10-31T02:30", "2027-10-31 00:30"),
    ],
)
def test_a_time_without_an_offset_is_on_the_clocks_of_the_zone(text: str, instant: str) -> None:
    assert read_instant(text, BERLIN) == utc(instant)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("2027-01-01T12:00", '"2027-01-01T12:00" has no offset: add Z or +01:00'),
        ("2027-01-01", '"2027-01-01" has no offset: add Z or +01:00'),
        ("tomorrow", '"tomorrow": not an ISO 8601 time such as 2026-06-01T22:00'),
        ("10000-01-01T00:00Z", '"10000-01-01T00:00Z": outside the years 1970 to 9999'),
        ("0001-01-01T00:00+14:00", '"0001-01-01T00:00+14:00": outside the years 1970 to 9999'),
    ],
)
def test_what_cannot_be_read_is_told_with_what_to_write(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        read_instant(text, None)


@pytest.mark.parametrize(
    ("text", "instant"),
    [
        ("11:00", "2027-01-01 10:00"),
        ("09:59:30", "2027-01-02 08:59:30"),
        ("10:00", "2027-01-02 09:00"),
        ("2027-02-01T00:00Z", "2027-02-01 00:00"),
    ],
)
def test_a_time_of_day_is_the_next_one_on_the_clocks_of_the_zone(text: str, instant: str) -> None:
    assert read_coming_instant(text, BERLIN, utc("2027-01-01 09:00")) == utc(instant)


def test_an_hour_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValueError, match='"25:00": hour must be in'):
        read_coming_instant("25:00", BERLIN, utc("2027-01-01"))
