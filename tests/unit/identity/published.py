"""A small provider inside the test's process, which does as it is told, also what is wrong."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import httpx
from joserfc import jws
from joserfc.jwk import RSAKey
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from rota.domain.identity import ProviderRules
from rota.identity.oidc import OidcClient, OidcProvider

ISSUER = "http://localhost:4000"
AUDIENCE = "https://rota.example.org"
RULES = ProviderRules(ISSUER, "rota", audience=AUDIENCE, groups_claim="/groups")


@cache
def key(name: str) -> RSAKey:
    """A key of this name; the same one each time, as they take a while to make."""
    return RSAKey.generate_key(2048, {"kid": name, "use": "sig"}, private=True)


@dataclass
class PublishedProvider:
    rules: ProviderRules = RULES
    secret: str = "s3cret:with/signs"
    keys: list[RSAKey] = field(default_factory=lambda: [key("k1")])
    other_keys: list[Any] = field(default_factory=list)
    document: dict[str, Any] = field(default_factory=dict)  # changes to what it publishes
    users: dict[str, dict[str, Any]] = field(
        default_factory=lambda: {"ann": {"preferred_username": "ann", "groups": ["admins"]}}
    )
    refusal: tuple[int, dict[str, Any]] | None = None  # of the token endpoint
    instead: Response | None = None  # of whatever it would say
    is_away: bool = False
    is_mute: bool = False  # it takes the question, and never answers
    asked: list[str] = field(default_factory=list)  # paths
    codes: dict[str, dict[str, str]] = field(default_factory=dict)  # by code: user, nonce …
    refresh_tokens: dict[str, str] = field(default_factory=dict)  # users, each usable once
    clock: float = 0.0  # monotonic, of the adapter
    now: int = 0  # its own clock, in seconds since 1970; 0: the machine's

    @asynccontextmanager
    async def open(self) -> AsyncIterator[OidcProvider]:
        transport = httpx.ASGITransport(self.app())
        client = OidcClient(self.rules, self.secret)
        async with httpx.AsyncClient(transport=transport, follow_redirects=False) as http:
            yield OidcProvider(client, http, lambda: self.clock)

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/.well-known/openid-configuration", self._discovery),
                Route("/jwks", self._jwks),
                Route("/token", self._token, methods=["POST"]),
            ]
        )

    def log_in(self, address: str, user: str = "ann", **changes: str) -> dict[str, str]:
        """Let a person in whom Rota has sent here; return what they bring back."""
        asked = {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}
        code = f"code {len(self.codes)}"
        self.codes[code] = {**asked, "user": user, **changes}
        return {"state": asked["state"], "code": code}

    def sign(self, claims: dict[str, Any], by: RSAKey | None = None, **header: Any) -> str:
        signer = by or self.keys[0]
        protected = {"alg": "RS256", "kid": signer.kid, "typ": "JWT", **header}
        told = {name: value for name, value in protected.items() if value is not None}
        return jws.serialize_compact(told, json.dumps(claims), signer)

    def claims(self, user: str = "ann", **changes: Any) -> dict[str, Any]:
        now = self.now or int(time.time())  # noqa: TID251 (a clock of its own)
        good = {"iss": self.rules.issuer, "sub": user, "iat": now, "exp": now + 300}
        return good | self.users.get(user, {}) | changes

    def access_token(self, user: str = "ann", typ: str = "at+jwt", **changes: Any) -> str:
        good = {"aud": AUDIENCE, "client_id": "cli", "jti": "j"}
        claims = self.claims(user, **(good | changes))
        return self.sign(claims, typ=typ)

    async def _discovery(self, request: Request) -> Response:
        if self.is_mute:
            await asyncio.Event().wait()
        document = {
            "issuer": self.rules.issuer,
            "authorization_endpoint": f"{ISSUER}/auth",
            "token_endpoint": f"{ISSUER}/token",
            "jwks_uri": f"{ISSUER}/jwks",
            "end_session_endpoint": f"{ISSUER}/logout",
            **self.document,
        }
        return self._answer(request, JSONResponse(document))

    async def _jwks(self, request: Request) -> Response:
        keys = [each.as_dict(private=False) for each in self.keys]
        return self._answer(request, JSONResponse({"keys": [*self.other_keys, *keys]}))

    async def _token(self, request: Request) -> Response:
        form = {
            name: values[0] for name, values in parse_qs((await request.body()).decode()).items()
        }
        if self.refusal is not None:
            return self._answer(request, JSONResponse(self.refusal[1], self.refusal[0]))
        if not self._knows(request, form):
            return JSONResponse({"error": "invalid_client"}, 401)
        if form["grant_type"] == "refresh_token":
            user = self.refresh_tokens.pop(form["refresh_token"], None)
            given = {} if user is None else {"user": user}
        else:
            given = self.codes.pop(form["code"], {})
        if not given:
            return self._answer(request, JSONResponse({"error": "invalid_grant"}, 400))
        return self._answer(request, JSONResponse(self._granted(given)))

    def _granted(self, given: dict[str, str]) -> dict[str, str]:
        refresh_token = f"refresh {len(self.asked)}"
        self.refresh_tokens[refresh_token] = given["user"]
        nonce = {"nonce": given["nonce"]} if "nonce" in given else {}
        claims = self.claims(given["user"], aud=self.rules.client_id, sid="s1", **nonce)
        return {"id_token": self.sign(claims), "refresh_token": refresh_token}

    def _knows(self, request: Request, form: dict[str, str]) -> bool:
        scheme, _, encoded = request.headers.get("authorization", "").partition(" ")
        if scheme == "Basic":
            pair = base64.b64decode(encoded).decode().split(":")
            return [unquote(each) for each in pair] == [self.rules.client_id, self.secret]
        return form["client_id"] == self.rules.client_id and (
            form.get("client_secret", "") == self.secret
        )

    def _answer(self, request: Request, good: Response) -> Response:
        self.asked.append(request.url.path)
        if self.is_away:
            raise httpx.ConnectError("nobody there")
        return self.instead or good
