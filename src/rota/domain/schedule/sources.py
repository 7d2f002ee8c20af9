"""Sources of due times that need no zone: intervals and single instants.

Every source, `ZonedCron` too, counts in whole microseconds since 1970 UTC, ends with the year
9999, and answers three questions without walking: the next due time after an instant, the last
one up to and including it, and how many lie in after < due ≤ through.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from rota.domain.schedule.zones import LAST_SECOND

SECOND_MICROS = 1_000_000
LAST_MICROS = (LAST_SECOND + 1) * SECOND_MICROS - 1  # the end of the year 9999


class Kind(StrEnum):
    """How an expression behaves when clocks are changed."""

    FIXED = "fixed"  # a time of day: moved out of the gap, once in the fold
    ELAPSED = "elapsed"  # follows elapsed time: nothing in the gap, all in the fold
    INTERVAL = "interval"  # does not look at clocks
    ONCE = "once"  # one instant


@dataclass(frozen=True, slots=True)
class Interval:
    """anchor + n × length for n ≥ 0, in elapsed time."""

    length: int
    anchor: int
    kind: Kind = Kind.INTERVAL

    def next_after(self, micros: int) -> int | None:
        due = self.anchor + max(0, (micros - self.anchor) // self.length + 1) * self.length
        return due if due <= LAST_MICROS else None

    def last_at_or_before(self, micros: int) -> int | None:
        steps = (min(micros, LAST_MICROS) - self.anchor) // self.length
        return self.anchor + steps * self.length if steps >= 0 else None

    def count(self, after: int, through: int) -> int:
        return self._through(min(through, LAST_MICROS)) - self._through(after)

    def _through(self, micros: int) -> int:
        return max(0, (micros - self.anchor) // self.length + 1)


@dataclass(frozen=True, slots=True)
class Once:
    """A single instant."""

    at: int
    kind: Kind = Kind.ONCE

    def next_after(self, micros: int) -> int | None:
        return self.at if self.at > micros else None

    def last_at_or_before(self, micros: int) -> int | None:
        return self.at if self.at <= micros else None

    def count(self, after: int, through: int) -> int:
        return int(after < self.at <= through)
