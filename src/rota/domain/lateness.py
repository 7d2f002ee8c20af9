"""How late runs start, in figures: start − release, in seconds."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
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
    """By nearest rank, so that each percentile is a delay that was measured; None of none."""
    if not delays:
        return None
    ordered = sorted(delays)
    p50, p95, p99 = (ordered[ceil(len(ordered) * part / 100) - 1] for part in (50, 95, 99))
    return Lateness(len(ordered), p50, p95, p99)


def bound_of(delay: float) -> float:
    """The bound of the histogram that counts this delay."""
    return DELAY_BOUNDS[bisect_left(DELAY_BOUNDS, delay)]
