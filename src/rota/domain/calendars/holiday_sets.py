"""Public holidays, from the optional package `holidays`."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from difflib import get_close_matches
from functools import lru_cache
from types import ModuleType

from rota.domain.calendars.definition import Holidays
from rota.domain.calendars.stretches import Stretch
from rota.domain.calendars.windows import ordinal_of, whole_days
from rota.domain.errors import Problem
from rota.domain.schedule.local_times import CLOCK_MARGIN
from rota.domain.schedule.quoting import quoted
from rota.domain.schedule.zones import Zone

_COUNTRY = re.compile(r"[A-Z]{2}", re.ASCII)


@dataclass(frozen=True, slots=True)
class HolidaySet:
    """The holidays of a country as windows. Only for `holidays` that have no `problems`."""

    holidays: Holidays

    def stretches(self, zone: Zone, within: Stretch) -> Iterator[Stretch]:
        """At least those that touch `within`."""
        for year in _years(within):
            yield from whole_days(zone, _days_of(self.holidays, year))


def problems(holidays: Holidays) -> list[Problem]:
    """What keeps the holidays from being known; paths are relative to the calendar."""
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
