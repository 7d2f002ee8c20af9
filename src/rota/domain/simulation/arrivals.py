"""The runs of a workload, in the order in which they come."""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from operator import attrgetter
from random import Random

from rota.domain.errors import Invalid, Problem
from rota.domain.ids import micros
from rota.domain.schedule import Timetable, compile_schedule
from rota.domain.simulation.model import SimRun
from rota.domain.simulation.workload import JobMix, Poisson, Workload
from rota.domain.spec import Schedule

MOST_RUNS = 5_000_000  # of one simulation
_SECOND = 1_000_000
_AGE = timedelta(days=366)  # of schedules when the period begins, so that intervals are due in it


@dataclass(frozen=True, slots=True)
class Period:
    """The time that is simulated; in the simulation it begins at 0."""

    begins_at: datetime
    length: timedelta

    @property
    def seconds(self) -> float:
        return self.length.total_seconds()


def arrivals(workload: Workload, period: Period, random: Random) -> Iterator[SimRun]:
    """Every run that comes in the period; `Invalid` if there are too many of them."""
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
        )


def _times(job: JobMix, period: Period, random: Random) -> Iterator[tuple[float, int]]:
    """When a run comes and of which of the equal jobs it is."""
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
    """The due times of each of the equal jobs, delayed by its own part of the spread."""
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
    """One due time of all of the equal jobs, the least delayed first."""
    return ((due + delays[member], member) for member in members)


def _due(job: JobMix, schedule: Schedule, period: Period) -> list[float]:
    """Due times in seconds, with those before the period whose runs come only in it."""
    zero, end = micros(period.begins_at), micros(period.begins_at + period.length)
    begin = micros(period.begins_at - schedule.spread)
    found = _timetable(job, schedule, period).all_in(begin - 1, end - 1)
    return [(due - zero) / _SECOND for due in found]


def _timetable(job: JobMix, schedule: Schedule, period: Period) -> Timetable:
    return compile_schedule(schedule, key=job.name, anchor=period.begins_at - _AGE)


def _expected(job: JobMix, period: Period) -> float:
    """About how many runs come."""
    match job.arrivals:
        case Poisson(mean, per):
            return mean * period.seconds / per
        case Schedule() as schedule:
            end = period.begins_at + period.length
            due = _timetable(job, schedule, period).count(period.begins_at, end)
            return job.schedules * due
