"""What the server says about what is coming."""

from __future__ import annotations

from datetime import datetime

from rota.sdk.answers import Answer


class Expected(Answer, frozen=True, kw_only=True):
    """How long a run takes, and where that is known from."""

    usual_seconds: float
    low_seconds: float = 0.0  # nine in ten take longer
    high_seconds: float = 0.0  # nine in ten take less
    source: str = ""  # history, expect or guess


class JobForecast(Answer, frozen=True, kw_only=True):
    """The coming starts of one job."""

    job: str
    job_id: str = ""
    starts: int = 0
    first_due_at: datetime
    first_start_at: datetime | None = None  # None: not in the time ahead
    expected: Expected
    unplaced: int = 0  # starts that would wait beyond the time ahead
    longest_wait_seconds: float = 0.0  # of those that are unplaced, as far as the time ahead goes
    waits_for: str = ""  # `worker:POOL`, `job`, or a key; "": none waits
    remark: str = ""


class ForecastStart(Answer, frozen=True, kw_only=True):
    """One coming start."""

    job: str
    run: str | None = None  # None: the run does not exist yet
    due_at: datetime
    start_at: datetime | None = None
    wait_seconds: float | None = None  # None: it waits beyond the time ahead
    waits_for: str = ""
    remark: str = ""


class LoadBucket(Answer, frozen=True, kw_only=True):
    at: datetime
    mean: float
    peak: float
    low: float = 0.0
    high: float = 0.0


class LoadPeak(Answer, frozen=True, kw_only=True):
    at: datetime
    amount: float


class Quiet(Answer, frozen=True, kw_only=True):
    """Where one more job would find the most room, in UTC."""

    minutes: tuple[int, ...] = ()  # of the hour
    times: tuple[str, ...] = ()  # of the day, `03:42`


class Load(Answer, frozen=True, kw_only=True):
    """How much of something is in use, by runs of all projects."""

    measure: str
    measures: tuple[str, ...] = ()
    capacity: float = 0.0
    peak: LoadPeak
    buckets: tuple[LoadBucket, ...] = ()
    quiet: Quiet = Quiet()


class Saturation(Answer, frozen=True, kw_only=True):
    """A stretch in which runs wait for the same thing."""

    what: str
    begins_at: datetime
    ends_at: datetime
    waiting: int = 0
    unplaced: int = 0  # of these, runs that would wait beyond the time ahead
    longest_wait_seconds: float = 0.0  # of those that are unplaced, as far as the time ahead goes
    jobs: tuple[str, ...] = ()


class SlowRun(Answer, frozen=True, kw_only=True):
    """A run that goes on and has lasted longer than usual."""

    job: str
    run: str
    started_at: datetime
    ends_at: datetime  # if it takes as long again, or at its time limit
    expected: Expected


class ForecastAccuracy(Answer, frozen=True, kw_only=True):
    """Starts that were predicted in the last day, and when they came."""

    starts: int
    near: int = 0  # of these within 2 s, or within a tenth of the time that lay ahead
    usual_error_seconds: float = 0.0
    high_error_seconds: float = 0.0  # nine in ten were nearer


class Forecast(Answer, frozen=True, kw_only=True):
    """What is coming to a project."""

    made_at: datetime
    begins_at: datetime
    ends_at: datetime
    starts: int = 0
    cut: bool = False  # there is more than was looked at
    jobs: tuple[JobForecast, ...] = ()
    runs: tuple[ForecastStart, ...] = ()  # of the job that was asked for
    load: Load
    saturations: tuple[Saturation, ...] = ()
    slow: tuple[SlowRun, ...] = ()
    accuracy: ForecastAccuracy | None = None
