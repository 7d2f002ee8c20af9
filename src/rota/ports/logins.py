"""Logins of people: under way, open as sessions, and of terminals that wait to be let in."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import Protocol

from rota.domain.access import Rights
from rota.domain.identity import EndedSession, Person
from rota.ports.records import NewToken


@dataclass(frozen=True, slots=True)
class LoginAttempt:
    """Login that a browser has begun and any server may finish, once."""

    state: str  # digest of what travels through the provider
    browser: str  # digest of what the browser keeps
    nonce: str
    verifier: str = field(repr=False)  # of PKCE
    next: str = "/"  # path where the person goes on


@dataclass(frozen=True, slots=True)
class Told:
    """What the provider said of a person; tokens of it are sealed, or None where no ring is."""

    person: Person | None = None  # None: a refresh without an ID token, or a login without it
    refresh_token: str | None = field(default=None, repr=False)
    id_token: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class FoundPerson:
    """A user who is known, and what they may do."""

    handle: str
    rights: Rights
    is_disabled: bool = False


@dataclass(frozen=True, slots=True)
class DeviceGrant:
    """Terminal that asks to be let in."""

    device: str  # digest of what the terminal keeps
    code: str  # what the person types
    host: str  # what the terminal calls its machine
    address: str  # where it asked from


class Polled(StrEnum):
    """What a terminal that waits is told, in the words of RFC 8628."""

    GRANTED = "granted"
    PENDING = "authorization_pending"
    TOO_SOON = "slow_down"
    DENIED = "access_denied"
    EXPIRED = "expired_token"  # or never known, or used before


class LoginStore(Protocol):
    """Logins, a part of `rota.ports.store.Store`."""

    async def begin_login(self, attempt: LoginAttempt, lifetime: timedelta) -> None: ...

    async def finish_login(self, state: str, browser: str) -> LoginAttempt | None:
        """Take a login that was begun in this browser; None: there is none, any more."""
        ...

    async def sign_in(self, person: Person) -> str:
        """Return the handle of a user, who gets one at first sight; `Denied`: they are disabled."""
        ...

    async def find_person(self, person: Person) -> FoundPerson | None:
        """Return a user with the roles of these groups; None: nobody has signed in as that."""
        ...

    async def bind_admin_groups(self, issuer: str, groups: frozenset[str]) -> None:
        """Make these groups admins of the installation, and no others that were made so before."""
        ...

    async def open_login(self, token: NewToken, told: Told, idle: timedelta) -> None:
        """Open a session; other sessions of the person learn of their groups."""
        ...

    async def keep_login(
        self, token: str, idle: timedelta, lifetime: timedelta, most: timedelta
    ) -> None:
        """Note that a session was used: its idle end, or that of a terminal, moves on."""
        ...

    async def take_refresh(self, token: str, older: timedelta, lasts: timedelta) -> str | None:
        """Take on to refresh a session; returns the sealed refresh token.

        None: the latest refresh is not older, or another server has taken it on and has time left.
        """
        ...

    async def refresh_login(self, token: str, told: Told) -> None:
        """Save what the provider said at a refresh; what it did not renew stays."""
        ...

    async def id_token_of(self, token: str) -> str | None:
        """Return the sealed ID token of a session; None: it has none."""
        ...

    async def end_logins(self, ended: EndedSession) -> int:
        """End sessions that the provider has ended; return how many."""
        ...

    async def begin_device(
        self, grant: DeviceGrant, lifetime: timedelta, every: timedelta
    ) -> None: ...

    async def device_by_code(self, code: str) -> DeviceGrant | None:
        """Return the terminal that waits with this code; None: none does, any more."""
        ...

    async def decide_device(self, code: str, session: str, *, is_approved: bool) -> bool:
        """Let a terminal in with the rights of a session, or not; False: it waits no longer."""
        ...

    async def poll_device(self, device: str, token: NewToken) -> Polled:
        """Tell a terminal whether it was let in, and if it was, make this its token, once.

        Name, principal, role and what narrows them are those of the session that let it in.
        """
        ...
