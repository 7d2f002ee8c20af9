"""Pages beside the API: documents, health, and where links to runs and carts lead."""

from __future__ import annotations

import time
import urllib.parse
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from html import escape
from typing import Annotated, Any

from fastapi import Path
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response

from rota.api.answers import Health
from rota.domain.errors import Unavailable
from rota.domain.jobfile import json_schema
from rota.domain.spec import DEFAULT_PROJECT
from rota.operations.engine import Engine
from rota.ports.carts import CartQuery
from rota.ports.records import RunQuery
from rota.server.gateway import html, metrics
from rota.server.gateway.auth import API, Known, Monitor
from rota.server.gateway.filters import ACTIVE_CART_STATES
from rota.server.gateway.openapi import openapi_document
from rota.server.gateway.parameters import (
    GatewaySettings,
    Settings,
    UsedEngine,
    api_router,
    open_router,
)
from rota.server.gateway.proxies import in_project

router = api_router("documents")
front_router = open_router("front")


def docs_page(document: Mapping[str, Any], prefix: str = "") -> str:
    """Render every operation of an OpenAPI document as a page."""
    rows = "".join(_rows(document))
    return html.page(
        f"{document['info']['title']} {document['info']['version']}",
        f'<p>For programs: <a href="{prefix}{API}/openapi.json">openapi.json</a> (OpenAPI 3.1).</p>'
        f"<table><tr><th>method</th><th>path</th><th>role</th><th>what</th></tr>{rows}</table>",
        prefix,
        wide=True,
    )


def _rows(document: Mapping[str, Any]) -> Iterator[str]:
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            what = operation.get("description") or operation.get("summary", "")
            cells = (method.upper(), path, operation.get("x-rota-role", "–"), what)
            yield "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>"


@router.get("/schema")
async def show_job_file_schema(caller: Known) -> dict[str, Any]:
    """The JSON Schema of the job file."""
    return _job_file_schema()


@cache
def _job_file_schema() -> dict[str, Any]:
    return dict(json_schema())


@router.get("/openapi.json")
async def show_openapi(caller: Known, request: Request, settings: Settings) -> dict[str, Any]:
    """This API, as OpenAPI 3.1."""
    return openapi_document(request.app, settings)


@router.get("/docs", response_class=HTMLResponse)
async def show_docs(caller: Known, request: Request, settings: Settings) -> str:
    """This API, for people."""
    return docs_page(openapi_document(request.app, settings), settings.path_to(""))


_Id = Annotated[str, Path(max_length=200)]


@front_router.get("/runs/{run}", include_in_schema=False)
async def show_run(
    caller: Known, engine: UsedEngine, settings: Settings, run: _Id
) -> RedirectResponse:
    """Where links to a run lead, until it has a page of its own."""
    found = await engine.store.runs(RunQuery(project=caller.projects, ids=[run]))
    return _answered("runs", run, [each.project for each in found], settings)


@front_router.get("/carts/{cart}", include_in_schema=False)
async def show_cart(
    caller: Known, engine: UsedEngine, settings: Settings, cart: _Id
) -> RedirectResponse:
    """Where links to a cart lead, until it has a page of its own."""
    found = await engine.store.carts(CartQuery(project=caller.projects, ids=[cart]))
    return _answered("carts", cart, [each.project for each in found], settings)


def _answered(
    noun: str, name: str, projects: Sequence[str], settings: GatewaySettings
) -> RedirectResponse:
    """Lead to the answer of the API, in the project of the caller's that has it."""
    path = f"{API}/{noun}/{urllib.parse.quote(name, safe='')}"
    project = projects[0] if projects else DEFAULT_PROJECT  # which says that it is not there
    return RedirectResponse(settings.path_to(in_project(path, project)), status_code=303)


_GOOD_FOR_SECONDS = 1.0

health_router = open_router("health")


class Readiness:
    """Checks that the store can be written, at most once a second: anyone may ask.

    `hindrance` returns what else keeps this server from its roles; "" when nothing does.
    """

    def __init__(
        self,
        engine: Engine,
        monotonic: Callable[[], float] = time.monotonic,
        hindrance: Callable[[], str] = str,
    ) -> None:
        self._engine = engine
        self._hindrance = hindrance
        self._monotonic = monotonic
        self._checked_at = float("-inf")
        self._error: Unavailable | None = None

    async def require(self) -> None:
        """Raise `Unavailable` unless nothing hinders it and the store can be read and written."""
        if why := self._hindrance():
            raise Unavailable(why, code="not_ready")
        now = self._monotonic()
        if now - self._checked_at >= _GOOD_FOR_SECONDS:
            self._checked_at = now
            self._error = await self._check()
        if self._error is not None:
            raise self._error

    async def _check(self) -> Unavailable | None:
        try:
            await self._engine.store.check()
        except Unavailable as error:
            return error
        return None


@health_router.get("/livez")
async def check_life() -> Health:
    """Whether the process answers."""
    return Health(status="ok")


@health_router.get("/readyz")
async def check_readiness(request: Request) -> Health:
    """Whether this server can do what its roles ask: 503 before, while it stops, and without the
    store."""
    readiness: Readiness = request.app.state.readiness
    await readiness.require()
    return Health(status="ready")


@health_router.get(
    "/metrics",
    response_class=PlainTextResponse,
)
async def show_metrics(caller: Monitor, request: Request, engine: UsedEngine) -> Response:
    """Metrics in the text format of Prometheus."""
    counts = await engine.store.counts()
    now = await engine.store.now()
    active = CartQuery(states=sorted(ACTIVE_CART_STATES), limit=metrics.MAX_CARTS + 1)
    carts = await engine.store.carts(active)
    shortages = engine.ahead.shortages.seconds_ahead(now)
    present = metrics.Present(now, counts, carts, shortages)
    text = metrics.render(present, request.app.state.requests)
    return Response(text, media_type=metrics.CONTENT_TYPE)
