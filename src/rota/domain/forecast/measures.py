"""What may run out: slots and resources of workers, named resources, rate limits."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from math import inf

from rota.domain.forecast.ahead import JobAhead, RunAhead, Setting
from rota.domain.forecast.load import Grid, Use
from rota.domain.resources import SLOTS, UNIT, total
from rota.domain.shape import demand_of
from rota.domain.shared_keys import Counted, Key, KeyKind, Rate, kind_of, name_of

_DECLARED = (KeyKind.RATE, KeyKind.RESOURCE)


@dataclass(frozen=True, slots=True)
class Measure:
    """Something that runs take, and how much of it there is."""

    name: str
    capacity: float
    keys: Collection[Key] = ()  # none: it is the workers'
    per: float | None = None  # of a rate limit: how long a token counts that was taken

    def amount(self, job: JobAhead) -> float:
        """How much a run of the job takes."""
        if self.keys:
            return sum(job.demands.get(key, 0) for key in self.keys)
        return demand_of(job.shape).resources.get(self.name, 0) / UNIT


def measure_of(name: str, setting: Setting, project: str) -> Measure | None:
    """The measure of that name; None: nothing is called so, or nobody takes of it."""
    workers = total(worker.capacity for worker in setting.workers)
    if name == SLOTS or name in workers:
        return Measure(name, workers.get(name, 0) / UNIT)
    keys = [key for key in setting.rules if _is_called(key, name, project)]
    if not keys:
        return None
    match setting.rules[keys[0]]:
        case Counted(units):
            return Measure(name, units, keys)
        case Rate() as rule:
            return Measure(name, rule.tokens + rule.burst, keys, rule.per)


def measure_names(setting: Setting, project: str) -> list[str]:
    """All that can be asked for."""
    workers = total(worker.capacity for worker in setting.workers)
    declared = {name_of(k).split("/")[0] for k in setting.rules if _is_declared(k, project)}
    return [SLOTS, *sorted((workers.keys() | declared) - {SLOTS})]


def uses_of(runs: Iterable[RunAhead], measure: Measure) -> Iterator[Use]:
    """When and how much runs take. Those that do not start come last."""
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
    """The means in a grid if runs, started as they are, were all short, and if all were long.

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
    """How long a run of the job takes of a measure if it is short and if it is long; how much."""
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
