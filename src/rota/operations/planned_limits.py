"""The limits and resources of a job file: what applying it does to them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rota.domain.errors import Conflict, Problem
from rota.domain.jobfile import JobFile
from rota.domain.jobfile.declarations import declaration_document
from rota.domain.jobfile.uses import UsedJob, UsedResource
from rota.domain.limits import Declaration, Limit, Quota, Resource
from rota.operations.backends import Backends
from rota.operations.differences import Change, digest_of
from rota.operations.job_uses import check_uses
from rota.operations.limits import DeclarationChange, change_of
from rota.ports.limits import Declared
from rota.ports.records import JobQuery


@dataclass(frozen=True, slots=True)
class PlannedLimits:
    """The declarations that a file makes or uses, as applying it would leave them."""

    changes: Mapping[Declaration, DeclarationChange]  # of those that the file makes
    shared: Mapping[str, frozenset[str]]  # names of resources, by project
    quotas: Mapping[str, Quota]  # by project
    versions: tuple[str, ...]  # of all that the plan looked at
    warnings: tuple[Problem, ...]

    @property
    def limits(self) -> tuple[DeclarationChange, ...]:
        return tuple(change for new, change in self.changes.items() if isinstance(new, Limit))

    @property
    def resources(self) -> tuple[DeclarationChange, ...]:
        return tuple(change for new, change in self.changes.items() if isinstance(new, Resource))

    @property
    def new(self) -> tuple[Declaration, ...]:
        """What is to be saved."""
        return tuple(
            new for new, change in self.changes.items() if change.change is not Change.UNCHANGED
        )

    def newly_shared_in(self, project: str) -> frozenset[str]:
        """Resources that are not shared yet."""
        return frozenset(
            new.name
            for new, change in self.changes.items()
            if (type(new), new.project, change.change) == (Resource, project, Change.NEW)
        )


async def plan_limits(
    backends: Backends, file: JobFile, *, removed: Collection[str] = ()
) -> PlannedLimits:
    """What applying a file does to limits and resources; `Invalid` if its jobs cannot have theirs.

    `removed` are jobs of the file's project that go with it.
    """
    projects = sorted({file.project, *(entry.spec.project for entry in file.jobs)})
    stored = {project: await backends.store.declarations(project) for project in projects}
    declared = {project: _declared(file, project, stored[project]) for project in projects}
    return PlannedLimits(
        changes=_changes(file, stored[file.project]),
        shared={project: _resources(each) for project, each in declared.items()},
        quotas=_quotas(declared),
        versions=tuple(_versions(file, stored)),
        warnings=await check_uses(backends, file, declared, removed),
    )


async def refuse_over_quota(
    backends: Backends,
    file: JobFile,
    existing: Collection[tuple[str, str]],
    limits: PlannedLimits,
    *,
    removed: Collection[str] = (),
) -> None:
    """`Conflict` if a project would have more jobs than its quota; `existing` are not new."""
    for project, quota in limits.quotas.items():
        refs = {(entry.spec.project, entry.name) for entry in file.jobs}
        new = sum(ref[0] == project for ref in refs - set(existing))
        if quota.jobs is None or not new:
            continue
        gone = len(removed) if project == file.project else 0
        most = quota.jobs + gone - new  # that there may be now
        there = await backends.store.jobs(JobQuery(project=project, limit=max(most, 0) + 1))
        if len(there) > most:
            raise Conflict(
                f"project {project} would go beyond its quota of jobs, {quota.jobs:,},"
                f" with {new:,} more",
                code="quota_exceeded",
                hint="delete some, or ask an admin to raise the quota: rota quota show",
                facts={"quota": "jobs", "limit": quota.jobs},
            )


def _declared(file: JobFile, project: str, stored: Sequence[Declared]) -> list[Declaration]:
    """Those of the store and then those of the file, which replace them."""
    ours = file.declarations if project == file.project else ()
    return [*(each.declaration for each in stored), *ours]


def _changes(file: JobFile, stored: Sequence[Declared]) -> dict[Declaration, DeclarationChange]:
    old = {_ref(each.declaration): each.declaration for each in stored}
    return {new: change_of(new, old.get(_ref(new))) for new in file.declarations}


def _resources(declared: Sequence[Declaration]) -> frozenset[str]:
    return frozenset(each.name for each in declared if isinstance(each, Resource))


def _quotas(declared: Mapping[str, Sequence[Declaration]]) -> dict[str, Quota]:
    return {
        project: each
        for project, found in declared.items()
        for each in found
        if isinstance(each, Quota)
    }


def _versions(file: JobFile, stored: Mapping[str, Sequence[Declared]]) -> Iterator[str]:
    """Of what the file declares or uses."""
    refs = {_ref(each) for each in file.declarations}
    refs |= {
        (entry.spec.project, Resource if isinstance(use, UsedResource) else Limit, use.name)
        for entry in file.jobs
        for use in entry.uses
        if not isinstance(use, UsedJob)
    }
    every = [each.declaration for found in stored.values() for each in found]
    for each in every:
        if not isinstance(each, Quota) and _ref(each) in refs:
            kind, digest = type(each).__name__, digest_of(declaration_document(each))
            yield f"{kind}/{each.project}/{each.name}:{digest}"


def _ref(declaration: Declaration) -> tuple[str, type[Declaration], str]:
    return declaration.project, type(declaration), declaration.name
