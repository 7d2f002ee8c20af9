"""Logins of people with an identity provider: begun, finished, refreshed while used, ended.

Roles are not decided here: a session has those of its principal and of the groups that the
provider told. What the provider takes away counts at the next refresh, what is taken away in Rota
within seconds.
"""

from __future__ import annotations

import base64
import hashlib
import secrets
from dataclasses import dataclass, field
from datetime import timedelta

import structlog

from rota.domain.access import Role
from rota.domain.credentials import SecretKind, digest, new_secret, new_token_id, shown_part
from rota.domain.errors import Denied, RotaError, Unavailable, quoted
from rota.domain.identity import (
    Person,
    checked_next,
    ended_by_logout,
    person_of_access_token,
    person_of_login,
    refused,
)
from rota.operations.engine import Engine
from rota.ports.logins import FoundPerson, LoginAttempt, ProviderFacts, TakenRefresh
from rota.ports.provider import Granted, LoginRequest, Provider
from rota.ports.records import LoginSession, NewToken, Token

log = structlog.get_logger()

ATTEMPT_LIFETIME = timedelta(minutes=10)
TERMINAL_LIFETIME = timedelta(hours=12)  # since its latest use
TERMINAL_MOST = timedelta(days=30)
_REFRESH_AFTER = timedelta(minutes=15)
_REFRESH_LASTS = timedelta(minutes=1)  # until another server may try, or this one again
_NOTE_USE_EVERY = timedelta(minutes=1)
_SHOWN = 200  # characters of what a provider says


@dataclass(frozen=True, slots=True)
class Begun:
    """Login that has begun."""

    address: str  # of the provider, where the person goes now
    browser: str = field(repr=False)  # what the browser keeps until they are back


@dataclass(frozen=True, slots=True)
class Return:
    """Answer that a person brings back from the provider, and what their browser has kept."""

    state: str
    browser: str = field(repr=False)
    code: str = field(default="", repr=False)
    issuer: str | None = None  # None: the provider did not name itself
    error: str = ""  # "": the provider let them in
    description: str = ""


@dataclass(frozen=True, slots=True)
class Opened:
    """Session that was opened."""

    secret: str = field(repr=False)
    next: str  # path where the person goes on


def provider_of(engine: Engine) -> Provider:
    """Return the identity provider; raise `Denied` where none is set up."""
    if engine.logins.provider is None:
        raise Denied(
            "nobody logs in with an identity provider here",
            code="login_refused",
            hint="oidc_issuer and oidc_client_id name one; rota up prints a login link",
        )
    return engine.logins.provider


async def begin(engine: Engine, next_path: str, return_to: str, browser: str = "") -> Begun:
    """Begin a login: any server can finish it, in this browser, within ten minutes.

    `browser` is what it keeps of another login that is under way, as in a second tab.
    """
    state, fresh, nonce, verifier = (secrets.token_urlsafe(48) for _ in range(4))
    browser = browser if len(browser) == len(fresh) else fresh
    challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest())
    request = LoginRequest(state, nonce, challenge.rstrip(b"=").decode(), return_to)
    address = await provider_of(engine).login_address(request)
    attempt = LoginAttempt(digest(state), digest(browser), nonce, verifier, checked_next(next_path))
    await engine.store.begin_login(attempt, ATTEMPT_LIFETIME)
    return Begun(address, browser)


async def finish(engine: Engine, back: Return, return_to: str) -> Opened:
    """Open a session for a person who is back from the provider; raise `Denied` if not let in."""
    provider = provider_of(engine)
    attempt = await engine.store.finish_login(digest(back.state), digest(back.browser))
    if attempt is None:
        raise refused(
            "this login was not begun in this browser, or took longer than ten minutes",
            "log in again",
        )
    await _check_return(provider, back)
    granted = await provider.redeem(back.code, attempt.verifier, return_to)
    person = await _person_of(engine, granted, nonce=attempt.nonce)
    handle = await engine.store.sign_in(person)
    secret = new_secret(SecretKind.SESSION)
    token = NewToken(
        id=new_token_id(),
        name=handle,
        role=Role.ADMIN,  # as much as the principal may
        digest=digest(secret),
        kind="session",
        created_by=handle,
        lifetime=engine.logins.lifetime,
        principal=handle,
        shown=shown_part(secret),
    )
    told = ProviderFacts(
        person,
        _sealed(engine, token.id, "refresh", granted.refresh_token),
        _sealed(engine, token.id, "id", granted.id_token),
    )
    await engine.store.open_login(token, told, engine.logins.idle)
    log.info("login.opened", principal=handle, session=token.id)
    return Opened(secret, attempt.next)


async def _check_return(provider: Provider, back: Return) -> None:
    """Refuse an answer of another provider than the one that was asked (mix-up)."""
    if back.issuer is None and await provider.names_itself():
        raise refused("the answer does not say which provider it is of")
    if back.issuer not in (None, provider.rules.issuer):
        raise refused("the answer is of another provider")
    if back.error or not back.code:
        told = quoted((back.description or back.error or "no code")[:_SHOWN])
        raise refused(f"the provider did not let you in: {told}", "log in again, or ask its admin")


async def _person_of(engine: Engine, granted: Granted, *, nonce: str | None) -> Person:
    provider = provider_of(engine)
    token = await provider.verify(granted.id_token)
    now = await engine.store.now()
    return person_of_login(token.header, token.claims, provider.rules, now=now, nonce=nonce)


# --- while a session is used


async def attend(engine: Engine, token: Token, session: LoginSession) -> bool:
    """Note that a session is used, and refresh what is known of the person when it is old.

    Return whether its rights are to be looked up again. A provider that is away changes nothing,
    nor does one that is gone from the settings: no other is asked about its people.
    """
    await _note_use(engine, token, session)
    if not session.is_refreshable or session.seen_at - session.refreshed_at <= _REFRESH_AFTER:
        return False
    if session.issuer != issuer_of(engine):
        return False
    has_changed = False
    # A terminal has all sessions of its person to ask by: one that is refused is gone.
    while taken := await engine.store.take_refresh(token.id, _REFRESH_AFTER, _REFRESH_LASTS):
        try:
            await _refresh(engine, token.principal, taken)
        except Denied as error:
            log.info("login.ended_by_provider", principal=token.principal, reason=error.message)
            await engine.store.end_refused_login(taken.token)
            has_changed = True
        except RotaError as error:
            log.warning("login.not_refreshed", principal=token.principal, reason=error.message)
            break
        else:
            return True
    return has_changed


def issuer_of(engine: Engine) -> str:
    """Return the issuer whose people log in; "": no provider is set up."""
    provider = engine.logins.provider
    return "" if provider is None else provider.rules.issuer


async def _note_use(engine: Engine, token: Token, session: LoginSession) -> None:
    """Move the end of a session on, at most once a minute."""
    idle, lifetime, now = engine.logins.idle, TERMINAL_LIFETIME, session.seen_at
    if token.kind == "terminal":
        is_due = (token.expires_at or now) - now < lifetime - _NOTE_USE_EVERY
    else:
        is_due = session.idle_until - now < idle - _NOTE_USE_EVERY
    if is_due:
        await engine.store.keep_login(token.id, idle, lifetime, TERMINAL_MOST)


async def _refresh(engine: Engine, principal: str, taken: TakenRefresh) -> None:
    """Ask the provider about the person; its new refresh token is saved before all else."""
    ring, provider = engine.key_ring, provider_of(engine)
    if ring is None:
        raise Unavailable("there is no key ring to open the refresh token with")
    session = taken.token
    plain = ring.open(taken.sealed, _context(session, "refresh")).decode()
    granted = await provider.refresh(plain)
    renewed = _sealed(engine, session, "refresh", granted.refresh_token)
    await engine.store.refresh_login(session, ProviderFacts(refresh_token=renewed))
    if not granted.id_token:
        return
    person = await _person_of(engine, granted, nonce=None)
    known = await engine.store.find_person(person)
    if known is None or known.handle != principal:
        raise refused("the provider speaks of somebody else")
    told = ProviderFacts(person, id_token=_sealed(engine, session, "id", granted.id_token))
    await engine.store.refresh_login(session, told)


def _sealed(engine: Engine, token_id: str, what: str, plain: str) -> str | None:
    """Seal a token of the provider; None: there is none, or no key to seal it with."""
    ring = engine.key_ring
    return ring.seal(plain.encode(), _context(token_id, what)) if ring and plain else None


def _context(token_id: str, what: str) -> bytes:
    return f"rota-session/1 {token_id} {what}".encode()


# --- access tokens of the provider


async def person_calling(engine: Engine, access_token: str) -> FoundPerson:
    """Return the user whom an access token of the provider speaks for; raise `Denied` if none."""
    provider = provider_of(engine)
    token = await provider.verify(access_token)
    now = await engine.store.now()
    person = person_of_access_token(token.header, token.claims, provider.rules, now=now)
    found = await engine.store.find_person(person)
    if found is None:
        await engine.store.sign_in(person)
        found = await engine.store.find_person(person)
    if found is None or found.is_disabled:
        raise refused("this user is disabled here")
    return found


# --- ends


async def logout_address(engine: Engine, token_id: str, return_to: str) -> str:
    """Return where the browser goes to end the provider's session, too; "": nowhere."""
    provider, ring = engine.logins.provider, engine.key_ring
    issuer, sealed = await engine.store.id_token_of(token_id) or ("", None)
    if provider is None or issuer not in ("", provider.rules.issuer):
        return ""
    try:
        plain = ring.open(sealed, _context(token_id, "id")).decode() if ring and sealed else ""
        return await provider.logout_address(plain, return_to)
    except RotaError as error:  # Rota's own session ends anyway
        log.warning("login.not_ended_at_provider", reason=error.message)
        return ""


async def end_from_provider(engine: Engine, logout_token: str) -> int:
    """End the sessions that the provider says have ended; return how many."""
    provider = provider_of(engine)
    token = await provider.verify(logout_token)
    now = await engine.store.now()
    ended = ended_by_logout(token.header, token.claims, provider.rules, now=now)
    return await engine.store.end_logins(ended)
