"""A reference for windows that shares nothing with the engine: it walks every minute.

A window is known only as weekdays, days of the month and minutes of a local clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, timedelta

from hypothesis import strategies as st

from tests.properties.clock_walk import DAY_MINUTES, LocalClock, Minute

# Gaps and folds of an hour and of half an hour, around midnight, and of a whole day.
ZONES = (
    *("Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Pacific/Apia"),
    *("America/St_Johns", "Africa/Cairo", "America/Havana"),
)
WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


@dataclass(frozen=True)
class Example:
    """A window, and what it says in terms of a local clock."""

    days: str
    weekdays: frozenset[int] = frozenset(range(7))  # 0 is Monday
    month_days: frozenset[int] = frozenset(range(1, 32))
    first: int = 0  # minutes of the day
    end: int = DAY_MINUTES  # beyond a day: it ends on the next

    def __str__(self) -> str:
        end = self.end if self.end <= DAY_MINUTES else self.end - DAY_MINUTES
        return f"{self.days} {_clock(self.first)}-{_clock(end)}"

    def begins_on(self, day: date) -> bool:
        return day.weekday() in self.weekdays and day.day in self.month_days


EXAMPLES = (
    Example("daily", first=90, end=165),
    Example("daily", first=135, end=150),
    Example("daily", first=1380, end=1445),
    Example("Sat", weekdays=frozenset({5})),
    Example("Sun", weekdays=frozenset({6})),
    Example("Mon-Fri", weekdays=frozenset(range(5)), first=1320, end=1800),
    Example("day 30", month_days=frozenset({30})),
)


@st.composite
def examples(draw: st.DrawFn, longest: int = DAY_MINUTES - 1) -> Example:
    first = draw(st.integers(0, DAY_MINUTES - 1))
    end = first + draw(st.integers(1, longest))
    weekdays = draw(st.frozensets(st.integers(0, 6), min_size=1))
    days = draw(st.frozensets(st.integers(1, 31), min_size=1, max_size=5))
    listed = ",".join(WEEKDAYS[day] for day in weekdays)
    return draw(
        st.sampled_from(
            [
                Example("daily", first=first, end=end),
                Example(listed, weekdays=weekdays, first=first, end=end),
                Example(f"day {','.join(map(str, days))}", month_days=days, first=first, end=end),
            ]
        )
    )


def walk(example: Example, clock: LocalClock) -> set[Minute]:
    """The minutes inside: of each window, all from the first to the last that clocks show in it."""
    shown_in: dict[int, list[Minute]] = {}
    for minute, local, _ in clock.shown:
        today = local // DAY_MINUTES
        for day in (today - 1, today):
            if example.first <= local - day * DAY_MINUTES < example.end:
                shown_in.setdefault(day, []).append(minute)
    return {
        minute
        for day, shown in shown_in.items()
        if example.begins_on(date(1970, 1, 1) + timedelta(days=day))
        for minute in range(shown[0], shown[-1] + 1)
    }


def _clock(minutes: int) -> str:
    return f"{minutes // 60:02}:{minutes % 60:02}"
