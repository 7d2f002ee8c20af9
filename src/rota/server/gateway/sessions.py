"""Logging in: a secret for a session cookie, with a bound on guessing."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from rota.domain.errors import Denied
from rota.operations.backends import Backends
from rota.operations.tokens import SESSION_LIFETIME, Caller, log_in
from rota.server.gateway.auth import cookie_name
from rota.server.gateway.logins import FailedLogins
from rota.server.gateway.settings import GatewaySettings


async def open_session(request: Request, secret: str) -> tuple[str, Caller]:
    """A new session's secret for a one-time secret or a token."""
    failed: FailedLogins = request.app.state.failed_logins
    backends: Backends = request.app.state.backends
    address = request.client.host if request.client else ""
    failed.require_room(address)
    try:
        return await log_in(backends, secret)
    except Denied:
        failed.record(address)
        raise


def set_cookie(response: Response, secret: str, settings: GatewaySettings) -> None:
    response.set_cookie(
        cookie_name(secure=settings.secure_cookies),
        secret,
        max_age=int(SESSION_LIFETIME.total_seconds()),
        path="/",
        secure=settings.secure_cookies,
        httponly=True,
        samesite="strict",
    )


def drop_cookie(response: Response, settings: GatewaySettings) -> None:
    response.delete_cookie(
        cookie_name(secure=settings.secure_cookies),
        path="/",
        secure=settings.secure_cookies,
        httponly=True,
        samesite="strict",
    )
