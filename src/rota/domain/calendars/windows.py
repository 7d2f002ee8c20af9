"""Calendar as it is written, and its windows as stretches of time in UTC.

A window is a span on the clocks of the calendar's zone, each day of a rule or once. `on_clocks`
places one such span in UTC, through changes of the clocks; `edges` joins many, as windows may
overlap. Both local time and UTC are counted in whole seconds since 1970: a day of 23 hours needs no
case of its own. The text of windows is parsed in `grammar.py`, blackouts are made in `blackout.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date
from enum import StrEnum
from typing import NamedTuple

from rota.domain.schedule.days import DayRule, dates_of
from rota.domain.schedule.zoned_cron import CLOCK_MARGIN, DAY_SECONDS, EPOCH_DAY
from rota.domain.schedule.zones import LAST_SECOND, Zone


class Inside(StrEnum):
    """Treatment of a due time inside a blackout."""

    SKIP = "skip"
    RUN_AFTER = "run_after"


@dataclass(frozen=True, slots=True)
class Holidays:
    """The public holidays of a country, each a whole day."""

    country: str  # ISO 3166 code of two letters
    subdivision: str = ""  # state or region, as the package `holidays` calls it; "" = nationwide


@dataclass(frozen=True, slots=True)
class Calendar:
    """Named windows in which the jobs that use it do not run."""

    name: str
    windows: tuple[str, ...] = ()
    timezone: str = "UTC"  # IANA name: whose clocks the windows are on
    holidays: Holidays | None = None
    inside: Inside = Inside.SKIP


# Of a blackout, and how far ahead its end is looked for: disable a job that rests longer.
LONGEST = 5 * 366 * DAY_SECONDS


class Stretch(NamedTuple):
    first: int
    end: int  # exclusive


def on_clocks(zone: Zone, local: Stretch) -> Stretch | None:
    """Return the first to the last moment at which clocks show a time of the span; None: never.

    One window stays one stretch: it begins after a gap that swallows its beginning, and where
    clocks go back it ends only when its end is reached for the last time.
    """
    pieces = list(_pieces(zone, local))
    if not pieces:
        return None
    return Stretch(pieces[0].first, pieces[-1].end)


def edges(stretches: Iterable[Stretch], within: Stretch) -> tuple[int, ...]:
    """Return the union, cut to `within`, as ascending seconds: in, out, in, out …"""
    found: list[int] = []
    for first, end in sorted(stretches):
        first, end = max(first, within.first), min(end, within.end)
        if first >= end:
            continue
        if found and first <= found[-1]:
            found[-1] = max(found[-1], end)
        else:
            found += (first, end)
    return tuple(found)


def _pieces(zone: Zone, local: Stretch) -> Iterator[Stretch]:
    second = local.first - CLOCK_MARGIN
    while second < min(local.end + CLOCK_MARGIN, LAST_SECOND + 1):
        period = zone.period_at(second)
        first = max(period.start, local.first - period.offset)
        end = min(period.end, local.end - period.offset)
        if first < end:
            yield Stretch(first, end)
        second = period.end


@dataclass(frozen=True, slots=True)
class DaySpan:
    """Span of a day, in seconds from its midnight."""

    first: int = 0
    end: int = DAY_SECONDS  # exclusive; beyond midnight: it ends on the next day

    def on(self, ordinal: int) -> Stretch:
        midnight = (ordinal - EPOCH_DAY) * DAY_SECONDS
        return Stretch(midnight + self.first, midnight + self.end)


WHOLE_DAY = DaySpan()


@dataclass(frozen=True, slots=True)
class Recurring:
    """`Mon-Fri 22:00-06:00`: a span that begins on each day of a rule."""

    days: DayRule
    span: DaySpan = WHOLE_DAY

    def stretches(self, zone: Zone, within: Stretch) -> Iterator[Stretch]:
        """Yield at least the stretches that touch `within`."""
        days = dates_of(self.days)
        last = ordinal_of(within.end + CLOCK_MARGIN)
        # The day before may reach over midnight.
        day = days.at_or_after(ordinal_of(within.first - CLOCK_MARGIN) - 1)
        while day is not None and day <= last:
            if stretch := on_clocks(zone, self.span.on(day)):
                yield stretch
            day = days.at_or_after(day + 1)


@dataclass(frozen=True, slots=True)
class Absolute:
    """`2026-12-24T00:00/2026-12-27T00:00`: one stretch, on local clocks or in UTC."""

    written: Stretch
    is_local: bool

    def stretch(self, zone: Zone) -> Stretch | None:
        """Return the stretch in UTC; None: the zone's clocks leave it out."""
        return on_clocks(zone, self.written) if self.is_local else self.written

    def stretches(self, zone: Zone, within: Stretch) -> Iterator[Stretch]:
        """Yield the one stretch, if it can touch `within`."""
        is_near = within.first - CLOCK_MARGIN < self.written.end
        if (
            is_near
            and self.written.first < within.end + CLOCK_MARGIN
            and (one := self.stretch(zone))
        ):
            yield one


Window = Recurring | Absolute


def whole_days(zone: Zone, ordinals: Iterable[int]) -> Iterator[Stretch]:
    for ordinal in ordinals:
        if stretch := on_clocks(zone, WHOLE_DAY.on(ordinal)):
            yield stretch


def ordinal_of(second: int) -> int:
    """Return the date (`date.toordinal`) of a second, never past the calendar's ends."""
    ordinal = EPOCH_DAY + second // DAY_SECONDS
    return min(max(ordinal, 1), date.max.toordinal())
