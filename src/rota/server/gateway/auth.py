"""Authentication and roles. Closed by default: paths that are not in `OPEN` need a credential."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Annotated

from fastapi import Depends
from starlette.requests import HTTPConnection, Request
from starlette.types import ASGIApp, Receive, Scope, Send

from rota.domain.errors import Denied
from rota.operations.engine import Engine
from rota.operations.tokens import Caller, authenticate, digest, invalid_token
from rota.ports.records import Role

API = "/api/v1"
OPEN = frozenset(
    {("GET", "/livez"), ("GET", "/readyz"), ("GET", "/login"), ("POST", f"{API}/login")}
)
REQUEST_HEADER = "X-Rota-Request"  # no foreign page can make a browser send it
_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_MAX_SECRET = 512
_MAX_TRUSTED = 1_000


@dataclass(frozen=True, slots=True)
class Credential:
    """Credential that a request carries."""

    secret: str = field(repr=False)
    is_cookie: bool


class TrustedTokens:
    """Cache of secrets and their owners, read from the store and kept for a moment."""

    def __init__(
        self,
        engine: Engine,
        trust_for: timedelta,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._engine = engine
        self._trust_for = trust_for.total_seconds()
        self._monotonic = monotonic
        self._callers: dict[str, tuple[Caller, float]] = {}
        self._revocations = 0

    async def caller(self, secret: str) -> Caller:
        """Return the owner of this secret; raise `Denied` if there is none."""
        if len(secret) > _MAX_SECRET:
            raise invalid_token(secret)
        key, now = digest(secret), self._monotonic()
        known = self._callers.get(key)
        if known and known[1] > now:
            return known[0]
        revocations = self._revocations
        caller = await authenticate(self._engine, secret)
        # A token that was revoked since the look began may have been read before: it is not kept.
        if revocations == self._revocations:
            # From `now`, before the look: a slow store does not prolong the life of a token.
            self._keep(key, caller, now + self._trust_for)
        return caller

    def forget(self) -> None:
        """Clear the cache, because a token was revoked here; call it after the commit."""
        self._revocations += 1
        self._callers.clear()

    def _keep(self, key: str, caller: Caller, until: float) -> None:
        if len(self._callers) >= _MAX_TRUSTED:
            self._callers.clear()
        self._callers[key] = (caller, until)


class Authentication:
    """Middleware that refuses unknown callers, whatever the path looks like."""

    def __init__(self, app: ASGIApp, tokens: TrustedTokens, cookie: str) -> None:
        self._app = app
        self._tokens = tokens
        self._cookie = cookie

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and (scope["method"], scope["path"]) not in OPEN:
            credential = self._credential(HTTPConnection(scope))
            scope["state"]["credential"] = credential
            scope["state"]["caller"] = await self._tokens.caller(credential.secret)
            _refuse_forged(scope["method"], HTTPConnection(scope), credential)
        await self._app(scope, receive, send)

    def _credential(self, connection: HTTPConnection) -> Credential:
        scheme, _, secret = connection.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and secret:
            return Credential(secret.strip(), is_cookie=False)
        if secret := connection.cookies.get(self._cookie, ""):
            return Credential(secret, is_cookie=True)
        raise Denied(
            "not logged in",
            code="unauthenticated",
            hint="set both ROTA_TOKEN and ROTA_URL, or open the login link that rota up printed",
        )


def _refuse_forged(method: str, connection: HTTPConnection, credential: Credential) -> None:
    # Browsers add the cookie to requests that other sites make, but not a header of our own.
    is_change = method not in _SAFE_METHODS
    if credential.is_cookie and is_change and connection.headers.get(REQUEST_HEADER) != "1":
        raise Denied(
            "a change with a session cookie needs proof that it was meant",
            code="forged",
            hint=f"send the header {REQUEST_HEADER}: 1",
        )


def cookie_name(*, secure: bool) -> str:
    """Return the cookie's name; only this host can set a `__Host-` cookie, over TLS."""
    return "__Host-rota_session" if secure else "rota_session"


@dataclass(frozen=True, slots=True)
class Needs:
    """Dependency that returns the caller, who must have at least this role.

    Every known caller is a viewer.
    """

    role: Role

    async def __call__(self, request: Request) -> Caller:
        caller: Caller = request.state.caller
        caller.require(self.role)
        return caller


async def _credential(request: Request) -> Credential:
    credential: Credential = request.state.credential
    return credential


async def _trusted_tokens(request: Request) -> TrustedTokens:
    tokens: TrustedTokens = request.app.state.tokens
    return tokens


Viewer = Annotated[Caller, Depends(Needs(Role.VIEWER))]
Operator = Annotated[Caller, Depends(Needs(Role.OPERATOR))]
Editor = Annotated[Caller, Depends(Needs(Role.EDITOR))]
Admin = Annotated[Caller, Depends(Needs(Role.ADMIN))]
ShownCredential = Annotated[Credential, Depends(_credential)]
Tokens = Annotated[TrustedTokens, Depends(_trusted_tokens)]
