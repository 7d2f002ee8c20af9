"""Pages beside the API: the front page, documents, health.

Pages are plain HTML, with no scripts and nothing from other hosts.
"""

from __future__ import annotations

import time
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from html import escape
from typing import Annotated, Any

from fastapi import Query
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response

from rota.api.answers import Health
from rota.domain.errors import RotaError, Unavailable
from rota.domain.jobfile import json_schema
from rota.operations.engine import Engine
from rota.ports.carts import CartQuery
from rota.server.gateway import metrics
from rota.server.gateway.auth import API
from rota.server.gateway.filters import ACTIVE_CART_STATES
from rota.server.gateway.openapi import openapi_document
from rota.server.gateway.parameters import Settings, UsedEngine, api_router, open_router
from rota.server.gateway.problems import status_of
from rota.server.gateway.tokens import open_session, set_cookie

router = api_router("documents")
front_router = open_router("front")
_USED = "A login link works once. `rota up` prints a new one each time it starts."


def start_page(version: str) -> str:
    return _page(
        "Rota is running",
        f"<p>Version {escape(version)}. The web interface is not part of this version.</p>"
        f'<p>The API is described in <a href="{API}/docs">{API}/docs</a>.</p>'
        "<p>In a terminal: <code>rota job list</code>, <code>rota run list</code>, "
        "<code>rota --help</code>.</p>",
    )


def message_page(title: str, text: str) -> str:
    return _page(title, f"<p>{escape(text)}</p>")


def docs_page(document: Mapping[str, Any]) -> str:
    """Render every operation of an OpenAPI document as a page."""
    rows = "".join(_rows(document))
    return _page(
        f"{document['info']['title']} {document['info']['version']}",
        f'<p>For programs: <a href="{API}/openapi.json">openapi.json</a> (OpenAPI 3.1).</p>'
        f"<table><tr><th>method</th><th>path</th><th>role</th><th>what</th></tr>{rows}</table>",
    )


def _rows(document: Mapping[str, Any]) -> Iterator[str]:
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            what = operation.get("description") or operation.get("summary", "")
            cells = (method.upper(), path, operation.get("x-rota-role", "–"), what)
            yield "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>"


def _page(title: str, body: str) -> str:
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f"</head><body><h1>{escape(title)}</h1>{body}</body></html>"
    )


@router.get("/schema")
async def show_job_file_schema() -> dict[str, Any]:
    """The JSON Schema of the job file."""
    return _job_file_schema()


@cache
def _job_file_schema() -> dict[str, Any]:
    return dict(json_schema())


@router.get("/openapi.json")
async def show_openapi(request: Request, settings: Settings) -> dict[str, Any]:
    """This API, as OpenAPI 3.1."""
    return openapi_document(request.app, settings)


@router.get("/docs", response_class=HTMLResponse)
async def show_docs(request: Request, settings: Settings) -> str:
    """This API, for people."""
    return docs_page(openapi_document(request.app, settings))


@front_router.get("/", include_in_schema=False)
async def show_start(settings: Settings) -> HTMLResponse:
    return HTMLResponse(start_page(settings.version))


@front_router.get("/runs/{run}", include_in_schema=False)
async def show_run(run: str) -> RedirectResponse:
    """Where links to a run lead, until it has a page of its own."""
    return RedirectResponse(f"/api/v1/runs/{urllib.parse.quote(run, safe='')}", status_code=303)


@front_router.get("/carts/{cart}", include_in_schema=False)
async def show_cart(cart: str) -> RedirectResponse:
    """Where links to a cart lead, until it has a page of its own."""
    return RedirectResponse(f"/api/v1/carts/{urllib.parse.quote(cart, safe='')}", status_code=303)


@front_router.get("/login", include_in_schema=False)
async def follow_login_link(
    request: Request, settings: Settings, token: Annotated[str, Query(max_length=512)] = ""
) -> Response:
    """The one-time link: the only place that takes a secret in an address."""
    try:
        secret, _ = await open_session(request, token)
    except RotaError as error:
        page = message_page("Not logged in", f"{error.message}. {_USED}")
        return HTMLResponse(page, status_of(error))
    response = RedirectResponse("/", status_code=303)
    set_cookie(response, secret, settings)
    return response


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
async def show_metrics(request: Request, engine: UsedEngine) -> Response:
    """Metrics in the text format of Prometheus."""
    counts = await engine.store.counts()
    now = await engine.store.now()
    active = CartQuery(states=sorted(ACTIVE_CART_STATES), limit=metrics.MAX_CARTS + 1)
    carts = await engine.store.carts(active)
    shortages = engine.ahead.shortages.seconds_ahead(now)
    present = metrics.Present(now, counts, carts, shortages)
    text = metrics.render(present, request.app.state.requests)
    return Response(text, media_type=metrics.CONTENT_TYPE)
