"""Logging in and out, and who is logged in."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from rota.operations.tokens import log_out
from rota.server.gateway.auth import API, ShownCredential, Tokens, Viewer
from rota.server.gateway.sessions import drop_cookie, open_session, set_cookie
from rota.server.gateway.shapes.token import CallerShape, LoginBody
from rota.server.gateway.wiring import Settings, UsedBackends, api_router, open_router

login_router = open_router("callers", prefix=API)
router = api_router("callers")


@login_router.post("/login")
async def create_session(
    request: Request, response: Response, settings: Settings, body: LoginBody
) -> CallerShape:
    """Trade a one-time secret or a token for a session cookie."""
    secret, caller = await open_session(request, body.secret)
    set_cookie(response, secret, settings)
    return CallerShape.of(caller)


@router.post("/logout", status_code=204)
async def end_session(
    caller: Viewer,
    credential: ShownCredential,
    backends: UsedBackends,
    trusted: Tokens,
    settings: Settings,
    response: Response,
) -> None:
    """End the session of the cookie; a token that was shown instead stays."""
    if credential.is_cookie:
        await log_out(backends, caller)
        trusted.forget()
    drop_cookie(response, settings)


@router.get("/whoami")
async def show_caller(caller: Viewer) -> CallerShape:
    """Who the server takes the caller for."""
    return CallerShape.of(caller)
