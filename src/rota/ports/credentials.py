"""Tokens, and credentials of workers, as the store keeps them: rows with the digests of secrets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from rota.domain.access import ProjectSet
from rota.domain.ids import SessionId
from rota.ports.records import FoundToken, NewToken, Token
from rota.ports.work import Fence


@dataclass(frozen=True, slots=True)
class NewJoinToken:
    id: str
    name: str  # what it is for
    digest: str  # of the secret; the secret itself is never stored
    shown: str  # the beginning of the secret
    uses: int
    lifetime: timedelta
    pool: str | None  # the only one whose workers may join; None: any


@dataclass(frozen=True, slots=True)
class NewCredential:
    """A worker's credential, as it is asked for with a join token."""

    id: str
    worker: str
    pool: str
    digest: str  # of the secret
    shown: str  # the beginning of the secret
    lifetime: timedelta  # of this one and of each that it is renewed by
    replaces: bool = False  # a name with a live credential is taken over


class CredentialStore(Protocol):
    """Credentials of workers, by the digests of their secrets."""

    async def add_join_token(self, token: NewJoinToken, *, actor: str) -> None: ...

    async def join_worker(self, digest: str, wanted: NewCredential) -> datetime:
        """Trade one use of a join token for a credential; return when that expires.

        `Denied` if the token is not valid or used up, or of another pool, or the name is taken.
        With `replaces` the former credentials are revoked in the same transaction. A credential of
        this join token that was never used is replaced without counting another use.
        """
        ...

    async def renew_credential(self, credential: str, digest: str) -> datetime | None:
        """Give a credential a second secret; return when that expires, None: it is not renewed.

        The first one ends when the second is used. A second one that was never used is replaced.
        """
        ...

    async def begin_renewal(self, digest: str) -> bool:
        """Let a second secret take the place of the first; False: it is none."""
        ...

    async def revoke_worker(self, worker: str, *, actor: str) -> int:
        """Revoke all credentials of a worker; return how many. Its sessions are barred by it."""
        ...

    async def foreign_attempts(self, session: SessionId, fences: Sequence[Fence]) -> list[Fence]:
        """Return those of these attempts that the session never had leased."""
        ...

    async def record_refusals(
        self, subject: str, worker: str, act: str, count: int, fences: Sequence[Fence] = ()
    ) -> None:
        """Record that acts of a worker were refused, so many since the last time.

        `subject` is its session, or its credential where it got none.
        """
        ...


class TokenStore(Protocol):
    async def add_token(self, token: NewToken) -> None:
        """Add a token, and where rights are given the service that it acts for, with its role.

        Raise `Conflict` if its name is taken by somebody whom these rights do not reach.
        """
        ...

    async def token_by_digest(
        self, digest: str, *, uses_up_login: bool = False
    ) -> FoundToken | None:
        """Find a valid token and what it allows, in one indexed read; of a person in groups, two.

        None: unknown, expired, revoked or used up, or its principal is disabled.
        """
        ...

    async def rights_changes(self) -> int:
        """Return a number that grows with each transaction that changes what somebody may do."""
        ...

    async def tokens(
        self,
        kind: str = "api",
        project: ProjectSet = None,
        *,
        before: tuple[datetime, str] | None = None,
        limit: int = 1_000,
    ) -> list[Token]:
        """List tokens of a kind, newest first; with projects, those that are for one of them.

        `before`: creation time and id of the one after which the list goes on.
        """
        ...

    async def old_tokens(self, limit: int) -> list[Token]:
        """List valid tokens of programs from before there were projects, newest first."""
        ...

    async def revoke_token(self, token_id: str, *, actor: str, project: ProjectSet = None) -> bool:
        """End a token; with projects, only one that is for one of them alone.

        Returns whether it was valid until now; all servers forget what they know of callers. The
        sessions of the worker whose it was are barred in the same transaction.
        """
        ...
