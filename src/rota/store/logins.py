"""Logins of people: begun and finished, sessions that are kept, terminals that wait."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

from rota.domain.access import INSTALLATION, Rights, Role, combined
from rota.domain.errors import Denied
from rota.domain.identity import EndedSession, Person, handle_from, wished_handle
from rota.domain.ids import micros
from rota.domain.key_ring import sealed_by
from rota.ports.logins import (
    DeviceGrant,
    FoundPerson,
    LoginAttempt,
    Polled,
    ProviderFacts,
    Resealed,
    SealedLogin,
    SealedValue,
    TakenRefresh,
)
from rota.ports.projects import AWAITED, Principal, PrincipalKind, PrincipalRef
from rota.ports.records import NewToken
from rota.store import principals, tokens
from rota.store.rows import to_json, token_from
from rota.store.script import Many, Row, Script, query
from rota.store.tx import Tx

_MICROSECOND = timedelta(microseconds=1)
_SLOWER = timedelta(seconds=5) // _MICROSECOND  # for terminals that ask too often
_NEVER_IDLE = timedelta(days=366) // _MICROSECOND  # of a terminal that no provider knows
_ADMIN_GROUPS = "oidc_admin_groups"  # who made bindings of groups that the settings name


# --- under way


def begin(tx: Tx, attempt: LoginAttempt, lifetime: timedelta) -> Script[None]:
    """A login that any server can finish; those that nobody finished are forgotten."""
    values = (
        attempt.state,
        attempt.browser,
        attempt.nonce,
        attempt.verifier,
        attempt.next,
        tx.now + lifetime // _MICROSECOND,
    )
    yield query("drop_old_attempts", now=tx.now)
    yield Many("insert_attempt", [values])


def finish(tx: Tx, state: str, browser: str) -> Script[LoginAttempt | None]:
    """A login, which can be finished no more."""
    rows = yield query("take_attempt", state=state, browser=browser, now=tx.now)
    for row in rows:
        return LoginAttempt(state, browser, row["nonce"], row["verifier"], row["next"])
    return None


# --- people


def sign_in(tx: Tx, person: Person) -> Script[str]:
    """The handle of a user; at first sight they become a principal without any role."""
    known = yield from principals.by_subject(PrincipalKind.USER, person.issuer, person.subject)
    if known is None:
        known = (yield from _come(person)) or (yield from principals.make(tx, _reference(person)))
    handle = known.handle
    if known.disabled_at is not None:
        raise disabled(handle)
    if (known.title, known.email) != (person.title, person.email):
        yield Many("rename_user", [(person.title, person.email, handle)])
    values = (to_json(person.groups), person.issuer, person.subject)
    yield Many("remember_groups", [values], exactly=False)
    yield from principals.inherit(tx, handle, person.issuer, person.email)
    return handle


def disabled(handle: str) -> Denied:
    return Denied(
        f"{handle} is disabled here", code="login_refused", hint="an admin can enable it again"
    )


def _reference(person: Person) -> PrincipalRef:
    handle, kind = wished_handle(person), PrincipalKind.USER
    return PrincipalRef(kind, person.issuer, person.subject, handle, person.title, person.email)


def _come(person: Person) -> Script[Principal | None]:
    """The principal that was made of a person's address, and is theirs from now on; None: none.

    So they have the handle under which somebody gave them their roles, or has disabled them.
    """
    if not person.email:
        return None
    rows = yield query(
        "user_comes",
        issuer=person.issuer,
        awaited=f"{AWAITED}{person.email}",
        subject=person.subject,
    )
    return principals.principal_from(rows[0]) if rows else None


def find_person(person: Person) -> Script[FoundPerson | None]:
    """A user with their own roles and those of their groups."""
    rows = yield query("roles_of_user", issuer=person.issuer, subject=person.subject)
    if not rows:
        return None
    bound = [(row["scope"], Role(row["bound"])) for row in rows if row["scope"] is not None]
    if person.groups:
        theirs = yield query("roles_of_groups", issuer=person.issuer, groups=list(person.groups))
        bound += [(row["scope"], Role(row["bound"])) for row in theirs]
    first = rows[0]
    return FoundPerson(first["handle"], Rights(combined(bound)), first["disabled_at"] is not None)


def bind_admin_groups(tx: Tx, issuer: str, groups: frozenset[str]) -> Script[None]:
    """Groups that are admins by the settings, as bindings that everybody can see."""
    before = yield query("groups_bound_by", by=_ADMIN_GROUPS)
    for row in before:
        if row["issuer"] != issuer or row["subject"] not in groups:
            yield query("take_binding", principal=row["handle"], scope=INSTALLATION)
            tx.effects.callers = True
    bound = {row["subject"] for row in before if row["issuer"] == issuer}
    for group in sorted(groups - bound):
        ref = PrincipalRef(PrincipalKind.GROUP, issuer, group, handle_from(f"group-{group}"), group)
        handle = (yield from principals.make(tx, ref, actor=_ADMIN_GROUPS)).handle
        given = yield query("role_in", principal=handle, scope=INSTALLATION)
        if given and Role(given[0]["role"]) is Role.ADMIN:  # by somebody, who may take it again
            continue
        yield Many("put_binding", [(handle, INSTALLATION, Role.ADMIN, _ADMIN_GROUPS, tx.now)])
        tx.effects.callers = True


# --- sessions


def open_session(tx: Tx, token: NewToken, told: ProviderFacts, idle: timedelta) -> Script[None]:
    """A session, and what the provider said; their other sessions learn of the groups.

    Nobody has said anything of whoever comes by a link or with a token: their session ends as
    others do, and is of nobody else.
    """
    yield from tokens.add(tx, token)
    person = told.person or Person(issuer="", subject=token.id, username="")
    values = (
        token.id,
        person.issuer,
        person.subject,
        person.sid,
        to_json(person.groups),
        told.refresh_token,
        told.id_token,
        tx.now,
        tx.now + idle // _MICROSECOND,
    )
    yield Many("insert_login", [values])
    if told.person is not None:
        yield query("vouch_for_terminals", token=token.id, now=tx.now)
        yield from _spread_groups(tx, person)
    yield query("drop_logins_without_token")


def _spread_groups(tx: Tx, person: Person) -> Script[None]:
    """All sessions of a person, terminals too, have the groups that the provider told last."""
    values = (to_json(person.groups), person.issuer, person.subject)
    yield Many("remember_groups", [values], exactly=False)
    changed = yield query(
        "set_groups", issuer=person.issuer, subject=person.subject, groups=to_json(person.groups)
    )
    if changed:
        tx.effects.callers = True


def keep(tx: Tx, token: str, idle: timedelta, lifetime: timedelta, most: timedelta) -> Script[None]:
    """A session was used: browsers have an idle end, terminals one that moves on."""
    yield query("move_idle_end", token=token, until=tx.now + idle // _MICROSECOND)
    yield query(
        "move_terminal_end",
        token=token,
        until=tx.now + lifetime // _MICROSECOND,
        most=most // _MICROSECOND,
    )


def take_refresh(
    tx: Tx, token: str, older: timedelta, lasts: timedelta
) -> Script[TakenRefresh | None]:
    """A server takes it on to refresh a session, for as long as a provider may need."""
    taken = yield from _take(tx, token, older, lasts)
    if taken is not None or not (yield query("terminal", token=token)):
        return taken
    # A terminal has no refresh token of its own.
    for row in (yield query("refreshable_of_person", token=token)):
        taken = yield from _take(tx, row["token"], older, lasts)
        if taken is not None:
            break
    # Its own row comes last: who saves a refresh locks that of the browser first, too.
    yield query("postpone_refresh", token=token, until=tx.now + lasts // _MICROSECOND)
    return taken


def _take(tx: Tx, token: str, older: timedelta, lasts: timedelta) -> Script[TakenRefresh | None]:
    rows = yield query(
        "take_refresh",
        token=token,
        now=tx.now,
        before=tx.now - older // _MICROSECOND,
        until=tx.now + lasts // _MICROSECOND,
    )
    return TakenRefresh(token, str(rows[0]["refresh_token"])) if rows else None


def save_refresh(tx: Tx, token: str, told: ProviderFacts) -> Script[None]:
    """Keep what the provider said at a refresh."""
    yield query(
        "save_refresh",
        token=token,
        now=tx.now,
        refresh_token=told.refresh_token,
        id_token=told.id_token,
    )
    yield query("vouch_for_terminals", token=token, now=tx.now)
    if told.person is not None:
        yield from _spread_groups(tx, told.person)


def end_refused(tx: Tx, token: str) -> Script[None]:
    """The provider does not know this session any more, nor perhaps the person."""
    yield from tokens.revoke(tx, token, actor="provider")
    if (yield query("refreshable_of_person", token=token)):
        return
    ended = yield query("end_terminals", token=token, now=tx.now)
    if ended:
        tx.record("token.revoked", [row["id"] for row in ended], actor="provider")


def id_token_of(token: str) -> Script[tuple[str, str | None] | None]:
    rows = yield query("id_token_of", token=token)
    return (rows[0]["issuer"], rows[0]["id_token"]) if rows else None


def sealed(key_id: str, after: str, limit: int) -> Script[list[SealedLogin]]:
    """Sessions with values that another key than this has wrapped, by id."""
    rows = yield query("sealed_logins", current=sealed_by(key_id), after=after, limit=limit)
    return [
        SealedLogin(
            row["token"],
            tuple(
                SealedValue(row["token"], row[column], column == "refresh_token")
                for column in ("refresh_token", "id_token")
                if row[column] is not None
            ),
        )
        for row in rows
    ]


def reseal(tx: Tx, resealed: Sequence[Resealed]) -> Script[None]:
    """Values that were wrapped anew: what a login or refresh has written since then stays."""
    for name, is_refresh_token in (("reseal_refresh_token", True), ("reseal_id_token", False)):
        values = [
            (each.sealed, each.value.token, each.value.sealed)
            for each in resealed
            if each.value.is_refresh_token is is_refresh_token
        ]
        if values:
            yield Many(name, values, exactly=False)


def keys() -> Script[dict[str, int]]:
    """How many values each key has sealed."""
    return {row["key_id"]: row["count"] for row in (yield query("keys_of_logins"))}


def end(tx: Tx, ended: EndedSession) -> Script[int]:
    """Sessions that the provider has ended; their number."""
    rows = yield query(
        "end_logins",
        issuer=ended.issuer,
        sid=ended.sid,
        subject=ended.subject,
        at=micros(ended.at),
        now=tx.now,
    )
    if rows:
        tx.effects.callers = True
        tx.record("token.revoked", [row["id"] for row in rows], actor="provider")
    return len(rows)


# --- terminals


def begin_device(tx: Tx, grant: DeviceGrant, lifetime: timedelta, every: timedelta) -> Script[None]:
    """A terminal that waits; those that nobody let in are forgotten."""
    interval = every // _MICROSECOND
    values = (
        grant.device,
        grant.code,
        grant.host,
        grant.address,
        tx.now + lifetime // _MICROSECOND,
        tx.now - interval,
        interval,
    )
    yield query("drop_old_devices", now=tx.now)
    yield Many("insert_device", [values])


def device_by_code(now: int, code: str) -> Script[DeviceGrant | None]:
    rows = yield query("device_by_code", code=code, now=now)
    for row in rows:
        return DeviceGrant(row["device"], row["code"], row["host"], row["address"])
    return None


def decide_device(tx: Tx, code: str, session: str, *, is_approved: bool) -> Script[bool]:
    """Whether it still waited."""
    state = "approved" if is_approved else "denied"
    rows = yield query("decide_device", code=code, session=session, state=state, now=tx.now)
    return bool(rows)


def poll_device(tx: Tx, device: str, token: NewToken) -> Script[Polled]:
    """Answer a terminal that polls; once it was let in, its token is made."""
    rows = yield query("device_to_poll", device=device)
    if not rows or rows[0]["expires_at"] <= tx.now or rows[0]["state"] == "used":
        return Polled.EXPIRED
    row = rows[0]
    if row["state"] == "denied":
        return Polled.DENIED
    if row["state"] == "approved":
        is_let_in = yield from _let_in(tx, row, token)
        return Polled.GRANTED if is_let_in else Polled.DENIED
    is_too_soon = tx.now - row["asked_at"] < row["every"]
    every = row["every"] + _SLOWER if is_too_soon else row["every"]
    yield Many("note_poll", [(tx.now, every, device)])
    return Polled.TOO_SOON if is_too_soon else Polled.PENDING


def _let_in(tx: Tx, grant: Row, token: NewToken) -> Script[bool]:
    """Whether the session that let it in is still open; then the terminal has its rights."""
    yield query("use_up_device", device=grant["device"])
    rows: Sequence[Row] = yield query("open_session_of", id=grant["session"], now=tx.now)
    if not rows:
        return False
    opener = token_from(rows[0])
    made = replace(
        token,
        name=opener.name,
        role=opener.role,
        created_by=opener.name,
        parent=rows[0]["parent"],
        principal=opener.principal,
        project=opener.project,
        verbs=opener.verbs,
    )
    yield from tokens.add(tx, made)
    never = tx.now + _NEVER_IDLE
    yield query("copy_login", opener=opener.id, token=token.id, never=never)
    return True
