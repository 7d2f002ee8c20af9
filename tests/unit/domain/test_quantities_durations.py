from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.domain.quantities import format_duration, parse_duration, read_amount


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30s", 30),
        ("1h30m", 5_400),
        ("1 h 30 m", 5_400),
        ("200ms", 0.2),
        ("1.5h", 5_400),
        ("2w1d", 15 * 86_400),
        ("1S", 1),
        ("PT1H30M", 5_400),
        ("p1dt0.5s", 86_400.5),
        ("P2W", 14 * 86_400),
        ("0s", 0),
    ],
)
def test_durations_are_read_as_people_write_them(text: str, seconds: float) -> None:
    assert parse_duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "a duration is empty"),
        ("30", '"30" has no unit: write 30s'),
        ("-5s", "is negative"),
        ("1m1h", "is not a duration"),
        ("1m30", "is not a duration"),
        ("PT", "is not a duration"),
        ("1e3s", "is not a duration"),
        ("٣s", "is not a duration"),
        ("PT1ſ", "is not a duration"),
        ("P1M", "have no fixed length"),
        ("P1Y2D", "have no fixed length"),
        ("0.0000001s", "finer than a microsecond"),
        ("99999999d", "longer than a hundred years"),
        ("1" * 100 + "s", "at most 64 characters"),
    ],
)
def test_a_wrong_duration_is_refused_with_the_reason(text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        parse_duration(text)


@pytest.mark.parametrize(
    ("duration", "text"),
    [
        (timedelta(hours=1, minutes=30), "1h30m"),
        (timedelta(days=1), "1d"),
        (timedelta(seconds=90), "1m30s"),
        (timedelta(milliseconds=200), "200ms"),
        (timedelta(milliseconds=1500), "1.5s"),
        (timedelta(microseconds=5), "0.005ms"),
        (timedelta(0), "0s"),
        (timedelta(seconds=-5), "-5s"),
    ],
)
def test_durations_are_written_briefly(duration: timedelta, text: str) -> None:
    assert format_duration(duration) == text


@given(st.timedeltas(min_value=timedelta(0), max_value=timedelta(days=36_525)))
def test_what_is_written_reads_back_unchanged(duration: timedelta) -> None:
    assert parse_duration(format_duration(duration)) == duration


def test_units_in_words_are_not_cut_out_of_other_words() -> None:
    with pytest.raises(ValueError, match="monday"):
        read_amount("monday")
