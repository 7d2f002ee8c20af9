"""The pages a browser is sent to."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import quote

from fastapi import Query
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from rota.domain.errors import RotaError
from rota.server.gateway.pages import message_page, start_page
from rota.server.gateway.problems import status_of
from rota.server.gateway.sessions import open_session, set_cookie
from rota.server.gateway.wiring import Settings, open_router

router = open_router("front")
_USED = "A login link works once. `rota up` prints a new one each time it starts."


@router.get("/", include_in_schema=False)
async def show_start(settings: Settings) -> HTMLResponse:
    return HTMLResponse(start_page(settings.version))


@router.get("/runs/{run}", include_in_schema=False)
async def show_run(run: str) -> RedirectResponse:
    """Where links to a run lead, until it has a page of its own."""
    return RedirectResponse(f"/api/v1/runs/{quote(run, safe='')}", status_code=303)


@router.get("/login", include_in_schema=False)
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
