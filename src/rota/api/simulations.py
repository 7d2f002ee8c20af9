"""Simulations: the effect of a change on the time ahead. Lengths of time are seconds."""

from __future__ import annotations

from rota.api.answers import Answer


class Waits(Answer, frozen=True, kw_only=True):
    """How long runs waited to start."""

    runs: int
    p50: float
    p90: float
    p99: float
    longest: float


class SimulatedJob(Answer, frozen=True, kw_only=True):
    name: str
    waits: Waits
    start_within: float | None = None  # the objective; None: there is none
    late: int = 0  # runs that missed it


class SimulatedPriority(Waits, frozen=True, kw_only=True):
    priority: int


class SimulatedShare(Answer, frozen=True, kw_only=True):
    name: str
    waits: Waits
    got: float  # of all resources × time that were used
    entitled: float  # by weight, if everybody always had work


class SimulatedUse(Answer, frozen=True, kw_only=True):
    """How much of a pool's resource was in use, as fractions."""

    pool: str
    resource: str
    mean: float
    peak: float


class SimulatedSaturation(Answer, frozen=True, kw_only=True):
    """A stretch in which runs waited for the same thing."""

    what: str
    begins_at: float
    ends_at: float
    most_waiting: int


class SimulationReport(Answer, frozen=True, kw_only=True):
    seconds: float
    workers: int
    started: int
    ended: int
    still_waiting: int
    waits: Waits
    jobs: tuple[SimulatedJob, ...] = ()
    priorities: tuple[SimulatedPriority, ...] = ()
    shares: tuple[SimulatedShare, ...] = ()
    uses: tuple[SimulatedUse, ...] = ()
    saturations: tuple[SimulatedSaturation, ...] = ()


class Comparison(Answer, frozen=True, kw_only=True):
    before: SimulationReport
    after: SimulationReport
