"""Lateness of starts, and detection of stuck schedules."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import ceil, inf

# Upper bounds of the histogram. Counts are kept by bound: a bound may be added, never moved.
DELAY_BOUNDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 7200, inf)


@dataclass(frozen=True, slots=True)
class Lateness:
    """Percentiles of the runs that started last."""

    count: int
    p50: float
    p95: float
    p99: float


def lateness_of(delays: Sequence[float]) -> Lateness | None:
    """Compute percentiles by nearest rank, so that each is a measured delay; None of none."""
    if not delays:
        return None
    ordered = sorted(delays)
    p50, p95, p99 = (ordered[ceil(len(ordered) * part / 100) - 1] for part in (50, 95, 99))
    return Lateness(len(ordered), p50, p95, p99)


@dataclass(frozen=True, slots=True)
class Bucket:
    """Delays that one bound of the histogram counts."""

    count: int = 0
    seconds: float = 0.0  # their sum

    def __add__(self, other: Bucket) -> Bucket:
        return Bucket(self.count + other.count, self.seconds + other.seconds)


def histogram(delays: Iterable[float]) -> dict[float, Bucket]:
    """Return these delays by the bound that counts them: the least that is not below."""
    ordered = sorted(delays)
    buckets: dict[float, Bucket] = {}
    start = 0
    for bound in DELAY_BOUNDS:
        end = bisect_right(ordered, bound, start)
        if end > start:
            buckets[bound] = Bucket(end - start, sum(ordered[start:end]))
        start = end
    return buckets


MOST_WAITING = 100
LONGEST_WAIT = timedelta(hours=1)
_TIMES_EXPECTED = 10  # a job that takes long may be waited for longer


@dataclass(frozen=True, slots=True)
class Congestion:
    """The scheduled runs of a job whose time has come and that are not final."""

    waiting: int  # held back by other runs of the job
    is_skipping: bool  # the newest one was skipped because of them
    oldest_release_at: datetime  # when the first of them was let go: a calendar may have kept it
    expected_seconds: float | None  # None: no run has ended yet

    @property
    def is_holding_back(self) -> bool:
        """Return whether a run of the job keeps another one from starting."""
        return self.waiting > 0 or self.is_skipping


def is_stuck(congestion: Congestion, now: datetime) -> bool:
    """Return whether a person should look: too many wait, or one does not end."""
    if congestion.waiting > MOST_WAITING:
        return True
    patience = max(
        LONGEST_WAIT, timedelta(seconds=congestion.expected_seconds or 0) * _TIMES_EXPECTED
    )
    return congestion.is_holding_back and now - congestion.oldest_release_at > patience
