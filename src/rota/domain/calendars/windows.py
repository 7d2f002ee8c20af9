"""The windows of a calendar, understood."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date

from rota.domain.calendars.stretches import Stretch, on_clocks
from rota.domain.schedule.days import DayRule, dates_of
from rota.domain.schedule.local_times import CLOCK_MARGIN, DAY_SECONDS, EPOCH_DAY
from rota.domain.schedule.zones import Zone


@dataclass(frozen=True, slots=True)
class DaySpan:
    """Times of a day, in seconds from its midnight."""

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
        """At least those that touch `within`."""
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
        """When it is; None: the zone's clocks leave it out."""
        return on_clocks(zone, self.written) if self.is_local else self.written

    def stretches(self, zone: Zone, within: Stretch) -> Iterator[Stretch]:
        """The one stretch, if it can touch `within`."""
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
    """The date (`date.toordinal`) of a second, never past the calendar's ends."""
    ordinal = EPOCH_DAY + second // DAY_SECONDS
    return min(max(ordinal, 1), date.max.toordinal())
