"""A workload to simulate: workers, jobs with how often and how long they run, and limits.

Its runs in the order in which they come, or a sample of them where it is too large.
"""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cached_property
from math import exp, inf, log
from operator import attrgetter
from random import Random
from typing import Protocol

from rota.domain.errors import Invalid, Problem
from rota.domain.ids import micros
from rota.domain.job import RunRules
from rota.domain.keys import (
    KINDS,
    Asker,
    Declaration,
    DeclarationId,
    Demands,
    Key,
    KeyRule,
    Limit,
    Resource,
    Sharing,
    demands_of,
    rule_of,
)
from rota.domain.order import share_key
from rota.domain.resources import Vector
from rota.domain.schedule import Timetable, compile_schedule
from rota.domain.shape import shape_of
from rota.domain.simulation.model import SimRun, SimWorker
from rota.domain.spec import Late, Schedule

_P95 = 1.6448536269514722  # standard deviations above the mean of a normal distribution


class Lengths(Protocol):
    """Distribution of seconds."""

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
    """Lognormal distribution: many short ones and a long tail; known by two of its quantiles."""

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


@dataclass(frozen=True, slots=True)
class Workers:
    """Number of equal workers."""

    name: str
    count: int
    pool: str
    capacity: Vector  # thousandths, slots included
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Poisson:
    """Arrivals at random, independent of each other."""

    mean: float  # how many
    per: float  # seconds


@dataclass(frozen=True, slots=True)
class JobMix:
    """Number of equal jobs, or a stream of runs of one."""

    rules: RunRules
    lengths: Lengths
    arrivals: Schedule | Poisson
    schedules: int = 1  # jobs with this schedule, each with its own delay below the spread
    user: str = ""
    start_within: float | None = None  # seconds: the objective; None: there is none
    output_bytes: int = 0  # of a run

    @property
    def name(self) -> str:
        return self.rules.name

    @property
    def share(self) -> str:
        return share_key(self.rules.project, self.user, self.rules.share)

    @property
    def shape(self) -> str:
        return shape_of(self.rules)

    def demands(self, declared: Sequence[Declaration]) -> Demands:
        return demands_of(Asker(self.rules, self.user, {}), declared)


@dataclass(frozen=True)
class Workload:
    workers: Sequence[Workers]
    jobs: Sequence[JobMix]
    declared: Sequence[Declaration] = ()
    weights: Mapping[str, float] = field(default_factory=dict)  # by share

    @cached_property
    def demands(self) -> Mapping[str, Demands]:
        """Return the keys that a run of each job takes."""
        return {job.name: job.demands(self.declared) for job in self.jobs}

    @property
    def rules(self) -> Mapping[Key, KeyRule]:
        """Return the rules of the keys that its jobs take."""
        known: dict[DeclarationId, Declaration] = {
            (KINDS[type(each)], each.project, each.name): each for each in self.declared
        }
        keys = {key for demands in self.demands.values() for key in demands}
        found = {key: rule_of(key, known) for key in sorted(keys)}
        return {key: rule for key, rule in found.items() if rule is not None}

    def staff(self) -> list[SimWorker]:
        """List all workers one by one."""
        return [
            SimWorker(f"{each.name}-{number}", each.pool, each.capacity, each.labels)
            for each in self.workers
            for number in range(1, each.count + 1)
        ]


def sample_of(workload: Workload, part: float, random: Random) -> Workload:
    """Scale a workload to this part of its workers, runs, tokens and units.

    Waits come out longer than in the whole: a small crowd evens out less than a large one.
    """
    if part == 1:
        return workload
    return replace(
        workload,
        workers=[
            replace(each, count=max(1, round(each.count * part))) for each in workload.workers
        ],
        jobs=[_scaled_job(job, part, random) for job in workload.jobs],
        declared=[_scaled(each, part) for each in workload.declared],
    )


def _scaled_job(job: JobMix, part: float, random: Random) -> JobMix:
    if isinstance(job.arrivals, Poisson):
        return replace(job, arrivals=replace(job.arrivals, mean=job.arrivals.mean * part))
    whole, rest = divmod(job.schedules * part, 1)
    return replace(job, schedules=int(whole) + (random.random() < rest))


def _scaled(declared: Declaration, part: float) -> Declaration:
    match declared:
        case Limit():
            return replace(declared, per=declared.per / part, burst=_some(declared.burst, part))
        case Resource(sharing=Sharing.COUNTED):
            return replace(declared, total=_some(declared.total, part))
        case _:
            return declared


def _some(amount: int, part: float) -> int:
    return max(1, round(amount * part))


MOST_RUNS = 5_000_000  # of one simulation
_SECOND = 1_000_000
_AGE = timedelta(days=366)  # of schedules when the period begins, so that intervals are due in it


@dataclass(frozen=True, slots=True)
class Period:
    """Time that is simulated; in the simulation it begins at 0."""

    begins_at: datetime
    length: timedelta

    @property
    def seconds(self) -> float:
        return self.length.total_seconds()


def arrivals(workload: Workload, period: Period, random: Random) -> Iterator[SimRun]:
    """Yield every run that comes in the period; `Invalid` if there are too many of them."""
    expected = sum(_expected(job, period) for job in workload.jobs)
    if expected > MOST_RUNS:
        share = float(f"{MOST_RUNS / expected:.0e}")
        raise Invalid(
            "the workload is too large",
            [
                Problem(
                    f"about {expected:,.0f} runs would come, at most {MOST_RUNS:,} are simulated",
                    hint=f"simulate a scaled sample: --sample {share:g}",
                )
            ],
        )
    streams = [_runs(workload, job, period, random) for job in workload.jobs]
    return heapq.merge(*streams, key=attrgetter("arrives_at"))


def _runs(workload: Workload, job: JobMix, period: Period, random: Random) -> Iterator[SimRun]:
    rules, demands = job.rules, workload.demands[job.name]
    timeout = rules.timeout.total_seconds() if rules.timeout else None
    share, shape, expected = job.share, job.shape, job.lengths.mean
    patience = job.start_within if rules.late is Late.DROP else None
    for number, (at, member) in enumerate(_times(job, period, random)):
        seconds = job.lengths.draw(random)
        yield SimRun(
            id=f"{job.name}-{number}",
            job=job.name,
            arrives_at=at,
            seconds=seconds if timeout is None else min(seconds, timeout),
            pool=rules.pool,
            priority=rules.priority,
            share=share,
            shape=shape,
            timeout=timeout,
            expected=expected,
            demands=demands,
            group=f"{job.name}/{member}",
            limit=rules.max_concurrency,
            drop_at=inf if patience is None else at + patience,
        )


def _times(job: JobMix, period: Period, random: Random) -> Iterator[tuple[float, int]]:
    """Yield when a run comes and of which of the equal jobs it is."""
    match job.arrivals:
        case Poisson() as stream:
            rate, at = stream.mean / stream.per, 0.0
            while rate and (at := at + random.expovariate(rate)) < period.seconds:
                yield at, 0
        case Schedule() as schedule:
            yield from _due_times(job, schedule, period, random)


def _due_times(
    job: JobMix, schedule: Schedule, period: Period, random: Random
) -> Iterator[tuple[float, int]]:
    """Yield the due times of each of the equal jobs, delayed by its own part of the spread."""
    due, spread = _due(job, schedule, period), schedule.spread.total_seconds()
    if not spread:
        yield from ((at, member) for at in due for member in range(job.schedules))
        return
    delays = array("d", (random.random() * spread for _ in range(job.schedules)))
    members = sorted(range(job.schedules), key=delays.__getitem__)
    waves = (_wave(at, delays, members) for at in due)
    yield from (each for each in heapq.merge(*waves) if 0 <= each[0] < period.seconds)


def _wave(
    due: float, delays: Sequence[float], members: Sequence[int]
) -> Iterator[tuple[float, int]]:
    """Yield one due time of all of the equal jobs, the least delayed first."""
    return ((due + delays[member], member) for member in members)


def _due(job: JobMix, schedule: Schedule, period: Period) -> list[float]:
    """List due times in seconds, with those before the period whose runs come only in it."""
    zero, end = micros(period.begins_at), micros(period.begins_at + period.length)
    begin = micros(period.begins_at - schedule.spread)
    found = _timetable(job, schedule, period).all_in(begin - 1, end - 1)
    return [(due - zero) / _SECOND for due in found]


def _timetable(job: JobMix, schedule: Schedule, period: Period) -> Timetable:
    return compile_schedule(schedule, key=job.name, anchor=period.begins_at - _AGE)


def _expected(job: JobMix, period: Period) -> float:
    """Estimate how many runs come."""
    match job.arrivals:
        case Poisson(mean, per):
            return mean * period.seconds / per
        case Schedule() as schedule:
            end = period.begins_at + period.length
            due = _timetable(job, schedule, period).count(period.begins_at, end)
            return job.schedules * due
