"""One end of an absolute window: a date, or a time with or without an offset."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import NamedTuple

from rota.domain.ids import micros
from rota.domain.schedule.local_times import DAY_SECONDS
from rota.domain.schedule.quoting import quoted
from rota.domain.schedule.sources import SECOND_MICROS

_FIRST_YEAR, _LAST_YEAR = 1970, 9998  # one short of the end, so that any zone's offset still fits
_LONGEST_DATE = len("2026-12-24")


class Moment(NamedTuple):
    """Seconds since 1970, on local clocks unless the time was written with an offset."""

    first: int
    end: int  # the next midnight for a date, else equal to `first`
    has_offset: bool

    @property
    def is_day(self) -> bool:
        return self.end > self.first


def parse_moment(text: str) -> Moment:
    """Reads ISO 8601; a ValueError says what is wrong."""
    try:
        written = datetime.fromisoformat(text)
    except ValueError as error:
        message = f"{quoted(text)} is not an ISO 8601 time such as 2026-12-24T08:00"
        raise ValueError(message) from error
    if not _FIRST_YEAR <= written.year <= _LAST_YEAR:
        raise ValueError(f"{quoted(text)} is outside the years {_FIRST_YEAR} to {_LAST_YEAR}")
    second, rest = divmod(micros(_aware(written)), SECOND_MICROS)
    if rest:
        raise ValueError(f"{quoted(text)} is finer than a second")
    length = DAY_SECONDS if len(text) <= _LONGEST_DATE else 0
    return Moment(second, second + length, has_offset=written.tzinfo is not None)


def _aware(written: datetime) -> datetime:
    return written if written.tzinfo else written.replace(tzinfo=UTC)
