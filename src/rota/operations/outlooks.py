"""What people ask of a forecast: who starts when, what runs out, and where there is room."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import islice

from rota.domain.errors import Invalid, Problem
from rota.domain.forecast.accuracy import Accuracy, accuracy_of
from rota.domain.forecast.ahead import RunAhead
from rota.domain.forecast.forecast import Forecast, JobOutlook, by_job, coming_runs, slow_runs
from rota.domain.forecast.load import Bucket, Grid, buckets_of, merged, peak_of
from rota.domain.forecast.measures import (
    Measure,
    band_of,
    measure_names,
    measure_of,
    uses_of,
)
from rota.domain.forecast.quiet import DAY_MINUTES, HOUR_MINUTES, quiet_minutes
from rota.domain.forecast.saturation import Saturation, saturations
from rota.domain.resources import SLOTS
from rota.domain.schedule.quoting import quoted
from rota.operations.backends import Backends
from rota.operations.definitions import find_job
from rota.operations.forecasting import beside_the_loop, latest_forecast

LONGEST = timedelta(days=7)
MOST_LISTED = 1_000  # jobs, or runs of the one that was asked for
_COMPARED = timedelta(days=1)
_MOST_COMPARED = 10_000
_MINUTE, _HOUR = timedelta(minutes=1), timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Question:
    """What somebody wants to know of the time ahead."""

    project: str
    begin: datetime | None = None  # None: now
    end: datetime | None = None  # None: so much later
    length: timedelta = timedelta(days=1)
    measure: str = SLOTS
    buckets: int = 288
    job: str | None = None  # only this one, run by run


@dataclass(frozen=True, slots=True)
class Load:
    """How much of a measure is in use, over all projects."""

    measure: Measure
    measures: Sequence[str]  # all that could be asked for
    buckets: Sequence[Bucket]
    low: Sequence[float]  # the means if all runs were short
    high: Sequence[float]
    quiet_minutes: Sequence[int]  # of the hour; none of less than an hour ahead
    quiet_times: Sequence[int]  # minutes of the day; none of less than a day ahead

    @property
    def peak(self) -> Bucket:
        return peak_of(self.buckets)


@dataclass(frozen=True, slots=True)
class Outlook:
    """The answer: who of a project starts when, and on what."""

    forecast: Forecast
    begin: datetime
    end: datetime
    starts: int
    jobs: Sequence[JobOutlook]
    runs: Sequence[RunAhead]  # of the one job that was asked for
    load: Load
    saturations: Sequence[Saturation]  # in which runs of the project wait
    slow: Sequence[RunAhead]  # that go on and have lasted longer than usual
    accuracy: Accuracy | None


async def look_ahead(backends: Backends, question: Question) -> Outlook:
    """What is coming to a project, on the workers that it shares with all others."""
    if question.job is not None:
        job = await find_job(backends, question.job, project=question.project)
        question = replace(question, job=job.name)
    now = await backends.store.now()
    begin, end = _window(question, now)
    forecast = await latest_forecast(backends, end - now)
    accuracy = await recent_accuracy(backends)
    return await beside_the_loop(_outlook, forecast, question, (begin, end), accuracy)


async def recent_accuracy(backends: Backends) -> Accuracy | None:
    """How near the forecasts of the last day were; None: nothing of them has started."""
    since = await backends.store.now() - _COMPARED
    return accuracy_of(await backends.store.predicted_starts(since, _MOST_COMPARED))


def _window(question: Question, now: datetime) -> tuple[datetime, datetime]:
    """What to look at; `Invalid` if that is too far, or nothing."""
    begin = min(max(question.begin or now, now), now + LONGEST)
    length = question.end - begin if question.end else question.length
    if timedelta(0) < length <= now + LONGEST - begin:
        return begin, begin + length
    if question.end:
        problem = Problem("must be later than the beginning, and not more than 7 days ahead", "to")
    else:
        problem = Problem("must not go beyond 7 days from now", "for", hint="7d at most")
    raise Invalid("a forecast cannot look there", [problem])


def _outlook(
    forecast: Forecast,
    question: Question,
    window: tuple[datetime, datetime],
    accuracy: Accuracy | None,
) -> Outlook:
    first, last = ((at - forecast.made_at).total_seconds() for at in window)
    coming = [*coming_runs(forecast, question.project, first, last)]
    named = [run for run in coming if run.job.name == question.job] if question.job else coming
    return Outlook(
        forecast=forecast,
        begin=window[0],
        end=window[1],
        starts=len(named),
        jobs=by_job(named, last)[:MOST_LISTED],
        runs=named[:MOST_LISTED] if question.job else (),
        load=_load(forecast, question, window),
        saturations=saturations(named, last),
        slow=[*islice(_slow(forecast, question), MOST_LISTED)],
        accuracy=accuracy,
    )


def _slow(forecast: Forecast, question: Question) -> Iterator[RunAhead]:
    for run in slow_runs(forecast, question.project):
        if question.job in (None, run.job.name):
            yield run


def _load(forecast: Forecast, question: Question, window: tuple[datetime, datetime]) -> Load:
    measure = _measure(forecast, question)
    begin, end = window
    minutes: list[Bucket] = []
    if end - begin >= _HOUR:
        begin = begin.replace(second=0, microsecond=0)
        end = begin + (end - begin) // _MINUTE * _MINUTE
        minutes = _buckets(forecast, measure, _grid(forecast, begin, end, (end - begin) // _MINUTE))
    grid = _grid(forecast, begin, end, question.buckets)
    size, rest = divmod(len(minutes), question.buckets)
    has_minutes = size > 0 and not rest
    low, high = band_of(forecast.runs, measure, grid)
    return Load(
        measure=measure,
        measures=measure_names(forecast.setting, question.project),
        buckets=merged(minutes, size) if has_minutes else _buckets(forecast, measure, grid),
        low=low,
        high=high,
        quiet_minutes=_quiet(minutes, begin, HOUR_MINUTES),
        quiet_times=_quiet(minutes, begin, DAY_MINUTES),
    )


def _buckets(forecast: Forecast, measure: Measure, grid: Grid) -> list[Bucket]:
    return buckets_of(uses_of(forecast.runs, measure), grid)


def _quiet(minutes: Sequence[Bucket], begin: datetime, cycle: int) -> Sequence[int]:
    first = begin.hour * HOUR_MINUTES + begin.minute
    return quiet_minutes(minutes, first, cycle) if len(minutes) >= cycle else ()


def _grid(forecast: Forecast, begin: datetime, end: datetime, count: int) -> Grid:
    width = (end - begin).total_seconds() / count
    return Grid((begin - forecast.made_at).total_seconds(), width, count)


def _measure(forecast: Forecast, question: Question) -> Measure:
    found = measure_of(question.measure, forecast.setting, question.project)
    if found is None:
        known = measure_names(forecast.setting, question.project)
        text = f"nothing that runs take is called {quoted(question.measure)}"
        problem = Problem(text, "measure", hint=f"one of {', '.join(known)}")
        raise Invalid("there is no such measure", [problem])
    return found
