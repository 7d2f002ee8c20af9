"""The engine against a walk over every minute around the clock changes of the tz database."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache

import pytest

from rota.domain.schedule import Timetable, compile_schedule
from rota.domain.spec import Dst, Fold, Gap, Schedule
from tests.properties.clock_walk import (
    DAY_MINUTES,
    EPOCH,
    EXAMPLES,
    Example,
    clock_changes,
    walk,
    zones,
)

YEARS = range(1998, 2028)
AROUND = 2 * DAY_MINUTES
NEAR = DAY_MINUTES // 4
GROUPS = 16
NAMED = (
    *("America/New_York", "Europe/Berlin", "Europe/Dublin", "Australia/Lord_Howe"),
    *("Africa/Casablanca", "Africa/Cairo", "Pacific/Apia", "Antarctica/Troll"),
    *("America/Nuuk", "Asia/Gaza", "America/Havana", "Antarctica/Casey"),
)
POLICIES = (Dst(), Dst(Gap.SKIP, Fold.BOTH))


def timetable(zone: str, example: Example, dst: Dst) -> Timetable:
    schedule = Schedule((example.expression,), timezone=zone, dst=dst)
    return compile_schedule(schedule, key="j_walk", anchor=EPOCH)


def assert_agrees(zone: str, change: int, dst: Dst) -> None:
    """Forwards, backwards and counted, every due time around the change is the walked one."""
    first, end = change - AROUND, change + AROUND
    for example in EXAMPLES:
        expected = walk(zone, example, dst, first, end)
        table = timetable(zone, example, dst)
        near = [minute for minute in expected if abs(minute - change) <= NEAR]

        assert due_minutes(table, first, end) == expected, (zone, example.expression)
        assert table.count(*bounds(first, end)) == len(expected)
        assert backwards(table, change + NEAR, len(near)) == near[::-1]


def bounds(first: int, end: int) -> tuple[datetime, datetime]:
    """For due times of first ≤ minute < end."""
    just_before = EPOCH - timedelta(microseconds=1)
    return just_before + timedelta(minutes=first), just_before + timedelta(minutes=end)


def due_minutes(table: Timetable, first: int, end: int) -> list[int]:
    due_times = table.between(*bounds(first, end), 1_000_000)
    return [int(due.timestamp()) // 60 for due in due_times]


def backwards(table: Timetable, last: int, count: int) -> list[int]:
    found: list[int] = []
    time = EPOCH + timedelta(minutes=last)
    for _ in range(count):
        due = table.last_at_or_before(time)
        assert due is not None
        found.append(int(due.timestamp()) // 60)
        time = due - timedelta(microseconds=1)
    return found


@lru_cache(maxsize=1)
def distinct_changes() -> list[tuple[str, int]]:
    """Every change of clocks in thirty years, once for all zones in which it is the same."""
    found: dict[tuple[int, int, int], str] = {}
    for zone in zones():
        for change in clock_changes(zone, YEARS):
            found.setdefault(change, zone)
    return [(zone, change[0]) for change, zone in sorted(found.items())]


@pytest.mark.parametrize("zone", NAMED)
def test_due_times_are_right_around_recent_changes_of_odd_zones(zone: str) -> None:
    changes = list(clock_changes(zone, range(2009, 2027)))

    for index, (change, _, _) in enumerate(changes[-4:] + changes[:2]):
        assert_agrees(zone, change, POLICIES[index % 2])


@pytest.mark.parametrize(
    ("zone", "year"),
    [("Pacific/Apia", 2011), ("Pacific/Kwajalein", 1993), ("Antarctica/Vostok", 1994)],
)
def test_due_times_are_right_around_large_jumps(zone: str, year: int) -> None:
    changes = list(clock_changes(zone, range(year, year + 1)))

    assert any(abs(after - before) > 180 for _, before, after in changes)
    for change, _, _ in changes:
        for dst in POLICIES:
            assert_agrees(zone, change, dst)


@pytest.mark.slow
@pytest.mark.parametrize("group", range(GROUPS))
def test_due_times_are_right_around_every_change_of_every_zone(group: int) -> None:
    changes = distinct_changes()[group::GROUPS]

    assert len(changes) > 100
    for index, (zone, change) in enumerate(changes):
        assert_agrees(zone, change, POLICIES[index % 2])


@pytest.mark.parametrize("zone", ["Europe/Berlin", "Australia/Lord_Howe", "Africa/Cairo"])
def test_due_times_with_seconds_are_those_of_the_minute_before_they_split(zone: str) -> None:
    change = next(clock_changes(zone, range(2025, 2026)))[0]
    by_second = compile_schedule(
        Schedule(("*/20 */30 * * * *",), timezone=zone), key="j_walk", anchor=EPOCH
    )
    minutes = Example("*/30 * * * *", True, frozenset(range(0, DAY_MINUTES, 30)))

    expected = walk(zone, minutes, Dst(), change - AROUND, change + AROUND)
    due = by_second.between(*bounds(change - AROUND, change + AROUND), 1_000_000)

    assert due == tuple(
        datetime.fromtimestamp(minute * 60 + second, UTC)
        for minute in expected
        for second in (0, 20, 40)
    )
