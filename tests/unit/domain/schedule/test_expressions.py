from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.domain.schedule.expressions import (
    Looking,
    Reading,
    is_relative,
    read_absolute,
    read_instant,
)
from rota.domain.schedule.zones import load_zone
from tests.unit.domain.schedule.builders import utc

BERLIN = load_zone("Europe/Berlin")
NOW = utc("2027-01-01 09:00")
BACK = Reading(NOW, BERLIN, Looking.BACK)
AHEAD = Reading(NOW, BERLIN, Looking.AHEAD)
NOWHERE = Reading(NOW, None, Looking.BACK)


@pytest.mark.parametrize(
    ("text", "instant"),
    [
        ("2027-01-01T12:00:00Z", "2027-01-01 12:00"),
        ("2027-01-01t12:00+02:00", "2027-01-01 10:00"),
        ("2027-01-01T12:00", "2027-01-01 11:00"),
        ("2027-01-01 12:00", "2027-01-01 11:00"),
        ("2027-01-01 12:00:00 +02:00", "2027-01-01 10:00"),
        ("2027-01-01 12:00:00 UTC", "2027-01-01 12:00"),
        ("20270101T120000Z", "2027-01-01 12:00"),
        ("2027-07-01T12:00", "2027-07-01 10:00"),
        ("2027-07-01", "2027-06-30 22:00"),
        ("2027-03-28T02:30", "2027-03-28 01:00"),
        ("2027-10-31T02:30", "2027-10-31 00:30"),
    ],
)
@pytest.mark.parametrize("reading", [BACK, AHEAD])
def test_a_time_without_an_offset_is_on_the_clocks_of_the_zone(
    text: str, instant: str, reading: Reading
) -> None:
    assert read_instant(text, reading) == utc(instant)
    assert not is_relative(text)


@pytest.mark.parametrize(
    ("text", "back", "ahead"),
    [
        ("5m", "2027-01-01 08:55", "2027-01-01 09:05"),
        ("1h30m", "2027-01-01 07:30", "2027-01-01 10:30"),
        ("1h 30m", "2027-01-01 07:30", "2027-01-01 10:30"),
        ("PT1H30M", "2027-01-01 07:30", "2027-01-01 10:30"),
        ("5m ago", "2027-01-01 08:55", "2027-01-01 08:55"),
        ("in 5m", "2027-01-01 09:05", "2027-01-01 09:05"),
        ("-5m", "2027-01-01 08:55", "2027-01-01 08:55"),
        ("+5m", "2027-01-01 09:05", "2027-01-01 09:05"),
        ("5 minutes", "2027-01-01 08:55", "2027-01-01 09:05"),
        ("1 hour 30 minutes ago", "2027-01-01 07:30", "2027-01-01 07:30"),
        ("in 2 hours", "2027-01-01 11:00", "2027-01-01 11:00"),
        ("now", "2027-01-01 09:00", "2027-01-01 09:00"),
        ("today", "2026-12-31 23:00", "2026-12-31 23:00"),
        ("Yesterday", "2026-12-30 23:00", "2026-12-30 23:00"),
        ("tomorrow", "2027-01-01 23:00", "2027-01-01 23:00"),
        (" today  14:00 ", "2027-01-01 13:00", "2027-01-01 13:00"),
        ("yesterday 2:30:15", "2026-12-31 01:30:15", "2026-12-31 01:30:15"),
        ("11:00", "2026-12-31 10:00", "2027-01-01 10:00"),
        ("9:59", "2027-01-01 08:59", "2027-01-02 08:59"),
        ("10:00", "2027-01-01 09:00", "2027-01-02 09:00"),
    ],
)
def test_what_counts_from_now_counts_as_one_looks(text: str, back: str, ahead: str) -> None:
    assert read_instant(text, BACK) == utc(back)
    assert read_instant(text, AHEAD) == utc(ahead)
    assert is_relative(text)


def test_a_day_begins_and_is_counted_on_the_clocks_of_the_zone() -> None:
    late = Reading(utc("2027-01-01 23:30"), BERLIN, Looking.BACK)  # the second, in Berlin

    assert read_instant("yesterday 14:00", late) == utc("2027-01-01 13:00")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("2027-01-01T12:00", '"2027-01-01T12:00": has no offset: add Z or +01:00'),
        ("2027-01-01", '"2027-01-01": has no offset: add Z or +01:00'),
        ("yesterday", '"yesterday": has no offset'),
        ("14:00", '"14:00": has no offset'),
        ("soon", '"soon": not a time: write 5m, yesterday, today 14:00, 2026-11-18 or'),
        ("", '"": not a time: write 5m'),
        ("5", '"5" has no unit: write 5s for seconds or 5m for minutes'),
        ("5x", '"5x" is not a duration'),
        ("in 5m ago", "one of in, ago, + and -, not two"),
        ("-5m ago", "one of in, ago, + and -, not two"),
        ("-5", '"5" has no unit: write 5s for seconds or 5m for minutes'),
        ("2027-13-01", "not an ISO 8601 time such as 2026-06-01T22:00: there is no month 13"),
        ("2027-02-29T10:00Z", "2026-06-01T22:00: 2027-02 has no day 29"),
        ("2027-02-28 24:00", "2026-06-01T22:00: 24:00 is no time of day: write 00:00 to 23:59"),
        ("10000-01-01T00:00Z", '"10000-01-01T00:00Z": outside the years 1970 to 9999'),
        ("0001-01-01T00:00+14:00", '"0001-01-01T00:00+14:00": outside the years 1970 to 9999'),
    ],
)
def test_what_cannot_be_read_is_told_with_what_to_write(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        read_instant(text, NOWHERE)


def test_an_hour_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValueError, match='"25:00": 25:00 is no time of day: write 00:00 to 23:59'):
        read_instant("25:00", AHEAD)


def test_a_document_has_times_that_mean_the_same_whenever_it_is_read() -> None:
    assert read_absolute("2027-01-01T12:00+02:00") == utc("2027-01-01 10:00")
    for text in ("5m", "tomorrow", "2027-01-01T12:00"):
        with pytest.raises(ValueError, match=re.escape(f'"{text}"')):
            read_absolute(text)


@given(st.text(st.sampled_from("0123456789:-+tzpinagoyesrdmwhutc. \x00é"), max_size=30))
def test_any_text_is_an_instant_or_refused(text: str) -> None:
    try:
        found = read_instant(text, BACK)
    except ValueError:
        return
    assert found.utcoffset() is not None
