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
from rota.domain.ids import instant
from rota.domain.schedule.quoting import quoted
from rota.domain.schedule.sources import SECOND_MICROS
from rota.domain.schedule.zones import Zone, load_zone

MAX_WINDOWS = 100

_ANY_TIME = datetime(2026, 1, 1, tzinfo=UTC)  # what recurs without an end does so at any time


@lru_cache(maxsize=256)
def compile_calendar(calendar: Calendar) -> Blackout:
    """The blackout of a calendar; `Invalid` with every problem found, by path inside it.

    Equal calendars share one blackout, so asking again is cheap.
    """
    blackout = _understood(calendar)
    if any(end_of_blackout([blackout], time) is None for time in _suspects(blackout)):
        message = "no run could start for five years or longer: disable the jobs instead"
        raise _invalid(calendar, [Problem(message, "windows")])
    return blackout


def _understood(calendar: Calendar) -> Blackout:
    problems = list(_amount_problems(calendar))
    zone = _zone(calendar, problems)
    windows = _windows(calendar, zone, problems)
    holidays = None
    if calendar.holidays:
        problems += holiday_sets.problems(calendar.holidays)
        holidays = holiday_sets.HolidaySet(calendar.holidays)
    if problems:
        raise _invalid(calendar, problems)
    return Blackout(calendar, zone, windows, holidays)


def _invalid(calendar: Calendar, problems: list[Problem]) -> Invalid:
    return Invalid(f"calendar {quoted(calendar.name)} is not valid", problems)


def _amount_problems(calendar: Calendar) -> Iterator[Problem]:
    count = len(calendar.windows)
    if count == 0 and calendar.holidays is None:
        yield Problem("neither windows nor holidays: there is nothing to keep free")
    if count > MAX_WINDOWS:
        yield Problem(f"{count} windows, at most {MAX_WINDOWS} are read", "windows")


def _zone(calendar: Calendar, problems: list[Problem]) -> Zone:
    try:
        return load_zone(calendar.timezone)
    except ValueError as error:
        problems.append(Problem(str(error), "timezone"))
        return load_zone("UTC")


def _windows(calendar: Calendar, zone: Zone, problems: list[Problem]) -> list[Window]:
    windows = []
    for index, text in enumerate(calendar.windows[:MAX_WINDOWS]):
        try:
            windows.append(_window(text, zone))
        except ValueError as error:
            problems.append(Problem(f"{quoted(text)}: {error}", f"windows[{index}]"))
    return windows


def _window(text: str, zone: Zone) -> Window:
    window = parse_window(text)
    if isinstance(window, Absolute) and window.stretch(zone) is None:
        raise ValueError(f"never comes: clocks in {zone.name} are put forward past it")
    return window


def _suspects(blackout: Blackout) -> Iterator[datetime]:
    """Any blackout too long begins, or goes on, at one of these."""
    yield _ANY_TIME
    for window in blackout.windows:
        if isinstance(window, Absolute) and (stretch := window.stretch(blackout.zone)):
            yield instant(stretch.first * SECOND_MICROS)
