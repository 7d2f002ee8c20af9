"""Forecasts and simulations: starts to come, their waits, and the effects of a change."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from math import isinf
from typing import Annotated

import msgspec
from fastapi import Depends, Query
from pydantic import Field
from starlette.requests import Request

from rota.api import forecasts as api
from rota.api.forecasts import Comparison, SimulationReport
from rota.domain.forecast.ahead import Durations, RunAhead
from rota.domain.forecast.forecast import (
    NOTICED_SECONDS,
    Accuracy,
    Forecast,
    JobOutlook,
    Saturation,
    shortage_of,
)
from rota.domain.quantities import parse_duration
from rota.domain.resources import SLOTS
from rota.domain.simulation.report import Report, report_document
from rota.operations.forecasts import Load, Outlook, Question, look_ahead
from rota.operations.simulations import Change, simulate_change
from rota.operations.tenants import sight_of
from rota.operations.tokens import Caller
from rota.server.gateway.auth import Viewer
from rota.server.gateway.filters import CreatedBy, creator_meant
from rota.server.gateway.parameters import (
    NAME,
    Body,
    Duration,
    FromQuery,
    Project,
    ToQuery,
    UsedEngine,
    ZoneQuery,
    api_router,
    looking_ahead,
    read_times,
    zone_given,
)
from rota.server.gateway.routing import fill, refuse_gone
from rota.server.gateway.turns import Turns

router = api_router("forecast")
simulation_router = api_router("simulations")

Length = Annotated[
    Duration, Query(alias="for", max_length=100, description="how far to look, without a `to`")
]
Measure = Annotated[
    str, Query(max_length=200, description="what may run out: slots, cpu, a resource, a rate limit")
]
Job = Annotated[str | None, Query(pattern=NAME, description="only this one, run by run")]
_Name = Annotated[str, Field(pattern=NAME)]
_MOST = 100  # changes of a kind


class SimulationBody(Body):
    """A change to think about."""

    length: Annotated[Duration, Field(alias="for", max_length=100)] = "24h"
    add_workers: Annotated[
        dict[_Name, Annotated[int, Field(ge=1, le=10_000)]],
        Field(default_factory=dict, max_length=_MOST, description="how many more, by pool"),
    ]
    move: Annotated[
        dict[_Name, Annotated[str, Field(max_length=1_000)]],
        Field(default_factory=dict, max_length=_MOST, description="another schedule, by job"),
    ]
    without: Annotated[
        list[_Name],
        Field(default_factory=list, max_length=_MOST, description="jobs that would not come"),
    ]


async def _forecasts(request: Request) -> Turns:
    turns: Turns = request.app.state.forecasts
    return turns


async def _simulations(request: Request) -> Turns:
    turns: Turns = request.app.state.simulations
    return turns


@asynccontextmanager
async def _turn(turns: Turns, caller: Caller, request: Request) -> AsyncIterator[None]:
    """Wait for the caller's turn; nothing is worked out for a client that has left meanwhile."""
    async with turns.of(caller.name):
        await refuse_gone(request)
        yield


Forecasts = Annotated[Turns, Depends(_forecasts)]
Simulations = Annotated[Turns, Depends(_simulations)]


def forecast_answer(outlook: Outlook) -> api.Forecast:
    forecast = outlook.forecast
    return fill(
        api.Forecast,
        outlook,
        made_at=forecast.made_at,
        begins_at=outlook.begin,
        ends_at=outlook.end,
        cut=forecast.is_cut,
        jobs=tuple(_job_answer(forecast, entry) for entry in outlook.jobs),
        runs=tuple(_start_answer(forecast, run) for run in outlook.runs),
        load=_load_answer(forecast, outlook.load),
        saturations=tuple(_saturation_answer(forecast, it) for it in outlook.saturations),
        slow=tuple(_slow_answer(forecast, run) for run in outlook.slow),
        accuracy=_accuracy_answer(outlook.accuracy) if outlook.accuracy else None,
    )


def _job_answer(forecast: Forecast, entry: JobOutlook) -> api.JobForecast:
    first = entry.first
    return fill(
        api.JobForecast,
        entry,
        job=first.job.name,
        job_id=first.job.id,
        first_due_at=forecast.instant(first.due_at),
        first_start_at=forecast.start_of(first),
        expected=_expected_answer(first.job.durations),
        longest_wait_seconds=_rounded(entry.longest_wait),
        remark=forecast.remark(first),
    )


def _expected_answer(durations: Durations) -> api.Expected:
    return api.Expected(
        usual_seconds=_rounded(durations.usual),
        low_seconds=_rounded(durations.low),
        high_seconds=_rounded(durations.high),
        source=durations.source,
    )


def _start_answer(forecast: Forecast, run: RunAhead) -> api.ForecastStart:
    return api.ForecastStart(
        job=run.job.name,
        run=run.id,
        due_at=forecast.instant(run.due_at),
        start_at=forecast.start_of(run),
        wait_seconds=None if isinf(run.wait) else _rounded(run.wait),
        waits_for=shortage_of(run) if run.wait > NOTICED_SECONDS else "",
        remark=forecast.remark(run),
    )


def _load_answer(forecast: Forecast, load: Load) -> api.Load:
    buckets = (
        api.LoadBucket(
            at=forecast.instant(bucket.at),
            mean=round(bucket.mean, 3),
            peak=bucket.peak,
            low=round(low, 3),
            high=round(high, 3),
        )
        for bucket, low, high in zip(load.buckets, load.low, load.high, strict=True)
    )
    times = (f"{time // 60:02}:{time % 60:02}" for time in load.quiet_times)
    return api.Load(
        measure=load.measure.name,
        measures=tuple(load.measures),
        capacity=load.measure.capacity,
        peak=api.LoadPeak(at=forecast.instant(load.peak.at), amount=load.peak.peak),
        buckets=tuple(buckets),
        quiet=api.Quiet(minutes=tuple(load.quiet_minutes), times=tuple(times)),
    )


def _saturation_answer(forecast: Forecast, found: Saturation) -> api.Saturation:
    return fill(
        api.Saturation,
        found,
        begins_at=forecast.instant(found.begins_at),
        ends_at=forecast.instant(found.ends_at),
        longest_wait_seconds=_rounded(found.longest_wait),
        jobs=tuple(found.jobs),
    )


def _slow_answer(forecast: Forecast, run: RunAhead) -> api.SlowRun:
    return api.SlowRun(
        job=run.job.name,
        run=run.id or "",
        started_at=forecast.instant(run.start_at),
        ends_at=forecast.instant(run.end_at),
        expected=_expected_answer(run.job.durations),
    )


def _accuracy_answer(accuracy: Accuracy) -> api.ForecastAccuracy:
    return fill(
        api.ForecastAccuracy,
        accuracy,
        usual_error_seconds=_rounded(accuracy.usual_error.total_seconds()),
        high_error_seconds=_rounded(accuracy.high_error.total_seconds()),
    )


def _rounded(seconds: float) -> float:
    """Round to milliseconds: the forecast is not more precise."""
    return round(seconds, 3)


def _report_answer(report: Report) -> SimulationReport:
    return msgspec.convert(report_document(report), SimulationReport)


@router.get("/forecast")
async def show_forecast(
    caller: Viewer,
    request: Request,
    engine: UsedEngine,
    turns: Forecasts,
    project: Project,
    start: FromQuery = None,
    end: ToQuery = None,
    length: Length = "24h",
    measure: Measure = SLOTS,
    buckets: Annotated[int, Query(ge=1, le=1_000, description="pieces of the load")] = 288,
    job: Job = None,
    created_by: CreatedBy = None,
    timezone: ZoneQuery = "UTC",
) -> api.Forecast:
    """When runs of a project will start, what they will wait for, and what runs out.

    At most seven days ahead. It only reads, and holds up nothing.
    """
    reading = looking_ahead(await engine.store.now(), zone_given(timezone))
    begin, until = read_times(reading, {"from": start, "to": end})
    question = Question(
        project,
        begin,
        until,
        parse_duration(length),
        measure,
        buckets,
        job,
        creator_meant(caller, project, created_by),
        await sight_of(engine, caller.projects),
    )
    async with _turn(turns, caller, request):
        return forecast_answer(await look_ahead(engine, question))


@simulation_router.post("/simulations")
async def simulate(
    caller: Viewer,
    request: Request,
    engine: UsedEngine,
    turns: Simulations,
    project: Project,
    body: SimulationBody,
) -> Comparison:
    """How runs would wait and workers be used, as things are and after a change.

    At most seven days ahead. It only reads: nothing is changed, and nothing is held up.
    """
    change = Change(body.add_workers, body.move, body.without)
    sight = await sight_of(engine, caller.projects)
    length = parse_duration(body.length)
    async with _turn(turns, caller, request):
        found = await simulate_change(engine, project, change, length, sight)
    return Comparison(before=_report_answer(found.before), after=_report_answer(found.after))
