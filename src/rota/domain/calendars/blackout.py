"""When calendars keep jobs from running."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice

from rota.domain.calendars.definition import Calendar
from rota.domain.calendars.holiday_sets import HolidaySet
from rota.domain.calendars.stretches import LONGEST, Stretch, edges
from rota.domain.calendars.windows import Window
from rota.domain.ids import instant, micros
from rota.domain.schedule.sources import SECOND_MICROS
from rota.domain.schedule.zones import LAST_SECOND, Zone

_BLOCK_BITS = 22  # a block is 48 days
_MAX_BLOCKS = 64  # kept per calendar: more than a search up to the horizon passes


class Blackout:
    """A calendar, compiled.

    Its windows are found block by block and kept as edges, the ascending seconds at which it
    begins, ends, begins, …: an instant is inside where an odd number of them lies behind it.
    """

    __slots__ = ("_blocks", "_sources", "calendar", "windows", "zone")

    def __init__(
        self, calendar: Calendar, zone: Zone, windows: Sequence[Window], holidays: HolidaySet | None
    ) -> None:
        self.calendar = calendar
        self.zone = zone
        self.windows = tuple(windows)
        self._sources = (*self.windows, *((holidays,) if holidays else ()))
        self._blocks: dict[int, tuple[int, ...]] = {}

    @property
    def name(self) -> str:
        return self.calendar.name

    def is_inside(self, time: datetime) -> bool:
        second = micros(time) // SECOND_MICROS
        return bisect_right(self._edges(second), second) % 2 == 1

    def end_from(self, second: int, limit: int) -> int | None:
        """The first second outside that is not earlier; None: not before the limit."""
        while second < limit:
            found = self._edges(second)
            index = bisect_right(found, second)
            if index % 2 == 0:
                return second
            # The end of a block is an edge too: the next block tells whether it goes on.
            second = found[index]
        return None

    def begin_from(self, second: int, limit: int) -> int | None:
        """The first second inside that is not earlier; None: not before the limit."""
        while second < limit:
            found = self._edges(second)
            index = bisect_right(found, second)
            if index % 2 == 1:
                return second
            if index < len(found):
                return found[index] if found[index] < limit else None
            second = ((second >> _BLOCK_BITS) + 1) << _BLOCK_BITS
        return None

    def begin_of(self, second: int) -> int:
        """Where the stretch around a second inside begins."""
        while (index := bisect_right(found := self._edges(second), second)) % 2 == 1:
            second = found[index - 1] - 1
        return second + 1

    def _edges(self, second: int) -> tuple[int, ...]:
        block = second >> _BLOCK_BITS
        found = self._blocks.get(block)
        return self._load(block) if found is None else found

    def _load(self, block: int) -> tuple[int, ...]:
        if len(self._blocks) >= _MAX_BLOCKS:
            self._blocks.clear()
        within = Stretch(block << _BLOCK_BITS, (block + 1) << _BLOCK_BITS)
        stretches = (it for source in self._sources for it in source.stretches(self.zone, within))
        found = self._blocks[block] = edges(stretches, within)
        return found


@dataclass(frozen=True, slots=True)
class BlackoutWindow:
    """When nothing may start; windows of a calendar that touch are one."""

    begins: datetime
    ends: datetime  # the first instant outside


def end_of_blackout(blackouts: Sequence[Blackout], time: datetime) -> datetime | None:
    """The first instant at or after `time` that is outside all of them; None: not in five years."""
    begin = second = micros(time) // SECOND_MICROS
    limit = min(second + LONGEST, LAST_SECOND)
    while True:
        before = second
        for blackout in blackouts:
            end = blackout.end_from(second, limit)
            if end is None:
                return None
            second = end
        if second == before:
            return time if second == begin else instant(second * SECOND_MICROS)


def next_windows(blackout: Blackout, since: datetime, limit: int) -> tuple[BlackoutWindow, ...]:
    """The stretches that end after `since`, in order; those that begin within five years."""
    return tuple(islice(_times(blackout, micros(since) // SECOND_MICROS), limit))


def _times(blackout: Blackout, second: int) -> Iterator[BlackoutWindow]:
    horizon = min(second + LONGEST, LAST_SECOND)
    while (begin := blackout.begin_from(second, horizon)) is not None:
        begin = blackout.begin_of(begin)
        end = blackout.end_from(begin, LAST_SECOND)
        if end is None:
            return
        yield BlackoutWindow(instant(begin * SECOND_MICROS), instant(end * SECOND_MICROS))
        second = end
