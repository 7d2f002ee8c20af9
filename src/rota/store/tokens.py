"""Rights to call: given, used, taken back."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TypeAlias

from rota.domain.access import (
    INSTALLATION,
    ProjectSet,
    Rights,
    Role,
    combined,
    everywhere,
    may_give_secret,
)
from rota.domain.errors import Conflict, quoted
from rota.domain.ids import instant, micros
from rota.ports.records import FoundToken, LoginSession, NewToken, Token
from rota.store.principals import worker_principal
from rota.store.rows import from_json, project_filter, to_json, token_from
from rota.store.script import Many, Row, Rows, Script, query
from rota.store.sessions import bar
from rota.store.tx import Tx

_MICROSECOND = timedelta(microseconds=1)
_KEPT = timedelta(days=1) // _MICROSECOND  # how long login links and sessions outlive their end
_LATER_THAN_ALL = 2**62
Look: TypeAlias = tuple[FoundToken, datetime]  # and when that was


def add(tx: Tx, token: NewToken) -> Script[None]:
    """A new token; a new login link ends older ones, and what ended long ago is forgotten."""
    if token.kind == "login":
        yield query("end_login_links", now=tx.now)
    if token.given_by is not None:
        yield from _bind_service(tx, token, token.given_by)
    principal = token.principal
    if token.kind == "worker":
        yield query("hold_worker_name", name=token.name)
        principal = (yield from worker_principal(tx, token.name, actor=token.created_by)).handle
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
        principal,
        token.project,
        None if token.verbs is None else to_json(sorted(token.verbs)),
        token.shown,
    )
    yield Many("insert_token", [values])
    yield query("drop_stale_tokens", before=tx.now - _KEPT)
    tx.record_in(
        token.project or "", "token.created", [token.id], actor=token.created_by, kind=token.kind
    )


def _bind_service(tx: Tx, token: NewToken, giver: Rights) -> Script[None]:
    """The service that a token acts for, with the token's role where that is for.

    One that is there keeps what it has; its role there is raised if need be.
    """
    scope, handle = token.project or INSTALLATION, token.principal
    made = yield query("make_service", handle=handle, by=token.created_by, now=tx.now)
    [principal] = yield query("principal_to_bind", handle=handle)
    rows = yield query("bindings_of", principal=handle)
    bound = {row["scope"]: Role(row["role"]) for row in rows}
    if not made and not may_give_secret(giver, principal["kind"], {*bound, scope}):
        raise _name_taken(handle)
    if scope not in bound or not bound[scope].includes(token.role):
        values = (handle, scope, token.role, token.created_by, tx.now)
        yield Many("put_binding", [values])
        tx.effects.callers |= bool(bound)


def _name_taken(handle: str) -> Conflict:
    return Conflict(
        f"the name {quoted(handle)} is taken",
        code="name_taken",
        hint="take another name: one for each program, in each project",
    )


def find(now: int, digest: str) -> Script[Look | None]:
    """A token that is valid now, what it allows, and when that is."""
    rows = yield query("token_by_digest", digest=digest, now=now)
    if not rows:
        return None
    first = rows[0]
    token = token_from(first)
    rights = yield from _rights(token, rows)
    session = _session(first, now) if first["idle_until"] is not None else None
    ends_in = None if token.expires_at is None else token.expires_at - instant(now)
    if first["parent"] is not None:  # it ends with that one
        ends_in = timedelta(0)
    return FoundToken(token, rights, first["principal_kind"] or "", session, ends_in), instant(now)


def rights_changes() -> Script[int]:
    """How often anybody's rights have changed, counted where other servers are told, too."""
    rows = yield query("rights_changes")
    return int(rows[0]["value"]) if rows else 0


def _session(row: Row, now: int) -> LoginSession:
    is_free = row["refreshing_until"] is None or row["refreshing_until"] <= now
    is_of_person = row["kind"] == "terminal" and row["issuer"] != ""  # by another session of theirs
    return LoginSession(
        seen_at=instant(now),
        refreshed_at=instant(row["refreshed_at"]),
        idle_until=instant(row["idle_until"]),
        is_refreshable=bool(row["has_refresh_token"] or is_of_person) and is_free,
        issuer=row["issuer"],
    )


def _rights(token: Token, rows: Rows) -> Script[Rights]:
    """Rights of a token: the roles of its principal, and of the groups of a person."""
    if not token.principal:
        return everywhere(token.role)
    bound = [_role(row) for row in rows if row["scope"] is not None]
    groups = from_json(rows[0]["groups"] or "[]")
    if groups:
        theirs = yield query("roles_of_groups", issuer=rows[0]["issuer"], groups=groups)
        bound += map(_role, theirs)
    return Rights(combined(bound), token.role, token.project, token.verbs)


def _role(row: Row) -> tuple[str, Role]:
    return row["scope"], Role(row["bound"])


def note_use(tx: Tx, token_id: str) -> Script[None]:
    """When a token was last used; it may be gone by now."""
    yield Many("touch_token", [(tx.now, token_id)], exactly=False)


def revoke(tx: Tx, token_id: str, *, actor: str, project: ProjectSet = None) -> Script[bool]:
    """Whether it was valid until now; with projects, only if it is for one of them alone."""
    revoked = yield query("revoke_token", id=token_id, now=tx.now, **project_filter(project))
    for row in revoked:
        tx.effects.callers = True
        yield from bar(tx, [token_id], actor=actor)
        tx.record_in(row["project"] or "", "token.revoked", [token_id], actor=actor)
    return bool(revoked)


def of_kind(
    kind: str = "api",
    project: ProjectSet = None,
    *,
    before: tuple[datetime, str] | None = None,
    limit: int = 1_000,
) -> Script[list[Token]]:
    part: dict[str, object] = {
        "before_at": micros(before[0]) if before else _LATER_THAN_ALL,
        "before_id": before[1] if before else "",
        "limit": limit,
    }
    if isinstance(project, str) and kind == "api":
        rows = yield query("select_tokens_of_project", project=project, **part)
    else:
        rows = yield query("select_tokens", kind=kind, **project_filter(project), **part)
    return [token_from(row) for row in rows]


def old(now: int, limit: int) -> Script[list[Token]]:
    """Tokens of programs that count in all projects: they were made before there were some."""
    return [token_from(row) for row in (yield query("select_old_tokens", now=now, limit=limit))]
