"""Blackouts: when calendars keep jobs from running, holidays too, and the effect on due times."""

from __future__ import annotations

import importlib
import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from difflib import get_close_matches
from functools import lru_cache
from itertools import islice
from types import ModuleType

from rota.domain.calendars.windows import (
    LONGEST,
    Calendar,
    Holidays,
    Inside,
    Stretch,
    Window,
    edges,
    ordinal_of,
    whole_days,
)
from rota.domain.errors import Problem, quoted
from rota.domain.ids import instant, micros
from rota.domain.schedule.sources import SECOND_MICROS
from rota.domain.schedule.zoned_cron import CLOCK_MARGIN
from rota.domain.schedule.zones import LAST_SECOND, Zone

_COUNTRY = re.compile(r"[A-Z]{2}", re.ASCII)


@dataclass(frozen=True, slots=True)
class HolidaySet:
    """The holidays of a country as windows. Only for `holidays` that have no `problems`."""

    holidays: Holidays

    def stretches(self, zone: Zone, within: Stretch) -> Iterator[Stretch]:
        """Yield at least the stretches that touch `within`."""
        for year in _years(within):
            yield from whole_days(zone, _days_of(self.holidays, year))


def holiday_problems(holidays: Holidays) -> list[Problem]:
    """List what keeps the holidays from being known; paths are relative to the calendar."""
    package = _package()
    if package is None:
        message = "holidays need a package that is not installed"
        return [Problem(message, "holidays", hint="pip install rota[holidays]")]
    try:
        _lookup(package, holidays, ())
    except NotImplementedError:
        return [_unknown(package, holidays)]
    return []


def _package() -> ModuleType | None:
    try:
        return importlib.import_module("holidays")
    except ImportError:
        return None


def _lookup(package: ModuleType, holidays: Holidays, years: tuple[int, ...]) -> list[date]:
    # The package finds countries by attribute: only what looks like a country may reach it.
    if not _COUNTRY.fullmatch(holidays.country):
        raise NotImplementedError
    subdivision = holidays.subdivision or None
    return list(package.country_holidays(holidays.country, subdiv=subdivision, years=years))


@lru_cache(maxsize=4096)
def _days_of(holidays: Holidays, year: int) -> tuple[int, ...]:
    package = importlib.import_module("holidays")
    return tuple(day.toordinal() for day in _lookup(package, holidays, (year,)))


def _years(within: Stretch) -> range:
    first = date.fromordinal(ordinal_of(within.first - CLOCK_MARGIN)).year
    last = date.fromordinal(ordinal_of(within.end + CLOCK_MARGIN)).year
    return range(first, last + 1)


def _unknown(package: ModuleType, holidays: Holidays) -> Problem:
    known: dict[str, list[str]] = package.list_supported_countries(include_aliases=False)
    if holidays.country not in known:
        message = f"there are no holidays of a country {quoted(holidays.country)}"
        return Problem(message, "holidays.country", hint="write two capital letters such as DE")
    message = f"{holidays.country} has no subdivision {quoted(holidays.subdivision)}"
    near = get_close_matches(holidays.subdivision.upper(), known[holidays.country], n=1, cutoff=0.5)
    hint = f"did you mean {quoted(near[0])}?" if near else ""
    return Problem(message, "holidays.subdivision", hint=hint)


_BLOCK_BITS = 22  # a block is 48 days
_MAX_BLOCKS = 64  # kept per calendar: more than a search up to the horizon passes


class Blackout:
    """Compiled calendar.

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
        """Return the first second outside that is not earlier; None: not before the limit."""
        while second < limit:
            found = self._edges(second)
            index = bisect_right(found, second)
            if index % 2 == 0:
                return second
            # The end of a block is an edge too: the next block tells whether it goes on.
            second = found[index]
        return None

    def begin_from(self, second: int, limit: int) -> int | None:
        """Return the first second inside that is not earlier; None: not before the limit."""
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
        """Return where the stretch around a second inside begins."""
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
    """Window in which nothing may start; windows of a calendar that touch are one."""

    begins: datetime
    ends: datetime  # the first instant outside


def end_of_blackout(blackouts: Sequence[Blackout], time: datetime) -> datetime | None:
    """Return the first instant from `time` on outside all of them; None: not in five years."""
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
    """List the stretches that end after `since`, in order; those that begin within five years."""
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


@dataclass(frozen=True, slots=True)
class Allowed:
    """Answer that no calendar objects."""


@dataclass(frozen=True, slots=True)
class SkippedBy:
    """Answer that the due time does not run."""

    name: str  # of the calendar

    @property
    def cause(self) -> str:
        """Cause that the ledger records."""
        return f"calendar {self.name}"


@dataclass(frozen=True, slots=True)
class ReleasedAt:
    """Answer that the run waits until no calendar of the job objects any more."""

    at: datetime
    name: str  # of the calendar that makes it wait; the first, if several do


BlackoutAnswer = Allowed | SkippedBy | ReleasedAt

_ALLOWED = Allowed()


def blackout_answer(blackouts: Sequence[Blackout], due: datetime) -> BlackoutAnswer:
    """Decide about one due time. A calendar that skips wins over one that lets runs wait.

    Together, calendars may leave no free instant for five years: then waiting is useless, and the
    due time is skipped.
    """
    closed = [blackout for blackout in blackouts if blackout.is_inside(due)]
    if not closed:
        return _ALLOWED
    for blackout in closed:
        if blackout.calendar.inside is Inside.SKIP:
            return SkippedBy(blackout.name)
    end = end_of_blackout(blackouts, due)
    return ReleasedAt(end, closed[0].name) if end else SkippedBy(closed[0].name)
