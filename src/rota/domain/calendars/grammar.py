"""Grammar of one entry of `windows`: days with a span of the day, or an absolute stretch."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import NamedTuple

from rota.domain.calendars.windows import (
    LONGEST,
    WHOLE_DAY,
    Absolute,
    DaySpan,
    Recurring,
    Stretch,
    Window,
)
from rota.domain.errors import quoted
from rota.domain.ids import micros
from rota.domain.schedule.cron import DAY, number, upper
from rota.domain.schedule.days import DayRule, Days, DayTerm, FromEnd, Weekdays, dates_of
from rota.domain.schedule.sources import SECOND_MICROS
from rota.domain.schedule.zoned_cron import DAY_SECONDS

_FIRST_YEAR, _LAST_YEAR = 1970, 9998  # one short of the end, so that any zone's offset still fits
_LONGEST_DATE = len("2026-12-24")


class Moment(NamedTuple):
    """Number of seconds since 1970, on local clocks unless the time was written with an offset."""

    first: int
    end: int  # the next midnight for a date, else equal to `first`
    has_offset: bool

    @property
    def is_day(self) -> bool:
        return self.end > self.first


def parse_moment(text: str) -> Moment:
    """Parse ISO 8601; a ValueError says what is wrong."""
    try:
        written = datetime.fromisoformat(text)
    except ValueError as error:
        message = f"{quoted(text)} is not an ISO 8601 time such as 2026-12-24T08:00"
        raise ValueError(message) from error
    if not _FIRST_YEAR <= written.year <= _LAST_YEAR:
        raise ValueError(f"{quoted(text)} is outside the years {_FIRST_YEAR} to {_LAST_YEAR}")
    second, rest = divmod(micros(_aware(written)), SECOND_MICROS)
    if rest:
        raise ValueError(f"{quoted(text)} is finer than a second")
    length = DAY_SECONDS if len(text) <= _LONGEST_DATE else 0
    return Moment(second, second + length, has_offset=written.tzinfo is not None)


def _aware(written: datetime) -> datetime:
    return written if written.tzinfo else written.replace(tzinfo=UTC)


MAX_LENGTH = 200

_ABSOLUTE = re.compile(r"[+-]?[0-9]{4}", re.ASCII)
_JOINT = re.compile(r"\s*([,-])\s*")
_SPAN = re.compile(r"([0-9]{1,2}):([0-9]{2})-([0-9]{1,2}):([0-9]{2})", re.ASCII)
_FORMS = 'write "Sat,Sun 00:00-06:00", "daily 12:00-13:00", "day 1,15,L", "Dec 24" or "2026-12-24"'


def _numbered(names: str, first: int) -> dict[str, int]:
    """Map names to numbers, whole and in three letters."""
    whole = {name: value for value, name in enumerate(names.split(), first)}
    return {name[:3]: value for name, value in whole.items()} | whole


_WEEKDAYS = _numbered("SUNDAY MONDAY TUESDAY WEDNESDAY THURSDAY FRIDAY SATURDAY", 0)
_MONTHS = _numbered(
    "JANUARY FEBRUARY MARCH APRIL MAY JUNE JULY AUGUST SEPTEMBER OCTOBER NOVEMBER DECEMBER", 1
)
_EVERY_MONTH = tuple(range(1, 13))
_EVERY_DAY = Days(tuple(range(1, 32)))
_EVERY_WEEKDAY = Weekdays(tuple(range(7)))


def parse_window(text: str) -> Window:
    """Parse the window of an entry; a ValueError says what is wrong."""
    if len(text) > MAX_LENGTH:
        raise ValueError(f"{len(text)} characters, at most {MAX_LENGTH} are read")
    normal = " ".join(upper(text).split())
    return _absolute(normal) if _ABSOLUTE.match(normal) else _recurring(normal)


def _absolute(text: str) -> Absolute:
    day, _, span = text.partition(" ")
    if "T" not in day and _SPAN.fullmatch(_close_up(span)):
        return _on_day(parse_moment(day), _span(_close_up(span)))
    first_text, slash, last_text = text.partition("/")
    first = parse_moment(first_text.strip())
    last = parse_moment(last_text.strip()) if slash else first
    if not slash and not first.is_day:
        raise ValueError("has no end: write START/END, or a date alone for its whole day")
    if first.has_offset != last.has_offset:
        raise ValueError("one end has an offset from UTC and the other has none")
    return Absolute(_checked(Stretch(first.first, last.end)), is_local=not first.has_offset)


def _on_day(day: Moment, span: DaySpan) -> Absolute:
    return Absolute(Stretch(day.first + span.first, day.first + span.end), is_local=True)


def _checked(stretch: Stretch) -> Stretch:
    if stretch.end <= stretch.first:
        raise ValueError("ends before it begins")
    if stretch.end - stretch.first > LONGEST:
        raise ValueError("lasts longer than five years: disable the jobs instead")
    return stretch


def _recurring(text: str) -> Recurring:
    words = _close_up(text).split()
    span = _span(words.pop()) if words and ":" in words[-1] else WHOLE_DAY
    rule = _day_rule(words)
    if dates_of(rule).is_empty():
        raise ValueError("there is no such date in any year")
    return Recurring(rule, span)


def _close_up(text: str) -> str:
    """Remove the blanks around commas and dashes of `Sat, Sun 00:00 - 06:00`."""
    return _JOINT.sub(r"\1", text)


def _span(text: str) -> DaySpan:
    match = _SPAN.fullmatch(text)
    if not match:
        raise ValueError(f"{quoted(text)} is not a span of the day such as 22:00-06:00")
    first, end = _seconds(match[1], match[2]), _seconds(match[3], match[4])
    if first in (DAY_SECONDS, end):
        raise ValueError(f"{quoted(text)} covers nothing: a whole day is 00:00-24:00")
    return DaySpan(first, end if first < end else end + DAY_SECONDS)


def _seconds(hour: str, minute: str) -> int:
    seconds = int(hour) * 3600 + int(minute) * 60
    if seconds > DAY_SECONDS or int(minute) > 59:
        raise ValueError(f"there is no time {hour}:{minute} (00:00–24:00)")
    return seconds


def _day_rule(words: list[str]) -> DayRule:
    match words:
        case []:
            raise ValueError('the days are missing: write "daily", "Sat,Sun" or the like first')
        case ["DAILY"]:
            return _rule()
        case ["DAY" | "DAYS", days]:
            return _rule(day_terms=_day_terms(days))
        case [month, days]:
            months = (_named(month, _MONTHS, "month"),)
            return _rule(months=months, day_terms=_day_terms(days))
        case [weekdays]:
            return _rule(weekdays=_weekdays(weekdays))
        case _:
            raise ValueError(f"not a window: {_FORMS}")


def _rule(
    months: tuple[int, ...] = _EVERY_MONTH,
    day_terms: tuple[DayTerm, ...] = (_EVERY_DAY,),
    weekdays: Weekdays = _EVERY_WEEKDAY,
) -> DayRule:
    return DayRule(months, day_terms, (weekdays,), either=False)


def _weekdays(text: str) -> Weekdays:
    found: set[int] = set()
    for term in text.split(","):
        first_name, dash, last_name = term.partition("-")
        first = _named(first_name, _WEEKDAYS, "weekday")
        last = _named(last_name, _WEEKDAYS, "weekday") if dash else first
        # Fri-Mon goes on past the end of the week.
        found |= {day % 7 for day in range(first, first + (last - first) % 7 + 1)}
    return Weekdays(tuple(sorted(found)))


def _day_terms(text: str) -> tuple[DayTerm, ...]:
    terms = text.split(",")
    days = sorted({day for term in terms if term != "L" for day in _day_range(term)})
    plain = (Days(tuple(days)),) if days else ()
    return (*plain, FromEnd(0)) if "L" in terms else plain


def _day_range(term: str) -> range:
    first_text, dash, last_text = term.partition("-")
    first = number(DAY, first_text)
    last = number(DAY, last_text) if dash else first
    if last < first:
        raise ValueError(f"days {quoted(term)} run backwards: write two windows")
    return range(first, last + 1)


def _named(name: str, numbers: Mapping[str, int], what: str) -> int:
    if name in numbers:
        return numbers[name]
    near = get_close_matches(name, numbers, n=1)
    hint = f"did you mean {near[0].title()}?" if near else _FORMS
    raise ValueError(f"there is no {what} {quoted(name.title())}: {hint}")
