"""Forecasts: when runs start, what they wait for, what runs out, where there is room."""

from __future__ import annotations

import asyncio
import gc
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import islice
from math import inf
from operator import attrgetter
from typing import ParamSpec, TypeVar

from rota.domain.errors import Invalid, Problem, quoted
from rota.domain.forecast.ahead import RunAhead
from rota.domain.forecast.forecast import (
    Accuracy,
    Forecast,
    JobOutlook,
    Saturation,
    accuracy_of,
    by_job,
    coming_runs,
    saturations,
    slow_runs,
)
from rota.domain.forecast.load import (
    DAY_MINUTES,
    HOUR_MINUTES,
    Bucket,
    Grid,
    Measure,
    band_of,
    buckets_of,
    measure_names,
    measure_of,
    merged,
    peak_of,
    quiet_minutes,
    uses_of,
)
from rota.domain.forecast.placing import place
from rota.domain.ids import JobId, RunId, instant, micros, scheduled_run_id
from rota.domain.keys import SECOND
from rota.domain.resources import SLOTS
from rota.operations.definitions import find_job
from rota.operations.engine import Engine, KeptForecast
from rota.operations.forecast_inputs import Inputs, read_inputs
from rota.operations.forecast_program import assemble
from rota.operations.tenants import EVERYTHING, Sight
from rota.ports.forecasts import PoolGroup, PredictedStart

_MOST_JOBS = 1_000
_MOST_TIMES = 100  # of one job

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class UpcomingJob:
    """A job that is due soon, with its due times."""

    id: JobId
    name: str
    expected: timedelta
    runs: Sequence[RunAhead]


async def make_forecast(
    engine: Engine, ahead: timedelta, group: PoolGroup | None = None
) -> Forecast:
    """Make a forecast from what is known now. Takes no lock, and does not block the event loop."""
    until = await engine.store.now() + ahead
    forecast = await run_in_thread(forecast_from, await read_inputs(engine, until, group))
    projects = None if group is None else group.projects
    return replace(forecast, accuracy=await recent_accuracy(engine, projects))


async def upcoming_jobs(
    engine: Engine,
    project: str,
    within: timedelta,
    created_by: str | None = None,
    *,
    is_member: bool = False,
) -> tuple[Forecast, list[UpcomingJob]]:
    """Return the jobs of a project that are due within a time, by the first of their due times.

    At most 1,000 jobs with 100 due times each; of one user, those that this one made.
    """
    caches = await forecasts_for(engine, project, is_member=is_member)
    forecast = await caches.latest(within)
    due = [run for run in forecast.runs if _is_due(run, project, within.total_seconds())]
    if created_by is not None:
        due = [run for run in due if run.job.created_by == created_by]
    by_job: dict[JobId, list[RunAhead]] = defaultdict(list)
    for run in sorted(due, key=attrgetter("due_at")):
        by_job[run.job.id].append(run)
    return forecast, [_upcoming(runs) for runs in by_job.values()][:_MOST_JOBS]


async def run_in_thread(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run long work in a thread with the garbage collector off.

    So many small objects are made, none of them in a ring, that to look at them all again and again
    would take as long as to make them.
    """
    gc.disable()
    try:
        return await asyncio.to_thread(work, *args, **kwargs)
    finally:
        gc.enable()


@dataclass(frozen=True, slots=True)
class Forecasts:
    """Forecasts of all projects, or of those of a group."""

    engine: Engine
    group: PoolGroup | None = None

    async def latest(self, ahead: timedelta) -> Forecast:
        """Return a forecast, cached if it is fresh enough, that looks at least so far ahead."""
        return await self._kept.get(ahead, self._make)

    async def within(self, patience: timedelta, ahead: timedelta) -> Forecast | None:
        """Return such a forecast within `patience`; None: it takes longer."""
        return await self._kept.get_within(patience, ahead, self._make)

    @property
    def _kept(self) -> KeptForecast:
        caches = self.engine.ahead
        return caches.forecast if self.group is None else caches.of_group(self.group.projects)

    async def _make(self, ahead: timedelta) -> Forecast:
        return await make_forecast(self.engine, ahead, self.group)


async def forecasts_for(engine: Engine, project: str, *, is_member: bool) -> Forecasts:
    """Return the forecasts that tell a caller of a project.

    For members of projects they are of what competes with its runs for workers; others see all.
    """
    return Forecasts(engine, await engine.store.pool_group(project) if is_member else None)


def forecast_from(inputs: Inputs) -> Forecast:
    """Compute the forecast from its inputs. Takes a while where there is much to come."""
    found = assemble(inputs)
    seconds = (inputs.until - inputs.now).total_seconds()
    placed = place(found.program, found.setting, seconds)
    runs = [run for run in placed.runs if run.ready_at <= seconds]
    runs.sort(key=attrgetter("start_at"))
    is_cut = found.is_cut or placed.is_cut
    return Forecast(inputs.now, inputs.until, runs, found.setting, found.tables, is_cut)


def _upcoming(runs: Sequence[RunAhead]) -> UpcomingJob:
    job = runs[0].job
    expected = timedelta(seconds=job.durations.usual)
    return UpcomingJob(job.id, job.name, expected, runs[:_MOST_TIMES])


def _is_due(run: RunAhead, project: str, before: float) -> bool:
    """Return whether it is a coming due time, not a run that exists or an item of a cart."""
    return (
        run.due_at < before
        and run.id is None
        and run.job.cart is None
        and (run.job.project == project)
    )


LONGEST = timedelta(days=7)
MOST_LISTED = 1_000  # jobs, or runs of the one that was asked for
_COMPARED = timedelta(days=1)
_MOST_COMPARED = 10_000
_MINUTE, _HOUR = timedelta(minutes=1), timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Question:
    """Query about the time ahead."""

    project: str
    begin: datetime | None = None  # None: now
    end: datetime | None = None  # None: so much later
    length: timedelta = timedelta(days=1)
    measure: str = SLOTS
    buckets: int = 288
    job: str | None = None  # only this one, run by run
    created_by: str | None = None  # only what is this user's
    sight: Sight = EVERYTHING

    def is_about(self, run: RunAhead) -> bool:
        """Return whether it asks for such runs of its project."""
        is_theirs = self.created_by in (None, run.job.created_by)
        return is_theirs and self.job in (None, run.job.name)


@dataclass(frozen=True, slots=True)
class Load:
    """Use of a measure, over all projects."""

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
    """Answer to a `Question`: who of a project starts when, and on what."""

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


async def look_ahead(engine: Engine, question: Question) -> Outlook:
    """Return what is coming to a project, on the workers that it shares with all others."""
    if question.job is not None:
        job = await find_job(engine, question.job, project=question.project)
        question = replace(question, job=job.name)
    now = await engine.store.now()
    begin, end = _window(question, now)
    is_member = question.sight.projects is not None
    forecasts = await forecasts_for(engine, question.project, is_member=is_member)
    forecast = await forecasts.latest(end - now)
    return await run_in_thread(_outlook, forecast, question, (begin, end))


async def recent_accuracy(
    engine: Engine, projects: Collection[str] | None = None
) -> Accuracy | None:
    """Return how near the forecasts of the last day were; None: nothing of them has started."""
    since = await engine.store.now() - _COMPARED
    return accuracy_of(await engine.store.predicted_starts(since, _MOST_COMPARED, projects))


def _window(question: Question, now: datetime) -> tuple[datetime, datetime]:
    """Return the range to look at; `Invalid` if it is too far ahead, or empty."""
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
) -> Outlook:
    first, last = ((at - forecast.made_at).total_seconds() for at in window)
    coming = coming_runs(forecast, question.project, first, last)
    named = [run for run in coming if question.is_about(run)]
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
        accuracy=forecast.accuracy,
    )


def _slow(forecast: Forecast, question: Question) -> Iterator[RunAhead]:
    yield from filter(question.is_about, slow_runs(forecast, question.project))


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
        measures=measure_names(forecast.setting, question.project, question.sight.closed),
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
    about = forecast.setting, question.project, question.sight.closed
    found = measure_of(question.measure, *about)
    if found is None:
        known = measure_names(*about)
        text = f"no resource or limit is called {quoted(question.measure)}"
        problem = Problem(text, "measure", hint=f"one of {', '.join(known)}")
        raise Invalid("there is no such measure", [problem])
    return found


_MOST = 2_000  # remembered of one forecast


async def predict_starts(engine: Engine, ahead: timedelta, kept: timedelta) -> int:
    """Store when the next runs are predicted to start and what runs out; delete old predictions.

    The first prediction of a run stays. Runs that follow from the end of others have no id yet.
    """
    forecast = await make_forecast(engine, ahead)
    short = await run_in_thread(saturations, forecast.runs, forecast.seconds)
    engine.ahead.shortages.note(forecast.made_at, short)
    starts = [*islice(_known_starts(forecast), _MOST)]
    if starts:
        await engine.store.save_predictions(starts)
    await engine.store.forget_predictions(forecast.made_at - kept)
    return len(starts)


def _known_starts(forecast: Forecast) -> Iterator[PredictedStart]:
    """Yield the predicted starts of runs whose ids are known."""
    for run in forecast.runs:
        run_id = _id_of(forecast, run)
        if run_id is not None and 0 < run.start_at < inf and not run.worker:
            yield PredictedStart(run_id, forecast.instant(run.start_at))


def _id_of(forecast: Forecast, run: RunAhead) -> RunId | None:
    """Return the id of an existing run, or of the run that a due time will have."""
    table = forecast.tables.get(run.job.id)
    if run.id is not None or run.job.cart is not None or table is None or table.after_previous:
        return run.id
    due_at = instant(micros(forecast.made_at) + round(run.due_at * SECOND))
    return scheduled_run_id(run.job.id, due_at)
