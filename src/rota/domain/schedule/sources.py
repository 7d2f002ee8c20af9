"""Sources of due times that need no zone: intervals and single instants.

Every source, `ZonedCron` too, counts in whole microseconds since 1970 UTC, ends with the year
9999, and answers three questions without walking: the next due time after an instant, the last
one up to and including it, and how many lie in after < due ≤ through. A fourth, which these are,
takes as long as there are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import gcd, lcm

from rota.domain.schedule.zones import LAST_SECOND

SECOND_MICROS = 1_000_000
LAST_MICROS = (LAST_SECOND + 1) * SECOND_MICROS - 1  # the end of the year 9999


class Kind(StrEnum):
    """Behaviour of an expression when clocks are changed."""

    FIXED = "fixed"  # a time of day: moved out of the gap, once in the fold
    ELAPSED = "elapsed"  # follows elapsed time: nothing in the gap, all in the fold
    INTERVAL = "interval"  # does not look at clocks
    ONCE = "once"  # one instant


@dataclass(frozen=True, slots=True)
class Interval:
    """Due times anchor + n × length for n ≥ 0, in elapsed time."""

    length: int
    anchor: int  # the first due time
    kind: Kind = Kind.INTERVAL

    def next_after(self, micros: int) -> int | None:
        due = self.anchor + max(0, (micros - self.anchor) // self.length + 1) * self.length
        return due if due <= LAST_MICROS else None

    def last_at_or_before(self, micros: int) -> int | None:
        steps = (min(micros, LAST_MICROS) - self.anchor) // self.length
        return self.anchor + steps * self.length if steps >= 0 else None

    def count(self, after: int, through: int) -> int:
        return self._through(min(through, LAST_MICROS)) - self._through(after)

    def all_in(self, after: int, through: int) -> list[int]:
        first = self.next_after(after)
        return [] if first is None else [*range(first, min(through, LAST_MICROS) + 1, self.length)]

    def meet(self, other: Interval) -> Interval | None:
        """Return the due times that both have, again an interval; None: there are none."""
        common = gcd(self.length, other.length)
        steps, rest = divmod(other.anchor - self.anchor, common)
        if rest:
            return None
        length, cycle = lcm(self.length, other.length), other.length // common
        meeting = self.anchor + steps * pow(self.length // common, -1, cycle) % cycle * self.length
        behind = max(self.anchor, other.anchor) - meeting
        return Interval(length, meeting + max(0, -(-behind // length)) * length)

    def _through(self, micros: int) -> int:
        return max(0, (micros - self.anchor) // self.length + 1)


@dataclass(frozen=True, slots=True)
class Intervals:
    """Several intervals as one source.

    Counted by inclusion and exclusion, so that each one more doubles the effort: see
    `distinct_intervals`.
    """

    members: tuple[Interval, ...]

    def next_after(self, micros: int) -> int | None:
        found = (member.next_after(micros) for member in self.members)
        return min((due for due in found if due is not None), default=None)

    def count(self, after: int, through: int) -> int:
        return _count_all(self.members, after, through)


def distinct_intervals(intervals: Iterable[Interval]) -> tuple[Interval, ...]:
    """Drop intervals whose due times another one has too."""
    kept: list[Interval] = []
    for interval in sorted(set(intervals), key=lambda interval: interval.length):
        if all(interval.meet(other) != interval for other in kept):
            kept.append(interval)
    return tuple(kept)


def _count_all(intervals: Sequence[Interval], after: int, through: int) -> int:
    """Count due times of at least one of them."""
    total = 0
    for index, interval in enumerate(intervals):
        met = (interval.meet(earlier) for earlier in intervals[:index])
        counted = [meeting for meeting in met if meeting is not None]
        total += interval.count(after, through) - _count_all(counted, after, through)
    return total


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

    def all_in(self, after: int, through: int) -> list[int]:
        return [self.at] if after < self.at <= through else []
