"""Report of a simulation: waits, use of resources, fairness, lateness, throughput."""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import IntEnum
from random import Random
from typing import Any, NamedTuple, TypeAlias, TypeVar

from rota.domain.keys import Key
from rota.domain.order import Chain, entitled, group_of
from rota.domain.resources import Vector, dominant_share, total
from rota.domain.shape import demand_of
from rota.domain.simulation.model import Observer, SimRun, SimWorker
from rota.domain.simulation.workload import Period, Workload, arrivals, sample_of
from rota.domain.simulation.world import World

NOTICED_SECONDS = 1.0  # shorter stretches of waiting are nobody's concern
JOINED_SECONDS = 60.0  # stretches with less between them are one


@dataclass(frozen=True, slots=True)
class Saturation:
    """A stretch in which runs waited for the same thing."""

    what: str  # `pool POOL`, or a key
    begins_at: float
    ends_at: float
    most_waiting: int


class Crowd:
    """Waiters for one thing."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._waiting = 0
        self._since = 0.0
        self._most = 0
        self._stretches: list[Saturation] = []

    def come(self, at: float) -> None:
        if not self._waiting:
            self._since, self._most = at, 0
        self._waiting += 1
        self._most = max(self._most, self._waiting)

    def go(self, at: float) -> None:
        self._waiting -= 1
        if not self._waiting:
            self._close(at)

    def stretches(self, until: float) -> list[Saturation]:
        """List the stretches worth noticing; the last one ends here if somebody still waits."""
        if self._waiting:
            self._close(until)
            self._since = until
        return self._stretches

    def _close(self, at: float) -> None:
        if at - self._since < NOTICED_SECONDS:
            return
        begins_at, most = self._since, self._most
        if self._stretches and begins_at - self._stretches[-1].ends_at < JOINED_SECONDS:
            last = self._stretches.pop()
            begins_at, most = last.begins_at, max(last.most_waiting, most)
        self._stretches.append(Saturation(self._what, begins_at, at, most))


MINUTE = 60.0
Measure: TypeAlias = tuple[str, str]  # pool, resource


class Kind(NamedTuple):
    """Group of runs that the report tells apart."""

    job: str
    priority: int
    share: str


class Measures(Observer):
    """Sums and samples of what happens until the end of a simulation."""

    def __init__(self, workers: Iterable[SimWorker], until: float) -> None:
        members: defaultdict[str, list[Vector]] = defaultdict(list)
        for worker in workers:
            members[worker.pool].append(worker.capacity)
        self.totals = {pool: total(each) for pool, each in members.items()}
        self.until = until
        self.waits: defaultdict[Kind, array[float]] = defaultdict(lambda: array("d"))
        self.pool_seconds: defaultdict[str, float] = defaultdict(
            float
        )  # by share, resources × time
        self.used: defaultdict[Measure, float] = defaultdict(float)  # thousandths × seconds
        self.peaks: Counter[Measure] = Counter()
        self.starts: Counter[int] = Counter()  # by minute
        self.dropped: Counter[str] = Counter()  # by job
        self.ended = 0
        self.standing: dict[str, tuple[SimRun, Crowd]] = {}  # runs that wait, and with whom
        self.crowds: dict[str, Crowd] = {}
        self._held: Counter[Measure] = Counter()

    def on_queued(self, run: SimRun, at: float) -> None:
        self._stand(run, f"pool {run.pool}", at)

    def on_blocked(self, run: SimRun, key: Key, at: float, eligible_at: float | None) -> None:
        self._stand(run, key, at)

    def on_start(self, run: SimRun, worker: str, at: float) -> None:
        self.standing.pop(run.id)[1].go(at)
        self.waits[Kind(run.job, run.priority, run.share)].append(at - run.arrives_at)
        self.starts[int(at / MINUTE)] += 1
        self.hold(run, min(at + run.seconds, self.until) - at)

    def on_drop(self, run: SimRun, at: float) -> None:
        if stood := self.standing.pop(run.id, None):
            stood[1].go(at)
        self.waits[Kind(run.job, run.priority, run.share)].append(at - run.arrives_at)
        self.dropped[run.job] += 1

    def on_end(self, run: SimRun, worker: str, at: float) -> None:
        self.ended += 1
        for name, amount in demand_of(run.shape).resources.items():
            self._held[run.pool, name] -= amount

    def hold(self, run: SimRun, seconds: float) -> None:
        """Count the resources of a run from now on, for so long within the measured time."""
        demand = demand_of(run.shape).resources
        for name, amount in demand.items():
            measure = run.pool, name
            self._held[measure] = held = self._held[measure] + amount
            self.used[measure] += amount * seconds
            if held > self.peaks[measure]:
                self.peaks[measure] = held
        self.pool_seconds[run.share] += dominant_share(demand, self.totals[run.pool]) * seconds

    def _stand(self, run: SimRun, what: str, at: float) -> None:
        before = self.standing.get(run.id)
        if before is not None:
            before[1].go(at)
        crowd = self.crowds.get(what)
        if crowd is None:
            crowd = self.crowds[what] = Crowd(what)
        crowd.come(at)
        self.standing[run.id] = run, crowd


ROWS_OF_A_RUN = 5  # the run itself and at most four events: queued, claimed, started, finished
DAY = 86_400.0
K = TypeVar("K", str, int)


@dataclass(frozen=True, slots=True)
class Waits:
    """Waits of runs to start, in seconds; those that still wait count as far as they did."""

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
    dropped: int = 0  # those of them that were too late to start, as `late: drop` says


@dataclass(frozen=True, slots=True)
class ShareResult:
    waits: Waits
    got: float  # of all resources × time that were used
    entitled: float  # by weight, if everybody always had work


@dataclass(frozen=True, slots=True)
class Use:
    """Use of a pool's resource, as fractions of all there is."""

    pool: str
    resource: str
    mean: float
    peak: float


@dataclass(frozen=True, slots=True)
class Throughput:
    """Throughput of the whole workload, also where only a sample of it was simulated."""

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
    """Background that the report must know and the world does not."""

    workers: int
    part: float = 1.0
    weights: Mapping[str, float] | None = None
    start_within: Mapping[str, float] | None = None  # by job
    output_bytes: Mapping[str, int] | None = None  # by job, of a run


def report_of(measures: Measures, background: Background) -> Report:
    started = sum(map(len, measures.waits.values())) - measures.dropped.total()
    waits = _with_those_who_wait(measures)
    return Report(
        seconds=measures.until,
        workers=background.workers,
        part=background.part,
        started=started,
        ended=measures.ended,
        still_waiting=len(measures.standing),
        waits=waits_of(_together(waits, lambda kind: "").get("", [])),
        jobs=_jobs(waits, background.start_within or {}, measures.dropped),
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
    waits: Mapping[Kind, Sequence[float]],
    objectives: Mapping[str, float],
    dropped: Mapping[str, int],
) -> dict[str, JobResult]:
    results = {}
    for name, each in _together(waits, lambda kind: kind.job).items():
        within = objectives.get(name)
        gone = dropped.get(name, 0)  # they have waited no longer than they may
        late = 0 if within is None else sum(wait > within for wait in each) + gone
        results[name] = JobResult(waits_of(each), within, late, gone)
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


def report_document(report: Report) -> dict[str, Any]:
    """Convert to JSON-able values; named things are lists of mappings with their name."""
    document = asdict(report)
    document["jobs"] = [{"name": name, **each} for name, each in document["jobs"].items()]
    document["shares"] = [{"name": name, **each} for name, each in document["shares"].items()]
    document["priorities"] = [
        {"priority": priority, **each} for priority, each in document["priorities"].items()
    ]
    return document


@dataclass(frozen=True, slots=True)
class Known:
    """A run and when it starts."""

    run: SimRun
    start_at: float  # infinity: not in the time that is looked at
    waits_for: Key = ""  # "": for a worker


class _Turn(IntEnum):
    """Order of what happens at one instant."""

    END = 0
    ARRIVAL = 1
    START = 2


def replay(runs: Iterable[Known], measures: Measures) -> None:
    """Replay events to the measures, in order of time. Runs that began before 0 are live then."""
    events = [event for known in runs for event in _events(known, measures)]
    events.sort(key=lambda event: event[:2])
    for at, _, happen in events:
        happen(at)


def _events(
    known: Known, measures: Measures
) -> Iterator[tuple[float, _Turn, Callable[[float], None]]]:
    run, start, until = known.run, known.start_at, measures.until
    end = start + run.seconds
    if start < 0:
        measures.hold(run, min(end, until))
    else:
        yield run.arrives_at, _Turn.ARRIVAL, lambda at: _arrive(known, at, measures)
    if 0 <= start < until:
        yield start, _Turn.START, lambda at: measures.on_start(run, "", at)
    elif run.drop_at < until:
        yield max(run.drop_at, 0.0), _Turn.START, lambda at: measures.on_drop(run, at)
    if end < until:
        yield max(end, 0.0), _Turn.END, lambda at: measures.on_end(run, "", at)


def _arrive(known: Known, at: float, measures: Measures) -> None:
    if known.waits_for:
        measures.on_blocked(known.run, known.waits_for, at, None)
    else:
        measures.on_queued(known.run, at)


Tell = Callable[[float], None]  # how much of the period has passed: 0 to 1

_STEPS = 200  # how often progress is told


def report_to_nobody(_: float) -> None:
    """Report progress to nobody."""


def simulate_workload(
    workload: Workload, period: Period, part: float, random: Random, tell: Tell = report_to_nobody
) -> Report:
    """Simulate a part of a workload in a period. `Invalid` if that is too much."""
    sample = sample_of(workload, part, random)
    staff = sample.staff()
    measures = Measures(staff, period.seconds)
    world = World(staff, sample.rules, sample.weights)
    runs = _with_progress(arrivals(sample, period, random), period.seconds, tell)
    world.simulate(runs, period.seconds, measures)
    jobs = workload.jobs
    return report_of(
        measures,
        Background(
            workers=len(staff),
            part=part,
            weights=workload.weights,
            start_within={job.name: job.start_within for job in jobs if job.start_within},
            output_bytes={job.name: job.output_bytes for job in jobs},
        ),
    )


def _with_progress(runs: Iterable[SimRun], seconds: float, tell: Tell) -> Iterator[SimRun]:
    """Yield the runs as they come, and report the progress now and then."""
    step = next_at = seconds / _STEPS
    for run in runs:
        if run.arrives_at >= next_at:
            tell(run.arrives_at / seconds)
            next_at = run.arrives_at + step
        yield run
