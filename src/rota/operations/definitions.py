"""Jobs, and the calendars and carts beside them in a file: plan, apply, delete."""

from __future__ import annotations

import asyncio
import hashlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from rota.domain.errors import Conflict, NotFound, Problem
from rota.domain.ids import JobId, new_job_id
from rota.domain.job import Job, rules_of
from rota.domain.jobfile import JobEntry, JobFile
from rota.domain.schedule.zones import load_zone
from rota.domain.spec import JobSpec
from rota.operations.backends import Backends
from rota.operations.calendars import CalendarChange, PlannedCalendars, plan_calendars
from rota.operations.coming import Prospect, prospect, schedule_notes
from rota.operations.contention import despite_firing
from rota.operations.differences import Change, difference, differences, digest_of
from rota.operations.overdue import after_firing, overdue_firing
from rota.operations.planned_carts import Circumstances, PlannedCart, plan_carts
from rota.operations.standing import Standing, removed_job, standing
from rota.operations.timetables import timetable, words_of
from rota.ports.calendars import NewCalendar
from rota.ports.carts import TemplateChanges
from rota.ports.records import Firing, JobQuery, NewJob, RemovedJob

_ALL = 1_000_000


@dataclass(frozen=True, slots=True)
class PlannedChange:
    """One job of a plan."""

    name: str
    change: Change
    job_id: JobId | None  # None: it would be created
    schedule: str  # in words; "" on demand
    next_at: datetime | None  # the next due time that runs, on the clocks of the schedule's zone
    differences: tuple[str, ...] = ()  # of a changed job: "steps[0].run  a → b"
    notes: tuple[str, ...] = ()  # what a person should know: clock changes, run_once, …


@dataclass(frozen=True, slots=True)
class Plan:
    """What applying a file would do, and the version of everything it looked at."""

    changes: tuple[PlannedChange, ...]
    calendars: tuple[CalendarChange, ...]
    carts: tuple[PlannedCart, ...]
    warnings: tuple[Problem, ...]
    etag: str

    @property
    def has_changes(self) -> bool:
        changes = {change.change for change in self.changes}
        changes |= {calendar.change for calendar in self.calendars}
        changes |= {cart.change for cart in self.carts}
        return bool(changes - {Change.UNCHANGED})


@dataclass(frozen=True, slots=True)
class _Prepared:
    plan: Plan
    new: tuple[NewJob, ...]
    removed: tuple[RemovedJob, ...]
    calendars: tuple[NewCalendar, ...]
    templates: TemplateChanges

    @property
    def is_empty(self) -> bool:
        jobs = self.new or self.removed
        return not (jobs or self.calendars or self.templates.new or self.templates.removed)


@dataclass(frozen=True, slots=True)
class _Edit:
    """A job of the file, beside the one that it replaces."""

    entry: JobEntry
    index: int  # of the entry in the file
    set_name: str
    digest: str
    old: Job | None  # as it stands once what is overdue is answered; None: it would be created
    overdue: Firing | None = None

    @property
    def is_empty(self) -> bool:
        old = self.old
        return old is not None and (old.digest, old.set_name) == (self.digest, self.set_name)


@dataclass(frozen=True, slots=True)
class _Planned:
    change: PlannedChange
    new: NewJob | None  # None: nothing is to be saved
    warnings: tuple[Problem, ...]


async def plan(backends: Backends, file: JobFile, *, prune: bool = False) -> Plan:
    """What applying this file would change; nothing is changed."""
    return (await _prepare(backends, file, prune)).plan


async def apply(
    backends: Backends, file: JobFile, *, actor: str, prune: bool = False, if_match: str = ""
) -> Plan:
    """Create and change the jobs, calendars and templates of a file, all or none.

    With `prune`, remove the jobs and templates that it dropped; calendars are shared, so they stay.
    A template is never started by this, whatever its schedule says of the past.
    """
    prepared = await _saved(backends, file, actor, prune, if_match)
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


async def _saved(
    backends: Backends, file: JobFile, actor: str, prune: bool, if_match: str
) -> _Prepared:
    async def prepare_and_save() -> _Prepared:
        prepared = await _prepare(backends, file, prune)
        _require_match(if_match, prepared.plan)
        await _save(backends, prepared, actor)
        return prepared

    return await despite_firing(prepare_and_save)


async def _save(backends: Backends, prepared: _Prepared, actor: str) -> None:
    if not prepared.is_empty:
        wakes = await backends.store.save_jobs(
            prepared.new,
            removed=prepared.removed,
            actor=actor,
            calendars=prepared.calendars,
            templates=prepared.templates,
        )
        backends.announce(wakes)


async def _prepare(backends: Backends, file: JobFile, prune: bool) -> _Prepared:
    now = await backends.store.now()
    existing = await _existing(backends, file)
    calendars = await plan_calendars(backends, file, now)
    edits = [
        await _with_overdue(backends, edit, now)
        for edit in (_edit(file, index, existing) for index in range(len(file.jobs)))
    ]
    # Schedules and long holds take a while to be counted, and leases are renewed on this loop.
    planned = await asyncio.to_thread(lambda: [_planned(edit, calendars, now) for edit in edits])
    warnings = [problem for each in planned for problem in each.warnings]
    dropped = await _dropped(backends, file) if prune else []
    names = {job.name for job in dropped}
    carts = await plan_carts(backends, file, Circumstances(now, calendars, names, prune))
    changes = [*(each.change for each in planned), *map(_removal, dropped)]
    etag = _etag([*existing.values(), *dropped], [*calendars.versions, *carts.versions])
    told = (*file.warnings, *warnings)
    return _Prepared(
        Plan(tuple(changes), calendars.changes, carts.planned, told, etag),
        tuple(each.new for each in planned if each.new is not None),
        tuple(removed_job(job, now) for job in dropped),
        calendars.new,
        carts.changes,
    )


async def _existing(backends: Backends, file: JobFile) -> dict[tuple[str, str], Job]:
    """The jobs in the store that a file names."""
    names: dict[str, list[str]] = defaultdict(list)
    for entry in file.jobs:
        names[entry.spec.project].append(entry.name)
    found = [
        job
        for project, wanted in names.items()
        for job in await backends.store.jobs(JobQuery(project=project, names=wanted, limit=_ALL))
    ]
    return {(job.project, job.name): job for job in found}


def _edit(file: JobFile, index: int, existing: Mapping[tuple[str, str], Job]) -> _Edit:
    entry = file.jobs[index]
    old = existing.get((entry.spec.project, entry.name))
    return _Edit(entry, index, file.set_name, digest_of(entry.document), old)


async def _with_overdue(backends: Backends, edit: _Edit, now: datetime) -> _Edit:
    """What the version before owes is answered by its own rules, not lost with them."""
    if edit.old is None or edit.is_empty:
        return edit
    overdue = await overdue_firing(backends, edit.old, now)
    if overdue is None:
        return edit
    return replace(edit, old=after_firing(edit.old, overdue), overdue=overdue)


def _planned(edit: _Edit, calendars: PlannedCalendars, now: datetime) -> _Planned:
    change, new = _change(edit, now)
    ahead = _prospect(edit.entry.spec, new or edit.old, calendars)
    told = _on_clocks(_with_prospect(change, ahead), edit.entry.spec)
    return _Planned(told, new, _ruled_out(ahead, edit))


def _change(edit: _Edit, now: datetime) -> tuple[PlannedChange, NewJob | None]:
    entry, old = edit.entry, edit.old
    if old is not None and edit.is_empty:
        words = words_of(entry.spec, old.anchor)
        return PlannedChange(entry.name, Change.UNCHANGED, old.id, words, old.next_at), None
    stands = standing(entry.spec, old, now)
    new = _new_job(edit, stands)
    planned = PlannedChange(
        name=entry.name,
        change=Change.NEW if old is None else Change.CHANGED,
        job_id=None if old is None else old.id,
        schedule=words_of(entry.spec, stands.anchor),
        next_at=new.next_at,
        differences=() if old is None else tuple(_changes_of(old, entry, edit.set_name)),
        notes=_notes(entry.spec, stands, now),
    )
    return planned, new


def _new_job(edit: _Edit, stands: Standing) -> NewJob:
    spec, old = edit.entry.spec, edit.old
    is_held = not spec.enabled or (old is not None and old.paused)
    return NewJob(
        id=old.id if old is not None else new_job_id(),
        project=spec.project,
        name=edit.entry.name,
        document=edit.entry.document,
        digest=edit.digest,
        rules=rules_of(spec),
        set_name=edit.set_name,
        next_at=None if is_held else stands.next_at,
        held_from=stands.next_at if is_held else None,
        anchor=stands.anchor,
        enabled=spec.enabled,
        expected_version=old.version if old is not None else 0,
        expected_schedule_version=None if old is None else old.schedule_version,
        overdue=edit.overdue,
        restarts=stands.restarts,
        claimed_cursor=stands.claimed_cursor,
        unanswered=stands.unanswered,
        calendars=edit.entry.calendars,
    )


def _notes(spec: JobSpec, stands: Standing, now: datetime) -> tuple[str, ...]:
    table = timetable(spec, stands.anchor)
    if table is None or spec.schedule is None:
        return ()
    return tuple(schedule_notes(spec.schedule, table, stands.next_at, now))


def _prospect(
    spec: JobSpec, job: NewJob | Job | None, calendars: PlannedCalendars
) -> Prospect | None:
    """What calendars will do to the job's next due times; None if it has no such."""
    blackouts = calendars.blackouts_of(spec)
    if job is None or not blackouts:
        return None
    table, next_at = timetable(spec, job.anchor), job.next_at or job.held_from
    return prospect(table, blackouts, next_at) if table and next_at else None


def _with_prospect(planned: PlannedChange, ahead: Prospect | None) -> PlannedChange:
    if ahead is None:
        return planned
    next_at = ahead.next_at if planned.next_at else None
    if planned.change is Change.UNCHANGED:
        return replace(planned, next_at=next_at)
    notes = (*planned.notes, *(effect.words for effect in ahead.effects))
    return replace(planned, next_at=next_at, notes=notes)


def _on_clocks(planned: PlannedChange, spec: JobSpec) -> PlannedChange:
    if planned.next_at is None or spec.schedule is None:
        return planned
    return replace(planned, next_at=load_zone(spec.schedule.timezone).local(planned.next_at))


def _ruled_out(ahead: Prospect | None, edit: _Edit) -> tuple[Problem, ...]:
    if ahead is None or not ahead.warning:
        return ()
    path, line = f"jobs[{edit.index}].calendars", edit.entry.calendars_at.line
    return (Problem(f"{edit.entry.name}: {ahead.warning}", path, line, warning=True),)


def _changes_of(old: Job, entry: JobEntry, set_name: str) -> list[str]:
    moved = difference(old.set_name, set_name, "set")
    return [*moved, *differences(old.document, entry.document)]


async def _dropped(backends: Backends, file: JobFile) -> list[Job]:
    """Jobs applied from the same set that the file no longer has."""
    kept = {entry.name for entry in file.jobs}
    jobs = await backends.store.jobs(
        JobQuery(project=file.project, set_name=file.set_name, limit=_ALL)
    )
    return [job for job in jobs if job.name not in kept]


def _removal(job: Job) -> PlannedChange:
    return PlannedChange(job.name, Change.REMOVED, job.id, "", None)


def _etag(jobs: Sequence[Job], others: Sequence[str]) -> str:
    parts = sorted([*(f"{job.id}:{job.version}" for job in jobs), *others])
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]


async def find_job(backends: Backends, name_or_id: str, *, project: str = "default") -> Job:
    """A job by its name or id. `NotFound` names the nearest ones."""
    is_id = name_or_id.startswith("j_")
    query = (
        JobQuery(project=project, ids=[JobId(name_or_id)])
        if is_id
        else JobQuery(project=project, names=[name_or_id])
    )
    found = await backends.store.jobs(query)
    if not found and is_id:
        found = await backends.store.jobs(JobQuery(project=project, names=[name_or_id]))
    if not found:
        raise NotFound(
            f"no job named {name_or_id!r} in project {project}",
            code="job_not_found",
            hint="rota job list shows them",
        )
    return found[0]


async def delete(backends: Backends, job: Job, *, actor: str) -> None:
    """Take a job out of service; live runs finish, history stays."""

    async def remove() -> None:
        current = await find_job(backends, job.id, project=job.project)
        now = await backends.store.now()
        removed = await asyncio.to_thread(removed_job, current, now)
        backends.announce(await backends.store.save_jobs([], removed=[removed], actor=actor))

    await despite_firing(remove)


def require_enabled(job: Job) -> None:
    """`Conflict` unless the job may run at all."""
    if not job.enabled:
        raise Conflict(
            f"job {job.name} is disabled", code="job_disabled", hint=f"rota job enable {job.name}"
        )
