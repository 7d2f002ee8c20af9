"""Projects and their pools: create, change, delete; and what they make of the jobs of a file."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rota.domain.access import no_such_project
from rota.domain.errors import Conflict, Invalid, NotFound, Problem
from rota.domain.jobfile import JobFile
from rota.domain.jobfile.export import Change, difference, differences
from rota.domain.jobfile.projects import (
    checked_defaults,
    checked_policy,
    problems_of_bounds,
    read_policy,
)
from rota.domain.jobfile.read import with_defaults
from rota.domain.jobfile.text import Report
from rota.domain.policy import Policy, excess_of_priority
from rota.domain.resources import Vector
from rota.operations.engine import Engine
from rota.ports.projects import NewProject, Pool, Project, ProjectFacts

MOST_STOPPED = 20  # names of jobs that a change of a policy tells
_TRIES = 5


@dataclass(frozen=True, slots=True)
class ProjectEdit:
    """Changes of a project: what is None stays.

    Defaults and policy are merged field by field, where null takes a field away (RFC 7396).
    """

    title: str | None = None
    defaults: Mapping[str, Any] | None = None
    policy: Mapping[str, Any] | None = None
    expected_version: int | None = None  # that it must have; None: any


@dataclass(frozen=True, slots=True)
class ProjectChange:
    """Effect of saving a project."""

    name: str
    change: Change
    version: int  # after it; of a plan, before
    differences: tuple[str, ...] = ()  # "policy.timeout  1h → 30m"
    stops: tuple[str, ...] = ()  # jobs that start nothing by the new policy; at most `MOST_STOPPED`


async def find_project(engine: Engine, name: str) -> Project:
    found = await engine.store.projects([name])
    if not found:
        raise no_such_project(name)
    return found[0]


async def create_project(engine: Engine, name: str, said: ProjectEdit, *, actor: str) -> Project:
    """Create a project. `Conflict` if there is or ever was one of this name."""
    return await engine.store.add_project(_new(name, said, _BLANK), actor=actor)


async def plan_project(engine: Engine, name: str, edit: ProjectEdit) -> ProjectChange:
    """Return what changing a project would change; write nothing."""
    before = await find_project(engine, name)
    _require_version(before, edit)
    return await _change(engine, before, _new(name, edit, before))


async def change_project(
    engine: Engine, name: str, edit: ProjectEdit, *, actor: str
) -> ProjectChange:
    """Change a project; its jobs keep to a new policy at once, and to new defaults when applied."""
    for _ in range(_TRIES):
        before = await find_project(engine, name)
        _require_version(before, edit)
        new = _new(name, edit, before)
        change = await _change(engine, before, new)
        if change.change is Change.UNCHANGED:
            return change
        try:
            after = await engine.store.change_project(
                new, expected_version=before.version, actor=actor
            )
        except Conflict as conflict:
            if conflict.code != "etag_mismatch" or edit.expected_version is not None:
                raise
        else:
            return replace(change, version=after.version)
    raise _changed_meanwhile(name)


async def delete_project(engine: Engine, name: str, *, actor: str) -> None:
    if not await engine.store.delete_project(name, actor=actor):
        raise no_such_project(name)


@dataclass(frozen=True, slots=True)
class _Blank:
    title: str = ""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    policy: Mapping[str, Any] = field(default_factory=dict)


_BLANK = _Blank()


def _new(name: str, edit: ProjectEdit, before: Project | _Blank) -> NewProject:
    defaults = patched(before.defaults, edit.defaults or {})
    policy = checked_policy(patched(before.policy, edit.policy or {}))
    return NewProject(
        name=name,
        title=before.title if edit.title is None else edit.title,
        defaults=checked_defaults(defaults),
        policy=read_policy(policy),
        policy_document=policy,
    )


def patched(document: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """Return a document with a merge patch: null takes a field away."""
    new = {name: value for name, value in document.items() if patch.get(name, value) is not None}
    for name, value in patch.items():
        if isinstance(value, Mapping):
            old = document.get(name)
            new[name] = patched(old if isinstance(old, Mapping) else {}, value)
        elif value is not None:
            new[name] = value
    return new


async def _change(engine: Engine, before: Project, new: NewProject) -> ProjectChange:
    lines = [
        *difference(before.title, new.title, "title"),
        *differences(before.policy, new.policy_document or {}, "policy"),
        *differences(before.defaults, new.defaults or {}, "defaults"),
    ]
    change = Change.CHANGED if lines else Change.UNCHANGED
    stops = await engine.store.jobs_beyond(before.name, new.policy, MOST_STOPPED) if lines else ()
    return ProjectChange(before.name, change, before.version, tuple(lines), tuple(stops))


def _require_version(project: Project, edit: ProjectEdit) -> None:
    if edit.expected_version not in (None, project.version):
        raise _changed_meanwhile(project.name)


def _changed_meanwhile(name: str) -> Conflict:
    return Conflict(
        f"project {name} changed since you looked at it",
        code="etag_mismatch",
        hint="look at it again",
    )


@dataclass(frozen=True, slots=True)
class PlannedProjects:
    """Job file with the defaults of its projects, and the facts by which it is judged."""

    file: JobFile  # with the defaults of its projects
    facts: Mapping[str, ProjectFacts]

    @property
    def versions(self) -> list[str]:
        return [f"project/{name}:{facts.version}" for name, facts in self.facts.items()]

    def refuse_excess(self, shared: Mapping[str, frozenset[str]]) -> None:
        """Raise `Invalid` if jobs ask for more than they may; `shared` are named resources."""
        report = Report()
        for entry in self.file.jobs:
            project = entry.spec.project
            facts = self.facts[project]
            # Without a policy, too, containers do not get just any user.
            if not facts.bounds.are_open or entry.spec.container is not None:
                for problem in problems_of_bounds(entry, facts.bounds, shared[project]):
                    report.add(problem)
        report.raise_errors("the job file")


async def plan_projects(engine: Engine, file: JobFile) -> PlannedProjects:
    """Return the file with the defaults of its projects. `NotFound` if one of these is not there.

    A file never creates a project: with a typing error its jobs would be nobody's.
    """
    facts = await facts_of(engine, file.projects)
    defaults = {name: each.defaults for name, each in facts.items()}
    walls = await engine.store.wall_defaults()
    # All of its jobs may be read again, and leases are renewed on this loop.
    file = await asyncio.to_thread(with_defaults, file, defaults, walls)
    return PlannedProjects(file, facts)


async def facts_of(engine: Engine, names: Collection[str]) -> dict[str, ProjectFacts]:
    """Return what decides about jobs of these projects. `NotFound` if one is not there."""
    facts = await engine.store.project_facts(sorted(names))
    for name in sorted(names):
        if name not in facts:
            raise no_such_project(name)
    return facts


async def refuse_priority(engine: Engine, project: str, priority: int | None) -> None:
    """Raise `Invalid` if runs of a project may not have this priority; None: that of the job."""
    if priority is None:
        return
    facts = await engine.store.project_facts([project])
    policy = facts[project].bounds.policy if project in facts else Policy()
    if excess := excess_of_priority(policy, priority):
        raise Invalid(
            f"the policy of project {project} does not allow it",
            [Problem(excess.message, "priority")],
            code="policy_exceeded",
            hint=f"rota project show {project} tells what is allowed",
        )


async def find_pool(engine: Engine, name: str) -> Pool:
    found = next((pool for pool in await engine.store.pools() if pool.name == name), None)
    if found is None:
        raise no_such_pool(name)
    return found


def no_such_pool(name: str) -> NotFound:
    """Return the error for a pool that is not there, and for one that is not for the caller."""
    return NotFound(
        f"there is no pool {name}", code="pool_not_found", hint="rota pool list shows them"
    )


async def give_pool(
    engine: Engine,
    name: str,
    projects: Sequence[str] | None,
    *,
    actor: str,
    is_private: bool | None = None,
    most: Vector | None = None,
) -> Pool:
    """Let only these projects use a pool; none: all may. It need not have workers yet.

    A private one keeps plain processes out while several projects may use it. A run that asks for
    more than `most` is refused. What is None stays.
    """
    if projects is None and is_private is None and most is None:
        raise Invalid("say who may use the pool, whether it is private, or the most a run may ask")
    await engine.store.give_pool(name, projects, actor=actor, is_private=is_private, most=most)
    found = [pool for pool in await engine.store.pools() if pool.name == name]
    return found[0] if found else Pool(name, 0, ())
