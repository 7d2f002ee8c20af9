"""Identity provider: who people are, told by somebody else (OpenID Connect)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from rota.domain.identity import Header, ProviderRules


@dataclass(frozen=True, slots=True)
class LoginRequest:
    """Request of a login that begins, for the provider."""

    state: str = field(repr=False)  # comes back with the person, who may have been sent by others
    nonce: str  # comes back inside the ID token
    challenge: str  # SHA-256 of the verifier (PKCE): who has no verifier cannot redeem the code
    return_to: str  # the address of Rota that people come back to


@dataclass(frozen=True, slots=True)
class Granted:
    """Tokens that the provider hands out for a code or a refresh token."""

    id_token: str = field(default="", repr=False)  # "": it gave none, as a refresh need not
    refresh_token: str = field(default="", repr=False)  # "": none, or the old one stays valid


@dataclass(frozen=True, slots=True)
class VerifiedToken:
    """Token whose signature the provider made; nothing else about it is checked yet."""

    header: Header
    claims: Mapping[str, Any]


class Provider(Protocol):
    """One provider. Every call ends within seconds.

    Errors: `Unavailable` if the provider is away, or does not talk to this client at all; `Denied`
    if it refuses a code, or with the code `invalid_grant` a refresh token, or a token is not its.
    """

    @property
    def rules(self) -> ProviderRules: ...

    async def login_address(self, request: LoginRequest) -> str:
        """Return where to send the browser of a person who wants to log in."""
        ...

    async def names_itself(self) -> bool:
        """Return whether people come back with the name of the issuer (RFC 9207)."""
        ...

    async def redeem(self, code: str, verifier: str, return_to: str) -> Granted:
        """Trade the code of a finished login for tokens, once."""
        ...

    async def refresh(self, refresh_token: str) -> Granted: ...

    async def verify(self, token: str) -> VerifiedToken:
        """Check a token's signature with the keys that the provider publishes."""
        ...

    async def logout_address(self, id_token: str, return_to: str) -> str:
        """Return where a browser ends the session with the provider; "": it has no such place."""
        ...
