"""Credentials of workers: join tokens, what they are traded for, renewal and revocation.

A worker joins with a token that is good for a few workers and a short time. It gets a credential of
its own name and pool, which it renews over its stream long before that expires. Credentials that
people make (`create_worker_token`) are not renewed: they last as long as was said then.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta

from rota.domain.credentials import SecretKind, digest, new_secret, new_token_id, shown_part
from rota.domain.errors import Conflict, Denied, Invalid, NotFound, quoted
from rota.domain.ids import micros
from rota.operations.engine import Engine
from rota.operations.tokens import authenticate_worker
from rota.operations.wrong_secrets import WrongSecrets
from rota.ports.credentials import NewCredential, NewJoinToken
from rota.ports.store import Store
from rota.ports.work import Credential, Hello, JoinWish, WorkerIdentity

CREDENTIAL_LIFETIME = timedelta(days=30)
JOIN_LIFETIME = timedelta(hours=1)
MAX_JOIN_LIFETIME = timedelta(days=30)
MAX_USES = 10_000
_WRONG, _WRONG_PER = 100, timedelta(minutes=1)  # where no gateway counts them, too
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


async def create_join_token(
    store: Store,
    *,
    actor: str,
    pool: str | None = None,
    uses: int = 1,
    lifetime: timedelta = JOIN_LIFETIME,
) -> tuple[str, str]:
    """Create a token, as (id, secret), by which so many workers may join, of a pool or of any."""
    if pool is not None:
        _check_name(pool, "pool")
    if not 1 <= uses <= MAX_USES:
        raise Invalid(f"uses: {uses} is not between 1 and {MAX_USES}")
    if not timedelta(0) < lifetime <= MAX_JOIN_LIFETIME:
        raise Invalid("a join token lives for a while, at most 30 days", hint="such as 1h")
    secret, token_id = new_secret(SecretKind.JOIN), new_token_id()
    name = f"join {pool}" if pool else "join"
    token = NewJoinToken(token_id, name, digest(secret), shown_part(secret), uses, lifetime, pool)
    await store.add_join_token(token, actor=actor)
    return token_id, secret


async def revoke_worker(engine: Engine, worker: str, *, actor: str) -> int:
    """Revoke all credentials of a worker; return how many. It gets nothing more at once."""
    revoked = await engine.store.revoke_worker(worker, actor=actor)
    if not revoked:
        raise NotFound(
            f"no worker named {worker} has a valid credential",
            code="worker_not_found",
            hint="rota worker token list shows whose there are",
        )
    return revoked


def _check_name(value: str, what: str) -> None:
    if not _NAME.fullmatch(value):
        raise Invalid(
            f"{what}: {quoted(value)} is not a name",
            hint="use letters, digits, '.', '_' and '-', at most 128",
        )


@dataclass(frozen=True, slots=True)
class Credentials:
    """Implements `rota.ports.work.CredentialDesk`."""

    engine: Engine
    lifetime: timedelta = CREDENTIAL_LIFETIME
    wrong: WrongSecrets = field(default_factory=lambda: WrongSecrets(_WRONG, _WRONG_PER))

    async def authenticate(self, secret: str, address: str = "") -> WorkerIdentity:
        with self._counting(secret, address):
            try:
                return await authenticate_worker(self.engine, secret)
            except Denied:
                if not secret.startswith(f"rota{SecretKind.WORKER}_"):
                    raise
                if not await self.engine.store.begin_renewal(digest(secret)):
                    raise
            return await authenticate_worker(self.engine, secret)

    @contextmanager
    def _counting(self, secret: str, address: str) -> Iterator[None]:
        """Count a secret that turns out to be wrong."""
        try:
            yield
        except Denied as error:
            if error.code == "unauthenticated":
                self.wrong.note(address, secret)
            raise

    async def join(self, secret: str, wish: JoinWish, address: str = "") -> Credential:
        _check_name(wish.worker, "worker")
        _check_name(wish.pool, "pool")
        credential = new_secret(SecretKind.WORKER)
        wanted = NewCredential(
            new_token_id(),
            wish.worker,
            wish.pool,
            digest(credential),
            shown_part(credential),
            self.lifetime,
            wish.replaces,
        )
        with self._counting(secret, address):
            expires_at = await self.engine.store.join_worker(digest(secret), wanted)
        return Credential(credential, micros(expires_at))

    async def renew(self, identity: WorkerIdentity) -> Credential:
        secret = new_secret(SecretKind.WORKER)
        expires_at = None
        if identity.credential is not None:
            expires_at = await self.engine.store.renew_credential(
                identity.credential, digest(secret)
            )
        if expires_at is None:
            raise Conflict(
                "this credential is not renewed: it lasts as long as whoever made it said",
                code="not_offered",
            )
        return Credential(secret, micros(expires_at))


def admit(hello: Hello, identity: WorkerIdentity) -> None:
    """Raise `Denied` unless this is the credential of that very worker."""
    if hello.worker != identity.name:
        raise Denied(
            f"this token is for the worker {identity.name}, not for {hello.worker}",
            code="foreign_worker",
            hint=f"start the worker with --name {identity.name}, or give it its own token",
        )
    if identity.pool is not None and hello.pool != identity.pool:
        raise Denied(
            f"this token is for the pool {identity.pool}, not for {hello.pool}",
            code="foreign_pool",
            hint=f"start the worker with --pool {identity.pool}, or give it another token",
        )
