"""What a schedule means, told beforehand: in words, with advice, through changes of clocks."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice

from rota.domain.errors import Problem
from rota.domain.ids import instant, micros
from rota.domain.schedule.compilation import compile_schedule, expression_path
from rota.domain.schedule.cron import has_hash, parse_cron
from rota.domain.schedule.expressions import Form, form_of
from rota.domain.schedule.sources import SECOND_MICROS, Kind
from rota.domain.schedule.timetable import Timetable
from rota.domain.schedule.words import cron_words, describe
from rota.domain.schedule.zoned_cron import ZonedCron
from rota.domain.schedule.zones import LAST_SECOND, Period, Zone
from rota.domain.spec import Fold, Schedule
from rota.domain.wording import quoted

_DAILY = "every day at "


def warnings(schedule: Schedule, *, key: str = "") -> list[Problem]:
    """What is worth a look in a valid schedule: four fields where five were likely meant."""
    return [
        Problem(_four_field_warning(text, key), expression_path(schedule, index), warning=True)
        for index, text in enumerate(schedule.expressions)
        if len(text.split()) == 4 and form_of(text) is Form.CRON
    ]


def hash_warnings(schedule: Schedule) -> list[Problem]:
    """Where due times depend on which job has the schedule, and that is not known."""
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
    """Those of the zone's next `limit` changes that move, drop or double a due time.

    A schedule that is due in every hour, whatever that hour is called, notices none of them. The
    text has the year where that is another than `after`'s.
    """
    second = micros(after) // SECOND_MICROS
    periods = islice(timetable.zone.changes(second, second + _HORIZON), limit)
    year = timetable.zone.local(after).year
    found = (_clock_change(timetable, period, year) for period in periods)
    return tuple(change for change in found if change is not None)


def clock_remark(timetable: Timetable, due: datetime) -> str:
    """What is odd about a due time, such as `02:30 does not exist, clocks go forward`, or ""."""
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
    """The expressions that mean certain hours, so that a missing or repeated one matters."""
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
    """The schedule's times of day that do not exist or come twice, or ""."""
    after = period.start + period.offset
    low, high = sorted((after - period.shift, after))
    first, last = source.times.at_or_after(low), source.times.at_or_before(high - 1)
    if first is None or last is None or first >= high:
        return ""
    return _clock(first) if first == last else f"{_clock(first)}–{_clock(last)}"


def _occurrence(zone: Zone, second: int) -> str:
    """Whether local time at this second is the first or second of two, or ""."""
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
    """What a schedule means, with its due times later than `after`; `Invalid` if it is none.

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
