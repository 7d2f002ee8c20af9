"""Schedules in words: dates, times of day, and the whole as one sentence.

`describe` is for a whole timetable, `cron_words` for one expression. Each part tries its neat
phrases (`every 15 minutes`, `at 02:30`) and takes one only if it is surely right; otherwise the
fields are spelled out. A wrong neat phrase would be believed, a clumsy right one does no harm.
Times are as exact as the expression: with seconds if it has a field for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import assert_never

from rota.domain.ids import instant
from rota.domain.quantities import amount
from rota.domain.schedule.cron import Cron
from rota.domain.schedule.days import (
    DayRule,
    Days,
    DayTerm,
    FromEnd,
    NearestWorkday,
    NthWeekday,
    Weekdays,
)
from rota.domain.schedule.expressions import DueSource
from rota.domain.schedule.sources import LAST_MICROS, Interval, Once
from rota.domain.schedule.timetable import Timetable
from rota.domain.schedule.zoned_cron import ZonedCron
from rota.domain.schedule.zones import Zone


def listed(words: Sequence[str], last: str = "and") -> str:
    """Join words: `a`, `a and b`, `a, b and c`."""
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} {last} {words[-1]}"


def ranges(values: Sequence[int], name: Callable[[int], str] = str) -> str:
    """Join ascending numbers by name, three or more neighbours as a range: `1 to 5, 8 and 9`."""
    words: list[str] = []
    for first, last in _runs(values):
        if last - first > 1:
            words.append(f"{name(first)} to {name(last)}")
        else:
            words += [name(value) for value in range(first, last + 1)]
    return listed(words)


def every(duration: timedelta) -> str:
    """Format an interval: `every 10 seconds`, `every hour`."""
    words = amount(duration)
    single = words.removeprefix("1 ")
    return f"every {words if ' ' in single else single}"


def _runs(values: Sequence[int]) -> Iterator[tuple[int, int]]:
    first = last = values[0]
    for value in values[1:]:
        if value != last + 1:
            yield first, last
            first = value
        last = value
    yield first, last


_MONTHS = (
    *("January", "February", "March", "April", "May", "June", "July"),
    *("August", "September", "October", "November", "December"),
)
_WEEKDAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_NTH = {1: "first", 2: "second", 3: "third", 4: "fourth", 5: "fifth", None: "last"}
_SUNDAY_LAST = 7


def date_words(rule: DayRule) -> str:
    """Describe the dates, or "" for every day."""
    month = "" if len(rule.months) == len(_MONTHS) else _month_names(rule)
    by_day = "" if _is_every_day(rule) else _day_words(rule, month)
    by_weekday = "" if _is_every_weekday(rule) else _weekday_words(rule, month)
    if rule.either and not (by_day and by_weekday):
        by_day = by_weekday = ""
    if not (by_day or by_weekday):
        return f"in {month}" if month else ""
    joint = " or " if rule.either else " if also "
    return joint.join(words for words in (by_day, by_weekday) if words)


def _month_names(rule: DayRule) -> str:
    return ranges(rule.months, lambda number: _MONTHS[number - 1])


def _is_every_day(rule: DayRule) -> bool:
    return {d for term in rule.day_terms if isinstance(term, Days) for d in term.days} >= set(
        range(1, 32)
    )


def _is_every_weekday(rule: DayRule) -> bool:
    return len(_plain_weekdays(rule)) == len(_WEEKDAYS)


def _plain_weekdays(rule: DayRule) -> list[int]:
    """Return Monday to Sunday as 1 to 7."""
    terms = (term for term in rule.weekday_terms if isinstance(term, Weekdays))
    return sorted({weekday or _SUNDAY_LAST for term in terms for weekday in term.weekdays})


def _day_words(rule: DayRule, month: str) -> str:
    days = sorted({d for term in rule.day_terms if isinstance(term, Days) for d in term.days})
    words = [f"day{'s' if len(days) > 1 else ''} {ranges(days)}"] if days else []
    words += [_term_words(term) for term in rule.day_terms if not isinstance(term, Days)]
    return f"on {listed(words)} of {month or 'the month'}"


def _weekday_words(rule: DayRule, month: str) -> str:
    plain = _plain_weekdays(rule)
    nth = [_term_words(term) for term in rule.weekday_terms if not isinstance(term, Weekdays)]
    words = []
    if plain:
        on = "on " + ranges(plain, lambda number: _WEEKDAYS[number % 7])
        words.append(on + (f" in {month}" if month else ""))
    if nth:
        words.append(f"on {listed(nth)} of {month or 'the month'}")
    return " and ".join(words)


def _term_words(term: DayTerm) -> str:
    match term:
        case FromEnd(0):
            return "the last day"
        case FromEnd(before):
            return f"the last day but {before}"
        case NearestWorkday(None, 0):
            return "the last workday"
        case NearestWorkday(None, before):
            return f"the workday nearest the last day but {before}"
        case NearestWorkday(day):
            return f"the workday nearest day {day}"
        case NthWeekday(weekday, nth):
            return f"the {_NTH[nth]} {_WEEKDAYS[weekday]}"
        case Days(days):
            return ranges(days)
        case Weekdays(weekdays):
            return ranges(weekdays)
        case _:
            assert_never(term)


_MAX_TIMES = 4  # more than that are not listed one by one


def time_words(cron: Cron) -> str:
    """Return the shortest phrase that is surely right."""
    in_hour = [(minute, second) for minute in cron.minutes for second in cron.seconds]
    if len(cron.hours) * len(in_hour) <= _MAX_TIMES:
        times = [_clock(cron, hour, *time) for hour in cron.hours for time in in_hour]
        return f"at {listed(times)}"
    span = _hour_span(cron)
    if (rate := rate_words(cron)) and span is not None:
        return rate + span
    if span and len(in_hour) == 1:
        return f"every hour{span}"
    if (hours := _hour_words(cron)) and len(in_hour) <= _MAX_TIMES:
        return f"{hours} at {listed([_clock(cron, None, *time) for time in in_hour])}"
    if span == "" and len(cron.minutes) == 60:
        return f"every minute at second {ranges(cron.seconds)}"
    return _field_words(cron)


def rate_words(cron: Cron) -> str:
    """Return `every second`, `every 15 minutes` if minutes and seconds say only that, else ""."""
    if len(cron.minutes) == 60 and (step := _step(cron.seconds, 60)):
        return every(timedelta(seconds=step))
    if cron.seconds == (0,) and (step := _step(cron.minutes, 60)):
        return every(timedelta(minutes=step))
    return ""


def is_every_hour(cron: Cron) -> bool:
    return len(cron.hours) == 24


def _step(values: tuple[int, ...], size: int) -> int | None:
    """Return the distance of values that divide the whole size evenly, from 0 on."""
    step = size // len(values)
    return step if len(values) > 1 and values == tuple(range(0, size, step)) else None


def _hour_span(cron: Cron) -> str | None:
    """Describe which hours a rate is for: "" for all, None if they are not one stretch."""
    if is_every_hour(cron):
        return ""
    first, last = cron.hours[0], cron.hours[-1]
    if last - first != len(cron.hours) - 1:
        return None
    begin = _clock(cron, first, cron.minutes[0], cron.seconds[0])
    return f" from {begin} to {_clock(cron, last, cron.minutes[-1], cron.seconds[-1])}"


def _hour_words(cron: Cron) -> str:
    """Return `every hour`, `every 2 hours`, or "" if the hours are not evenly spread."""
    step = _step(cron.hours, 24)
    return every(timedelta(hours=step)) if step else ""


def _clock(cron: Cron, hour: int | None, minute: int, second: int) -> str:
    """Format `02:30`, with seconds if the expression has them; `:30` for any hour."""
    text = f"{'' if hour is None else f'{hour:02}'}:{minute:02}"
    return f"{text}:{second:02}" if cron.has_seconds else text


def _field_words(cron: Cron) -> str:
    words = [f"minute {ranges(cron.minutes)}", f"hour {ranges(cron.hours)}"]
    if cron.has_seconds:
        words.insert(0, f"second {ranges(cron.seconds)}")
    return f"whenever the clock shows {', '.join(words)}"


def describe(timetable: Timetable) -> str:
    """Describe the whole schedule: `every day at 00:00 UTC`, `every 10 seconds`."""
    text = "; ".join(_source_words(source, timetable) for source in timetable.sources)
    if not all(_is_zoneless(source) for source in timetable.sources):
        is_short = timetable.zone.name == "UTC" and text[-1].isdigit()
        text += " UTC" if is_short else f", {timetable.zone.name}"
    if timetable.first > 0:
        text += f", from {_stamp(timetable.first, timetable.zone)}"
    if timetable.last < LAST_MICROS:
        text += f", until {_stamp(timetable.last, timetable.zone)}"
    return text + (", the first time only" if timetable.run_once else "")


def cron_words(cron: Cron) -> str:
    """Describe a cron expression without its zone: `at 02:30 on Monday to Friday`."""
    times, dates = time_words(cron), date_words(cron.days)
    if times.startswith("at ") and not dates.startswith("on "):
        times = f"every day {times}"
    return f"{times} {dates}".rstrip()


def _source_words(source: DueSource, timetable: Timetable) -> str:
    match source:
        case ZonedCron():
            return cron_words(source.cron)
        case Interval():
            length = timedelta(microseconds=source.length)
            if timetable.after_previous:
                return f"{amount(length)} after the previous run ends"
            return every(length)
        case Once():
            return f"once at {_stamp(source.at, timetable.zone)}"
        case _:
            assert_never(source)


def _is_zoneless(source: DueSource) -> bool:
    """Return whether the words are true whatever the zone."""
    if not isinstance(source, ZonedCron):
        return isinstance(source, Interval)
    cron = source.cron
    return is_every_hour(cron) and rate_words(cron) != "" and date_words(cron.days) == ""


def _stamp(micros: int, zone: Zone) -> str:
    local: datetime = zone.local(instant(micros)).replace(tzinfo=None)
    return local.isoformat(" ", "auto" if local.second or local.microsecond else "minutes")
