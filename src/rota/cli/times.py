"""Formats of times and durations for tables and transcripts, on the reader's clocks.

What people type without an offset is on the same clocks (`options.take_time`).

The zone is that of `--tz`, else ROTA_TZ, else TZ, else the machine's. Data stays in UTC.
"""

from __future__ import annotations

import os
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from rota.cli.terminal import CommandFailed, Exit

_UNITS = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))
_VARIABLE = "ROTA_TZ"
_chosen: ContextVar[ZoneInfo | None] = ContextVar("zone of --tz", default=None)


def now() -> datetime:
    """Return the time of this machine: used only to show "3 m ago", never to decide."""
    return datetime.now(UTC)  # noqa: TID251 (see above)


def print_in(zone: str) -> None:
    """Show times in this zone from now on; raise `CommandFailed` if it is unknown."""
    _chosen.set(_named(zone, "--tz"))


def zone_name() -> str | None:
    """Return the zone on whose clocks times are printed; None if it has no name that we know."""
    if zone := _zone():
        return zone.key
    from rota.runtime.offline import host_timezone  # slow to import, and seldom asked for

    found = _loaded(host_timezone())
    # The machine may have a copy of its zone's file, which has no name, and then prints by that.
    present = now()
    is_printed = found and present.astimezone(found).utcoffset() == here(present).utcoffset()
    return found.key if found and is_printed else None


def here(at: datetime) -> datetime:
    """Convert an instant to the reader's clocks."""
    return at.astimezone(_zone())  # None: those of the machine


def _zone() -> ZoneInfo | None:
    """Return the zone that was asked for; None: that of the machine."""
    if zone := _chosen.get():
        return zone
    if name := os.environ.get(_VARIABLE):
        return _named(name, _VARIABLE)
    return _loaded(os.environ.get("TZ", "").removeprefix(":"))


def _named(name: str, by: str) -> ZoneInfo:
    from rota.runtime.offline import require_zone  # slow to import, and few choose a zone

    try:
        require_zone(name)
    except ValueError as error:
        raise CommandFailed(f"{by}: {error}", code=Exit.USAGE) from error
    return ZoneInfo(name)


def _loaded(name: str) -> ZoneInfo | None:
    """Load a zone; None for a TZ that only the C library understands: `CET-1CEST`, a path."""
    try:
        return ZoneInfo(name) if name else None
    except (OSError, ValueError, KeyError):
        return None


def length(seconds: float) -> str:
    """Format `340 ms`, `12.0 s`, `14 m 02 s`, `5 h 12 m`: two units at most."""
    if seconds < 0.0995:
        return f"{max(seconds, 0) * 1000:.0f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    rest = round(seconds)
    index = next(index for index, (_, size) in enumerate(_UNITS) if rest >= size)
    (unit, size), (smaller_unit, smaller) = _UNITS[index], _UNITS[index + 1]
    return f"{rest // size} {unit} {rest % size // smaller:02} {smaller_unit}"


def relative(at: datetime, present: datetime) -> str:
    """Format `in 5 h 12 m`, `3.0 s ago`."""
    seconds = (at - present) / timedelta(seconds=1)
    return f"in {length(seconds)}" if seconds >= 0 else f"{length(-seconds)} ago"


def ago(at: datetime, present: datetime) -> str:
    """Format like `relative` a time that has passed, with the larger unit only: `14 m ago`."""
    number, unit, *_ = length((present - at) / timedelta(seconds=1)).split()
    return f"{number} {unit} ago"


def distance(at: datetime | None, present: datetime) -> str:
    """Format like `relative` a time that may be missing: where there is no room for more."""
    return "–" if at is None else relative(at, present)


def absolute(at: datetime) -> str:
    """Format `2027-03-28 03:00:00 CEST`."""
    return _dated(here(at))


def moment(at: datetime | None, present: datetime) -> str:
    """Format both forms; the date only where it is not today's."""
    if at is None:
        return "–"
    return f"{relative(at, present)} · {stamp(at, present)}"


def stamp(at: datetime, present: datetime) -> str:
    """Format `03:00:00 CEST`, with the date where it is not today's."""
    return _stamp(here(at), here(present))


def due(at: datetime | None, present: datetime) -> str:
    """Format a due time like `moment`; it has the offset of its schedule's zone.

    Where that is not the reader's, the time on the schedule's own clocks is added.
    """
    if at is None or at.utcoffset() == here(at).utcoffset():
        return moment(at, present)
    return f"{moment(at, present)} (its clocks: {_stamp(at, here(at))})"


def clock(at: datetime, present: datetime) -> str:
    """Format `03:52:00`, with the weekday if not today; a heading beside it has the zone."""
    shown = here(at)
    is_today = shown.date() == here(present).date()
    return f"{shown:%H:%M:%S}" if is_today else f"{shown:%a %H:%M:%S}"


def zone_mark(at: datetime) -> str:
    """Return the reader's zone abbreviation at an instant: `UTC`, `CEST`, `-03`."""
    return _mark(here(at))


def _stamp(at: datetime, other: datetime) -> str:
    """Format a time with its zone, and with its date unless that is the other's."""
    return f"{at:%H:%M:%S} {_mark(at)}" if at.date() == other.date() else _dated(at)


def _dated(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S} {_mark(at)}"


def _mark(at: datetime) -> str:
    """Return the zone's abbreviation, or the offset where a time has no more than that."""
    name = at.tzname() or ""
    if not name.startswith("UTC") or not at.utcoffset():
        return name
    return at.isoformat()[-6:]
