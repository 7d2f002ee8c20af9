"""A reference for the due times of whole years that shares nothing with the engine.

It asks `zoneinfo` what clocks show, and walks: local days for fixed times, minutes for the rest.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

DAY = timedelta(days=1)
QUARTER = timedelta(minutes=15)
_SECOND = timedelta(seconds=1)


def daily(zone: str, at: time, after: datetime, until: datetime) -> Iterator[datetime]:
    """Once on each local day; out of a gap at its end, in a fold the first time."""
    info = ZoneInfo(zone)
    day = (after - 2 * DAY).date()
    while day <= (until + 2 * DAY).date():
        due = instant_of(info, day, at)
        if after < due <= until:
            yield due
        day += DAY


def weekly(
    zone: str, weekday: int, at: time, after: datetime, until: datetime
) -> Iterator[datetime]:
    """The same on one day of the week. No clock change moves these out of their day."""
    info = ZoneInfo(zone)
    for due in daily(zone, at, after, until):
        if due.astimezone(info).weekday() == weekday:
            yield due


def hourly(zone: str, after: datetime, until: datetime) -> Iterator[datetime]:
    """Whenever the clock shows a whole hour, also one it has shown before."""
    info = ZoneInfo(zone)
    moment = after.replace(minute=0, second=0, microsecond=0)
    while moment <= until:
        if moment > after and moment.astimezone(info).minute == 0:
            yield moment
        moment += QUARTER


def minutely(after: datetime, first: datetime, last: datetime) -> Iterator[datetime]:
    """Every minute of a stretch, both its ends included."""
    moment = first
    while moment <= last:
        if moment > after:
            yield moment
        moment += timedelta(minutes=1)


def every(length: timedelta, after: datetime, until: datetime) -> Iterator[datetime]:
    """An interval that began at `after`, where it is due first after one length."""
    moment = after + length
    while moment <= until:
        yield moment
        moment += length


def instant_of(info: ZoneInfo, day: date, at: time) -> datetime:
    """When a clock shows this time for the first time, or the end of the gap that leaves it out."""
    local = datetime.combine(day, at)
    moment = local.replace(tzinfo=info).astimezone(UTC)
    if moment.astimezone(info).replace(tzinfo=None) == local:
        return moment
    return _end_of_gap(info, moment)


def _end_of_gap(info: ZoneInfo, moment: datetime) -> datetime:
    """The change of clocks before a moment that a nonexistent time was taken for."""
    low, high = moment - timedelta(hours=4), moment
    offset = high.astimezone(info).utcoffset()
    while high - low > _SECOND:
        middle = low + (high - low) // 2 // _SECOND * _SECOND
        if middle.astimezone(info).utcoffset() == offset:
            high = middle
        else:
            low = middle
    return high
