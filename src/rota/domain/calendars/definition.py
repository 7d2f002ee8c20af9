"""A calendar as written; `rota.domain.calendars.compilation` turns it into a blackout."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Inside(StrEnum):
    """What becomes of a due time inside a blackout."""

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
