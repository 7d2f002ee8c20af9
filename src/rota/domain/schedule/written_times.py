"""Times as people write them: with an offset, or on the clocks of a zone."""

from __future__ import annotations

import re
from datetime import UTC, datetime, time, timedelta

from rota.domain.schedule.quoting import quoted
from rota.domain.schedule.zones import Zone

OUTSIDE = "outside the years 1970 to 9999"

_YEAR_TOO_LARGE = re.compile(r"\+?[0-9]{5,}-", re.ASCII)
_TIME_OF_DAY = re.compile(r"[0-9]{2}:[0-9]{2}(?::[0-9]{2})?", re.ASCII)
_DAY = timedelta(days=1)


def iso_time(text: str) -> datetime:
    """An ISO 8601 time, or a date for its midnight; a ValueError says what is wrong."""
    if _YEAR_TOO_LARGE.match(text):
        raise ValueError(OUTSIDE)
    try:
        return datetime.fromisoformat(text.upper())
    except ValueError as error:
        raise ValueError(f"not an ISO 8601 time such as 2026-06-01T22:00: {error}") from error


def read_instant(text: str, zone: Zone | None) -> datetime:
    """The instant that a text means; a ValueError says what is wrong.

    Without an offset it is on the clocks of `zone`; without a zone, it needs one.
    """
    try:
        written = iso_time(text.strip())
        if written.tzinfo is not None:
            return written.astimezone(UTC)
        if zone is not None:
            return zone.instant(written)
    except OverflowError as error:
        raise ValueError(f"{quoted(text)}: {OUTSIDE}") from error
    except ValueError as error:
        raise ValueError(f"{quoted(text)}: {error}") from error
    raise ValueError(f"{quoted(text)} has no offset: add Z or +01:00")


def read_coming_instant(text: str, zone: Zone | None, now: datetime) -> datetime:
    """`read_instant`, and `11:00` for the next time that the zone's clocks show it."""
    if zone is None or not _TIME_OF_DAY.fullmatch(text.strip()):
        return read_instant(text, zone)
    clock = _time_of_day(text)
    today = zone.local(now).date()
    found = zone.instant(datetime.combine(today, clock))
    return found if found > now else zone.instant(datetime.combine(today + _DAY, clock))


def _time_of_day(text: str) -> time:
    try:
        return time.fromisoformat(text.strip())
    except ValueError as error:
        raise ValueError(f"{quoted(text)}: {error}") from error
