"""Parameters of routes: engine, project, path references, times, entity tags, bodies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Path, Query, params
from fastapi.routing import APIRoute
from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from starlette.requests import Request

from rota import __version__
from rota.domain.errors import Conflict, Invalid, Problem
from rota.domain.job import Job
from rota.domain.quantities import format_duration, parse_duration
from rota.domain.run import Run
from rota.domain.schedule.expressions import Looking, Reading, is_relative, read_instant
from rota.domain.schedule.zones import Zone, load_zone
from rota.operations.calendars import find_calendar
from rota.operations.carts import find_cart
from rota.operations.definitions import find_job, find_past_job
from rota.operations.engine import Engine
from rota.operations.runs import find_run
from rota.ports.carts import Cart
from rota.ports.records import StoredCalendar
from rota.server.gateway.auth import API
from rota.server.gateway.auth import NAME as NAME
from rota.server.gateway.auth import Project as Project
from rota.server.gateway.problems import MEDIA_TYPE
from rota.server.gateway.proxies import Network, prefix_of
from rota.server.gateway.routing import StrictRoute


@dataclass(frozen=True, slots=True)
class GatewaySettings:
    base_url: str = "http://127.0.0.1:7700"  # where people reach this server
    public_url: str = ""  # the same where it was set; "": who asks knows better
    trusted_proxies: tuple[Network, ...] = ()  # whose forwarded headers are believed
    issuer: str = ""  # the identity provider that `group:NAME` and the like are of; "": none
    version: str = __version__  # shown in the OpenAPI document and on the start page
    secure_cookies: bool = False  # True if people come by https: never sent in the clear
    max_body_bytes: int = 4 * 1024 * 1024  # a larger request is refused
    max_cart_bytes: int = 64 * 1024 * 1024  # the same for items that come line by line
    # Wrong ones of an address within `wrong_secrets_per`: for further wrong ones it has to wait.
    wrong_logins: int = 10
    wrong_secrets: int = 100  # with requests, where a program may repeat a token that has expired
    wrong_secrets_per: timedelta = timedelta(minutes=1)
    trust_tokens_for: timedelta = timedelta(seconds=5)  # before the store is asked again
    max_streams: int = 2_000  # that are open at once; further ones are refused
    max_streams_per_caller: int = 100

    def path_to(self, path: str) -> str:
        """Return the path by which a browser reaches a page, below the prefix of `public_url`."""
        return prefix_of(self.public_url) + path


_PROBLEM: dict[str, Any] = {
    "description": "a problem",
    "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/ProblemReport"}}},
}
PROBLEMS: dict[int | str, dict[str, Any]] = {"4XX": _PROBLEM, "5XX": _PROBLEM}


async def _engine(request: Request) -> Engine:
    engine: Engine = request.app.state.engine
    return engine


async def _settings(request: Request) -> GatewaySettings:
    settings: GatewaySettings = request.app.state.settings
    return settings


UsedEngine = Annotated[Engine, Depends(_engine)]
Settings = Annotated[GatewaySettings, Depends(_settings)]
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
    return await find_job(await _engine(request), job, project=project)


async def _past_job(
    request: Request,
    project: Project,
    job: Annotated[str, Path(max_length=200, description="name or id; of a deleted job too")],
) -> Job:
    return await find_past_job(await _engine(request), job, project=project)


async def _run(
    request: Request,
    project: Project,
    run: Annotated[str, Path(max_length=200, description="id, or a beginning only it has")],
) -> Run:
    return await find_run(await _engine(request), run, project=project)


CalendarName = Annotated[str, Path(pattern=NAME, description="name")]


async def _calendar(engine: UsedEngine, project: Project, calendar: CalendarName) -> StoredCalendar:
    return await find_calendar(engine, calendar, project=project)


async def _cart(
    engine: UsedEngine,
    project: Project,
    cart: Annotated[
        str,
        Path(pattern=NAME, description="id, a beginning only it has, or the name of the newest"),
    ],
) -> Cart:
    return await find_cart(engine, cart, project=project)


NamedCalendar = Annotated[StoredCalendar, Depends(_calendar)]
NamedJob = Annotated[Job, Depends(_job)]
PastJob = Annotated[Job, Depends(_past_job)]  # in service, or deleted: its history stays
NamedRun = Annotated[Run, Depends(_run)]
NamedCart = Annotated[Cart, Depends(_cart)]


class Router(APIRouter):
    """Routes about one noun. The app finds routers by this class, in any module of the gateway.

    Paths are tried one by one: busy routers come first.
    """

    def __init__(
        self,
        noun: str,
        *,
        prefix: str = "",
        dependencies: Sequence[params.Depends] = (),
        is_busy: bool = False,
        route_class: type[APIRoute] = StrictRoute,
    ) -> None:
        super().__init__(
            prefix=prefix,
            tags=[noun],
            route_class=route_class,
            responses=PROBLEMS,
            dependencies=dependencies,
        )
        self.is_busy = is_busy


def api_router(noun: str, *, is_busy: bool = False) -> Router:
    """Create a router of the API, whose routes declare what they need of their callers."""
    return Router(noun, prefix=API, is_busy=is_busy)


def open_router(noun: str, prefix: str = "") -> Router:
    """Create a router of routes outside of the API, which declare what they need all the same."""
    return Router(noun, prefix=prefix)


class Body(BaseModel):
    """Something a caller says: a key it does not have is refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def _duration(text: str) -> str:
    return format_duration(parse_duration(text))


Duration = Annotated[str, AfterValidator(_duration)]


# Times, as `domain.schedule.expressions` reads them.
_TIME = (
    "`5m`, `yesterday`, `today 14:00`, `2026-11-18`, ISO 8601; without an offset, on the clocks of"
    " the schedule's zone"
)

TimeText = Annotated[
    str, Field(max_length=100, description=_TIME, examples=["2026-06-01T22:00:00Z"])
]
FromQuery = Annotated[str | None, Query(alias="from", max_length=100, description=_TIME)]
ToQuery = Annotated[str | None, Query(alias="to", max_length=100, description=_TIME)]
ZoneQuery = Annotated[
    str,
    Query(max_length=100, description="on whose clocks days and times without an offset are"),
]


def zone_named(name: str) -> Zone | None:
    """Return the zone; None if this server does not know it: then a time needs an offset."""
    try:
        return load_zone(name)
    except ValueError:
        return None


def zone_given(name: str) -> Zone:
    """Return the zone that a request names under `timezone`; raise `Invalid` if it is unknown."""
    try:
        return load_zone(name)
    except ValueError as error:
        problem = Problem(str(error), "timezone")
        raise Invalid("the time zone cannot be read", [problem], code="malformed") from error


def zone_of(job: Job) -> Zone | None:
    return zone_named(str(job.document.get("timezone", "UTC")))


def looking_back(now: datetime, zone: Zone | None) -> Reading:
    """Return how times of the past are read: `5m` is five minutes ago."""
    return Reading(now, zone, Looking.BACK)


def looking_ahead(now: datetime, zone: Zone | None) -> Reading:
    """Return how times of the future are read: `5m` is in five minutes."""
    return Reading(now, zone, Looking.AHEAD)


def read_times(
    reading: Reading, written: Mapping[str, str | None], *, code: str = "invalid"
) -> list[datetime | None]:
    """Read the times of a request by their names, in order; raise `Invalid` with every problem."""
    found: list[datetime | None] = []
    problems: list[Problem] = []
    for name, text in written.items():
        try:
            found.append(None if text is None else read_instant(text, reading))
        except ValueError as error:
            problems.append(Problem(str(error), name))
    if problems:
        count = "a time" if len(problems) == 1 else f"{len(problems)} times"
        raise Invalid(f"{count} cannot be read", problems, code=code)
    return found


def read_range(reading: Reading, start: str, end: str | None) -> tuple[datetime, datetime | None]:
    """Read the times `from` and `to` of a request, where `from` is required."""
    first, last = read_times(reading, {"from": start, "to": end})
    assert first is not None, "it is given"
    return first, last


def times_as_written(*written: str | None) -> str:
    """Return relative times as written, for the idempotency key's digest; "" if all are absolute.

    An idempotency key belongs to one request. A minute later, `5m` is still the same request,
    though it means another instant.
    """
    texts = [text or "" for text in written]
    return " / ".join(texts) if any(map(is_relative, texts)) else ""


# Entity tags: a change is refused if the thing is no longer what its author saw.
IfMatch = Annotated[
    str, Header(alias="If-Match", max_length=200, description="the ETag that must still hold")
]


def quote(etag: str) -> str:
    """Return the tag as the ETag header has it."""
    return f'"{etag}"'


def unquote(if_match: str) -> str:
    """Return the tag that If-Match names; "" if any matches."""
    tag = if_match.strip().removeprefix("W/").strip('"')
    return "" if tag == "*" else tag


def require_match(if_match: str, etag: str) -> None:
    """Raise `Conflict` if the caller saw another version."""
    if (wanted := unquote(if_match)) and wanted != etag:
        raise Conflict(
            "it changed since you looked at it", code="etag_mismatch", hint="look at it again"
        )
