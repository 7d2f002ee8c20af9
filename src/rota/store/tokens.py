"""Rights to call: given, used, taken back."""

from __future__ import annotations

from datetime import datetime, timedelta

from rota.domain.ids import instant
from rota.ports.records import NewToken, Token
from rota.store.rows import token_from
from rota.store.script import Many, Script, query
from rota.store.tx import Tx

_MICROSECOND = timedelta(microseconds=1)
_KEPT = timedelta(days=1) // _MICROSECOND  # how long login links and sessions outlive their end


def add(tx: Tx, token: NewToken) -> Script[None]:
    """A new token; what ended long ago is forgotten on the way."""
    expires_at = None if token.lifetime is None else tx.now + token.lifetime // _MICROSECOND
    values = (
        token.id,
        token.name,
        token.role,
        token.digest,
        token.kind,
        token.parent,
        token.created_by,
        tx.now,
        expires_at,
        token.pool,
    )
    yield Many("insert_token", [values])
    yield query("drop_stale_tokens", before=tx.now - _KEPT)
    tx.record("token.created", [token.id], actor=token.created_by, kind=token.kind)


def find(now: int, digest: str) -> Script[tuple[Token, str, datetime] | None]:
    """A token that is valid now, its kind, and when that is."""
    rows = yield query("token_by_digest", digest=digest, now=now)
    return (token_from(rows[0]), rows[0]["kind"], instant(now)) if rows else None


def note_use(tx: Tx, token_id: str) -> Script[None]:
    """When a token was last used; it may be gone by now."""
    yield Many("touch_token", [(tx.now, token_id)], exactly=False)


def revoke(tx: Tx, token_id: str, *, actor: str) -> Script[bool]:
    """Whether it was valid until now."""
    revoked = yield query("revoke_token", id=token_id, now=tx.now)
    if revoked:
        tx.record("token.revoked", [token_id], actor=actor)
    return bool(revoked)


def of_kind(kind: str = "api") -> Script[list[Token]]:
    rows = yield query("select_tokens", kind=kind)
    return [token_from(row) for row in rows]
