"""Logins of people: under way, open as sessions, and of terminals that wait to be let in."""

from __future__ import annotations

from collections.abc import Sequence
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
class ProviderFacts:
    """Facts that the provider told of a person; its tokens are sealed, or None where no ring is."""

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
    """Answer to a terminal that waits, in the words of RFC 8628."""

    GRANTED = "granted"
    PENDING = "authorization_pending"
    TOO_SOON = "slow_down"
    DENIED = "access_denied"
    EXPIRED = "expired_token"  # or never known, or used before


@dataclass(frozen=True, slots=True)
class TakenRefresh:
    """Lease of a refresh: what the server needs to ask the provider about a person."""

    token: str  # id of the session whose refresh token it is, which may be another of the person
    sealed: str = field(repr=False)  # the refresh token


@dataclass(frozen=True, slots=True)
class SealedValue:
    """One value of a session that is sealed with the key ring."""

    token: str  # id of the session
    sealed: str = field(repr=False)
    is_refresh_token: bool  # False: it is the ID token


@dataclass(frozen=True, slots=True)
class SealedLogin:
    """Session with values that are not sealed with the first key of the ring."""

    token: str
    values: tuple[SealedValue, ...]


@dataclass(frozen=True, slots=True)
class Resealed:
    """Sealed value whose data key is wrapped by another key of the ring now."""

    value: SealedValue
    sealed: str = field(repr=False)


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

    async def open_login(self, token: NewToken, told: ProviderFacts, idle: timedelta) -> None:
        """Open a session; other sessions of the person learn of their groups."""
        ...

    async def keep_login(
        self, token: str, idle: timedelta, lifetime: timedelta, most: timedelta
    ) -> None:
        """Note that a session was used: its idle end, or that of a terminal, moves on."""
        ...

    async def take_refresh(
        self, token: str, older: timedelta, lasts: timedelta
    ) -> TakenRefresh | None:
        """Take on to refresh a session; a terminal by another session of its person.

        None: the latest refresh is not older, or another server has taken it on and has time left,
        or there is no refresh token.
        """
        ...

    async def refresh_login(self, token: str, told: ProviderFacts) -> None:
        """Save what the provider said at a refresh; what it did not renew stays.

        Terminals of the person go on from now for as long as a browser's session may last.
        """
        ...

    async def end_refused_login(self, token: str) -> None:
        """End a session that the provider refused to refresh.

        Terminals of the person end with it, unless another session can still be refreshed.
        """
        ...

    async def sealed_logins(self, key_id: str, after: str, limit: int) -> list[SealedLogin]:
        """List sessions with values of other keys than this, by id; the first ones after an id."""
        ...

    async def reseal_logins(self, resealed: Sequence[Resealed]) -> None:
        """Save values that were wrapped anew, unless they have changed since."""
        ...

    async def keys_of_logins(self) -> dict[str, int]:
        """Count the sealed values of sessions by the id of their key."""
        ...

    async def id_token_of(self, token: str) -> tuple[str, str | None] | None:
        """Return the issuer of a session's person and the sealed ID token; None: no session."""
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
