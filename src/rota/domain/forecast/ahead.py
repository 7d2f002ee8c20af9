"""Inputs about the time ahead: jobs, how long their runs take, and who could take them.

Instants are seconds since the forecast was made, so that what is under way began below 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from math import inf
from typing import Protocol

from rota.domain.ids import CartId, JobId, RunId
from rota.domain.keys import Demands, Key, KeyRule
from rota.domain.order import DEFAULT_EXPECTED_SECONDS
from rota.domain.resources import SLOTS, UNIT, Vector, lacking
from rota.domain.shape import demand_of, unmet
from rota.domain.simulation.model import SimWorker
from rota.domain.spec import DEFAULT_POOL, DEFAULT_PRIORITY

REMEMBERED_RUNS = 50  # the latest of a job that say how long the next one takes
_REMEMBERED_IN_ALL = 100_000
_REMEMBERED_AT_LEAST = 5


class Source(StrEnum):
    """Source of a known duration."""

    HISTORY = "history"
    EXPECT = "expect"  # the job file says so
    GUESS = "guess"  # nobody knows


@dataclass(frozen=True, slots=True)
class Durations:
    """Seconds that a run takes: the usual, and what nine in ten are above and below."""

    low: float
    usual: float
    high: float
    source: Source

    def left_after(self, elapsed: float, most: float = inf) -> float:
        """Estimate how long a run still takes that has gone on for a while, at most `most`.

        One that lasts longer than usual lasts as long as a slow one; one that is slower than these
        is taken to be in the middle of its time.
        """
        known = next((it for it in (self.usual, self.high) if it > elapsed), elapsed * 2)
        return min(known - elapsed, most)


def remembered_runs(jobs: int) -> int:
    """Return how many runs of each of so many jobs to read: all of them would take too long."""
    fair = _REMEMBERED_IN_ALL // max(jobs, 1)
    return max(min(fair, REMEMBERED_RUNS), _REMEMBERED_AT_LEAST)


def durations_of(seconds: Sequence[float], expect: timedelta | None) -> Durations:
    """Estimate by the latest completed runs, else as the job file expects, else a guess."""
    if seconds:
        ordered = sorted(seconds)
        low, usual, high = (_quantile(ordered, q) for q in (0.1, 0.5, 0.9))
        return Durations(low, usual, high, Source.HISTORY)
    if expect is not None:
        return _exactly(expect.total_seconds(), Source.EXPECT)
    return _exactly(DEFAULT_EXPECTED_SECONDS, Source.GUESS)


def _exactly(seconds: float, source: Source) -> Durations:
    return Durations(seconds, seconds, seconds, source)


def _quantile(ordered: Sequence[float], q: float) -> float:
    """Interpolate between the two nearest values."""
    place = q * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


JOB_GATE = "job"  # what a run waits for whose job has as many runs going as it may
WORKER_GATE = "worker"


@dataclass(frozen=True, slots=True, eq=False)
class JobAhead:
    """Runs that are alike: of one job, pool, priority and share."""

    id: JobId
    project: str
    name: str
    durations: Durations
    pool: str = DEFAULT_POOL
    priority: int = DEFAULT_PRIORITY
    share: str = ""
    shape: str = ""
    timeout: float | None = None
    demands: Demands = field(default_factory=dict)
    group: str = ""  # runs that count together
    limit: int | None = None  # how many of these may go at once; None: any number
    cart: CartId | None = None
    created_by: str = ""  # who asked for such runs, or made the job that does
    is_plain: bool = False  # a free slot is all it needs: see `is_slot_enough`
    # The first time from one on when no gate closes the whole job; None: no gate ever does.
    opening: Callable[[float], float] | None = None

    def open_from(self, at: float) -> float:
        """Return when a run that comes at this time passes the gates which close a whole job."""
        return at if self.opening is None else self.opening(at)


@dataclass(slots=True, eq=False)
class RunAhead:
    """One run that comes, waits or goes on."""

    job: JobAhead
    due_at: float
    ready_at: float  # when its time has come
    seconds: float
    start_at: float = inf  # infinity: not in the time ahead
    # The first gate that made it wait: JOB_GATE, WORKER_GATE, a shared key or that of an upstream.
    waits_for: str = ""
    held_until: float = -inf  # when the jobs that it comes after have completed
    made_at: float | None = None  # when the run was; None: it will be when it is due
    id: RunId | None = None  # None: not known before it comes
    worker: str = ""  # that has it already
    drop_at: float = inf  # from when on it may not start any more (`late: drop`)

    @property
    def arrives_at(self) -> float:
        """Time at which it comes to the gates of its job."""
        return max(self.ready_at, self.held_until)

    @property
    def created_at(self) -> float:
        return max(self.due_at, 0.0) if self.made_at is None else self.made_at

    @property
    def end_at(self) -> float:
        return self.start_at + self.seconds

    @property
    def wait(self) -> float:
        return max(self.waits_until - self.ready_at, 0.0)

    @property
    def waits_until(self) -> float:
        """Time of its start, or of being dropped; infinity: neither in the time ahead."""
        return self.drop_at if self.start_at == inf else self.start_at


class Successors(Protocol):
    """Source of runs that come because of others."""

    def follow(self, run: RunAhead) -> Sequence[RunAhead]:
        """Return the runs that come when this one, which has just started, ends."""
        ...

    def left(self) -> Sequence[RunAhead]:
        """Return the runs that others keep from coming, once all has started that does."""
        ...


@dataclass(frozen=True, slots=True)
class Setting:
    """Workers and rules that runs are placed on."""

    workers: Sequence[SimWorker]
    rules: Mapping[Key, KeyRule] = field(default_factory=dict)
    weights: Mapping[str, float] = field(default_factory=dict)
    levels: Mapping[Key, float] = field(default_factory=dict)  # tokens left; missing: all

    def is_slot_enough(self, pool: str, shape: str) -> bool:
        """Return whether any worker of the pool with a free slot can take a run of this shape.

        That is so if it could take as many of them as it has slots.
        """
        if not shape:
            return True
        demand = demand_of(shape)
        return not any(
            unmet(shape, worker.labels, worker.functions, offers=worker.offers)
            or _lacks_at_once(worker, demand.on(worker.capacity))
            for worker in self.workers
            if worker.pool == pool
        )


def _lacks_at_once(worker: SimWorker, demand: Vector) -> list[str]:
    """List what it has too little of for as many of them as it has slots."""
    slots = worker.capacity.get(SLOTS, 0) // UNIT
    return lacking({name: amount * slots for name, amount in demand.items()}, worker.capacity)
