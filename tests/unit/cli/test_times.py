from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta, timezone

import pytest

from rota.cli import times

PRESENT = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-1, "0 ms"),
        (0, "0 ms"),
        (0.0124, "12 ms"),
        (0.0999, "0.1 s"),
        (12, "12.0 s"),
        (59.94, "59.9 s"),
        (59.96, "1 m 00 s"),
        (842, "14 m 02 s"),
        (3_599.7, "1 h 00 m"),
        (18_720, "5 h 12 m"),
        (90_000, "1 d 01 h"),
    ],
)
def test_length_has_two_units_at_most(seconds: float, text: str) -> None:
    assert times.length(seconds) == text


@pytest.mark.parametrize(
    ("at", "text"),
    [
        (PRESENT + timedelta(hours=2), "in 2 h 00 m · 14:00:00 UTC"),
        (PRESENT - timedelta(seconds=3), "3.0 s ago · 11:59:57 UTC"),
        (PRESENT + timedelta(days=1), "in 1 d 00 h · 2026-03-02 12:00:00 UTC"),
        (None, "–"),
    ],
)
def test_moment_is_relative_and_absolute(at: datetime | None, text: str) -> None:
    assert times.moment(at, PRESENT) == text


def test_due_time_is_told_on_both_clocks_where_they_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROTA_TZ", "Europe/Berlin")
    new_york, berlin = timezone(timedelta(hours=-5)), timezone(timedelta(hours=1))
    at = datetime(2026, 3, 1, 22, 0, tzinfo=UTC)

    assert times.due(at.astimezone(berlin), PRESENT) == "in 10 h 00 m · 23:00:00 CET"
    assert times.due(at.astimezone(new_york), PRESENT) == (
        "in 10 h 00 m · 23:00:00 CET (its clocks: 17:00:00 -05:00)"
    )


def test_day_is_that_of_the_readers_clocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROTA_TZ", "Asia/Tokyo")
    at = datetime(2026, 3, 1, 16, 0, tzinfo=UTC)  # the second of March in Tokyo

    assert times.moment(at, PRESENT) == "in 4 h 00 m · 2026-03-02 01:00:00 JST"
    assert times.clock(at, PRESENT) == "Mon 01:00:00"


def test_zone_of_the_machine_counts_where_nobody_names_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "<+07>-7")  # what only the C library understands
    time.tzset()
    try:
        assert times.absolute(PRESENT) == "2026-03-01 19:00:00 +07"
    finally:
        monkeypatch.undo()
        time.tzset()
