"""Principals and their roles: made at first sight, bound to scopes, disabled and found.

Whatever changes what somebody may do marks `callers`, so that no server goes by what it remembers.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import islice

from rota.domain.access import INSTALLATION, AbleAdmin, Role
from rota.domain.errors import Conflict, NotFound
from rota.domain.identity import handles_like
from rota.domain.ids import instant
from rota.ports.projects import (
    AWAITED,
    Binding,
    Principal,
    PrincipalKind,
    PrincipalRef,
)
from rota.store.projects import share_projects
from rota.store.rows import optional_instant
from rota.store.script import Many, Row, Script, query
from rota.store.sessions import bar
from rota.store.tx import Tx

_MOST_TRIES = 1_000  # handles with a number behind them


def no_such_principal(name: str) -> NotFound:
    return NotFound(
        f"there is no principal {name}",
        code="principal_not_found",
        hint="rota principal list shows them; a group that has no role yet is group:NAME",
    )


def find(
    handles: Collection[str] | None = None, *, after: str = "", limit: int = 1_000
) -> Script[list[Principal]]:
    if handles is None:
        rows = yield query("select_principals", after=after, limit=limit)
    else:
        rows = yield query("select_principals_by_handle", handles=handles)
    return [principal_from(row) for row in rows]


def principal_from(row: Row) -> Principal:
    return Principal(
        handle=row["handle"],
        kind=PrincipalKind(row["kind"]),
        issuer=row["issuer"],
        subject=row["subject"],
        title=row["title"],
        email=row["email"],
        created_by=row["created_by"],
        created_at=instant(row["created_at"]),
        disabled_at=optional_instant(row["disabled_at"]),
    )


def inherit(tx: Tx, handle: str, issuer: str, email: str) -> Script[None]:
    """Give a user who has logged in what was bound to their verified e-mail address before.

    For the transaction of their login. What they have already stays where it is higher.
    """
    subject = f"{AWAITED}{email.lower()}"
    awaited = (yield from by_subject(PrincipalKind.USER, issuer, subject)) if email else None
    if awaited is None:
        return
    for row in (yield query("select_bindings", scope=None, principal=awaited.handle)):
        own = yield query("role_in", principal=handle, scope=row["scope"])
        if not own or not Role(own[0]["role"]).includes(Role(row["role"])):
            values = (handle, row["scope"], row["role"], row["bound_by"], tx.now)
            yield Many("put_binding", [values])
        yield query("take_binding", principal=awaited.handle, scope=row["scope"])
        tx.effects.callers = True


def by_subject(kind: PrincipalKind, issuer: str, subject: str) -> Script[Principal | None]:
    """Whom an issuer calls so."""
    rows = yield query("principal_by_subject", kind=kind, issuer=issuer, subject=subject)
    return principal_from(rows[0]) if rows else None


def _found(handle: str) -> Script[Principal]:
    rows = yield query("select_principals_by_handle", handles=[handle])
    if not rows:
        raise no_such_principal(handle)
    return principal_from(rows[0])


def make(tx: Tx, ref: PrincipalRef, *, actor: str = "") -> Script[Principal]:
    """A principal, which is new unless it was made before; "": it comes by itself."""
    for handle in islice(handles_like(ref.handle), _MOST_TRIES):
        made = yield query(
            "insert_principal",
            handle=handle,
            kind=ref.kind,
            issuer=ref.issuer,
            subject=ref.subject,
            title=ref.title,
            email=ref.email,
            actor=actor or handle,
            now=tx.now,
        )
        if made:
            tx.record("principal.created", [handle], actor=actor or handle, kind=ref.kind)
            return (yield from _found(handle))
        known = yield from by_subject(ref.kind, ref.issuer, ref.subject)
        if known is not None:
            return known
    raise Conflict(f"all handles like {ref.handle} are taken", code="handle_taken")


def worker_principal(tx: Tx, worker: str, *, actor: str) -> Script[Principal]:
    """The principal of a worker, whose name is locked; made at first sight.

    What it is called tells it from somebody else with the handle that it would have.
    """
    for handle in islice(handles_like(worker), _MOST_TRIES):
        rows = yield query("select_principals_by_handle", handles=[handle])
        if not rows:
            made = yield query(
                "insert_principal",
                handle=handle,
                kind=PrincipalKind.WORKER,
                issuer="",
                subject=worker,
                title=worker,
                email="",
                actor=actor,
                now=tx.now,
            )
            if made:
                tx.record("principal.created", [handle], actor=actor, kind=PrincipalKind.WORKER)
            rows = yield query("select_principals_by_handle", handles=[handle])
        known = principal_from(rows[0])
        if known.kind is PrincipalKind.WORKER and (known.subject or handle) == worker:
            return known
    raise Conflict(f"all handles like {worker} are taken", code="handle_taken")


def disable(
    tx: Tx, handle: str, *, disabled: bool, actor: str, issuer: str = ""
) -> Script[Principal]:
    """Let a principal do nothing any more, or again; the sessions of a worker are barred."""
    known = yield from _found(handle)
    if disabled:
        yield from _refuse_last_admin(tx, handle, issuer, is_disabled=True)
    if (known.disabled_at is not None) != disabled:
        # Locked first: a session that is being opened with one of these is barred, too, or its
        # opening finds the worker disabled.
        credentials = (yield query("credentials_of", principal=handle)) if disabled else ()
        yield Many("set_disabled", [(tx.now if disabled else None, handle)])
        event = "principal.disabled" if disabled else "principal.enabled"
        tx.record(event, [handle], actor=actor)
        tx.effects.callers = True
        if credentials:
            yield from bar(tx, [row["id"] for row in credentials], actor=actor)
    return (yield from _found(handle))


def bind(
    tx: Tx,
    principal: str | PrincipalRef,
    scope: str,
    role: Role,
    *,
    actor: str,
    issuer: str = "",
) -> Script[Binding]:
    """Give a principal a role in a scope."""
    if scope != INSTALLATION:
        yield from share_projects([scope])
    known = yield from _resolved(principal)
    if known is None:
        if isinstance(principal, str):
            raise no_such_principal(principal)
        known = yield from make(tx, principal, actor=actor)
    if scope == INSTALLATION and role is not Role.ADMIN:
        yield from _refuse_last_admin(tx, known.handle, issuer)
    before = yield query("role_in", principal=known.handle, scope=scope)
    if not before or before[0]["role"] != role:
        yield Many("put_binding", [(known.handle, scope, role, actor, tx.now)])
        old = before[0]["role"] if before else None
        _record(tx, "role.granted", scope, known.handle, actor, role=role, before=old)
    [bound] = yield from find_bindings(scope=scope, principal=known.handle)
    return bound


def unbind(
    tx: Tx, principal: str | PrincipalRef, scope: str, *, actor: str, issuer: str = ""
) -> Script[bool]:
    """Take the role that a principal has in a scope."""
    known = yield from _resolved(principal)
    if known is None:
        return False
    if scope == INSTALLATION:
        yield from _refuse_last_admin(tx, known.handle, issuer)
    taken = yield query("take_binding", principal=known.handle, scope=scope)
    if taken:
        _record(tx, "role.revoked", scope, known.handle, actor, before=taken[0]["role"])
    return bool(taken)


def _record(tx: Tx, event: str, scope: str, handle: str, actor: str, **data: object) -> None:
    project = "" if scope == INSTALLATION else scope
    tx.record_in(project, event, [handle], actor=actor, **data)
    tx.effects.callers = True


def _resolved(principal: str | PrincipalRef) -> Script[Principal | None]:
    if isinstance(principal, str):
        rows = yield query("select_principals_by_handle", handles=[principal])
        return principal_from(rows[0]) if rows else None
    if principal.subject.startswith(AWAITED):
        rows = yield query("principals_by_email", issuer=principal.issuer, email=principal.email)
        if len(rows) > 1:
            raise Conflict(
                f"several users have the address {principal.email}",
                code="principal_ambiguous",
                hint=f"name one by its handle: {', '.join(row['handle'] for row in rows)}",
            )
        if rows:
            return principal_from(rows[0])
    return (yield from by_subject(principal.kind, principal.issuer, principal.subject))


def _refuse_last_admin(
    tx: Tx, handle: str, issuer: str, *, is_disabled: bool = False
) -> Script[None]:
    """`Conflict` if nobody else could change the installation once this one may not.

    Whoever has the role and no way to use it does not count: all their tokens have ended, or are
    narrowed; a worker; a person of another provider than `issuer`, which lets people in now, or of
    whom only an address is known; a group of whom nobody has logged in.
    """
    admins = {row["principal"] for row in (yield query("admins_of_installation"))}
    rows = yield query("able_admins", issuer=issuer, now=tx.now, awaited=AWAITED)
    able = [AbleAdmin(row["actor"], row["bound"]) for row in rows]
    left = [each for each in able if each.stays(handle, is_disabled=is_disabled)]
    if left or (handle not in admins and len(left) == len(able)):
        return
    raise Conflict(
        f"without {handle} nobody is left who can act as admin of the installation",
        code="last_admin",
        hint="make another one first, which has a token or has logged in: rota token create NAME"
        " --role admin --installation, or rota role grant PRINCIPAL admin --installation",
    )


def find_bindings(
    *, scope: str | None = None, principal: str | None = None
) -> Script[list[Binding]]:
    rows = yield query("select_bindings", scope=scope, principal=principal)
    return [
        Binding(
            principal_from(row),
            row["scope"],
            Role(row["role"]),
            row["bound_by"],
            instant(row["bound_at"]),
        )
        for row in rows
    ]


def orphaned_jobs(limit: int) -> Script[list[tuple[str, str, str]]]:
    rows = yield query("orphaned_jobs", limit=limit)
    return [(row["project"], row["name"], row["created_by"]) for row in rows]
