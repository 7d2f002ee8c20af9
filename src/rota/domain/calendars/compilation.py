"""Turns a calendar as written into its blackout, or into all that is wrong with it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from functools import lru_cache

from rota.domain.calendars import holiday_sets
from rota.domain.calendars.blackout import Blackout, end_of_blackout
from rota.domain.calendars.definition import Calendar
from rota.domain.calendars.grammar import parse_window
from rota.domain.calendars.windows import Absolute, Window
from rota.domain.errors import Invalid, Problem
from rota.domain.schedule.quoting import quoted
from rota.domain.schedule.zones import Zone, load_zone

MAX_WINDOWS = 100

_ANY_TIME = datetime(2026, 1, 1, tzinfo=UTC)  # recurring windows that never end never do


@lru_cache(maxsize=256)
def compile_calendar(calendar: Calendar) -> Blackout:
    """The blackout of a calendar; `Invalid` with every problem found.

    Problems have paths relative to the calendar. Equal calendars share one blackout, so asking
    again is cheap.
    """
    problems = list(_amount_problems(calendar))
    zone = _zone(calendar, problems)
    windows = _windows(calendar, zone, problems)
    if calendar.holidays:
        problems += holiday_sets.problems(calendar.holidays)
    if not problems:
        holidays = holiday_sets.HolidaySet(calendar.holidays) if calendar.holidays else None
        blackout = Blackout(calendar, zone, windows, holidays)
        problems = list(_endless_problems(blackout))
        if not problems:
            return blackout
    raise Invalid(f"calendar {quoted(calendar.name)} is not valid", problems)


def _amount_problems(calendar: Calendar) -> Iterator[Problem]:
    count = len(calendar.windows)
    if count == 0 and calendar.holidays is None:
        yield Problem("has neither windows nor holidays: it would never close")
    if count > MAX_WINDOWS:
        yield Problem(f"{count} windows, at most {MAX_WINDOWS} are read", "windows")
