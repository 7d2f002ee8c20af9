"""What a change of clocks does to a schedule, told before it happens."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice

from rota.domain.ids import instant, micros
from rota.domain.schedule.sources import SECOND_MICROS, Kind
from rota.domain.schedule.timetable import Timetable
from rota.domain.schedule.zoned_cron import ZonedCron
from rota.domain.schedule.zones import LAST_SECOND, Period, Zone
from rota.domain.spec import Fold

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
