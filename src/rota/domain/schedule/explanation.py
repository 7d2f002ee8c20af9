"""Explanation of a schedule: in words, with advice, through changes of clocks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice

from rota.domain.errors import Problem, quoted
from rota.domain.ids import instant, micros
from rota.domain.schedule import cron
from rota.domain.schedule.cron import has_hash, parse_cron
from rota.domain.schedule.expressions import Form, form_of, split_zone
from rota.domain.schedule.sources import SECOND_MICROS, Kind
from rota.domain.schedule.timetable import Timetable, compile_schedule, expression_path
from rota.domain.schedule.words import cron_words, describe
from rota.domain.schedule.zoned_cron import ZonedCron
from rota.domain.schedule.zones import LAST_SECOND, Period, Zone
from rota.domain.spec import Fold, Schedule

_DAILY = "every day at "
_FIELDS = (cron.MINUTE, cron.HOUR, cron.DAY, cron.MONTH, cron.WEEKDAY)
_WITH_SECONDS = (cron.SECOND, *_FIELDS)
_INTERVAL_UNITS = {"second": "s", "minute": "m", "hour": "h", "day": "d", "weekday": "d"}
_STEP = re.compile(r"/([0-9]+)", re.ASCII)
# A day in a term of the weekday field: neither the step after `/` nor the number after `#`.
_WEEKDAY_NUMBER = re.compile(r"(?<![/#0-9])[0-9]+", re.ASCII)
_SHORT_WEEKDAYS = tuple(cron.WEEKDAY.names)[:7]


def warnings(schedule: Schedule, *, key: str = "") -> list[Problem]:
    """List what is worth a look in a valid schedule.

    Four fields where five were likely meant, the weekdays of Quartz, and steps past the end of
    their field.
    """
    return [
        Problem(message, expression_path(schedule, index), hint=hint, warning=True)
        for index, text in enumerate(schedule.expressions)
        if form_of(text) is Form.CRON
        for message, hint in _doubts(split_zone(text.strip())[0], key)
    ]


def _doubts(text: str, key: str) -> Iterator[tuple[str, str]]:
    """Yield messages about one cron expression, each with a hint or ""."""
    written = cron.upper(text).split()
    if len(written) == 4:
        yield _four_field_warning(text, key), ""
    if weekday := _quartz_weekday(written):
        yield _quartz_warning(text, weekday, key), f"write names: {_as_quartz_meant(weekday)}"
    yield from _step_warnings(text, written)


def _quartz_weekday(written: list[str]) -> str:
    """Return the weekday field with numbers of an expression that looks like Quartz, else ""."""
    if len(written) < 5:
        return ""
    day, weekday = (written[-3], written[-1]) if len(written) < 7 else (written[3], written[5])
    is_quartz = len(written) == 7 or day == "?"
    numbers = _WEEKDAY_NUMBER.findall(weekday)
    return weekday if is_quartz and numbers and "0" not in numbers else ""


def _quartz_warning(text: str, weekday: str, key: str) -> str:
    meaning = cron_words(parse_cron(text, key))
    return f"{quoted(text)} is {meaning}: weekday 1 is Monday, not Sunday as in Quartz"


def _as_quartz_meant(weekday: str) -> str:
    return _WEEKDAY_NUMBER.sub(lambda number: _SHORT_WEEKDAYS[int(number[0]) - 1], weekday)


def _step_warnings(text: str, written: list[str]) -> Iterator[tuple[str, str]]:
    for field, term in zip(_FIELDS if len(written) == 5 else _WITH_SECONDS, written, strict=False):
        for step in (int(number) for number in _STEP.findall(term)):
            if step > field.size:
                unit = _INTERVAL_UNITS.get(field.name)
                hint = f"an interval counts regardless of the clock: every {step}{unit}"
                message = f"{quoted(text)}: step {step} is longer than the {field.name} field"
                yield f"{message}, only its first value is left", hint if unit else ""


def hash_warnings(schedule: Schedule) -> list[Problem]:
    """Warn where due times depend on which job has the schedule, and that is not known."""
    return [
        Problem(
            f"{quoted(text)}: H depends on the job's name, so a job's own times are others",
            expression_path(schedule, index),
            hint="name the job: --job NAME, or job=NAME in REST",
            warning=True,
        )
        for index, text in enumerate(schedule.expressions)
        if form_of(text) is Form.CRON and has_hash(text)
    ]


def _four_field_warning(text: str, key: str) -> str:
    meaning = cron_words(parse_cron(text, key))
    message = f"{quoted(text)} has 4 fields: second minute hour day = {meaning}."
    five = f"{text} *"
    try:
        words = cron_words(parse_cron(five, key))
    except ValueError:
        return message
    is_daily = words.startswith(_DAILY)
    likely = f"{words.removeprefix(_DAILY)} daily" if is_daily else words
    return f"{message} For {likely}: {quoted(five)}"


_ALL_HOURS = 24
_HORIZON = 2 * 366 * 86_400  # a zone without a change for two years is taken to have none


@dataclass(frozen=True, slots=True)
class ClockChange:
    """A change of a zone's clocks and what it does to a schedule."""

    at: datetime  # the first instant on the new offset
    shift: timedelta  # positive: clocks go forward
    text: str  # for people: `Sun 28 Mar 03:00 (02:30 does not exist, clocks go forward)`


def clock_changes(timetable: Timetable, after: datetime, limit: int = 2) -> tuple[ClockChange, ...]:
    """Return those of the zone's next `limit` changes that move, drop or double a due time.

    A schedule that is due in every hour, whatever that hour is called, notices none of them. The
    text has the year where that is another than `after`'s.
    """
    second = micros(after) // SECOND_MICROS
    periods = islice(timetable.zone.changes(second, second + _HORIZON), limit)
    year = timetable.zone.local(after).year
    found = (_clock_change(timetable, period, year) for period in periods)
    return tuple(change for change in found if change is not None)


def clock_remark(timetable: Timetable, due: datetime) -> str:
    """Return what is odd about a due time: `02:30 does not exist, clocks go forward`, or ""."""
    second = micros(due) // SECOND_MICROS
    for source in _touchable(timetable):
        period = source.zone.period_at(second)
        if second == period.start and source.stands_in_for_gap(period):
            return f"{_span(source, period)} does not exist, clocks go forward"
        local = second + period.offset
        if source.times.any_in(local, local + 1) and (which := _occurrence(source.zone, second)):
            return f"{_clock(local)} comes twice, clocks go back: the {which}"
    return ""


def _clock_change(timetable: Timetable, period: Period, year: int) -> ClockChange | None:
    touched = [source for source in _touchable(timetable) if _span(source, period)]
    if not touched:
        return None
    return ClockChange(
        at=instant(period.start * SECOND_MICROS),
        shift=timedelta(seconds=period.shift),
        text="; ".join(_effect(source, period, year) for source in touched),
    )


def _touchable(timetable: Timetable) -> list[ZonedCron]:
    """List the expressions that mean certain hours, so that a missing or repeated one matters."""
    crons = (source for source in timetable.sources if isinstance(source, ZonedCron))
    return [it for it in crons if it.kind is Kind.FIXED or len(it.cron.hours) < _ALL_HOURS]


def _effect(source: ZonedCron, period: Period, year: int) -> str:
    span = _span(source, period)
    after = period.start + period.offset
    if source.stands_in_for_gap(period):
        return f"{_date(after, year)} {_clock(after)} ({span} does not exist, clocks go forward)"
    if period.shift > 0:
        date = _date(after - period.shift, year)
        return f"{date} no run at {span} (does not exist, clocks go forward)"
    is_once = source.kind is Kind.FIXED and source.dst.fold is Fold.FIRST
    often = "once" if is_once else "both times"
    return f"{_date(after, year)} {span} {often} (comes twice, clocks go back)"


def _span(source: ZonedCron, period: Period) -> str:
    """Return the schedule's times of day that do not exist or come twice, or ""."""
    after = period.start + period.offset
    low, high = sorted((after - period.shift, after))
    first, last = source.times.at_or_after(low), source.times.at_or_before(high - 1)
    if first is None or last is None or first >= high:
        return ""
    return _clock(first) if first == last else f"{_clock(first)}–{_clock(last)}"


def _occurrence(zone: Zone, second: int) -> str:
    """Return whether local time at this second is the first or second of two, or ""."""
    period = zone.period_at(second)
    if second < period.start - period.shift:
        return "second"
    if period.end > LAST_SECOND:
        return ""
    following = zone.period_at(period.end)
    is_repeated = following.start == period.end and second >= following.start + following.shift
    return "first" if is_repeated and following.shift < 0 else ""


def _clock(local: int) -> str:
    time = instant(local * SECOND_MICROS)
    return f"{time:%H:%M:%S}" if time.second else f"{time:%H:%M}"


def _date(local: int, year: int) -> str:
    time = instant(local * SECOND_MICROS)
    return f"{time:%a} {time.day} {time:%b}" + (f" {time.year}" if time.year != year else "")


MOST_EXPLAINED = 10_000  # due times of one explanation


@dataclass(frozen=True, slots=True)
class DueTime:
    """One due time on the clocks of the schedule's zone."""

    at: datetime
    remark: str  # what a change of clocks did to it, or ""


@dataclass(frozen=True, slots=True)
class Explanation:
    """A schedule in words and in due times."""

    after: datetime  # when it begins, on the clocks of the schedule's zone
    words: str
    kinds: tuple[Kind, ...]  # of each expression: how it behaves when clocks change
    next: tuple[DueTime, ...]
    clock_changes: tuple[ClockChange, ...]  # the next ones that move, drop or double a due time
    warnings: tuple[Problem, ...]


def explain(schedule: Schedule, *, key: str, after: datetime, count: int) -> Explanation:
    """Explain a schedule, with its due times later than `after`; `Invalid` if it is none.

    `key` is the identity of the job that it belongs to; "" if that is not known yet.
    """
    table = compile_schedule(schedule, key=key, anchor=after)
    due_times = table.upcoming(after, count)
    unsure = () if key else hash_warnings(schedule)
    return Explanation(
        after=table.zone.local(after),
        words=describe(table),
        kinds=table.kinds,
        next=tuple(DueTime(table.zone.local(due), clock_remark(table, due)) for due in due_times),
        clock_changes=clock_changes(table, after),
        warnings=(*warnings(schedule, key=key), *unsure),
    )
