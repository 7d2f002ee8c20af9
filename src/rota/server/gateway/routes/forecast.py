"""What is coming, and what it will wait for."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query

from rota.domain.quantities import parse_duration
from rota.domain.resources import SLOTS
from rota.operations.forecasts import Question, look_ahead
from rota.server.gateway.instants import (
    FromQuery,
    ToQuery,
    ZoneQuery,
    looking_ahead,
    read_times,
    zone_given,
)
from rota.server.gateway.shapes.forecast import ForecastShape
from rota.server.gateway.shapes.models import Duration
from rota.server.gateway.wiring import NAME, Project, UsedBackends, api_router

router = api_router("forecast")

Length = Annotated[
    Duration, Query(alias="for", max_length=100, description="how far to look, without a `to`")
]
Measure = Annotated[
    str, Query(max_length=200, description="what may run out: slots, cpu, a resource, a rate limit")
]
Job = Annotated[str | None, Query(pattern=NAME, description="only this one, run by run")]


@router.get("/forecast")
async def show_forecast(
    backends: UsedBackends,
    project: Project,
    start: FromQuery = None,
    end: ToQuery = None,
    length: Length = "24h",
    measure: Measure = SLOTS,
    buckets: Annotated[int, Query(ge=1, le=1_000, description="pieces of the load")] = 288,
    job: Job = None,
    timezone: ZoneQuery = "UTC",
) -> ForecastShape:
    """When runs of a project will start, what they will wait for, and what runs out.

    At most seven days ahead. It only reads, and holds up nothing.
    """
    reading = looking_ahead(await backends.store.now(), zone_given(timezone))
    begin, until = read_times(reading, {"from": start, "to": end})
    question = Question(project, begin, until, parse_duration(length), measure, buckets, job)
    return ForecastShape.of(await look_ahead(backends, question))
