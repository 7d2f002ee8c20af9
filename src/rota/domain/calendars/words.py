"""Calendars in words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

from rota.domain.calendars.blackout import Blackout
from rota.domain.calendars.definition import Holidays, Inside
from rota.domain.calendars.windows import WHOLE_DAY, Absolute, DaySpan, Recurring, Window
from rota.domain.ids import instant
from rota.domain.schedule.date_words import date_words
from rota.domain.schedule.local_times import DAY_SECONDS
from rota.domain.schedule.sources import SECOND_MICROS

_INSIDE = {
    Inside.SKIP: "due times inside are skipped",
    Inside.RUN_AFTER: "of the due times inside, the last runs when it ends",
}


def in_words(blackout: Blackout) -> str:
    """The whole calendar: `all day on Saturday and Sunday, UTC: due times inside are skipped`."""
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
