"""Access of a caller: roles by project, narrowed by the token that was shown.

A role is held in a project, or in `*`: in every project and in the installation itself. What
counts in a project is the higher of the two, and never more than the token's own role. A token may
also be bound to one project, and to some verbs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from types import MappingProxyType
from typing import TypeAlias

from rota.domain.errors import Denied, NotFound, quoted
from rota.domain.spec import DEFAULT_PROJECT

INSTALLATION = "*"  # the scope of roles that count everywhere

# Projects that a list is about: one, some, or None for all.
ProjectSet: TypeAlias = str | tuple[str, ...] | None


def is_in(project: str, wanted: ProjectSet) -> bool:
    """Return whether a project is one of those that are wanted."""
    return wanted is None or project == wanted or (isinstance(wanted, tuple) and project in wanted)


class Role(StrEnum):
    """What a user or token may do in a project; each includes those before it."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    EDITOR = "editor"
    ADMIN = "admin"

    @property
    def rank(self) -> int:
        return _RANKS[self]

    def includes(self, other: Role) -> bool:
        return self.rank >= other.rank


_RANKS = {role: rank for rank, role in enumerate(Role)}


class Verb(StrEnum):
    """What a token may be narrowed to; what has no verb, no narrowed token may do."""

    READ = "read"  # look at anything
    TRIGGER = "trigger"  # let work begin or go on: runs, backfills, carts, resuming, releasing
    CANCEL = "cancel"  # keep work from going on: cancelling, holding, pausing, skipping
    APPLY = "apply"  # change definitions: jobs, calendars, limits, resources, templates
    RESOLVE = "resolve"  # say how a run ended
    UPLOAD = "upload"
    SECRETS = "secrets"
    METRICS = "metrics"


def highest(*roles: Role | None) -> Role | None:
    """Return the highest of these roles; None: there is none."""
    return max((role for role in roles if role), key=_RANKS.__getitem__, default=None)


def lowest(first: Role, *others: Role) -> Role:
    """Return the lowest of these roles."""
    return min((first, *others), key=_RANKS.__getitem__)


@dataclass(frozen=True, slots=True)
class Rights:
    """Roles of a principal and its groups, narrowed by the token that was shown."""

    roles: Mapping[str, Role] = field(default_factory=lambda: MappingProxyType({}))  # by scope
    ceiling: Role = Role.ADMIN  # no more than this anywhere
    project: str | None = None  # the only one; None: any, and the installation
    verbs: frozenset[Verb] | None = None  # nothing else; None: all that the role allows

    def role_in(self, project: str) -> Role | None:
        """Return the role in a project; None: to this caller, it does not exist."""
        if self.project not in (None, project):
            return None
        role = highest(self.roles.get(project), self.roles.get(INSTALLATION))
        return None if role is None else lowest(self.ceiling, role)

    @property
    def installation_role(self) -> Role | None:
        """Return the role in what belongs to no project; None: there is none."""
        role = None if self.project is not None else self.roles.get(INSTALLATION)
        return None if role is None else lowest(self.ceiling, role)

    def role_at(self, scope: str) -> Role | None:
        """Return the role in a project, or in the installation."""
        return self.installation_role if scope == INSTALLATION else self.role_in(scope)

    @property
    def is_installation_admin(self) -> bool:
        return self.installation_role is Role.ADMIN and self.verbs is None

    def projects(self, role: Role = Role.VIEWER) -> tuple[str, ...] | None:
        """List the projects in which there is at least this role; None: in all that exist."""
        everywhere = self.installation_role
        if everywhere is not None and everywhere.includes(role):
            return None
        named = {self.project} if self.project is not None else self.roles.keys() - {INSTALLATION}
        return tuple(sorted(each for each in named if self._has(role, each)))

    def _has(self, role: Role, project: str) -> bool:
        has = self.role_in(project)
        return has is not None and has.includes(role)

    def is_member(self, project: str) -> bool:
        """Return whether there is a role in this very project, which therefore exists."""
        return project in self.roles

    def allows(self, verb: Verb | None) -> bool:
        """Return whether the token may do this, if the role allows it."""
        return self.verbs is None or verb in self.verbs

    def by_scope(self) -> dict[str, Role]:
        """Return what is left of the roles, by scope in order."""
        if self.project is not None:
            role = self.role_in(self.project)
            return {} if role is None else {self.project: role}
        return {scope: lowest(self.ceiling, self.roles[scope]) for scope in sorted(self.roles)}


def everywhere(role: Role) -> Rights:
    """Return the rights of a token from before there were principals: its role in all projects."""
    return Rights(MappingProxyType({INSTALLATION: role}), role)


def combined(bindings: Iterable[tuple[str, Role]]) -> Mapping[str, Role]:
    """Return the highest role by scope, of one's own bindings and those of one's groups."""
    roles: dict[str, Role] = {}
    for scope, role in bindings:
        if scope not in roles or role.rank > roles[scope].rank:
            roles[scope] = role
    return MappingProxyType(roles)


def no_such_project(project: str, hint: str = "") -> NotFound:
    """Return the error for a project that is not there, and for one that is not the caller's."""
    return NotFound(
        f"there is no project {quoted(project)}",
        code="project_not_found",
        hint=hint or f"an installation admin makes it: rota project create {project}",
    )


def require(
    who: str, rights: Rights, role: Role, scope: str = DEFAULT_PROJECT, verb: Verb | None = None
) -> None:
    """Raise an error unless there is at least this role in a project, or in the installation.

    Whoever has no role in a project is told that there is none of this name. Narrowed tokens must
    have the verb; whatever has none is not for them.
    """
    has = rights.role_at(scope)
    if has is None and scope != INSTALLATION:
        raise no_such_project(scope)
    where = "the installation" if scope == INSTALLATION else f"the project {scope}"
    if has is None or not has.includes(role):
        raise Denied(
            f"this needs the role {role} in {where}, {who} is {has or 'nothing'} there",
            code="forbidden",
            hint="ask an admin for that role, or for a token with it",
        )
    require_verb(rights, verb)


def require_verb(rights: Rights, verb: Verb | None) -> None:
    """Raise `Denied` if the token is narrowed to other verbs; None: no narrowed one will do."""
    if not rights.allows(verb):
        allowed = ", ".join(sorted(rights.verbs or ())) or "nothing"
        wanted = f"with the verb {verb}" if verb else "without verbs"
        raise Denied(
            f"this token is for {allowed} only",
            code="forbidden",
            hint=f"ask an admin for a token {wanted}",
        )


def may_give_secret(giver: Rights, kind: str, scopes: Iterable[str]) -> bool:
    """Return whether the giver may make another token for a principal that is there already.

    Whoever has its token has all of its roles: so only those may who could have given each of them,
    and never one of a person.
    """
    return kind == "service" and all(giver.role_at(scope) is Role.ADMIN for scope in scopes)


@dataclass(frozen=True, slots=True)
class AbleAdmin:
    """An admin of the installation who has a way to act as one."""

    actor: str  # handle of whoever acts
    bound: str  # of whoever has the role: the same, or a group of theirs

    def stays(self, without: str, *, is_disabled: bool) -> bool:
        """Return whether they still can, once this one has no role there, or is disabled."""
        return self.bound != without and not (is_disabled and self.actor == without)


@dataclass(frozen=True, slots=True)
class TokenTerms:
    """Terms of a program's token: its project, its verbs, its lifetime."""

    project: str | None = None  # the only one; None: the installation, with all projects
    verbs: frozenset[Verb] | None = None  # all that it may do; None: what its role allows
    lifetime: timedelta | None = None  # None: until it is revoked
