"""What is coming: when runs will start, and what they will wait for."""

from __future__ import annotations

import asyncio
import gc
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from operator import attrgetter
from typing import ParamSpec, TypeVar

from rota.domain.forecast.ahead import RunAhead
from rota.domain.forecast.forecast import Forecast
from rota.domain.forecast.placing import place
from rota.domain.ids import JobId
from rota.operations.backends import Backends
from rota.operations.forecast_inputs import Inputs, read_inputs
from rota.operations.forecast_program import assemble

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


async def make_forecast(backends: Backends, ahead: timedelta) -> Forecast:
    """Look so far ahead, with what is known now. Locks nothing, and holds up no loop."""
    until = await backends.store.now() + ahead
    return await beside_the_loop(forecast_from, await read_inputs(backends, until))


async def upcoming_jobs(
    backends: Backends, project: str, within: timedelta
) -> tuple[Forecast, list[UpcomingJob]]:
    """The jobs of a project that are due in the time to come, by the first of their due times.

    At most 1,000 jobs with 100 due times each.
    """
    forecast = await latest_forecast(backends, within)
    due = [run for run in forecast.runs if _is_due(run, project, within.total_seconds())]
    by_job: dict[JobId, list[RunAhead]] = defaultdict(list)
    for run in sorted(due, key=attrgetter("due_at")):
        by_job[run.job.id].append(run)
    return forecast, [_upcoming(runs) for runs in by_job.values()][:_MOST_JOBS]


async def beside_the_loop(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Do what takes long in a thread, without looking for garbage.

    So many small objects are made, none of them in a ring, that to look at them all again and again
    would take as long as to make them.
    """
    gc.disable()
    try:
        return await asyncio.to_thread(work, *args, **kwargs)
    finally:
        gc.enable()


async def latest_forecast(backends: Backends, ahead: timedelta) -> Forecast:
    """A forecast that looks so far at least, and is fresh enough."""
    return await backends.forecast.get(ahead, lambda ahead: make_forecast(backends, ahead))


def forecast_from(inputs: Inputs) -> Forecast:
    """The forecast that follows from what was read. Takes a while where there is much to come."""
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
    """Whether it is a due time to come, not a run that is there already or an item of a cart."""
    return (
        run.due_at < before
        and run.id is None
        and run.job.cart is None
        and (run.job.project == project)
    )
