"""How long simulated runs take: distributions that are drawn from with a given source."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, log
from random import Random
from typing import Protocol

_P95 = 1.6448536269514722  # standard deviations above the mean of a normal distribution


class Lengths(Protocol):
    """A distribution of seconds."""

    @property
    def mean(self) -> float: ...

    def draw(self, random: Random) -> float: ...


@dataclass(frozen=True, slots=True)
class Fixed:
    seconds: float

    @property
    def mean(self) -> float:
        return self.seconds

    def draw(self, random: Random) -> float:
        return self.seconds


@dataclass(frozen=True, slots=True)
class Uniform:
    least: float
    most: float

    @property
    def mean(self) -> float:
        return (self.least + self.most) / 2

    def draw(self, random: Random) -> float:
        return random.uniform(self.least, self.most)


@dataclass(frozen=True, slots=True)
class Lognormal:
    """Many short ones and a long tail, as most work is; known by two of its quantiles."""

    median: float
    p95: float

    @property
    def _sigma(self) -> float:
        return log(self.p95 / self.median) / _P95

    @property
    def mean(self) -> float:
        return self.median * exp(self._sigma**2 / 2)

    def draw(self, random: Random) -> float:
        return self.median * exp(random.gauss(0.0, self._sigma))
