"""Figures, and what they say about a target. No I/O."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

WARM_UP = 0.1  # share of a drain that is not counted: the start is another workload


class Sense(Enum):
    """Which way is better."""

    AT_LEAST = "≥"
    AT_MOST = "≤"


@dataclass(frozen=True, slots=True)
class Sample:
    """One figure, measured several times.

    Turns that others disturbed are left out; where there is no other turn they are shown, but
    say nothing about a target.
    """

    values: tuple[float, ...]
    unit: str
    left_out: tuple[float, ...] = ()

    @property
    def is_judged(self) -> bool:
        return bool(self.values)

    @property
    def shown(self) -> tuple[float, ...]:
        return self.values or self.left_out

    @property
    def median(self) -> float:
        return statistics.median(self.shown)

    @property
    def low(self) -> float:
        return min(self.shown)

    @property
    def high(self) -> float:
        return max(self.shown)

    def less(self, other: Sample) -> Sample:
        """Each value less the other's median; not judged unless both are."""
        values = tuple(value - other.median for value in self.shown)
        if self.is_judged and other.is_judged:
            left_out = tuple(value - other.median for value in self.left_out)
            return Sample(values, self.unit, left_out)
        return Sample((), self.unit, values)


@dataclass(frozen=True, slots=True)
class Goal:
    """A target: for the ratio of Rota's figure to the peer's, or for Rota's figure itself."""

    sense: Sense
    limit: float
    is_ratio: bool

    def shortfall(self, value: float) -> float:
        """By what share of the limit the value misses it; 0 or less: met."""
        excess = (value - self.limit) / self.limit
        return -excess if self.sense is Sense.AT_LEAST else excess


@dataclass(frozen=True, slots=True)
class Comparison:
    """One line of the table: Rota's figure, perhaps beside a peer's, perhaps with a target."""

    workload: str
    what: str
    rota: Sample
    peer: str = ""
    peer_sample: Sample | None = None
    goal: Goal | None = None
    foreign_cores: float = 0.0  # that other processes used meanwhile, in the worst turn shown

    @property
    def is_judged(self) -> bool:
        """False: of one side there is no turn that others did not disturb."""
        return all(sample.is_judged for sample in self.samples)

    @property
    def samples(self) -> tuple[Sample, ...]:
        return (self.rota,) if self.peer_sample is None else (self.rota, self.peer_sample)

    @property
    def ratio(self) -> float | None:
        """Rota's median in terms of the peer's."""
        if self.peer_sample is None or not self.peer_sample.median:
            return None
        return self.rota.median / self.peer_sample.median

    @property
    def shortfall(self) -> float | None:
        """None: there is no target."""
        if self.goal is None:
            return None
        value = self.ratio if self.goal.is_ratio else self.rota.median
        assert value is not None, "a target for a ratio needs a peer"
        return self.goal.shortfall(value)


def at_least_times(factor: float) -> Goal:
    return Goal(Sense.AT_LEAST, factor, is_ratio=True)


def at_most_times(factor: float) -> Goal:
    return Goal(Sense.AT_MOST, factor, is_ratio=True)


def at_least(limit: float) -> Goal:
    return Goal(Sense.AT_LEAST, limit, is_ratio=False)


def at_most(limit: float) -> Goal:
    return Goal(Sense.AT_MOST, limit, is_ratio=False)


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that at least this share of all values does not exceed."""
    ordered = sorted(values)
    return ordered[max(math.ceil(len(ordered) * percent / 100), 1) - 1]


def drain_rate(seconds: Sequence[float]) -> float:
    """Ends per second, given the instant of each, after the warm-up."""
    ordered = sorted(seconds)
    first = int(len(ordered) * WARM_UP)
    return (len(ordered) - 1 - first) / (ordered[-1] - ordered[first])
