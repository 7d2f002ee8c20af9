"""Tokens: what whoever asks for something shows."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from rota.ports.records import Role


@dataclass(frozen=True, slots=True)
class Token:
    id: str
    name: str
    role: Role
    created_at: datetime
    created_by: str
    expires_at: datetime | None
    last_used_at: datetime | None
    revoked_at: datetime | None
    pool: str | None = None  # the only one a worker with it may serve; None: any


@dataclass(frozen=True, slots=True)
class NewToken:
    id: str
    name: str
    role: Role
    digest: str  # of the secret; the secret itself is never stored
    kind: str  # api, login (works once), session, worker
    created_by: str
    lifetime: timedelta | None  # None: never expires
    parent: str | None = None  # a token that must be valid too; None: it stands by itself
    pool: str | None = None  # the only one a worker with it may serve; None: any


class TokenStore(Protocol):
    async def add_token(self, token: NewToken) -> None: ...

    async def token_by_digest(
        self, digest: str, *, uses_up_login: bool = False
    ) -> tuple[Token, str] | None:
        """A valid token and its kind; None if unknown, expired, revoked or used up."""
        ...

    async def tokens(self, kind: str = "api") -> list[Token]:
        """Tokens of a kind, newest first."""
        ...

    async def revoke_token(self, token_id: str, *, actor: str) -> bool: ...
