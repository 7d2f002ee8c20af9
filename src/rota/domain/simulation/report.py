"""What a simulation found: waits, use of resources, fairness, lateness, throughput."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from rota.domain.order import Chain, entitled, group_of
from rota.domain.simulation.crowd import Saturation
from rota.domain.simulation.measures import MINUTE, Kind, Measures

ROWS_OF_A_RUN = 5  # the run itself and at most four events: queued, claimed, started, finished
DAY = 86_400.0
K = TypeVar("K", str, int)


@dataclass(frozen=True, slots=True)
class Waits:
    """How long runs waited to start, in seconds; those that still wait count as far as they did."""

    runs: int
    p50: float
    p90: float
    p99: float
    longest: float


@dataclass(frozen=True, slots=True)
class JobResult:
    waits: Waits
    start_within: float | None  # the objective, in seconds
    late: int  # runs that missed it


@dataclass(frozen=True, slots=True)
class ShareResult:
    waits: Waits
    got: float  # of all resources × time that were used
    entitled: float  # by weight, if everybody always had work


@dataclass(frozen=True, slots=True)
class Use:
    """How much of a pool's resource was in use, as fractions of all there is."""

    pool: str
    resource: str
    mean: float
    peak: float


@dataclass(frozen=True, slots=True)
class Throughput:
    """Of the whole workload, also where only a sample of it was simulated."""

    runs_per_second: float
    busiest_minute: float  # runs a second
    rows_per_day: float
    output_bytes_per_day: float


@dataclass(frozen=True, slots=True)
class Report:
    seconds: float
    workers: int
    part: float  # of the workload that was simulated
    started: int
    ended: int
    still_waiting: int
    waits: Waits
    jobs: Mapping[str, JobResult]
    priorities: Mapping[int, Waits]
    shares: Mapping[str, ShareResult]
    uses: Sequence[Use]
    saturations: Sequence[Saturation]
    throughput: Throughput


@dataclass(frozen=True, slots=True)
class Background:
    """What the report must know that the world does not."""

    workers: int
    part: float = 1.0
    weights: Mapping[str, float] | None = None
    start_within: Mapping[str, float] | None = None  # by job
    output_bytes: Mapping[str, int] | None = None  # by job, of a run


def report_of(measures: Measures, background: Background) -> Report:
    started = sum(map(len, measures.waits.values()))
    waits = _with_those_who_wait(measures)
    return Report(
        seconds=measures.until,
        workers=background.workers,
        part=background.part,
        started=started,
        ended=measures.ended,
        still_waiting=len(measures.standing),
        waits=waits_of(_together(waits, lambda kind: "").get("", [])),
        jobs=_jobs(waits, background.start_within or {}),
        priorities=_grouped(waits, lambda kind: kind.priority),
        shares=_shares(waits, measures, background.weights or {}),
        uses=_uses(measures),
        saturations=_saturations(measures),
        throughput=_throughput(measures, background, started),
    )


def waits_of(seconds: Iterable[float]) -> Waits:
    ranked = sorted(seconds)
    if not ranked:
        return Waits(0, 0.0, 0.0, 0.0, 0.0)
    p50, p90, p99 = (ranked[int(part * (len(ranked) - 1))] for part in (0.5, 0.9, 0.99))
    return Waits(len(ranked), p50, p90, p99, ranked[-1])


def _with_those_who_wait(measures: Measures) -> Mapping[Kind, Sequence[float]]:
    waits = {kind: array("d", each) for kind, each in measures.waits.items()}
    for run, _ in measures.standing.values():
        kind = Kind(run.job, run.priority, run.share)
        waits.setdefault(kind, array("d")).append(measures.until - run.arrives_at)
    return waits


def _together(
    waits: Mapping[Kind, Sequence[float]], key: Callable[[Kind], K]
) -> dict[K, list[float]]:
    groups: defaultdict[K, list[float]] = defaultdict(list)
    for kind, each in waits.items():
        groups[key(kind)].extend(each)
    return dict(sorted(groups.items()))


def _grouped(waits: Mapping[Kind, Sequence[float]], key: Callable[[Kind], K]) -> dict[K, Waits]:
    return {name: waits_of(each) for name, each in _together(waits, key).items()}


def _jobs(
    waits: Mapping[Kind, Sequence[float]], objectives: Mapping[str, float]
) -> dict[str, JobResult]:
    results = {}
    for name, each in _together(waits, lambda kind: kind.job).items():
        within = objectives.get(name)
        late = 0 if within is None else sum(wait > within for wait in each)
        results[name] = JobResult(waits_of(each), within, late)
    return results


def _shares(
    waits: Mapping[Kind, Sequence[float]], measures: Measures, weights: Mapping[str, float]
) -> dict[str, ShareResult]:
    grouped = _grouped(waits, lambda kind: kind.share)
    due = entitled([_line(share, weights) for share in grouped])
    weighed = {chain.id: chain.weight for chain in due}
    used, weight = sum(measures.pool_seconds.values()), sum(weighed.values())
    return {
        share: ShareResult(
            each, measures.pool_seconds[share] / used if used else 0.0, weighed[share] / weight
        )
        for share, each in grouped.items()
    }


def _line(share: str, weights: Mapping[str, float]) -> Chain:
    group = group_of(share)
    return Chain(share, 0, 0.0, weights.get(share, 1.0), group, weights.get(group, 1.0))


def _uses(measures: Measures) -> list[Use]:
    return [
        Use(
            pool,
            name,
            measures.used[pool, name] / (amount * measures.until),
            measures.peaks[pool, name] / amount,
        )
        for pool, totals in sorted(measures.totals.items())
        for name, amount in sorted(totals.items())
        if amount
    ]


def _saturations(measures: Measures) -> list[Saturation]:
    crowds = measures.crowds.values()
    found = [span for crowd in crowds for span in crowd.stretches(measures.until)]
    return sorted(found, key=lambda span: (span.begins_at, span.what))


def _throughput(measures: Measures, background: Background, started: int) -> Throughput:
    days = measures.until / DAY * background.part
    printed = background.output_bytes or {}
    runs = [(printed.get(kind.job, 0), len(each)) for kind, each in measures.waits.items()]
    return Throughput(
        runs_per_second=started / measures.until / background.part,
        busiest_minute=max(measures.starts.values(), default=0) / MINUTE / background.part,
        rows_per_day=started * ROWS_OF_A_RUN / days,
        output_bytes_per_day=sum(size * count for size, count in runs) / days,
    )
