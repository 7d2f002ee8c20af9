"""Tokens of programs and workers, sessions of people, and a limit on failed logins."""

from __future__ import annotations

import math
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from datetime import timedelta
from typing import Annotated

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from rota.api import tokens as api
from rota.api.answers import Page
from rota.domain.errors import Denied, Unavailable
from rota.domain.quantities import parse_duration
from rota.operations import tokens
from rota.operations.engine import Engine
from rota.operations.tokens import SESSION_LIFETIME, Caller, log_in, log_out
from rota.ports.records import Role
from rota.server.gateway.auth import API, Admin, ShownCredential, Tokens, Viewer, cookie_name
from rota.server.gateway.parameters import (
    Body,
    Duration,
    GatewaySettings,
    Settings,
    UsedEngine,
    api_router,
    open_router,
)
from rota.server.gateway.routing import fill

_MAX_ADDRESSES = 10_000

router = api_router("tokens")
login_router = open_router("callers", prefix=API)
caller_router = api_router("callers")


class NewTokenBody(Body):
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._@-]{0,127}$")]
    role: Role
    expires_in: Duration | None = None  # None: never


class NewWorkerTokenBody(Body):
    name: Annotated[str, Field(max_length=128)]  # of the worker
    pool: Annotated[str, Field(max_length=128)] | None = None  # None: any
    expires_in: Duration | None = None  # None: never


class LoginBody(Body):
    secret: Annotated[str, Field(min_length=1, max_length=512, repr=False)]


def caller_answer(caller: Caller) -> api.Caller:
    return fill(api.Caller, caller, session=caller.token_id)


@router.get("/tokens")
async def list_tokens(actor: Admin, engine: UsedEngine) -> Page[api.Token]:
    """API tokens, newest first, without their secrets."""
    found = await tokens.list_tokens(engine)
    return Page(items=tuple(fill(api.Token, token) for token in found))


@router.post("/tokens", status_code=201)
async def create_token(actor: Admin, engine: UsedEngine, body: NewTokenBody) -> api.NewToken:
    """A new token; its secret is in this answer and never again."""
    token_id, secret = await tokens.create_token(
        engine.store,
        name=body.name,
        role=body.role,
        actor=actor.name,
        lifetime=_lifetime(body.expires_in),
    )
    return api.NewToken(id=token_id, name=body.name, role=body.role, secret=secret)


@router.delete("/tokens/{token_id}", status_code=204)
async def revoke_token(actor: Admin, engine: UsedEngine, trusted: Tokens, token_id: str) -> None:
    """End a token; here at once, on other servers within seconds."""
    await tokens.revoke_token(engine, token_id, actor=actor.name)
    trusted.forget()


@router.get("/worker_tokens")
async def list_worker_tokens(actor: Admin, engine: UsedEngine) -> Page[api.WorkerToken]:
    """Tokens of workers, newest first, without their secrets."""
    found = await tokens.list_worker_tokens(engine)
    return Page(items=tuple(fill(api.WorkerToken, token) for token in found))


@router.post("/worker_tokens", status_code=201)
async def create_worker_token(
    actor: Admin, engine: UsedEngine, body: NewWorkerTokenBody
) -> api.NewWorkerToken:
    """A new token for a worker; its secret is in this answer and never again."""
    token_id, secret = await tokens.create_worker_token(
        engine.store,
        name=body.name,
        pool=body.pool,
        actor=actor.name,
        lifetime=_lifetime(body.expires_in),
    )
    return api.NewWorkerToken(id=token_id, name=body.name, pool=body.pool, secret=secret)


@router.delete("/worker_tokens/{token_id}", status_code=204)
async def revoke_worker_token(actor: Admin, engine: UsedEngine, token_id: str) -> None:
    """End a worker's token: a worker that is connected with it is sent away at its next beat."""
    await tokens.revoke_token(engine, token_id, actor=actor.name)


def _lifetime(text: str | None) -> timedelta | None:
    return None if text is None else parse_duration(text)


class FailedLogins:
    """Recent failed logins by address; the addresses that failed longest ago are dropped first."""

    def __init__(
        self, limit: int, per: timedelta, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._limit = limit
        self._per = per.total_seconds()
        self._monotonic = monotonic
        self._failures: OrderedDict[str, deque[float]] = OrderedDict()

    def require_room(self, address: str) -> None:
        """Raise `Unavailable` while the address has too many failed logins."""
        failures = self._failures.get(address)
        if not failures or len(failures) < self._limit:
            return
        wait = failures[0] + self._per - self._monotonic()
        if wait > 0:
            raise Unavailable(
                "too many failed logins from this address",
                code="too_many_logins",
                hint="wait a little and try again",
                facts={"retry_after_seconds": math.ceil(wait)},
            )

    def record(self, address: str) -> None:
        """Record a failed login of this address."""
        failures = self._failures.setdefault(address, deque(maxlen=self._limit))
        failures.append(self._monotonic())
        self._failures.move_to_end(address)
        if len(self._failures) > _MAX_ADDRESSES:
            self._failures.popitem(last=False)


async def open_session(request: Request, secret: str) -> tuple[str, Caller]:
    """Open a session for a one-time secret or a token; return its secret and caller."""
    failed: FailedLogins = request.app.state.failed_logins
    engine: Engine = request.app.state.engine
    address = request.client.host if request.client else ""
    failed.require_room(address)
    try:
        return await log_in(engine, secret)
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


@login_router.post("/login")
async def create_session(
    request: Request, response: Response, settings: Settings, body: LoginBody
) -> api.Caller:
    """Trade a one-time secret or a token for a session cookie."""
    secret, caller = await open_session(request, body.secret)
    set_cookie(response, secret, settings)
    return caller_answer(caller)


@caller_router.post("/logout", status_code=204)
async def end_session(
    caller: Viewer,
    credential: ShownCredential,
    engine: UsedEngine,
    trusted: Tokens,
    settings: Settings,
    response: Response,
) -> None:
    """End the session of the cookie; a token that was shown instead stays."""
    if credential.is_cookie:
        await log_out(engine, caller)
        trusted.forget()
    drop_cookie(response, settings)


@caller_router.get("/whoami")
async def show_caller(caller: Viewer) -> api.Caller:
    """Who the server takes the caller for."""
    return caller_answer(caller)
