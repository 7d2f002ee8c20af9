"""Limits and resources of a job file: the effect of applying it, and which jobs can use them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from rota.domain.errors import Conflict, Problem
from rota.domain.job import Job
from rota.domain.jobfile import JobEntry, JobFile
from rota.domain.jobfile.declarations import declaration_document
from rota.domain.jobfile.demands import job_of
from rota.domain.jobfile.export import Change, digest_of
from rota.domain.jobfile.text import Report
from rota.domain.jobfile.uses import (
    Known,
    UsedJob,
    UsedResource,
    Written,
    cycle_problem,
    of_no_worker,
    problems_of,
    refusals_of,
    too_large,
    without_labels,
    without_worker,
)
from rota.domain.keys import Declaration, Limit, Quota, Resource
from rota.domain.resources import Vector
from rota.domain.spec import EXTERNAL_POOL
from rota.operations.calendars import PlannedCalendars
from rota.operations.engine import Engine
from rota.operations.limits import DeclarationChange, change_of
from rota.operations.tenants import open_sessions
from rota.operations.walls import demands_of, without_walls
from rota.ports.records import Declared, JobQuery, Session

_MOST_MEANT = 1_000  # names that a wrong one is compared with
_Jobs = Mapping[str, JobEntry]  # of the file, by name
_Followed = Mapping[str, Sequence[str]]  # what each of some jobs of the store follows


@dataclass(frozen=True, slots=True)
class _Workers:
    """Offers of the workers that are known, against which demands are checked."""

    sessions: Sequence[Session]
    largest: Mapping[str, Vector]  # by pool

    @property
    def offered(self) -> frozenset[str]:
        return frozenset(name for session in self.sessions for name in session.resources)

    def of(self, pool: str) -> list[Session]:
        return [session for session in self.sessions if session.pool == pool]


async def check_uses(
    engine: Engine,
    file: JobFile,
    declared: Mapping[str, Sequence[Declaration]],
    removed: Collection[str],
) -> tuple[Problem, ...]:
    """Return warnings for people; `Invalid` if a job cannot have what it uses.

    `declared` is what there will be, by project, and `removed` are jobs of the file's project
    that go with it.
    """
    workers = _Workers(await _sessions(engine, file), await _largest(engine, file))
    report = Report()
    for project, declarations in declared.items():
        jobs = {entry.name: entry for entry in file.jobs if entry.spec.project == project}
        gone = removed if project == file.project else ()
        others = await _followed(engine, project, jobs, gone)
        known = replace(
            Known.of(declarations, is_all=True),
            offered=workers.offered,
            jobs=await _known_jobs(engine, project, jobs, others) - set(gone),
        )
        for problem in _problems(jobs, known, others, workers):
            report.add(problem)
    for warning in _unserved(file, await _pools(engine, file)):
        report.add(warning)
    report.raise_errors("the job file")
    return report.warnings()


async def _sessions(engine: Engine, file: JobFile) -> list[Session]:
    """Return the known workers, if any job demands something of them."""
    is_asked = any(
        entry.needs or _takes_resources(entry) or demands_of(entry.spec) for entry in file.jobs
    )
    return await open_sessions(engine, file.projects, alive_only=False) if is_asked else []


async def largest_runs(engine: Engine, pools: Collection[str]) -> Mapping[str, Vector]:
    """Return the most that one run may ask of its worker, by pool; what is missing takes any.

    What the pool says goes before what the settings of this server say, of each resource.
    """
    told = await engine.store.most_of_pools(sorted(pools))
    settings = engine.pools.largest
    return {pool: {**settings.get(pool, {}), **told.get(pool, {})} for pool in pools}


async def _largest(engine: Engine, file: JobFile) -> Mapping[str, Vector]:
    """Return how large runs may be by pool; nothing of pools that are other projects' alone."""
    asked = {entry.spec.pool for entry in file.jobs if _takes_resources(entry)}
    largest = await largest_runs(engine, asked) if asked else {}
    closed = await engine.store.closed_pools(file.projects) if any(largest.values()) else ()
    return {pool: most for pool, most in largest.items() if pool not in closed}


def _takes_resources(entry: JobEntry) -> bool:
    return any(isinstance(use, UsedResource) for use in entry.uses)


async def _pools(engine: Engine, file: JobFile) -> set[str]:
    """Return the pools that have a worker now, and that the file's projects may use."""
    return {session.pool for session in await open_sessions(engine, file.projects)}


def _unserved(file: JobFile, pools: Collection[str]) -> Iterator[Problem]:
    """Yield a warning for each pool without a worker, at the first of its jobs that names it."""
    first: dict[str, Written] = {}
    for entry in file.jobs:
        if entry.pool is not None:
            first.setdefault(entry.pool.name, entry.pool)
    for pool in first.values():
        if warning := without_worker(pool, pools):
            yield warning


async def _followed(
    engine: Engine, project: str, jobs: _Jobs, removed: Collection[str]
) -> dict[str, tuple[str, ...]]:
    """Return stored jobs that those of the file follow, directly or not; and what each follows."""
    found: dict[str, tuple[str, ...]] = {}
    asked = {*jobs, *removed}
    ahead = {name for entry in jobs.values() for name in entry.spec.after.jobs} - asked
    while ahead:
        asked |= ahead
        query = JobQuery(project=project, names=sorted(ahead), limit=len(ahead))
        step = {job.name: _upstreams(job) for job in await engine.store.jobs(query)}
        found |= step
        ahead = {name for names in step.values() for name in names} - asked
    return found


async def _known_jobs(engine: Engine, project: str, jobs: _Jobs, others: _Followed) -> set[str]:
    """Return jobs that may be followed: where one is missing, also candidates for a hint."""
    known = {*jobs, *others}
    if {name for entry in jobs.values() for name in entry.spec.after.jobs} <= known:
        return known
    query = JobQuery(project=project, limit=_MOST_MEANT)
    return known | {job.name for job in await engine.store.jobs(query)}


def _upstreams(job: Job) -> tuple[str, ...]:
    return tuple(map(job_of, job.document.get("after", {}).get("jobs", ())))


def _problems(jobs: _Jobs, known: Known, others: _Followed, workers: _Workers) -> Iterator[Problem]:
    for entry in jobs.values():
        pool = entry.spec.pool
        problems = [
            *problems_of(entry.uses, known),
            *refusals_of(entry.uses, pool, workers.largest.get(pool, {})),
            *(of_no_worker(entry.uses, known) if pool == EXTERNAL_POOL else ()),
        ]
        yield from problems or _warnings(entry, known, workers.of(pool))
    if cycle := cycle_problem({name: entry.uses for name, entry in jobs.items()}, others):
        yield cycle


def _warnings(entry: JobEntry, known: Known, crew: Sequence[Session]) -> Iterator[Problem]:
    """Yield warnings about demands of a job that no worker of its pool can meet."""
    pool, needs = entry.spec.pool, entry.needs
    offers = [session.resources for session in crew]
    if warning := too_large(entry.uses, known, pool, offers):
        yield warning
    labels = [session.all_labels for session in crew]
    if needs and (warning := without_labels(needs, entry.spec.needs, pool, labels)):
        yield warning
    if warning := without_walls(entry, crew):
        yield warning


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
        """Declarations to save."""
        return tuple(
            new for new, change in self.changes.items() if change.change is not Change.UNCHANGED
        )

    def newly_shared_in(self, project: str) -> frozenset[str]:
        """Return resources that are not shared yet."""
        return frozenset(
            new.name
            for new, change in self.changes.items()
            if (type(new), new.project, change.change) == (Resource, project, Change.NEW)
        )


async def plan_limits(
    engine: Engine, file: JobFile, *, removed: Collection[str] = ()
) -> PlannedLimits:
    """Plan a file's effect on limits and resources; `Invalid` if its jobs cannot have theirs.

    `removed` are jobs of the file's project that go with it.
    """
    projects = sorted(file.projects | ({file.project} if removed else set()))
    stored = {project: await engine.store.declarations(project) for project in projects}
    declared = {project: _declared(file, project, stored[project]) for project in projects}
    return PlannedLimits(
        changes=_changes(file, stored.get(file.project, ())),
        shared={project: _resources(each) for project, each in declared.items()},
        quotas=_quotas(declared),
        versions=tuple(_versions(file, stored)),
        warnings=await check_uses(engine, file, declared, removed),
    )


async def refuse_over_quota(
    engine: Engine,
    file: JobFile,
    existing: Collection[tuple[str, str]],
    limits: PlannedLimits,
    *,
    removed: Collection[str] = (),
) -> None:
    """Raise `Conflict` if a project would have more jobs than its quota; `existing` are not new."""
    for project, quota in limits.quotas.items():
        refs = {(entry.spec.project, entry.name) for entry in file.jobs}
        new = sum(ref[0] == project for ref in refs - set(existing))
        if quota.jobs is None or not new:
            continue
        gone = len(removed) if project == file.project else 0
        most = quota.jobs + gone - new  # that there may be now
        there = await engine.store.jobs(JobQuery(project=project, limit=max(most, 0) + 1))
        if len(there) > most:
            raise Conflict(
                f"project {project} would go beyond its quota of jobs, {quota.jobs:,},"
                f" with {new:,} more",
                code="quota_exceeded",
                hint="delete some, or ask an admin to raise the quota: rota quota show",
                facts={"quota": "jobs", "limit": quota.jobs},
            )


def _declared(file: JobFile, project: str, stored: Sequence[Declared]) -> list[Declaration]:
    """Return declarations of the store, replaced and extended by those of the file."""
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
    """Yield the versions of what the file declares or uses."""
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


@dataclass(frozen=True, slots=True)
class Circumstances:
    now: datetime
    calendars: PlannedCalendars
    limits: PlannedLimits
    removed_jobs: Collection[str] = ()  # of the file's project
    prune: bool = False
