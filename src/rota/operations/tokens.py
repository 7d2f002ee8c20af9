"""Authentication: tokens for programs and workers, login links and sessions for people."""

from __future__ import annotations

import hashlib
import re
import secrets
from dataclasses import dataclass
from datetime import timedelta

from rota.domain.errors import Denied, Invalid, NotFound, quoted
from rota.operations.engine import Engine
from rota.ports.records import NewToken, Role, Token
from rota.ports.store import Store
from rota.ports.work import WorkerIdentity

API_PREFIX = "rota_"  # lets secret scanners recognise a leaked token
WORKER_PREFIX = "rotaw_"
LOGIN_LIFETIME = timedelta(hours=12)
SESSION_LIFETIME = timedelta(days=7)
_SECRET_BYTES = 24
_RANK = {role: rank for rank, role in enumerate(Role)}
_CALLERS = frozenset({"api", "session"})  # kinds of tokens that may call the API
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


@dataclass(frozen=True, slots=True)
class Caller:
    """Identity of whoever makes a request, and what they may do."""

    name: str
    role: Role
    token_id: str

    @property
    def is_admin(self) -> bool:
        return self.role is Role.ADMIN

    def require(self, role: Role) -> None:
        """Raise `Denied` unless the caller has at least this role."""
        if _RANK[self.role] < _RANK[role]:
            raise Denied(
                f"this needs the role {role}, {self.name} is {self.role}",
                code="forbidden",
                hint="ask an admin for a token with that role",
            )


def digest(secret: str) -> str:
    """Return the stored form of a secret. Secrets are random, so a fast hash is enough."""
    return hashlib.sha256(secret.encode()).hexdigest()


async def create_token(
    store: Store, *, name: str, role: Role, actor: str, lifetime: timedelta | None = None
) -> tuple[str, str]:
    """Create an API token and return (id, secret); the secret is shown this once."""
    return await _create(store, name, role, "api", actor, lifetime)


async def create_worker_token(
    store: Store,
    *,
    name: str,
    pool: str | None,
    actor: str,
    lifetime: timedelta | None = None,
) -> tuple[str, str]:
    """Create a credential, as (id, secret), for the worker of this name, in this pool or in any."""
    for value, what in ((name, "worker"), (pool or name, "pool")):
        if not _NAME.fullmatch(value):
            raise Invalid(
                f"{what}: {quoted(value)} is not a name",
                hint="use letters, digits, '.', '_' and '-', at most 128",
            )
    return await _create(store, name, Role.VIEWER, "worker", actor, lifetime, pool=pool)


async def create_login_link_secret(store: Store, *, actor: str) -> str:
    """Create the secret of a link that logs its first user in as an admin, once."""
    _, secret = await _create(store, actor, Role.ADMIN, "login", actor, LOGIN_LIFETIME)
    return secret


async def log_in(engine: Engine, secret: str) -> tuple[str, Caller]:
    """Exchange a one-time secret or an API token for a session secret."""
    used = await engine.store.token_by_digest(digest(secret), uses_up_login=True)
    if used is None:
        used = await engine.store.token_by_digest(digest(secret))
        if used is None or used[1] != "api":
            raise Denied("this login link or token is not valid (any more)", code="bad_credentials")
    token, kind = used
    parent = token.id if kind == "api" else None
    session_id, session = await _create(
        engine.store, token.name, token.role, "session", token.name, SESSION_LIFETIME, parent
    )
    return session, Caller(token.name, token.role, session_id)


async def log_out(engine: Engine, caller: Caller) -> None:
    """End a session; an API token stays."""
    await engine.store.revoke_token(caller.token_id, actor=caller.name)


async def authenticate(engine: Engine, secret: str) -> Caller:
    """Return the caller of a secret. `Denied` is the same for unknown, expired and revoked ones."""
    found = await engine.store.token_by_digest(digest(secret))
    if found is None or found[1] not in _CALLERS:
        raise invalid_token(secret)
    token, _ = found
    return Caller(token.name, token.role, token.id)


def invalid_token(secret: str) -> Denied:
    """Return the error for a bad secret; it reveals nothing that the secret does not show."""
    hint = "make one with rota token create, and set ROTA_TOKEN"
    if secret.startswith(WORKER_PREFIX):
        return Denied("this is a worker's token", code="unauthenticated", hint=hint)
    return Denied("this token is not valid (any more)", code="unauthenticated", hint=hint)


async def authenticate_worker(engine: Engine, secret: str) -> WorkerIdentity:
    """Return the worker of a secret. `Denied` is the same whatever is wrong with it."""
    found = await engine.store.token_by_digest(digest(secret))
    if found is None or found[1] != "worker":
        raise Denied(
            "this worker token is not valid (any more)",
            code="unauthenticated",
            hint="make one with rota worker token create, and set ROTA_WORKER_TOKEN",
        )
    return WorkerIdentity(found[0].name, found[0].pool)


async def list_tokens(engine: Engine) -> list[Token]:
    return await engine.store.tokens()


async def list_worker_tokens(engine: Engine) -> list[Token]:
    return await engine.store.tokens("worker")


async def revoke_token(engine: Engine, token_id: str, *, actor: str) -> None:
    if not await engine.store.revoke_token(token_id, actor=actor):
        raise NotFound(f"no valid token {token_id!r}", code="token_not_found")


async def _create(
    store: Store,
    name: str,
    role: Role,
    kind: str,
    actor: str,
    lifetime: timedelta | None,
    parent: str | None = None,
    pool: str | None = None,
) -> tuple[str, str]:
    token_id = f"t_{secrets.token_hex(6)}"
    prefix = WORKER_PREFIX if kind == "worker" else API_PREFIX
    secret = prefix + secrets.token_urlsafe(_SECRET_BYTES)
    await store.add_token(
        NewToken(token_id, name, role, digest(secret), kind, actor, lifetime, parent, pool)
    )
    return token_id, secret
