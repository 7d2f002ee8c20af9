"""How much of something is in use, over time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf
from typing import TypeAlias

Use: TypeAlias = tuple[float, float, float]  # from, until, how much


@dataclass(frozen=True, slots=True)
class Grid:
    """Equal pieces of the time ahead."""

    begin: float
    width: float
    count: int

    @property
    def end(self) -> float:
        return self.begin + self.width * self.count


@dataclass(frozen=True, slots=True)
class Bucket:
    """What is in use in one piece."""

    at: float  # where it begins
    mean: float
    peak: float


def buckets_of(uses: Iterable[Use], grid: Grid) -> list[Bucket]:
    """The use in each piece of a grid."""
    found: list[Bucket] = []
    level = area = peak = 0.0
    last = at_piece = grid.begin
    edge = grid.begin + grid.width
    for at, change in _changes(uses, grid):
        while at >= edge and len(found) < grid.count:
            found.append(Bucket(at_piece, (area + level * (edge - last)) / grid.width, peak))
            last = at_piece = edge
            edge = grid.begin + (len(found) + 1) * grid.width
            area, peak = 0.0, level
        area += level * (at - last)
        last = at
        level += change
        if level > peak:
            peak = level
    return found


def merged(buckets: Sequence[Bucket], size: int) -> list[Bucket]:
    """So many pieces as one."""
    lots = (buckets[i : i + size] for i in range(0, len(buckets), size))
    return [
        Bucket(lot[0].at, sum(b.mean for b in lot) / len(lot), max(b.peak for b in lot))
        for lot in lots
    ]


def peak_of(buckets: Sequence[Bucket]) -> Bucket:
    """The first of the highest."""
    return max(buckets, key=lambda bucket: bucket.peak)


def _changes(uses: Iterable[Use], grid: Grid) -> list[tuple[float, float]]:
    """Where the level changes, and by how much; what ends goes before what begins."""
    begin, end = grid.begin, grid.end
    inside = [use for use in uses if use[0] < end and use[1] > begin]
    changes = [(until, -amount) for _, until, amount in inside if until < end]
    changes += [(max(begin, start), amount) for start, _, amount in inside]
    changes.sort()
    changes.append((inf, 0.0))  # what lasts longer fills the rest
    return changes
