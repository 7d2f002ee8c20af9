"""OpenID Connect over HTTP: discovery, published keys, codes, refresh tokens, signatures.

Nothing the provider says is followed to another scheme: its addresses are https, or http where the
issuer itself is on this machine. Answers are small, come soon, and are never redirects.
"""

from __future__ import annotations

import asyncio
import base64
import ssl
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlencode

import httpx
from joserfc import jws
from joserfc.errors import JoseError
from joserfc.jwk import KeySet

from rota.domain.addresses import parse_target
from rota.domain.errors import Denied, Invalid, Unavailable, quoted
from rota.domain.identity import (
    Header,
    ProviderRules,
    fits,
    is_near,
    read_header,
    read_object,
    refused,
)
from rota.ports.provider import Granted, LoginRequest, VerifiedToken

_WELL_KNOWN = "/.well-known/openid-configuration"
_TIMEOUT_SECONDS = 5.0
_MAX_BYTES = 256 * 1024
_KEPT_SECONDS = 15 * 60.0  # keys and addresses; a key that was removed is trusted this long
_LOOK_AGAIN_SECONDS = 60.0  # since the last time that a key was not among them
_AWAY_SECONDS = 5.0  # before a provider that did not answer is asked again
_SHOWN = 200  # characters of what the provider says about an error


@dataclass(frozen=True, slots=True)
class OidcClient:
    """How this installation is known to the provider, and what it asks for."""

    rules: ProviderRules
    secret: str = field(default="", repr=False)  # "": a public client
    scopes: tuple[str, ...] = ("openid", "profile", "email")


@dataclass(frozen=True, slots=True)
class _Published:
    """Metadata that the provider publishes about itself."""

    document: Mapping[str, Any]
    keys: tuple[Mapping[str, Any], ...]
    read_at: float  # monotonic

    def address(self, name: str) -> str:
        found = self.document.get(name)
        return found if isinstance(found, str) else ""


class OidcProvider:
    """Implements `rota.ports.provider.Provider`."""

    def __init__(
        self,
        client: OidcClient,
        http: httpx.AsyncClient,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._http = http
        self._monotonic = monotonic
        self._published: _Published | None = None
        self._reading = asyncio.Lock()
        self._away_until = float("-inf")
        self._looked_again_at = float("-inf")

    @property
    def rules(self) -> ProviderRules:
        return self._client.rules

    async def login_address(self, request: LoginRequest) -> str:
        published = await self._look()
        query = {
            "response_type": "code",
            "response_mode": "query",
            "client_id": self.rules.client_id,
            "redirect_uri": request.return_to,
            "scope": " ".join(self._client.scopes),
            "state": request.state,
            "nonce": request.nonce,
            "code_challenge": request.challenge,
            "code_challenge_method": "S256",
        }
        return _with_query(published.address("authorization_endpoint"), query)

    async def names_itself(self) -> bool:
        document = (await self._look()).document
        return document.get("authorization_response_iss_parameter_supported") is True

    async def redeem(self, code: str, verifier: str, return_to: str) -> Granted:
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "code_verifier": verifier,
            "redirect_uri": return_to,
        }
        granted = await self._ask_for_tokens(form)
        if not granted.id_token:
            raise refused("the provider sent no ID token", "oidc_scopes must have openid")
        return granted

    async def refresh(self, refresh_token: str) -> Granted:
        form = {"grant_type": "refresh_token", "refresh_token": refresh_token}
        return await self._ask_for_tokens(form)

    async def verify(self, token: str) -> VerifiedToken:
        header = read_header(token)
        for key in await self._keys(header):
            try:
                signed = jws.deserialize_compact(token, key, algorithms=[header.algorithm])
            except (JoseError, ValueError):
                continue
            return VerifiedToken(header, read_object(signed.payload))
        raise refused("the token was not signed by the provider")

    async def logout_address(self, id_token: str, return_to: str) -> str:
        address = (await self._look()).address("end_session_endpoint")
        if not address:
            return ""
        query = {"client_id": self.rules.client_id, "post_logout_redirect_uri": return_to}
        return _with_query(address, query | ({"id_token_hint": id_token} if id_token else {}))

    # --- what it publishes

    async def _keys(self, header: Header) -> list[KeySet]:
        """Return the published keys that may have signed this; look again if there is none.

        At once, for a key that is new; but whoever makes up keys makes no flood of requests.
        """
        published = await self._look()
        found = _keys_for(published, header)
        if not found and self._monotonic() - self._looked_again_at >= _LOOK_AGAIN_SECONDS:
            self._looked_again_at = self._monotonic()
            found = _keys_for(await self._look(newer_than=published), header)
        return found

    async def _look(self, newer_than: _Published | None = None) -> _Published:
        """Return what is published, at most 15 minutes old; whoever asks meanwhile waits too."""
        async with self._reading:
            known = self._published
            is_known = known is not None and known is not newer_than
            if known and is_known and self._monotonic() - known.read_at < _KEPT_SECONDS:
                return known
            if self._monotonic() < self._away_until:
                raise self._away("it did not answer a moment ago")
            try:
                self._published = await self._read()
            except Unavailable:
                self._away_until = self._monotonic() + _AWAY_SECONDS
                raise
            return self._published

    async def _read(self) -> _Published:
        read_at = self._monotonic()
        document = await self._get(self.rules.issuer.rstrip("/") + _WELL_KNOWN)
        if document.get("issuer") != self.rules.issuer:
            raise Unavailable(
                f"the provider calls itself {quoted(str(document.get('issuer')))},"
                f" and oidc_issuer is {quoted(self.rules.issuer)}",
                code="provider_misconfigured",
                hint="write oidc_issuer exactly so, with or without the slash at its end",
            )
        for name, address in document.items():
            if name.endswith(("_endpoint", "jwks_uri")) and address is not None:
                check_address(str(address), self.rules.issuer)
        for name in ("authorization_endpoint", "token_endpoint", "jwks_uri"):
            if not isinstance(document.get(name), str):
                raise self._away(f"it publishes no {name}")
        keys = (await self._get(document["jwks_uri"])).get("keys")
        usable = [key for key in keys if isinstance(key, dict)] if isinstance(keys, list) else []
        return _Published(document, tuple(usable), read_at)

    async def _get(self, address: str) -> dict[str, Any]:
        status, body = await self._fetch("GET", address)
        if status != httpx.codes.OK:
            raise self._away(f"{address} answers with status {status}")
        return self._object(body)

    # --- tokens

    async def _ask_for_tokens(self, form: Mapping[str, str]) -> Granted:
        published = await self._look()
        headers, fields = self._credentials(published)
        status, body = await self._fetch(
            "POST", published.address("token_endpoint"), headers, {**form, **fields}
        )
        answer = self._object(body)
        if status != httpx.codes.OK:
            raise self._refusal(status, answer)
        return Granted(_text(answer, "id_token"), _text(answer, "refresh_token"))

    def _credentials(self, published: _Published) -> tuple[dict[str, str], dict[str, str]]:
        """Return headers and fields by which the provider knows this client."""
        if not self._client.secret:
            return {}, {"client_id": self.rules.client_id}
        methods = published.document.get("token_endpoint_auth_methods_supported")
        if isinstance(methods, list) and "client_secret_basic" not in methods:
            named = {"client_id": self.rules.client_id, "client_secret": self._client.secret}
            return {}, named
        # RFC 6749, 2.3.1: both are encoded as in a form before they become user and password.
        pair = ":".join(quote(it, safe="") for it in (self.rules.client_id, self._client.secret))
        return {"Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}, {}

    def _refusal(self, status: int, answer: Mapping[str, Any]) -> Denied | Unavailable:
        error = _text(answer, "error")
        told = quoted((_text(answer, "error_description") or error)[:_SHOWN])
        if error == "invalid_grant":
            return Denied(f"the provider refuses: {told}", code="invalid_grant")
        if status >= 500 or status == httpx.codes.TOO_MANY_REQUESTS:
            return self._away(f"it answers with status {status}")
        return Unavailable(
            f"the provider does not accept this client: {told}",
            code="provider_misconfigured",
            hint="oidc_client_id and oidc_client_secret must be those of the provider",
        )

    # --- the wire

    async def _fetch(
        self,
        method: str,
        address: str,
        headers: Mapping[str, str] | None = None,
        form: Mapping[str, str] | None = None,
    ) -> tuple[int, bytes]:
        try:
            async with (
                asyncio.timeout(_TIMEOUT_SECONDS),
                self._http.stream(
                    method,
                    address,
                    headers={"Accept": "application/json", **(headers or {})},
                    data=form,
                ) as response,
            ):
                body = bytearray()
                async for piece in response.aiter_bytes():
                    body += piece
                    if len(body) > _MAX_BYTES:
                        raise self._away(f"{address} sends more than {_MAX_BYTES // 1024} KiB")
                return response.status_code, bytes(body)
        except TimeoutError as error:
            raise self._away(f"no answer within {_TIMEOUT_SECONDS:.0f} s") from error
        except (httpx.HTTPError, httpx.InvalidURL, ssl.SSLError) as error:
            raise self._away(str(error) or type(error).__name__) from error

    def _object(self, body: bytes) -> dict[str, Any]:
        try:
            return read_object(body)
        except Denied as error:
            raise self._away("it does not answer with JSON") from error

    def _away(self, why: str) -> Unavailable:
        return Unavailable(
            f"the identity provider {self.rules.issuer} cannot be used: {why}",
            code="provider_away",
            hint="try again in a moment; sessions that are open go on",
        )


@asynccontextmanager
async def open_provider(client: OidcClient) -> AsyncIterator[OidcProvider]:
    """Open connections to the provider; it is asked for the first time when somebody logs in."""
    on_this_machine = is_near(client.rules.issuer)
    async with httpx.AsyncClient(
        follow_redirects=False,
        timeout=_TIMEOUT_SECONDS,
        trust_env=not on_this_machine,  # a proxy leads away from this machine
        verify=ssl.create_default_context(),  # the system's authorities, or of SSL_CERT_FILE
    ) as http:
        yield OidcProvider(client, http)


def check_address(address: str, issuer: str) -> None:
    """Raise `Unavailable` for an address that tokens or secrets must not go to."""
    try:
        scheme = parse_target(address).scheme
    except Invalid as error:
        raise Unavailable(
            f"the identity provider names an address that cannot be used: {error}",
            code="provider_misconfigured",
        ) from error
    is_all_here = scheme == "http" and is_near(issuer) and is_near(address)
    if scheme == "https" or is_all_here:
        return
    raise Unavailable(
        f"the identity provider names {quoted(address)}, which is not https",
        code="provider_misconfigured",
        hint="http is for providers on this very machine only",
    )


def _keys_for(published: _Published, header: Header) -> list[KeySet]:
    """Return the keys that fit, each by itself: one that cannot be read spoils no other."""
    found = []
    for key in published.keys:
        if fits(key, header):
            try:
                found.append(KeySet.import_key_set({"keys": [dict(key)]}))
            except (JoseError, ValueError, KeyError, TypeError):
                continue
    return found


def _with_query(address: str, query: Mapping[str, str]) -> str:
    return f"{address}{'&' if '?' in address else '?'}{urlencode(query)}"


def _text(answer: Mapping[str, Any], name: str) -> str:
    value = answer.get(name)
    return value if isinstance(value, str) else ""
