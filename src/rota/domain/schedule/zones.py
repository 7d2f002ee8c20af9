"""Time zones as stretches of constant offset, found by asking the tz database.

Instants are whole seconds since 1970 UTC.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from functools import lru_cache
from typing import NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from rota.domain.errors import quoted

LAST_SECOND = 253_402_300_799  # 9999-12-31 23:59:59

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND = timedelta(seconds=1)
_BLOCK_BITS = 24  # a block is 194 days
_MAX_BLOCKS = 256  # kept per zone
# Two changes that undo one another would hide from a longer step; the tz database has none
# closer than 6.9 days.
_SCAN_STEP = 3 * 86_400
_LAST_PROBE = LAST_SECOND - 2 * 86_400  # local time must not pass the year 9999

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_+-]{0,31}(?:/[A-Za-z0-9_+-]{1,31}){0,2}")
# Files of the system's tz folder that are not zones: leap-second variants, the host's own zone.
_NOT_ZONES = re.compile(r"(?:right|posix)/.*|localtime|posixrules|Factory")
_ABBREVIATION = re.compile(r"[A-Z]{2,5}[0-9+-]*")
# Zones without a place: near in letters to what is hours away. Etc/GMT+1 is even behind UTC.
_OFFSET = re.compile(r"[A-Z0-9+-]+|Etc/GMT.*")
# Zones whose clocks are called so at some time of the year, where that is not itself an IANA name.
ABBREVIATIONS = {
    "Europe/London": "BST",
    "Europe/Lisbon": "WEST",
    "Europe/Berlin": "CEST",
    "Europe/Helsinki": "EEST",
    "Europe/Moscow": "MSK",
    "Africa/Johannesburg": "SAST",
    "Asia/Karachi": "PKT",
    "Asia/Kolkata": "IST",
    "Asia/Shanghai": "CST",
    "Asia/Hong_Kong": "HKT",
    "Asia/Tokyo": "JST",
    "Asia/Seoul": "KST",
    "Australia/Perth": "AWST",
    "Australia/Adelaide": "ACST ACDT",
    "Australia/Sydney": "AEST AEDT",
    "Pacific/Auckland": "NZST NZDT",
    "America/Halifax": "AST ADT",
    "America/New_York": "EDT",
    "America/Chicago": "CST CDT",
    "America/Denver": "MDT",
    "America/Los_Angeles": "PST PDT",
    "America/Anchorage": "AKST AKDT",
}


class Period(NamedTuple):
    """A stretch of constant offset."""

    start: int
    end: int  # exclusive
    offset: int  # seconds to add to UTC
    shift: int  # by how much clocks were moved at the start; 0: no change there


class Zone:
    """A zone of the tz database.

    Its periods may be cut where nothing changes, but never right after a change.
    """

    __slots__ = ("_blocks", "_info", "_only", "name")

    def __init__(self, name: str, info: ZoneInfo) -> None:
        self.name = name
        self._info = info
        self._blocks: dict[int, tuple[Period, ...]] = {}
        fixed = info.utcoffset(None)
        self._only = None if fixed is None else Period(0, LAST_SECOND + 1, fixed // _SECOND, 0)

    def period_at(self, second: int) -> Period:
        """Return the period of an instant of 1970 to 9999."""
        if self._only is not None:
            return self._only
        block = second >> _BLOCK_BITS
        periods = self._blocks.get(block) or self._load(block)
        for period in reversed(periods):
            if period.start <= second:
                return period
        raise AssertionError("a block's periods begin before it")

    def changes(self, after: int, through: int) -> Iterator[Period]:
        """Yield the periods that begin with a change in after < start ≤ through."""
        period = self.period_at(after)
        while period.end <= min(through, LAST_SECOND):
            period = self.period_at(period.end)
            if period.shift and period.start > after:
                yield period
                after = period.start  # the next block may know this change too

    def local(self, instant: datetime) -> datetime:
        """Convert the instant to this zone's clocks."""
        return instant.astimezone(self._info)

    def instant(self, local: datetime) -> datetime:
        """Return when clocks show a time without zone for the first time; inside a gap: its end."""
        found = local.replace(tzinfo=self._info, fold=0).astimezone(UTC)
        if self.shows(found, local):
            return found
        return _EPOCH + self.period_at((found - _EPOCH) // _SECOND).start * _SECOND

    def shows(self, instant: datetime, local: datetime) -> bool:
        """Return whether clocks show this time without zone at the instant."""
        return self.local(instant).replace(tzinfo=None, fold=0) == local.replace(fold=0)

    def _load(self, block: int) -> tuple[Period, ...]:
        if len(self._blocks) >= _MAX_BLOCKS:
            self._blocks.clear()
        start, end = block << _BLOCK_BITS, (block + 1) << _BLOCK_BITS
        periods = self._blocks[block] = tuple(self._scan(start - _SCAN_STEP, end))
        return periods

    def _scan(self, start: int, end: int) -> Iterator[Period]:
        """Yield periods from start to end; a change just before a block belongs to it too."""
        offset, shift = self._offset(start), 0
        for low in range(start, end, _SCAN_STEP):
            high = min(low + _SCAN_STEP, end - 1)
            if self._offset(high) != offset:
                change = self._bisect(low, high, offset)
                yield Period(start, change, offset, shift)
                start, shift = change, self._offset(change) - offset
                offset += shift
        yield Period(start, end, offset, shift)

    def _bisect(self, low: int, high: int, offset: int) -> int:
        """Return the first second in low < second ≤ high with another offset."""
        while high - low > 1:
            middle = (low + high) // 2
            if self._offset(middle) == offset:
                low = middle
            else:
                high = middle
        return high

    def _offset(self, second: int) -> int:
        local = (_EPOCH + timedelta(seconds=min(second, _LAST_PROBE))).astimezone(self._info)
        return (local.utcoffset() or timedelta(0)) // _SECOND


@lru_cache(maxsize=700)
def load_zone(name: str) -> Zone:
    """Load the zone of that name; a ValueError with the nearest name if there is none.

    Only well-formed names reach the tz database: no name can lead to another file.
    """
    if _NAME.fullmatch(name) and not _NOT_ZONES.fullmatch(name):
        try:
            return Zone(name, ZoneInfo(name))
        except (ZoneInfoNotFoundError, OSError, ValueError):
            pass  # a folder, or no such file
    raise ValueError(f"there is no time zone {quoted(name)}{_suggestion(name)}")


def _suggestion(name: str) -> str:
    if not name or len(name) > 64:
        return ": write an IANA name such as Europe/Berlin"
    if same := [zone for zone, often in ABBREVIATIONS.items() if name.upper() in often.split()]:
        return f": zones have the names of places, such as {' or '.join(same)}"
    wanted = name.lower().replace(" ", "_")
    known = _known_names()
    near = [wanted] if wanted in known else []
    if not _ABBREVIATION.fullmatch(name):
        places = [it for it in known if not _OFFSET.fullmatch(known[it])]
        near = near or get_close_matches(wanted, places, n=1, cutoff=0.7)
    return f": did you mean {known[near[0]]}?" if near else ": write an IANA name such as UTC"


@lru_cache(maxsize=1)
def _known_names() -> dict[str, str]:
    """Return zone names by what people type: in lower case, whole or only the city."""
    names = sorted(name for name in available_timezones() if not _NOT_ZONES.fullmatch(name))
    cities = {it.rpartition("/")[2].lower(): it for it in names if not _OFFSET.fullmatch(it)}
    return cities | {name.lower(): name for name in names}
