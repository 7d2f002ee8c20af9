"""A reference for due times that shares nothing with the engine: it walks every minute.

It looks at local clocks through `zoneinfo` alone, and knows an expression only as a predicate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo, available_timezones

from rota.domain.spec import Dst, Fold, Gap

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
DAY_MINUTES = 1440
LONGEST_GAP = 180

# Minutes are counted from 1970, in UTC or on a local clock.
Minute = int


@dataclass(frozen=True)
class Example:
    """An expression, and what it says in terms of a local clock."""

    expression: str
    is_elapsed: bool
    times: frozenset[int]  # minutes of the day
    on: Callable[[date], bool] = lambda _: True

    def __str__(self) -> str:
        return self.expression

    def names(self, local: Minute) -> bool:
        day, minute = divmod(local, DAY_MINUTES)
        return minute in self.times and self.on(date(1970, 1, 1) + timedelta(days=day))


def at(*clocks: str) -> frozenset[int]:
    """`02:30` as the minute of the day."""
    return frozenset(int(clock[:2]) * 60 + int(clock[3:]) for clock in clocks)


EXAMPLES = (
    Example("30 2 * * *", False, at("02:30")),
    Example("0 0 * * *", False, at("00:00")),
    Example("59 23 * * *", False, at("23:59")),
    Example("0,30 0-3 * * *", False, frozenset(range(0, 240, 30))),
    Example("0 3 1-7 * *", False, at("03:00"), lambda day: day.day <= 7),
    Example("5 1 * * SUN", False, at("01:05"), lambda day: day.weekday() == 6),
    Example("*/30 * * * *", True, frozenset(range(0, DAY_MINUTES, 30))),
    Example("*/30 1,2 * * *", True, at("01:00", "01:30", "02:00", "02:30")),
)


def walk(zone: str, example: Example, dst: Dst, first: Minute, end: Minute) -> list[Minute]:
    """The due minutes of first ≤ minute < end. `first` must be well away from any change."""
    clock = local_clock(zone, first, end)
    due = {
        minute
        for minute, local, time in clock.shown
        if time in example.times and example.names(local)
    }
    if not example.is_elapsed:
        if dst.fold is Fold.FIRST:
            due -= clock.repeated
        if dst.gap is Gap.RUN_AFTER:
            due |= {m for m, skipped in clock.gaps.items() if any(map(example.names, skipped))}
    return sorted(due)


@dataclass(frozen=True)
class LocalClock:
    """What the clocks of a zone show, minute by minute."""

    shown: list[tuple[Minute, Minute, int]]  # the minute, on the clock, and of the clock's day
    repeated: set[Minute]  # minutes at which the clock shows what it has shown before
    gaps: dict[Minute, range]  # the minute after a gap, and what the clock left out


@lru_cache(maxsize=8)
def local_clock(zone: str, first: Minute, end: Minute) -> LocalClock:
    info = ZoneInfo(zone)
    clock = LocalClock([], set(), {})
    seen: set[Minute] = set()
    before = first - 1 + _offset(info, first - 1)
    for minute in range(first, end):
        local = minute + _offset(info, minute)
        clock.shown.append((minute, local, local % DAY_MINUTES))
        if local in seen:
            clock.repeated.add(minute)
        if 1 < local - before <= LONGEST_GAP + 1:
            clock.gaps[minute] = range(before + 1, local)
        seen.add(local)
        before = local
    return clock


def clock_changes(zone: str, years: range) -> Iterator[tuple[Minute, int, int]]:
    """The minute of each change of clocks, and the offsets before and after it, in minutes."""
    info = ZoneInfo(zone)
    low = _start_of(years[0])
    before = _offset(info, low)
    for high in range(low, _start_of(years[-1] + 1), 2 * DAY_MINUTES):
        after = _offset(info, high)
        if after != before:
            yield _first_minute_with(after, info, low, high), before, after
        low, before = high, after


def zones() -> list[str]:
    """All zones of the tz database, but for what the host calls its own."""
    return sorted(available_timezones() - {"localtime", "Factory"})


def _first_minute_with(offset: int, info: ZoneInfo, low: Minute, high: Minute) -> Minute:
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _offset(info, middle) == offset else (middle, high)
    return high


def _offset(info: ZoneInfo, minute: Minute) -> int:
    local = datetime.fromtimestamp(minute * 60, info)
    return (local.utcoffset() or timedelta(0)) // MINUTE


def _start_of(year: int) -> Minute:
    return (datetime(year, 1, 1, tzinfo=UTC) - EPOCH) // MINUTE
