"""Load: how much of something is in use over time, what may run out, and where there is room."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import inf
from typing import TypeAlias

from rota.domain.forecast.ahead import JobAhead, RunAhead, Setting
from rota.domain.keys import Counted, Key, KeyKind, Rate, kind_of, name_of
from rota.domain.resources import SLOTS, UNIT, total
from rota.domain.shape import demand_of
from rota.domain.simulation.model import SimWorker
from rota.domain.spec import EXTERNAL_POOL

Use: TypeAlias = tuple[float, float, float]  # from, until, how much


@dataclass(frozen=True, slots=True)
class Grid:
    """Grid of equal pieces of the time ahead."""

    begin: float
    width: float
    count: int

    @property
    def end(self) -> float:
        return self.begin + self.width * self.count


@dataclass(frozen=True, slots=True)
class Bucket:
    """Use in one piece of a grid."""

    at: float  # where it begins
    mean: float
    peak: float


def buckets_of(uses: Iterable[Use], grid: Grid) -> list[Bucket]:
    """Compute the use in each piece of a grid."""
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
    """Merge so many neighbouring pieces into one."""
    lots = (buckets[i : i + size] for i in range(0, len(buckets), size))
    return [
        Bucket(lot[0].at, sum(b.mean for b in lot) / len(lot), max(b.peak for b in lot))
        for lot in lots
    ]


def peak_of(buckets: Sequence[Bucket]) -> Bucket:
    """Return the first of the highest."""
    return max(buckets, key=lambda bucket: bucket.peak)


def _changes(uses: Iterable[Use], grid: Grid) -> list[tuple[float, float]]:
    """Return where the level changes, and by how much; ends go before begins."""
    begin, end = grid.begin, grid.end
    inside = [use for use in uses if use[0] < end and use[1] > begin]
    changes = [(until, -amount) for _, until, amount in inside if until < end]
    changes += [(max(begin, start), amount) for start, _, amount in inside]
    changes.sort()
    changes.append((inf, 0.0))  # what lasts longer fills the rest
    return changes


_DECLARED = (KeyKind.RATE, KeyKind.RESOURCE)


@dataclass(frozen=True, slots=True)
class Measure:
    """Quantity that runs take, and how much of it there is."""

    name: str
    capacity: float
    keys: Collection[Key] = ()  # none: it is the workers'
    per: float | None = None  # of a rate limit: how long a token counts that was taken

    def amount(self, job: JobAhead) -> float:
        """Return how much a run of the job takes."""
        if self.keys:
            return sum(job.demands.get(key, 0) for key in self.keys)
        if job.pool == EXTERNAL_POOL:
            return 0
        return demand_of(job.shape).resources.get(self.name, 0) / UNIT


def measure_of(
    name: str, setting: Setting, project: str, closed: Collection[str] = ()
) -> Measure | None:
    """Find the measure of that name; None: nothing is called so outside of `closed` pools."""
    workers = total(worker.capacity for worker in real(setting.workers))
    if name == SLOTS or name in _offered(setting, closed):
        return Measure(name, workers.get(name, 0) / UNIT)
    keys = [key for key in setting.rules if _is_called(key, name, project)]
    if not keys:
        return None
    match setting.rules[keys[0]]:
        case Counted(units):
            return Measure(name, units, keys)
        case Rate() as rule:
            return Measure(name, rule.tokens + rule.burst, keys, rule.per)


def measure_names(setting: Setting, project: str, closed: Collection[str] = ()) -> list[str]:
    """List all measures that can be asked for; workers of `closed` pools offer none."""
    declared = {name_of(k).split("/")[0] for k in setting.rules if _is_declared(k, project)}
    return [SLOTS, *sorted((_offered(setting, closed) | declared) - {SLOTS})]


def _offered(setting: Setting, closed: Collection[str]) -> set[str]:
    """List what workers offer, but for those of these pools."""
    open_workers = (each for each in real(setting.workers) if each.pool not in closed)
    return {name for each in open_workers for name in each.capacity}


def real(workers: Iterable[SimWorker]) -> list[SimWorker]:
    """Return the workers without the one that stands for other systems, which has no limit."""
    return [worker for worker in workers if worker.pool != EXTERNAL_POOL]


def uses_of(runs: Iterable[RunAhead], measure: Measure) -> Iterator[Use]:
    """Yield when and how much runs take. Those that do not start come last."""
    amounts: dict[JobAhead, float] = {}
    per = measure.per
    for run in runs:
        begin = run.start_at
        if begin == inf:
            return
        amount = amounts.get(run.job)
        if amount is None:
            amount = amounts[run.job] = measure.amount(run.job)
        if amount:
            yield begin, begin + (per or run.seconds), amount


def band_of(
    runs: Iterable[RunAhead], measure: Measure, grid: Grid
) -> tuple[list[float], list[float]]:
    """Return the means in a grid if all runs, started as they are, were short, and if all were
    long.

    The runs are in order of their start.
    """
    low, high = [0.0] * grid.count, [0.0] * grid.count
    known: dict[JobAhead, tuple[float, float, float]] = {}
    begin, width, end = grid.begin, grid.width, grid.end
    piece, edge = 0, begin + width
    for run in runs:
        start = run.start_at
        if start >= end:
            break
        while start >= edge and piece < grid.count - 1:
            piece, edge = piece + 1, begin + (piece + 2) * width
        found = known.get(run.job)
        if found is None:
            found = known[run.job] = _lengths(run.job, measure)
        short, long, amount = found
        if begin <= start and start + long <= edge:
            low[piece] += amount * short
            high[piece] += amount * long
        elif amount:
            _spread(low, grid, (start, start + short, amount))
            _spread(high, grid, (start, start + long, amount))
    return [area / width for area in low], [area / width for area in high]


def _lengths(job: JobAhead, measure: Measure) -> tuple[float, float, float]:
    """Return how long a run occupies a measure if it is short and if it is long; and how much."""
    lengths, amount = job.durations, measure.amount(job)
    if measure.per is not None:
        return measure.per, measure.per, amount
    return lengths.low, lengths.high, amount


def _spread(areas: list[float], grid: Grid, use: Use) -> None:
    """Add a use to all the pieces that it touches."""
    start, until = max(use[0], grid.begin), min(use[1], grid.end)
    piece = int((start - grid.begin) / grid.width)
    while start < until and piece < grid.count:
        edge = min(grid.begin + (piece + 1) * grid.width, until)
        areas[piece] += use[2] * (edge - start)
        start, piece = edge, piece + 1


def _is_declared(key: Key, project: str) -> bool:
    return kind_of(key) in _DECLARED and key.split(":", 1)[1].startswith(f"{project}/")


def _is_called(key: Key, name: str, project: str) -> bool:
    return _is_declared(key, project) and name_of(key).split("/")[0] == name


HOUR_MINUTES, DAY_MINUTES = 60, 24 * 60
_SHOWN = 3
_APART = {HOUR_MINUTES: 10, DAY_MINUTES: 60}  # minutes between two that are shown
_AROUND = range(-2, 3)


def quiet_minutes(minutes: Sequence[Bucket], first: int, cycle: int) -> list[int]:
    """Return the emptiest minutes of the hour or of the day, by how full they get.

    `minutes` are consecutive minutes of a clock, from the one called `first` on.
    """
    load = [0.0] * cycle
    for index, bucket in enumerate(minutes):
        place = (first + index) % cycle
        load[place] = max(load[place], bucket.peak + bucket.mean)
    known = {(first + index) % cycle for index in range(len(minutes))}
    around = [sum(load[(i + d) % cycle] for d in _AROUND) for i in range(cycle)]
    # Among equals, one in the middle of a quiet stretch.
    ranked = sorted(known, key=lambda minute: (load[minute], around[minute], minute))
    return _spread_out(ranked, cycle)


def _spread_out(ranked: Sequence[int], cycle: int) -> list[int]:
    """Return the first few that are not close to one another, in order."""
    chosen: list[int] = []
    for minute in ranked:
        gaps = (abs(minute - other) for other in chosen)
        if all(min(gap, cycle - gap) >= _APART[cycle] for gap in gaps):
            chosen.append(minute)
        if len(chosen) == _SHOWN:
            break
    return sorted(chosen)
