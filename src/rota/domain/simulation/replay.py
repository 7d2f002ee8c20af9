"""Simulations from beginning to end: of a workload, or of runs whose starts are known already."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from random import Random

from rota.domain.keys import Key
from rota.domain.simulation.model import SimRun
from rota.domain.simulation.report import Background, Measures, Report, report_of
from rota.domain.simulation.workload import Period, Workload, arrivals, sample_of
from rota.domain.simulation.world import World


@dataclass(frozen=True, slots=True)
class Known:
    """A run and when it starts."""

    run: SimRun
    start_at: float  # infinity: not in the time that is looked at
    waits_for: Key = ""  # "": for a worker


class _Turn(IntEnum):
    """What goes first of what happens at one instant."""

    END = 0
    ARRIVAL = 1
    START = 2


def replay(runs: Iterable[Known], measures: Measures) -> None:
    """Tell the measures what happens, in order of time. What began before 0 is at work then."""
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
    if end < until:
        yield max(end, 0.0), _Turn.END, lambda at: measures.on_end(run, "", at)


def _arrive(known: Known, at: float, measures: Measures) -> None:
    if known.waits_for:
        measures.on_blocked(known.run, known.waits_for, at, None)
    else:
        measures.on_queued(known.run, at)


Tell = Callable[[float], None]  # how much of the period has passed: 0 to 1

_STEPS = 200  # how often progress is told


def untold(_: float) -> None:
    """Tell nobody."""


def simulate_workload(
    workload: Workload, period: Period, part: float, random: Random, tell: Tell = untold
) -> Report:
    """What happens to a part of a workload in a period. `Invalid` if that is too much."""
    sample = sample_of(workload, part, random)
    staff = sample.staff()
    measures = Measures(staff, period.seconds)
    world = World(staff, sample.rules, sample.weights)
    runs = _told(arrivals(sample, period, random), period.seconds, tell)
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


def _told(runs: Iterable[SimRun], seconds: float, tell: Tell) -> Iterator[SimRun]:
    """The runs as they come, with a word now and then about how far they are."""
    step = next_at = seconds / _STEPS
    for run in runs:
        if run.arrives_at >= next_at:
            tell(run.arrives_at / seconds)
            next_at = run.arrives_at + step
        yield run
