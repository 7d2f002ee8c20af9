"""Forecasts: coming starts, and what they will wait for. Simulations: what a change does to them.

Lengths of time are seconds.
"""

from __future__ import annotations

from typing import Annotated

from rota.api.answers import Answer, Instant, one_of

Source = Annotated[str, one_of("Where a duration is known from.", "history", "expect", "guess")]


class Expected(Answer, frozen=True, kw_only=True):
    """How long a run takes, and where that is known from."""

    usual_seconds: float
    low_seconds: float = 0.0  # nine in ten take longer
    high_seconds: float = 0.0  # nine in ten take less
    source: Source = ""


class JobForecast(Answer, frozen=True, kw_only=True):
    """The coming starts of one job."""

    job: str
    job_id: str = ""
    starts: int = 0
    first_due_at: Instant
    first_start_at: Instant | None = None  # None: not in the time ahead
    expected: Expected
    unplaced: int = 0  # starts that would wait beyond the time ahead
    longest_wait_seconds: float = 0.0  # of those that are unplaced, as far as the time ahead goes
    waits_for: str = (
        ""  # what the longest waits for: `worker:POOL`, `job`, or a key; "": none waits
    )
    remark: str = ""  # what a change of clocks does to the first, or ""


class ForecastStart(Answer, frozen=True, kw_only=True):
    """One coming start."""

    job: str
    run: str | None = None  # None: the run does not exist yet
    due_at: Instant
    start_at: Instant | None = None  # None: not in the time ahead
    wait_seconds: float | None = None  # since it could start; None: beyond the time ahead
    waits_for: str = ""
    remark: str = ""


class LoadBucket(Answer, frozen=True, kw_only=True):
    at: Instant
    mean: float
    peak: float
    low: float = 0.0  # the mean if all runs were short
    high: float = 0.0  # the mean if all were long


class LoadPeak(Answer, frozen=True, kw_only=True):
    at: Instant
    amount: float


class Quiet(Answer, frozen=True, kw_only=True):
    """Where one more job would find the most room, in UTC."""

    minutes: tuple[int, ...] = ()  # of the hour
    times: tuple[str, ...] = ()  # of the day, `03:42`


class Load(Answer, frozen=True, kw_only=True):
    """How much of something is in use, by runs of all projects."""

    measure: str
    measures: tuple[str, ...] = ()  # all that can be asked for
    capacity: float = 0.0
    peak: LoadPeak
    buckets: tuple[LoadBucket, ...] = ()
    quiet: Quiet = Quiet()


class Saturation(Answer, frozen=True, kw_only=True):
    """A stretch in which runs wait for the same thing."""

    what: str  # `worker:POOL`, or a key such as `rate:PROJECT/NAME`
    begins_at: Instant
    ends_at: Instant
    waiting: int = 0
    unplaced: int = 0  # of these, runs that would wait beyond the time ahead
    longest_wait_seconds: float = 0.0  # of those that are unplaced, as far as the time ahead goes
    jobs: tuple[str, ...] = ()  # the most frequent


class SlowRun(Answer, frozen=True, kw_only=True):
    """A run that goes on and has lasted longer than usual."""

    job: str
    run: str
    started_at: Instant
    ends_at: Instant  # if it takes as long again, or at its time limit
    expected: Expected


class ForecastAccuracy(Answer, frozen=True, kw_only=True):
    """Starts that were predicted in the last day, and when they came."""

    starts: int
    near: int = 0  # of these within 2 s, or within a tenth of the time that lay ahead
    usual_error_seconds: float = 0.0
    high_error_seconds: float = 0.0  # nine in ten were nearer


class Forecast(Answer, frozen=True, kw_only=True):
    """Starts, load and shortages that are coming to a project."""

    made_at: Instant
    begins_at: Instant
    ends_at: Instant
    starts: int = 0
    cut: bool = False  # there is more than was looked at: what comes first is here
    jobs: tuple[JobForecast, ...] = ()  # by their first start; at most 1,000
    runs: tuple[ForecastStart, ...] = ()  # of the job that was asked for; at most 1,000
    load: Load
    saturations: tuple[Saturation, ...] = ()
    slow: tuple[SlowRun, ...] = ()  # the oldest first; at most 1,000
    accuracy: ForecastAccuracy | None = None  # None: nothing predicted in the last day has started


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
    dropped: int = 0  # those of them that were too late to start, as `late: drop` says


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
