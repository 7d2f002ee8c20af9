"""How long runs of a job take, by what is known of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from math import inf

from rota.domain.order import DEFAULT_EXPECTED_SECONDS

REMEMBERED_RUNS = 50  # the latest of a job that say how long the next one takes
_REMEMBERED_IN_ALL = 100_000
_REMEMBERED_AT_LEAST = 5


class Source(StrEnum):
    """Where a duration is known from."""

    HISTORY = "history"
    EXPECT = "expect"  # the job file says so
    GUESS = "guess"  # nobody knows


@dataclass(frozen=True, slots=True)
class Durations:
    """Seconds that a run takes: the usual one, and what nine in ten are above and below."""

    low: float
    usual: float
    high: float
    source: Source

    def left_after(self, elapsed: float, most: float = inf) -> float:
        """How long one still takes that has gone on for a while, and may for so long at most.

        One that lasts longer than usual lasts as long as a slow one; one that is slower than these
        is taken to be in the middle of its time.
        """
        known = next((it for it in (self.usual, self.high) if it > elapsed), elapsed * 2)
        return min(known - elapsed, most)


def remembered_runs(jobs: int) -> int:
    """How many runs of each of so many jobs to look at: to read them all would take too long."""
    fair = _REMEMBERED_IN_ALL // max(jobs, 1)
    return max(min(fair, REMEMBERED_RUNS), _REMEMBERED_AT_LEAST)


def durations_of(seconds: Sequence[float], expect: timedelta | None) -> Durations:
    """By the latest completed runs, else as the job file expects, else a guess."""
    if seconds:
        ordered = sorted(seconds)
        low, usual, high = (_quantile(ordered, q) for q in (0.1, 0.5, 0.9))
        return Durations(low, usual, high, Source.HISTORY)
    if expect is not None:
        return _exactly(expect.total_seconds(), Source.EXPECT)
    return _exactly(DEFAULT_EXPECTED_SECONDS, Source.GUESS)


def _exactly(seconds: float, source: Source) -> Durations:
    return Durations(seconds, seconds, seconds, source)


def _quantile(ordered: Sequence[float], q: float) -> float:
    """Between the two nearest of them."""
    place = q * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)
