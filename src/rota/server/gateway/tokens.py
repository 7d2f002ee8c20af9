"""Tokens of programs and workers, and sessions of people."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Annotated, TypeVar

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from rota.api import tokens as api
from rota.api.answers import Answer, Page
from rota.domain.access import ProjectSet, Role, TokenTerms, Verb, highest
from rota.domain.errors import Denied
from rota.domain.quantities import parse_duration
from rota.operations import credentials, tokens
from rota.operations.engine import Engine
from rota.operations.logins import logout_address
from rota.operations.tokens import Caller, log_in, log_out
from rota.operations.wrong_secrets import WrongSecrets
from rota.ports.records import Token
from rota.server.gateway.auth import (
    API,
    Admin,
    InstallationAdmin,
    Known,
    Managed,
    ShownCredential,
    Tokens,
    address_of,
    cookie_name,
)
from rota.server.gateway.filters import Cursor, Limit, decode_age, encode_age, page
from rota.server.gateway.parameters import (
    Body,
    Duration,
    GatewaySettings,
    Project,
    Settings,
    UsedEngine,
    api_router,
    open_router,
)
from rota.server.gateway.routing import fill

A = TypeVar("A", bound=Answer)

router = api_router("tokens")
login_router = open_router("callers", prefix=API)
caller_router = api_router("callers")


class NewTokenBody(Body):
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._@-]{0,127}$")]
    role: Role
    installation: bool = False  # for all projects, and what belongs to none; else for the project
    verbs: Annotated[list[Verb], Field(min_length=1)] | None = None  # nothing else; None: any
    expires_in: Duration | None = None  # None: never


class NewWorkerTokenBody(Body):
    name: Annotated[str, Field(max_length=128)]  # of the worker
    pool: Annotated[str, Field(max_length=128)] | None = None  # None: any
    expires_in: Duration | None = None  # None: never


class NewJoinTokenBody(Body):
    pool: Annotated[str, Field(max_length=128)] | None = None  # None: any
    uses: Annotated[int, Field(ge=1, le=credentials.MAX_USES)] = 1
    expires_in: Duration = "1h"


class LoginBody(Body):
    secret: Annotated[str, Field(max_length=512, repr=False)] = ""


def caller_answer(caller: Caller) -> api.Caller:
    rights = caller.rights
    roles = rights.by_scope()
    return api.Caller(
        name=caller.name,
        kind=caller.kind or "service",
        role=highest(*roles.values()) or "",
        roles=roles,
        project=rights.project,
        verbs=_verbs(rights.verbs),
        session=caller.token_id,
        expires_at=caller.expires_at,
    )


def token_answer(token: Token) -> api.Token:
    return fill(api.Token, token, verbs=_verbs(token.verbs))


def _verbs(verbs: frozenset[Verb] | None) -> tuple[str, ...] | None:
    return None if verbs is None else tuple(sorted(verbs))


@router.get("/tokens")
async def list_tokens(
    projects: Managed, engine: UsedEngine, limit: Limit = 100, cursor: Cursor = None
) -> Page[api.Token]:
    """API tokens that the caller may revoke, newest first, without their secrets."""
    return await _page(engine, "api", token_answer, limit, cursor, project=projects)


@router.post("/tokens", status_code=201)
async def create_token(
    actor: Admin, engine: UsedEngine, project: Project, body: NewTokenBody
) -> api.NewToken:
    """A new token for the project, or the installation; its secret is in this answer only.

    It acts for a service of its name, which is made with it.
    """
    verbs = None if body.verbs is None else frozenset(body.verbs)
    terms = TokenTerms(None if body.installation else project, verbs, _lifetime(body.expires_in))
    token_id, secret = await tokens.grant_token(
        engine, actor, name=body.name, role=body.role, terms=terms
    )
    return api.NewToken(
        id=token_id,
        name=body.name,
        role=body.role,
        project=terms.project,
        verbs=_verbs(verbs),
        secret=secret,
    )


@router.delete("/tokens/{token_id}", status_code=204)
async def revoke_token(
    projects: Managed, request: Request, engine: UsedEngine, trusted: Tokens, token_id: str
) -> None:
    """End a token; here at once, on other servers within seconds."""
    caller: Caller = request.state.caller
    await tokens.revoke_token(engine, token_id, actor=caller.name, project=projects)
    trusted.forget()


@router.get("/worker_tokens")
async def list_worker_tokens(
    actor: InstallationAdmin, engine: UsedEngine, limit: Limit = 100, cursor: Cursor = None
) -> Page[api.WorkerToken]:
    """Tokens of workers, newest first, without their secrets."""
    return await _page(engine, "worker", partial(fill, api.WorkerToken), limit, cursor)


@router.post("/worker_tokens", status_code=201)
async def create_worker_token(
    actor: InstallationAdmin, engine: UsedEngine, body: NewWorkerTokenBody
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
async def revoke_worker_token(actor: InstallationAdmin, engine: UsedEngine, token_id: str) -> None:
    """End a worker's token: it gets nothing more, and what it holds ends with its lease."""
    await tokens.revoke_token(engine, token_id, actor=actor.name)


@router.get("/join_tokens")
async def list_join_tokens(
    actor: InstallationAdmin, engine: UsedEngine, limit: Limit = 100, cursor: Cursor = None
) -> Page[api.JoinToken]:
    """Tokens by which workers join, newest first, without their secrets."""
    return await _page(engine, "join", partial(fill, api.JoinToken), limit, cursor)


@router.post("/join_tokens", status_code=201)
async def create_join_token(
    actor: InstallationAdmin, engine: UsedEngine, body: NewJoinTokenBody
) -> api.NewJoinToken:
    """A new token by which workers join; its secret is in this answer and never again."""
    token_id, secret = await credentials.create_join_token(
        engine.store,
        actor=actor.name,
        pool=body.pool,
        uses=body.uses,
        lifetime=parse_duration(body.expires_in),
    )
    return api.NewJoinToken(id=token_id, pool=body.pool, uses=body.uses, secret=secret)


@router.delete("/join_tokens/{token_id}", status_code=204)
async def revoke_join_token(actor: InstallationAdmin, engine: UsedEngine, token_id: str) -> None:
    """End a join token; workers that have joined with it stay."""
    await tokens.revoke_token(engine, token_id, actor=actor.name)


async def _page(
    engine: Engine,
    kind: str,
    answer: Callable[[Token], A],
    limit: int,
    cursor: str | None,
    *,
    project: ProjectSet = None,
) -> Page[A]:
    word = f"{kind} tokens"
    before = decode_age(word, cursor)
    found = await engine.store.tokens(kind, project, before=before, limit=limit + 1)
    return page(found, limit, answer, lambda it: encode_age(word, it.created_at, it.id))


def _lifetime(text: str | None) -> timedelta | None:
    return None if text is None else parse_duration(text)


async def open_session(request: Request, secret: str, *, takes_tokens: bool) -> tuple[str, Caller]:
    """Open a session for a one-time secret, or a token; return its secret and caller."""
    wrong: WrongSecrets = request.app.state.wrong_logins
    engine: Engine = request.app.state.engine
    try:
        return await log_in(engine, secret, takes_tokens=takes_tokens)
    except Denied:
        wrong.note(address_of(request), secret)
        raise


def set_cookie(
    response: Response, secret: str, settings: GatewaySettings, lifetime: timedelta
) -> None:
    response.set_cookie(
        cookie_name(secure=settings.secure_cookies),
        secret,
        max_age=int(lifetime.total_seconds()),
        path="/",
        secure=settings.secure_cookies,
        httponly=True,
        samesite="lax",  # a strict one is not sent when the provider leads back here
    )


def drop_cookie(response: Response, settings: GatewaySettings) -> None:
    response.delete_cookie(
        cookie_name(secure=settings.secure_cookies),
        path="/",
        secure=settings.secure_cookies,
        httponly=True,
        samesite="lax",
    )


@login_router.post("/login")
async def create_session(
    request: Request,
    response: Response,
    settings: Settings,
    engine: UsedEngine,
    body: LoginBody,
) -> api.Caller:
    """Trade a one-time secret or a token for a session cookie.

    Without one, the answer names the page where people log in.
    """
    if not body.secret:
        raise Denied(
            "people log in with a browser",
            code="bad_credentials",
            hint=f"open {settings.base_url}/login",
        )
    secret, caller = await open_session(request, body.secret, takes_tokens=True)
    set_cookie(response, secret, settings, engine.logins.lifetime)
    return caller_answer(caller)


@caller_router.post("/logout", status_code=204)
async def end_session(
    caller: Known,
    credential: ShownCredential,
    engine: UsedEngine,
    trusted: Tokens,
    settings: Settings,
    response: Response,
) -> None:
    """End the session of the cookie, or of a terminal; a token of a program stays.

    The header `Rota-Logout-Address` says where a browser ends its session with the identity
    provider, too.
    """
    if credential.is_cookie:
        return_to = f"{settings.base_url}/logged-out"
        if address := await logout_address(engine, caller.token_id, return_to):
            response.headers["Rota-Logout-Address"] = address
    if caller.via in ("session", "terminal"):
        await log_out(engine, caller)
        trusted.forget()
    drop_cookie(response, settings)


@caller_router.get("/whoami")
async def show_caller(caller: Known) -> api.Caller:
    """Who the server takes the caller for."""
    return caller_answer(caller)
