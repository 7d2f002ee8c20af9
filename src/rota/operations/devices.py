"""Terminals that log in: a code is shown there, and a person lets it in with a browser (RFC 8628).

The browser may be anywhere, so it works with every way to log in. The terminal gets the rights of
the session in which somebody confirmed its code.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from datetime import timedelta

from rota.domain.access import Role
from rota.domain.credentials import (
    CODE_ALPHABET,
    CODE_CHARACTERS,
    SecretKind,
    digest,
    new_secret,
    new_token_id,
    read_code,
    shown_part,
)
from rota.domain.errors import NotFound
from rota.operations.engine import Engine
from rota.operations.logins import TERMINAL_LIFETIME
from rota.ports.logins import DeviceGrant, Polled
from rota.ports.records import NewToken

LIFETIME = timedelta(minutes=10)  # of a code
EVERY = timedelta(seconds=5)  # between polls
_MAX_HOST = 100


@dataclass(frozen=True, slots=True)
class Asked:
    """Terminal that has begun to wait."""

    device: str = field(repr=False)  # what it keeps, and polls with
    code: str  # what it shows


async def begin(engine: Engine, host: str, address: str) -> Asked:
    """Let a terminal wait; `host` is what it calls its machine, which nobody can check."""
    device = secrets.token_urlsafe(32)
    code = "".join(secrets.choice(CODE_ALPHABET) for _ in range(CODE_CHARACTERS))
    shown = "".join(each for each in host if each.isprintable())[:_MAX_HOST]
    grant = DeviceGrant(digest(device), code, shown, address)
    await engine.store.begin_device(grant, LIFETIME, EVERY)
    return Asked(device, code)


async def find(engine: Engine, typed: str) -> DeviceGrant:
    """Return the terminal that waits with a code; raise `NotFound` if none does."""
    code = read_code(typed)
    grant = await engine.store.device_by_code(code) if code else None
    if grant is None:
        raise _no_such_code()
    return grant


async def decide(engine: Engine, typed: str, session: str, *, is_approved: bool) -> None:
    """Let a terminal in with the rights of a session, or refuse it."""
    if not await engine.store.decide_device(read_code(typed), session, is_approved=is_approved):
        raise _no_such_code()


async def poll(engine: Engine, device: str) -> tuple[Polled, str]:
    """Return what a terminal is told, and if it was let in its secret, once."""
    secret = new_secret(SecretKind.TERMINAL)
    token = NewToken(
        id=new_token_id(),
        name="",  # as all else, that of the session that lets it in
        role=Role.VIEWER,
        digest=digest(secret),
        kind="terminal",
        created_by="",
        lifetime=TERMINAL_LIFETIME,
        shown=shown_part(secret),
    )
    told = await engine.store.poll_device(digest(device), token)
    return told, secret if told is Polled.GRANTED else ""


def _no_such_code() -> NotFound:
    return NotFound(
        "no terminal waits with this code",
        code="code_not_found",
        hint="a code works for ten minutes, and once: `rota login` shows a new one",
    )
