"""What routes are given: the backends, the project, and the things their paths name."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Path, Query
from starlette.requests import Request

from rota.domain.job import Job
from rota.domain.run import Run
from rota.operations.backends import Backends
from rota.operations.calendars import find_calendar
from rota.operations.carts import find_cart
from rota.operations.definitions import find_job, find_past_job
from rota.operations.runs import find_run
from rota.ports.carts import Cart
from rota.ports.records import StoredCalendar
from rota.server.gateway.auth import API
from rota.server.gateway.problems import MEDIA_TYPE
from rota.server.gateway.settings import GatewaySettings
from rota.server.gateway.strictness import StrictRoute

NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$"
_PROBLEM: dict[str, Any] = {
    "description": "a problem",
    "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/ProblemReport"}}},
}
PROBLEMS: dict[int | str, dict[str, Any]] = {"4XX": _PROBLEM, "5XX": _PROBLEM}


async def _backends(request: Request) -> Backends:
    backends: Backends = request.app.state.backends
    return backends


async def _settings(request: Request) -> GatewaySettings:
    settings: GatewaySettings = request.app.state.settings
    return settings


async def _project(
    project: Annotated[str, Query(pattern=NAME, description="the project")] = "default",
) -> str:
    return project


UsedBackends = Annotated[Backends, Depends(_backends)]
Settings = Annotated[GatewaySettings, Depends(_settings)]
Project = Annotated[str, Depends(_project)]
IdempotencyKey = Annotated[
    str,
    Header(
        alias="Idempotency-Key",
        pattern=r"^[\x21-\x7e]{0,200}$",
        description="the same key and body again give the same answer",
    ),
]


async def _job(
    request: Request,
    project: Project,
    job: Annotated[str, Path(max_length=200, description="name or id")],
) -> Job:
    return await find_job(await _backends(request), job, project=project)


async def _past_job(
    request: Request,
    project: Project,
    job: Annotated[str, Path(max_length=200, description="name or id; of a deleted job too")],
) -> Job:
    return await find_past_job(await _backends(request), job, project=project)


async def _run(
    request: Request,
    project: Project,
    run: Annotated[str, Path(max_length=200, description="id, or a beginning only it has")],
) -> Run:
    return await find_run(await _backends(request), run, project=project)


CalendarName = Annotated[str, Path(pattern=NAME, description="name")]


async def _calendar(
    backends: UsedBackends, project: Project, calendar: CalendarName
) -> StoredCalendar:
    return await find_calendar(backends, calendar, project=project)


async def _cart(
    backends: UsedBackends,
    project: Project,
    cart: Annotated[
        str,
        Path(pattern=NAME, description="id, a beginning only it has, or the name of the newest"),
    ],
) -> Cart:
    return await find_cart(backends, cart, project=project)


NamedCalendar = Annotated[StoredCalendar, Depends(_calendar)]
NamedJob = Annotated[Job, Depends(_job)]
PastJob = Annotated[Job, Depends(_past_job)]  # in service, or deleted: its history stays
NamedRun = Annotated[Run, Depends(_run)]
NamedCart = Annotated[Cart, Depends(_cart)]


def api_router(noun: str) -> APIRouter:
    """Routes of the API: every one takes a project, and a viewer unless it says `Needs`."""
    return APIRouter(
        prefix=API,
        tags=[noun],
        route_class=StrictRoute,
        responses=PROBLEMS,
        dependencies=[Depends(_project)],
    )


def open_router(noun: str, prefix: str = "") -> APIRouter:
    """Routes that see to their callers themselves, or take anyone's."""
    return APIRouter(prefix=prefix, tags=[noun], route_class=StrictRoute, responses=PROBLEMS)
