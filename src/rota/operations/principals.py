"""Principals and their roles: who is meant, giving and taking a role, disabling; and advice."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from typing import TypeAlias

from rota.domain.access import INSTALLATION, Rights, Role
from rota.domain.errors import Denied, Invalid, NotFound, Problem, quoted
from rota.domain.identity import handle_from
from rota.domain.spec import Isolation
from rota.domain.walls import OfferKind
from rota.operations.engine import Engine
from rota.operations.key_ring import SealingKey, key_uses
from rota.operations.logins import issuer_of
from rota.ports.projects import (
    AWAITED,
    Binding,
    Pool,
    Principal,
    PrincipalKind,
    PrincipalRef,
)

Who: TypeAlias = str | PrincipalRef  # a handle, or somebody as an issuer knows them

_MOST = 1_000  # of what an issuer calls somebody
_MOST_TOKENS = 100  # that advice names
_MOST_JOBS = 1_000  # that are looked at to give advice
_SHOWN = 5  # names of jobs
_ADDRESS = re.compile(r"[^@\s]+@[^@\s]+")
_FORMS = "write a handle, group:NAME, email:ADDRESS or user:SUB"


def read_principal(text: str, issuer: str) -> Who:
    """Read how somebody is named: a handle, `group:NAME`, `email:ADDRESS` or `user:SUB`.

    `issuer` vouches for the latter three; "": none is configured, nor given.
    """
    kind, separator, name = text.partition(":")
    if not separator:
        return text
    is_awaited = kind == "user" and name.startswith(AWAITED)  # what waits for another is not theirs
    if kind not in ("group", "email", "user") or not name or len(name) > _MOST or is_awaited:
        raise _unreadable(f"{quoted(text)} names nobody")
    if kind == "email" and not _ADDRESS.fullmatch(name):
        raise _unreadable(f"{quoted(name)} is not an e-mail address")
    if not issuer:
        raise Invalid(
            f"{quoted(text)} is known by an identity provider, and none is configured",
            code="no_issuer",
            hint="name it: --issuer URL",
        )
    return _reference(kind, name, issuer)


def _reference(kind: str, name: str, issuer: str) -> PrincipalRef:
    match kind:
        case "group":
            return PrincipalRef(PrincipalKind.GROUP, issuer, name, handle_from(name, kind), name)
        case "email":
            address = name.lower()
            handle = handle_from(address.partition("@")[0], kind)
            subject = f"{AWAITED}{address}"
            return PrincipalRef(PrincipalKind.USER, issuer, subject, handle, email=address)
        case _:
            return PrincipalRef(PrincipalKind.USER, issuer, name, handle_from(name, kind))


def _unreadable(message: str) -> Invalid:
    problem = Problem(message, "principal", hint=_FORMS)
    return Invalid("nobody can be found by this", [problem], code="bad_principal")


async def grant_role(
    engine: Engine, who: Who, scope: str, role: Role, *, by: Rights, actor: str
) -> Binding:
    """Give somebody a role in a project or in `*`; nobody can give more than they have there."""
    own = by.role_at(scope)
    if own is None or not own.includes(role):
        raise Denied(
            f"{actor} is {own or 'nothing'} there, and cannot make anybody {role}",
            code="forbidden",
            hint="nobody can give more than they have: ask somebody with that role",
        )
    return await engine.store.bind(who, scope, role, actor=actor, issuer=issuer_of(engine))


async def revoke_role(engine: Engine, who: Who, scope: str, *, actor: str) -> None:
    """Take the role that somebody has in a project or in `*`."""
    if not await engine.store.unbind(who, scope, actor=actor, issuer=issuer_of(engine)):
        where = "the installation" if scope == INSTALLATION else f"project {scope}"
        name = who if isinstance(who, str) else who.email or who.subject
        raise NotFound(
            f"{name} has no role of its own in {where}",
            code="role_not_found",
            hint="rota role list shows who has one",
        )


async def disable_principal(
    engine: Engine, handle: str, *, disabled: bool, actor: str
) -> Principal:
    """Let somebody do nothing any more, or again; their jobs go on: these are the project's."""
    return await engine.store.disable_principal(
        handle, disabled=disabled, actor=actor, issuer=issuer_of(engine)
    )


@dataclass(frozen=True, slots=True)
class Advice:
    """Something that an admin may want to tighten."""

    subject: str  # token, job, pool, key ring
    message: str
    action: str = ""
    is_note: bool = False  # worth knowing, and perhaps as it is meant to be


async def advice(engine: Engine) -> list[Advice]:
    """List what an admin may want to tighten: tokens, jobs of who left, shared pools, old keys."""
    return [
        *await _about_tokens(engine),
        *await _about_jobs(engine),
        *await _about_walls(engine),
        *await _about_pools(engine),
        *await _about_keys(engine),
    ]


async def _about_walls(engine: Engine) -> list[Advice]:
    """Tell how jobs run that name no isolation."""
    walls = await engine.store.wall_defaults()
    if walls.isolation is Isolation.PROCESS:
        message = "jobs that name none run as plain processes: they see what their worker sees"
        action = "rota server defaults --isolation sandbox, once workers offer one"
    else:
        message = f"jobs that name none run in a {walls.isolation}, network {walls.network}"
        action = ""
    return [Advice("isolation", message, action, is_note=True)]


async def _about_tokens(engine: Engine) -> list[Advice]:
    old = await engine.store.old_tokens(_MOST_TOKENS + 1)
    more = [Advice("token", f"there are more than {_MOST_TOKENS} of these", "rota token list")]
    return [
        Advice(
            "token",
            f"{token.id} ({token.name}) was made before projects had roles: it is {token.role} in"
            " every project",
            f"rota token create --project NAME, then rota token revoke {token.id}",
        )
        for token in old[:_MOST_TOKENS]
    ] + more * (len(old) > _MOST_TOKENS)


async def _about_jobs(engine: Engine) -> list[Advice]:
    jobs: dict[tuple[str, str], list[str]] = defaultdict(list)
    for project, job, creator in await engine.store.orphaned_jobs(_MOST_JOBS):
        jobs[creator, project].append(job)
    return [
        Advice(
            "job",
            f"{_some(names)} of project {project}: {creator}, who made {_them(names)}, has no role"
            " there, nor has a group that they were in at their latest login",
            f"rota role grant {creator} editor --project {project}, or apply as somebody else",
        )
        for (creator, project), names in jobs.items()
    ]


def _some(names: list[str]) -> str:
    shown = ", ".join(names[:_SHOWN])
    return f"{shown} and {len(names) - _SHOWN} more" if len(names) > _SHOWN else shown


def _them(names: list[str]) -> str:
    return "it" if len(names) == 1 else "them"


async def _about_pools(engine: Engine) -> list[Advice]:
    if len(await engine.store.projects(limit=2)) < 2:
        return []
    engines = {
        session.pool
        for session in await engine.store.sessions(alive_only=True)
        if f"{OfferKind.WALL}/{Isolation.CONTAINER}" in session.offered
    }
    return [
        _about_pool(pool, has_engine=pool.name in engines)
        for pool in await engine.store.pools()
        if pool.workers and pool.is_shared
    ]


def _about_pool(pool: Pool, *, has_engine: bool) -> Advice:
    users = len(pool.projects) or "all"
    shared = f"{pool.name} is shared by {users} projects"
    give = f"rota pool set {pool.name} --project NAME"
    if pool.refuses_processes:
        message = f"{shared}: their jobs run on the same machines, behind walls"
        return Advice("pool", message, give, is_note=True)
    message = f"{shared}, and plain processes may run there: they see one another's runs"
    if has_engine:
        message += ", and may use its workers' container engine"
    return Advice("pool", message, f"rota pool set {pool.name} --private, or {give}")


async def _about_keys(engine: Engine) -> list[Advice]:
    """Tell how much is left under which key of the ring but the first."""
    uses = [use for use in await key_uses(engine) if not use.is_first]
    return [_about_missing_key(use) if use.is_missing else _about_older_key(use) for use in uses]


def _about_missing_key(use: SealingKey) -> Advice:
    return Advice(
        "key ring",
        f"the key {use.key_id} is missing: {_values(use)} sealed with it and cannot be read",
        "put it back below the others in secrets_key; else people log in again",
    )


def _about_older_key(use: SealingKey) -> Advice:
    if use.values:
        message = f"{_values(use)} still sealed with the key {use.key_id}, until all are wrapped"
        return Advice("key ring", f"{message} anew", is_note=True)
    message = f"nothing is sealed with the key {use.key_id} any more: it can be taken out"
    return Advice("key ring", message, is_note=True)


def _values(use: SealingKey) -> str:
    return "1 value is" if use.values == 1 else f"{use.values:,} values are"
