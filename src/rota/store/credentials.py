"""Credentials of workers: tokens to join with, what these are traded for, renewal, revocation.

A credential is one row from the worker's first day to its last: a renewal puts a second secret
beside the first, which ends when the second is used for the first time. So a worker that loses the
answer to a renewal still gets in with what it has, and whoever revokes the row revokes both.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from rota.domain.errors import Denied
from rota.domain.ids import instant
from rota.ports.credentials import NewCredential, NewJoinToken
from rota.ports.work import Fence
from rota.store.principals import worker_principal
from rota.store.script import Row, Script, query
from rota.store.sessions import bar
from rota.store.tx import Tx

_MICROSECOND = timedelta(microseconds=1)
_KEPT = timedelta(days=30) // _MICROSECOND  # how long join tokens outlive their end
_NAMED = 10  # attempts that an event of refusals names


def add_join_token(tx: Tx, token: NewJoinToken, *, actor: str) -> Script[None]:
    """A new join token; those that ended long ago are forgotten."""
    yield query(
        "insert_join_token",
        id=token.id,
        name=token.name,
        digest=token.digest,
        created_by=actor,
        now=tx.now,
        expires_at=tx.now + token.lifetime // _MICROSECOND,
        pool=token.pool,
        shown=token.shown,
        uses=token.uses,
    )
    yield query("drop_stale_join_tokens", before=tx.now - _KEPT)
    tx.record("token.created", [token.id], actor=actor, kind="join", pool=token.pool)


def join_worker(tx: Tx, digest: str, wanted: NewCredential) -> Script[datetime]:
    """Trade one use of a join token for a credential; returns when that expires.

    Whoever asks again because the answer was lost gets another credential for the same use.
    """
    tokens = yield query("join_token", digest=digest, now=tx.now)
    if not tokens:
        raise _bad_join_token()
    [token] = tokens
    if token["pool"] not in (None, wanted.pool):
        raise Denied(
            f"this join token is for the pool {token['pool']}, not for {wanted.pool}",
            code="foreign_pool",
            hint=f"start the worker with --pool {token['pool']}, or with another join token",
        )
    yield query("hold_worker_name", name=wanted.worker)
    principal = yield from worker_principal(tx, wanted.worker, actor=wanted.worker)
    if principal.disabled_at is not None:
        raise Denied(
            f"the worker {wanted.worker} was disabled",
            code="worker_disabled",
            hint=f"rota principal enable {principal.handle}",
        )
    live = yield query("live_credentials", name=wanted.worker, now=tx.now)
    yield from _take_use(tx, token, live, wanted)
    yield from _revoke_all(tx, wanted.worker, actor=wanted.worker)
    lifetime = wanted.lifetime // _MICROSECOND
    yield query(
        "insert_credential",
        id=wanted.id,
        name=wanted.worker,
        digest=wanted.digest,
        created_by=token["id"],
        now=tx.now,
        expires_at=tx.now + lifetime,
        lifetime=lifetime,
        pool=wanted.pool,
        principal=principal.handle,
        shown=wanted.shown,
    )
    facts = {"worker": wanted.worker, "pool": wanted.pool, "join_token": token["id"]}
    tx.record("worker.joined", [wanted.id], actor=wanted.worker, **facts)
    return instant(tx.now + lifetime)


def _take_use(tx: Tx, token: Row, live: Sequence[Row], wanted: NewCredential) -> Script[None]:
    """Count a use of a join token, unless all it replaces was never used and is of this token."""
    unused = [row for row in live if row["created_by"] == token["id"] and not row["last_used_at"]]
    if len(unused) < len(live) and not wanted.replaces:
        raise Denied(
            f"a worker named {wanted.worker} has a credential that is valid",
            code="name_taken",
            hint="give this one another name with --name, or take its place with --replace",
        )
    # A join token of one pool would else stop any worker of all others, whose names lists show.
    if any(token["pool"] not in (None, row["pool"]) for row in live):
        raise Denied(
            f"a worker named {wanted.worker} has a credential that is not for the pool"
            f" {token['pool']}: this join token cannot take its place",
            code="foreign_pool",
            hint="give this one another name with --name, or let an admin revoke that one: rota"
            f" worker revoke {wanted.worker}",
        )
    if not unused and not (yield query("take_use", id=token["id"], now=tx.now)):
        raise _bad_join_token()


def _bad_join_token() -> Denied:
    return Denied(
        "this join token is not valid (any more), or used up",
        code="unauthenticated",
        hint="make one with rota worker join-token create",
    )


def _revoke_all(tx: Tx, worker: str, *, actor: str) -> Script[list[str]]:
    """All credentials of a worker, whose name is locked; returns their ids."""
    revoked = [row["id"] for row in (yield query("revoke_credentials", name=worker, now=tx.now))]
    if revoked:
        yield from bar(tx, revoked, actor=actor)
        tx.record("token.revoked", revoked, actor=actor)
    return revoked


def revoke_worker(tx: Tx, worker: str, *, actor: str) -> Script[int]:
    """Revoke all credentials of a worker, and bar its sessions; returns how many there were."""
    yield query("hold_worker_name", name=worker)
    return len((yield from _revoke_all(tx, worker, actor=actor)))


def renew_credential(tx: Tx, credential: str, digest: str) -> Script[datetime | None]:
    """Put a second secret beside the first; returns when that expires, None: it is not renewed."""
    renewed = yield query("add_renewal", id=credential, digest=digest, now=tx.now)
    if not renewed:
        return None
    tx.record("token.renewed", [credential], actor=renewed[0]["name"])
    return instant(renewed[0]["next_expires_at"])


def is_renewal(now: int, digest: str) -> Script[bool]:
    """Whether this is the second secret of a credential."""
    return bool((yield query("renewal", digest=digest, now=now)))


def begin_renewal(tx: Tx, digest: str) -> Script[None]:
    """Let a second secret, which is used for the first time, take the place of the first."""
    yield query("begin_renewal", digest=digest, now=tx.now)


def record_refusals(
    tx: Tx, subject: str, worker: str, act: str, count: int, fences: Sequence[Fence] = ()
) -> Script[None]:
    """Record that a worker was refused, so often since the last time; `subject` is its session."""
    yield from ()
    attempts = [f"{fence.run}/{fence.attempt}" for fence in fences[:_NAMED]]
    facts = {"worker": worker, "act": act, "count": count, "attempts": attempts}
    tx.record("worker.refused", [subject], actor=worker, **facts)
