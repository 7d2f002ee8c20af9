"""What is coming."""

from __future__ import annotations

from datetime import datetime
from math import isinf
from typing import Literal

from rota.domain.forecast.ahead import Durations, RunAhead
from rota.domain.forecast.forecast import (
    NOTICED_SECONDS,
    Accuracy,
    Forecast,
    JobOutlook,
    Saturation,
    shortage_of,
)
from rota.operations.forecasts import Load, Outlook
from rota.server.gateway.shapes.models import Answer


class ExpectedShape(Answer):
    """How long a run takes, and where that is known from."""

    usual_seconds: float
    low_seconds: float  # nine in ten take longer
    high_seconds: float  # nine in ten take less
    source: Literal["history", "expect", "guess"]

    @classmethod
    def of(cls, durations: Durations) -> ExpectedShape:
        return cls(
            usual_seconds=_rounded(durations.usual),
            low_seconds=_rounded(durations.low),
            high_seconds=_rounded(durations.high),
            source=durations.source.value,
        )


class JobForecastShape(Answer):
    """The coming starts of one job."""

    job: str
    job_id: str
    starts: int
    first_due_at: datetime
    first_start_at: datetime | None  # null: not in the time ahead
    expected: ExpectedShape
    unplaced: int  # starts that would wait beyond the time ahead
    longest_wait_seconds: float  # of those that are unplaced, as far as the time ahead goes
    waits_for: str  # what the longest waits for: `worker:POOL`, `job`, or a key; "": none waits
    remark: str  # what a change of clocks does to the first, or ""

    @classmethod
    def of(cls, forecast: Forecast, entry: JobOutlook) -> JobForecastShape:
        first = entry.first
        return cls(
            job=first.job.name,
            job_id=first.job.id,
            starts=entry.starts,
            first_due_at=forecast.instant(first.due_at),
            first_start_at=forecast.start_of(first),
            expected=ExpectedShape.of(first.job.durations),
            unplaced=entry.unplaced,
            longest_wait_seconds=_rounded(entry.longest_wait),
            waits_for=entry.waits_for,
            remark=forecast.remark(first),
        )


class StartShape(Answer):
    """One coming start."""

    job: str
    run: str | None  # null: the run does not exist yet
    due_at: datetime
    start_at: datetime | None  # null: not in the time ahead
    wait_seconds: float | None  # since it could start; null: it waits beyond the time ahead
    waits_for: str
    remark: str

    @classmethod
    def of(cls, forecast: Forecast, run: RunAhead) -> StartShape:
        return cls(
            job=run.job.name,
            run=run.id,
            due_at=forecast.instant(run.due_at),
            start_at=forecast.start_of(run),
            wait_seconds=None if isinf(run.wait) else _rounded(run.wait),
            waits_for=shortage_of(run) if run.wait > NOTICED_SECONDS else "",
            remark=forecast.remark(run),
        )


class LoadBucketShape(Answer):
    at: datetime
    mean: float
    peak: float
    low: float  # the mean if all runs were short
    high: float  # the mean if all were long


class LoadPeakShape(Answer):
    at: datetime
    amount: float


class QuietShape(Answer):
    """Where one more job would find the most room, in UTC."""

    minutes: list[int]  # of the hour
    times: list[str]  # of the day, `03:42`


class LoadShape(Answer):
    """How much of something is in use, by runs of all projects."""

    measure: str
    measures: list[str]  # all that can be asked for
    capacity: float
    peak: LoadPeakShape
    buckets: list[LoadBucketShape]
    quiet: QuietShape

    @classmethod
    def of(cls, forecast: Forecast, load: Load) -> LoadShape:
        return cls(
            measure=load.measure.name,
            measures=list(load.measures),
            capacity=load.measure.capacity,
            peak=LoadPeakShape(at=forecast.instant(load.peak.at), amount=load.peak.peak),
            buckets=[
                LoadBucketShape(
                    at=forecast.instant(bucket.at),
                    mean=round(bucket.mean, 3),
                    peak=bucket.peak,
                    low=round(low, 3),
                    high=round(high, 3),
                )
                for bucket, low, high in zip(load.buckets, load.low, load.high, strict=True)
            ],
            quiet=QuietShape(
                minutes=list(load.quiet_minutes),
                times=[f"{time // 60:02}:{time % 60:02}" for time in load.quiet_times],
            ),
        )


class SaturationShape(Answer):
    """A stretch in which runs wait for the same thing."""

    what: str  # `worker:POOL`, or a key such as `rate:PROJECT/NAME`
    begins_at: datetime
    ends_at: datetime
    waiting: int
    unplaced: int  # of these, runs that would wait beyond the time ahead
    longest_wait_seconds: float  # of those that are unplaced, as far as the time ahead goes
    jobs: list[str]  # the most frequent

    @classmethod
    def of(cls, forecast: Forecast, found: Saturation) -> SaturationShape:
        return cls(
            what=found.what,
            begins_at=forecast.instant(found.begins_at),
            ends_at=forecast.instant(found.ends_at),
            waiting=found.waiting,
            unplaced=found.unplaced,
            longest_wait_seconds=_rounded(found.longest_wait),
            jobs=list(found.jobs),
        )


class SlowRunShape(Answer):
    """A run that goes on and has lasted longer than usual."""

    job: str
    run: str
    started_at: datetime
    ends_at: datetime  # if it takes as long again, or at its time limit
    expected: ExpectedShape

    @classmethod
    def of(cls, forecast: Forecast, run: RunAhead) -> SlowRunShape:
        return cls(
            job=run.job.name,
            run=run.id or "",
            started_at=forecast.instant(run.start_at),
            ends_at=forecast.instant(run.end_at),
            expected=ExpectedShape.of(run.job.durations),
        )


class AccuracyShape(Answer):
    """Starts that were predicted in the last day, and when they came."""

    starts: int
    near: int  # of these within 2 s, or within a tenth of the time that lay ahead
    usual_error_seconds: float
    high_error_seconds: float  # nine in ten were nearer

    @classmethod
    def of(cls, accuracy: Accuracy) -> AccuracyShape:
        return cls(
            starts=accuracy.starts,
            near=accuracy.near,
            usual_error_seconds=_rounded(accuracy.usual_error.total_seconds()),
            high_error_seconds=_rounded(accuracy.high_error.total_seconds()),
        )


class ForecastShape(Answer):
    """What is coming to a project."""

    made_at: datetime
    begins_at: datetime
    ends_at: datetime
    starts: int
    cut: bool  # there is more than was looked at: what comes first is here
    jobs: list[JobForecastShape]  # by their first start; at most 1,000
    runs: list[StartShape]  # of the job that was asked for; at most 1,000
    load: LoadShape
    saturations: list[SaturationShape]
    slow: list[SlowRunShape]  # the oldest first; at most 1,000
    accuracy: AccuracyShape | None  # null: nothing predicted in the last day has started

    @classmethod
    def of(cls, outlook: Outlook) -> ForecastShape:
        forecast = outlook.forecast
        return cls(
            made_at=forecast.made_at,
            begins_at=outlook.begin,
            ends_at=outlook.end,
            starts=outlook.starts,
            cut=forecast.is_cut,
            jobs=[JobForecastShape.of(forecast, entry) for entry in outlook.jobs],
            runs=[StartShape.of(forecast, run) for run in outlook.runs],
            load=LoadShape.of(forecast, outlook.load),
            saturations=[SaturationShape.of(forecast, it) for it in outlook.saturations],
            slow=[SlowRunShape.of(forecast, run) for run in outlook.slow],
            accuracy=AccuracyShape.of(outlook.accuracy) if outlook.accuracy else None,
        )


def _rounded(seconds: float) -> float:
    """To milliseconds: more is not known."""
    return round(seconds, 3)
