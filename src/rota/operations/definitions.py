"""Jobs, and what else a job file defines: plan, apply, delete."""

from __future__ import annotations

import asyncio
import hashlib
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TypeVar

from rota.domain.errors import Conflict, NotFound, Problem, did_you_mean
from rota.domain.ids import JobId
from rota.domain.job import Job
from rota.domain.jobfile import JobFile
from rota.domain.jobfile.demands import build_resources
from rota.domain.jobfile.uses import exceeding, refusal_of
from rota.domain.keys import Declaration
from rota.domain.spec import DEFAULT_POOL
from rota.domain.states import WAITING_STATES
from rota.operations.calendars import CalendarChange, plan_calendars
from rota.operations.engine import Engine
from rota.operations.files import require_sources
from rota.operations.job_types import check_types
from rota.operations.limits import DeclarationChange
from rota.operations.planned_carts import PlannedCart, plan_carts
from rota.operations.planned_jobs import (
    PlannedChange,
    plan_jobs,
    plan_shares,
    removal,
    removed_job,
    with_notes,
)
from rota.operations.planned_limits import (
    Circumstances,
    largest_runs,
    plan_limits,
    refuse_over_quota,
)
from rota.operations.projects import plan_projects
from rota.ports.carts import TemplateChanges
from rota.ports.records import JobQuery, NewCalendar, NewJob, RemovedJob

T = TypeVar("T")

_TRIES = 5
_NEVER: tuple[None, None] = (None, None)  # state and end of the last run of a job that has none


async def retry_if_fired(change: Callable[[], Awaitable[T]]) -> T:
    """Prepare and make a change; retry a few times if a schedule fires in between."""
    tries_left = _TRIES
    while True:
        tries_left -= 1
        try:
            return await change()
        except Conflict as conflict:
            if conflict.code != "schedule_moved" or not tries_left:
                raise


_ALL = 1_000_000
_COMPARED = 1_000  # names, to find the one that was meant


@dataclass(frozen=True, slots=True)
class Plan:
    """Effect of applying a file, and the version of everything that it was planned from."""

    changes: tuple[PlannedChange, ...]
    calendars: tuple[CalendarChange, ...]
    limits: tuple[DeclarationChange, ...]
    resources: tuple[DeclarationChange, ...]
    carts: tuple[PlannedCart, ...]
    warnings: tuple[Problem, ...]
    etag: str


@dataclass(frozen=True, slots=True)
class _Terms:
    """Options under which somebody applies a file."""

    prune: bool  # remove what it dropped
    is_admin: bool  # its jobs may name new shares
    if_match: str = ""  # the plan that it has to be; "": whatever it is
    has_new_types: bool = False  # a worker that is about to start may offer types of its jobs


@dataclass(frozen=True, slots=True)
class _Prepared:
    plan: Plan
    new: tuple[NewJob, ...]
    removed: tuple[RemovedJob, ...]
    calendars: tuple[NewCalendar, ...]
    declarations: tuple[Declaration, ...]
    templates: TemplateChanges
    shares: tuple[str, ...]

    @property
    def is_empty(self) -> bool:
        jobs = self.new or self.removed
        templates = self.templates.new or self.templates.removed
        return not (jobs or self.calendars or self.declarations or templates)


async def plan(
    engine: Engine, file: JobFile, *, prune: bool = False, is_admin: bool = False
) -> Plan:
    """Return what applying this file would change; write nothing."""
    prepared = await _prepare(engine, file, _Terms(prune, is_admin))
    await require_sources(engine, file)
    return prepared.plan


async def apply(
    engine: Engine,
    file: JobFile,
    *,
    actor: str,
    is_admin: bool = False,
    prune: bool = False,
    if_match: str = "",
    has_new_types: bool = False,
) -> Plan:
    """Create and change what a file defines, all or none.

    With `prune`, remove the jobs and templates that it dropped; what others may share stays:
    calendars, limits and resources.
    A template is never started by this, whatever its schedule says of the past.
    Jobs of an admin may name new shares. `has_new_types`: jobs may be of types that no worker has
    offered yet. `NotFound` if a project is not there.
    """
    prepared = await _saved(engine, file, actor, _Terms(prune, is_admin, if_match, has_new_types))
    ids = {job.name: job.id for job in prepared.new}
    changes = tuple(
        c
        if c.job_id
        else PlannedChange(c.name, c.change, ids[c.name], c.schedule, c.next_at, notes=c.notes)
        for c in prepared.plan.changes
    )
    return replace(prepared.plan, changes=changes)


def _require_match(if_match: str, plan: Plan) -> None:
    if if_match and if_match != plan.etag:
        raise Conflict(
            "the jobs changed since that plan was made",
            code="etag_mismatch",
            hint="plan again and look at the difference",
        )


async def _saved(engine: Engine, file: JobFile, actor: str, terms: _Terms) -> _Prepared:
    await require_sources(engine, file)

    async def prepare_and_save() -> _Prepared:
        prepared = await _prepare(engine, file, terms)
        _require_match(terms.if_match, prepared.plan)
        await _save(engine, prepared, actor)
        return prepared

    return await retry_if_fired(prepare_and_save)


async def _save(engine: Engine, prepared: _Prepared, actor: str) -> None:
    if not prepared.is_empty:
        await engine.store.save_jobs(
            prepared.new,
            removed=prepared.removed,
            actor=actor,
            calendars=prepared.calendars,
            templates=prepared.templates,
            declarations=prepared.declarations,
            shares=prepared.shares,
        )


async def _prepare(engine: Engine, file: JobFile, terms: _Terms) -> _Prepared:
    now = await engine.store.now()
    projects = await plan_projects(engine, file)
    file = projects.file
    types = await check_types(engine, file, may_be_new=terms.has_new_types)
    existing = await _existing(engine, file)
    dropped = await _dropped(engine, file) if terms.prune else []
    names = {job.name for job in dropped}
    calendars = await plan_calendars(engine, file, now)
    limits = await plan_limits(engine, file, removed=names)
    around = Circumstances(now, calendars, limits, names, terms.prune)
    jobs = await plan_jobs(engine, file, existing, around)
    projects.refuse_excess(limits.shared)
    shares = await plan_shares(engine, file, jobs, is_admin=terms.is_admin)
    jobs = with_notes(file, jobs, shares)
    await refuse_over_quota(engine, file, existing, limits, removed=names)
    carts = await plan_carts(engine, file, around)
    versions = [*projects.versions, *calendars.versions, *limits.versions, *carts.versions]
    told = (*file.warnings, *types, *limits.warnings, *(it for job in jobs for it in job.warnings))
    return _Prepared(
        Plan(
            changes=(*(job.change for job in jobs), *await _removals(engine, file, dropped)),
            calendars=calendars.changes,
            limits=limits.limits,
            resources=limits.resources,
            carts=carts.planned,
            warnings=told,
            etag=_etag([*existing.values(), *dropped], versions),
        ),
        tuple(job.new for job in jobs if job.new is not None),
        tuple(removed_job(job, now) for job in dropped),
        calendars.new,
        limits.new,
        carts.changes,
        shares,
    )


async def _existing(engine: Engine, file: JobFile) -> dict[tuple[str, str], Job]:
    """Return the jobs in the store that a file names."""
    names: dict[str, list[str]] = defaultdict(list)
    for entry in file.jobs:
        names[entry.spec.project].append(entry.name)
    found = [
        job
        for project, wanted in names.items()
        for job in await engine.store.jobs(JobQuery(project=project, names=wanted, limit=_ALL))
    ]
    return {(job.project, job.name): job for job in found}


async def _dropped(engine: Engine, file: JobFile) -> list[Job]:
    """Return jobs applied from the same set that the file no longer has."""
    kept = {entry.name for entry in file.jobs}
    jobs = await engine.store.jobs(
        JobQuery(project=file.project, set_name=file.set_name, limit=_ALL)
    )
    return [job for job in jobs if job.name not in kept]


async def _removals(engine: Engine, file: JobFile, dropped: Sequence[Job]) -> list[PlannedChange]:
    """Plan the removal of jobs; jobs of other files may follow them, none of this one can."""
    ours = {entry.name for entry in file.jobs} | {job.name for job in dropped}
    found = await engine.store.followers(file.project, [job.name for job in dropped])
    others = {
        name: [each for each in each_of if each not in ours] for name, each_of in found.items()
    }
    return [removal(job, others.get(job.name, ())) for job in dropped]


def _etag(jobs: Sequence[Job], others: Sequence[str]) -> str:
    parts = sorted([*(f"{job.id}:{job.version}" for job in jobs), *others])
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]


async def find_job(engine: Engine, name_or_id: str, *, project: str = "default") -> Job:
    """Find a job by its name or id. `NotFound` names the nearest one."""
    found = await _job_in_service(engine, name_or_id, project)
    if found is None:
        raise await _no_such_job(engine, name_or_id, project)
    return found


async def find_past_job(engine: Engine, name_or_id: str, *, project: str = "default") -> Job:
    """Find a job by its name or id, or else the one that was deleted last: its history stays."""
    found = await _job_in_service(engine, name_or_id, project)
    found = found or await engine.store.deleted_job(project, name_or_id)
    if found is None:
        raise await _no_such_job(engine, name_or_id, project)
    return found


async def with_last_runs(engine: Engine, jobs: Sequence[Job]) -> list[Job]:
    """Return the jobs with how they last went, where their newest run may tell nothing of that.

    It only waits for its time, or it may be a probe, which is about another one.
    """
    asked = {j.id for j in jobs if j.last_state in WAITING_STATES or "probe" in j.document}
    found = await engine.store.last_runs(asked) if asked else {}
    return [_with_last(job, *found.get(job.id, _NEVER)) if job.id in asked else job for job in jobs]


def _with_last(job: Job, state: str | None, ended_at: datetime | None) -> Job:
    return replace(job, last_state=state, last_ended_at=ended_at)


async def _job_in_service(engine: Engine, name_or_id: str, project: str) -> Job | None:
    is_id = name_or_id.startswith("j_")
    query = (
        JobQuery(project=project, ids=[JobId(name_or_id)])
        if is_id
        else JobQuery(project=project, names=[name_or_id])
    )
    found = await engine.store.jobs(query)
    if not found and is_id:
        found = await engine.store.jobs(JobQuery(project=project, names=[name_or_id]))
    return found[0] if found else None


async def _no_such_job(engine: Engine, name: str, project: str) -> NotFound:
    """Return the error for an unknown job, with a hint on what to type instead."""
    if deleted := await engine.store.deleted_job(project, name):
        hint = f"it was deleted; rota job history {deleted.name} shows its runs"
    else:
        names = await engine.store.names_of_jobs(project, name, _COMPARED)
        # Comparing takes milliseconds, and leases are renewed on this loop.
        near = await asyncio.to_thread(did_you_mean, name, names)
        hint = near or "rota job list shows them"
    return NotFound(f"no job named {name!r} in project {project}", code="job_not_found", hint=hint)


async def delete(engine: Engine, job: Job, *, actor: str) -> None:
    """Delete a job; live runs finish, history stays."""

    async def remove() -> None:
        current = await find_job(engine, job.id, project=job.project)
        now = await engine.store.now()
        removed = await asyncio.to_thread(removed_job, current, now)
        await engine.store.save_jobs([], removed=[removed], actor=actor)

    await retry_if_fired(remove)


async def require_runnable(engine: Engine, job: Job) -> None:
    """Raise `Conflict` unless the job may run at all, and its pool takes runs that large."""
    if not job.enabled:
        raise Conflict(
            f"job {job.name} is disabled", code="job_disabled", hint=f"rota job enable {job.name}"
        )
    pool = job.document.get("pool", DEFAULT_POOL)
    demand = build_resources(job.document.get("resources", {}))
    if not demand:
        return
    most = (await largest_runs(engine, [pool]))[pool]
    if refused := exceeding(demand, most):
        raise Conflict(
            f"job {job.name}: {refusal_of(pool, refused[0], demand, most)}",
            code="run_too_large",
            hint="ask for less, or use another pool",
        )
