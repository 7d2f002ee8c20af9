"""Projects, pools given to them, and principals with their roles: what the store keeps of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Protocol

from rota.domain.access import Role
from rota.domain.policy import Bounds, Policy
from rota.domain.resources import Vector
from rota.domain.spec import Isolation, Network
from rota.domain.walls import WallDefaults


@dataclass(frozen=True, slots=True)
class Project:
    """A tenant."""

    name: str
    title: str
    defaults: Mapping[str, Any]  # fields of jobs that do not set them, in the job file's words
    policy: Mapping[str, Any]  # what its jobs may ask for at the most, as people write it
    version: int
    created_by: str
    created_at: datetime
    updated_by: str
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class NewProject:
    """All that people say about a project."""

    name: str
    title: str = ""
    defaults: Mapping[str, Any] | None = None  # None: none
    policy: Policy = Policy()
    policy_document: Mapping[str, Any] | None = None  # the same, as people write it


@dataclass(frozen=True, slots=True)
class ProjectFacts:
    """Facts of a project that decide about its jobs when they are applied."""

    defaults: Mapping[str, Any]
    bounds: Bounds
    version: int


@dataclass(frozen=True, slots=True)
class Pool:
    """A pool that has or had workers, or was given to projects."""

    name: str
    workers: int  # that are connected now
    projects: tuple[str, ...]  # that alone may use it; empty: all
    is_private: bool = False  # it keeps plain processes out while it is shared
    is_shared: bool = False  # several projects may use it
    refuses_processes: bool = False  # it is shared, and it or the store keeps them out
    most: Vector = field(default_factory=dict)  # that one run may ask for; what is missing: any


class PrincipalKind(StrEnum):
    USER = "user"
    SERVICE = "service"
    GROUP = "group"
    WORKER = "worker"
    SYSTEM = "system"


@dataclass(frozen=True, slots=True)
class Principal:
    """Whoever can act, or a group of people."""

    handle: str
    kind: PrincipalKind
    issuer: str  # who vouches for a user or a group; "": we do
    subject: str  # what the issuer calls it
    title: str
    email: str  # verified by the issuer; "": none
    created_by: str
    created_at: datetime
    disabled_at: datetime | None = None  # it may do nothing from then on

    @property
    def is_awaited(self) -> bool:
        """Return whether it stands for an e-mail address whose owner has not logged in yet."""
        return self.subject.startswith(AWAITED)


# Begins the subject of a user of whom only a verified address is known. No provider calls anybody
# so: a `sub` is ASCII.
AWAITED = "✉ "


@dataclass(frozen=True, slots=True)
class PrincipalRef:
    """Somebody as an issuer knows them, perhaps never seen here: a row is made when needed."""

    kind: PrincipalKind  # USER or GROUP
    issuer: str
    subject: str  # `sub` of a user, name of a group, or AWAITED and an address
    handle: str  # that it gets if it is new, made unique by a number behind it
    title: str = ""
    email: str = ""


@dataclass(frozen=True, slots=True)
class Binding:
    """Role of a principal in a project, or in all and with the installation (`*`)."""

    principal: Principal
    scope: str
    role: Role
    created_by: str
    created_at: datetime


class ProjectStore(Protocol):
    """Projects and pools, a part of `rota.ports.store.Store`."""

    async def add_project(self, new: NewProject, *, actor: str) -> Project:
        """Create a project. `Conflict` if there is or ever was one of this name."""
        ...

    async def change_project(
        self, changed: NewProject, *, expected_version: int, actor: str
    ) -> Project:
        """Replace all that is said about a project. `Conflict` if it is not as expected.

        Jobs that ask for more than its policy allows from now on start nothing more.
        """
        ...

    async def delete_project(self, name: str, *, actor: str) -> bool:
        """Delete a project for good; return whether there was one. `Conflict`: something lives.

        Its roles go with it and its tokens are revoked; the name is never given again.
        """
        ...

    async def projects(
        self, names: Collection[str] | None = None, *, after: str = "", limit: int = 1_000_000
    ) -> list[Project]:
        """List projects by name; with `names`, those of them that exist."""
        ...

    async def existing_projects(self, names: Collection[str]) -> frozenset[str]:
        """Return which of these are projects."""
        ...

    async def project_facts(self, names: Collection[str]) -> dict[str, ProjectFacts]:
        """Return what decides about jobs, of those projects that exist."""
        ...

    async def jobs_beyond(self, project: str, policy: Policy, limit: int) -> list[str]:
        """List jobs that ask for more than the project may by this policy, by name."""
        ...

    async def pools(self) -> list[Pool]:
        """List the pools that are known, by name."""
        ...

    async def most_of_pools(self, names: Sequence[str]) -> Mapping[str, Vector]:
        """Return the most that one run may ask these pools for, where somebody has set it."""
        ...

    async def give_pool(
        self,
        pool: str,
        projects: Sequence[str] | None,
        *,
        actor: str,
        is_private: bool | None = None,
        most: Vector | None = None,
    ) -> None:
        """Let only these projects use a pool; none: all may. And keep processes out, if shared.

        No run may ask it for more than `most`. What is None stays. Jobs that may not run there any
        more start nothing. `NotFound`: no such project.
        """
        ...

    async def wall_defaults(self) -> WallDefaults:
        """Return the walls of jobs that ask for none."""
        ...

    async def settle_walls(self, defaults: WallDefaults) -> WallDefaults:
        """Write the walls of a new store down; return those that it has then.

        A store that has some keeps them: one that is used by an earlier release has processes.
        """
        ...

    async def change_walls(
        self, isolation: Isolation | None, network: Network | None, *, actor: str
    ) -> WallDefaults:
        """Change the walls of jobs that ask for none, from their next apply on; None: stays."""
        ...


class PrincipalStore(Protocol):
    """Principals and their roles, a part of `rota.ports.store.Store`."""

    async def principals(
        self, handles: Collection[str] | None = None, *, after: str = "", limit: int = 1_000
    ) -> list[Principal]:
        """List principals by handle; with `handles`, those of them that exist."""
        ...

    async def disable_principal(
        self, handle: str, *, disabled: bool, actor: str, issuer: str = ""
    ) -> Principal:
        """Let a principal do nothing any more, or again. `NotFound`: there is none.

        `Conflict`: nobody else can act as admin of the installation. Only people of `issuer`, which
        lets them in now, could log in.
        """
        ...

    async def bind(
        self,
        principal: str | PrincipalRef,
        scope: str,
        role: Role,
        *,
        actor: str,
        issuer: str = "",
    ) -> Binding:
        """Give a principal a role in a project or in `*`, in place of the one it had there.

        `NotFound`: no such principal or project. `Conflict`: as of `disable_principal`.
        """
        ...

    async def unbind(
        self, principal: str | PrincipalRef, scope: str, *, actor: str, issuer: str = ""
    ) -> bool:
        """Take a role; return whether there was one. `Conflict`: as of `disable_principal`."""
        ...

    async def bindings(
        self, *, scope: str | None = None, principal: str | None = None
    ) -> list[Binding]:
        """List roles by scope and principal."""
        ...

    async def orphaned_jobs(self, limit: int) -> list[tuple[str, str, str]]:
        """List jobs, as (project, job, creator), whose creator has no role there any more."""
        ...
