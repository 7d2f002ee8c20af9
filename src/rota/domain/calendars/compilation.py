"""Compiler of calendars: from the written form to a blackout, or all its problems; and to words."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from functools import lru_cache
from typing import assert_never

from rota.domain.calendars.blackout import Blackout, HolidaySet, end_of_blackout, holiday_problems
from rota.domain.calendars.grammar import parse_window
from rota.domain.calendars.windows import (
    WHOLE_DAY,
    Absolute,
    Calendar,
    DaySpan,
    Holidays,
    Inside,
    Recurring,
    Window,
)
from rota.domain.errors import Invalid, Problem, quoted
from rota.domain.ids import instant
from rota.domain.schedule.sources import SECOND_MICROS
from rota.domain.schedule.words import date_words
from rota.domain.schedule.zoned_cron import DAY_SECONDS
from rota.domain.schedule.zones import Zone, load_zone

MAX_WINDOWS = 100

_ANY_TIME = datetime(2026, 1, 1, tzinfo=UTC)  # what recurs without an end does so at any time


@lru_cache(maxsize=256)
def compile_calendar(calendar: Calendar) -> Blackout:
    """Compile a calendar; `Invalid` with every problem found, by path inside it.

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
        problems += holiday_problems(calendar.holidays)
        holidays = HolidaySet(calendar.holidays)
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
    """Yield instants such that any blackout too long begins, or goes on, at one of these."""
    yield _ANY_TIME
    for window in blackout.windows:
        if isinstance(window, Absolute) and (stretch := window.stretch(blackout.zone)):
            yield instant(stretch.first * SECOND_MICROS)


_INSIDE = {
    Inside.SKIP: "due times inside are skipped",
    Inside.RUN_AFTER: "of the due times inside, the last runs when it ends",
}


def in_words(blackout: Blackout) -> str:
    """Describe a calendar: `all day on Saturday and Sunday, UTC: due times inside are skipped`."""
    calendar = blackout.calendar
    return f"{'; '.join(_parts(blackout))}, {calendar.timezone}: {_INSIDE[calendar.inside]}"


def _parts(blackout: Blackout) -> Iterator[str]:
    yield from map(_window_words, blackout.windows)
    if blackout.calendar.holidays:
        yield _holiday_words(blackout.calendar.holidays)


def _window_words(window: Window) -> str:
    match window:
        case Recurring():
            return f"{_span_words(window.span)} {date_words(window.days) or 'every day'}"
        case Absolute():
            return _absolute_words(window)
        case _:
            assert_never(window)


def _span_words(span: DaySpan) -> str:
    if span == WHOLE_DAY:
        return "all day"
    is_short = span.end <= DAY_SECONDS
    end = _clock(span.end) if is_short else f"{_clock(span.end - DAY_SECONDS)} the next day"
    return f"from {_clock(span.first)} to {end}"


def _absolute_words(window: Absolute) -> str:
    first, end = window.written
    if window.is_local and first % DAY_SECONDS == 0 and end - first == DAY_SECONDS:
        return f"all day on {_stamp(first).partition(' ')[0]}"
    zone = "" if window.is_local else " UTC"
    return f"from {_stamp(first)}{zone} to {_stamp(end)}{zone}"


def _holiday_words(holidays: Holidays) -> str:
    region = f" ({holidays.subdivision})" if holidays.subdivision else ""
    return f"all day on public holidays of {holidays.country}{region}"


def _clock(seconds: int) -> str:
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}"


def _stamp(second: int) -> str:
    time = instant(second * SECOND_MICROS).replace(tzinfo=None)
    return time.isoformat(" ", "auto" if time.second else "minutes")
