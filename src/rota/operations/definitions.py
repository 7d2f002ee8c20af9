"""Jobs as people define them: plan, apply, delete."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from rota.domain.errors import Conflict, NotFound, Problem
from rota.domain.ids import JobId, new_job_id
from rota.domain.job import Job, rules_of
from rota.domain.jobfile import JobEntry, JobFile, read_job
from rota.domain.schedule import (
    MissedRange,
    Timetable,
    answered_until,
    clock_changes,
    compile_schedule,
    describe,
    pass_over,
)
from rota.domain.spec import JobSpec
from rota.domain.states import RunState
from rota.operations.backends import Backends
from rota.operations.calendars import (
    CalendarChange,
    PlannedCalendars,
    calendar_effects,
    plan_calendars,
)
from rota.operations.differences import Change, difference, differences, digest_of
from rota.ports.calendars import NewCalendar
from rota.ports.records import JobQuery, NewJob, Unanswered, Wakes

_ALL = 1_000_000
_NOTED = 5  # due times that a plan looks ahead
_TRIES = 5  # a schedule may fire while its change is prepared


@dataclass(frozen=True, slots=True)
class PlannedChange:
    """One job of a plan."""

    name: str
    change: Change
    job_id: JobId | None  # None: it would be created
    schedule: str  # in words; "" on demand
    next_at: datetime | None
    differences: tuple[str, ...] = ()  # of a changed job: "steps[0].run  a → b"
    notes: tuple[str, ...] = ()  # what a person should know: clock changes, run_once, …


@dataclass(frozen=True, slots=True)
class Plan:
    """What applying a file would do, and the version of everything it looked at."""

    changes: tuple[PlannedChange, ...]
    calendars: tuple[CalendarChange, ...]
    warnings: tuple[Problem, ...]
    etag: str

    @property
    def has_changes(self) -> bool:
        changes = {change.change for change in self.changes}
        changes |= {calendar.change for calendar in self.calendars}
        return bool(changes - {Change.UNCHANGED})


@dataclass(frozen=True, slots=True)
class _Prepared:
    plan: Plan
    new: tuple[NewJob, ...]
    removed: tuple[JobId, ...]
    calendars: tuple[NewCalendar, ...]


@dataclass(frozen=True, slots=True)
class _Standing:
    """Where the schedule of a saved job goes on."""

    anchor: datetime
    next_at: datetime | None  # while the job is held: where it will go on
    restarts: bool = True  # the due times are others than before
    claimed_cursor: datetime | None = None  # where it stood, if that is what it moves on from
    unanswered: tuple[Unanswered, ...] = ()


async def plan(backends: Backends, file: JobFile, *, prune: bool = False) -> Plan:
    """What applying this file would change; nothing is changed."""
    return (await _prepare(backends, file, prune)).plan


async def apply(
    backends: Backends, file: JobFile, *, actor: str, prune: bool = False, if_match: str = ""
) -> Plan:
    """Create and change the jobs and calendars of a file, all or none.

    With `prune`, remove the jobs that it dropped; calendars are shared, so they stay.
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
    """Prepare and save, again if a schedule fired in between."""
    tries_left = _TRIES
    while True:
        prepared = await _prepare(backends, file, prune)
        _require_match(if_match, prepared.plan)
        tries_left -= 1
        try:
            await _save(backends, prepared, actor)
            return prepared
        except Conflict as conflict:
            if conflict.code != "schedule_moved" or not tries_left:
                raise


async def _save(backends: Backends, prepared: _Prepared, actor: str) -> None:
    if prepared.new or prepared.removed or prepared.calendars:
        wakes = await backends.store.save_jobs(
            prepared.new, removed=prepared.removed, actor=actor, calendars=prepared.calendars
        )
        backends.announce(wakes)


async def _prepare(backends: Backends, file: JobFile, prune: bool) -> _Prepared:
    now = await backends.store.now()
    by_project: dict[str, list[JobEntry]] = {}
    for entry in file.jobs:
        by_project.setdefault(entry.spec.project, []).append(entry)
    existing: dict[tuple[str, str], Job] = {}
    for project, entries in (by_project or {file.project: []}).items():
        names = [entry.name for entry in entries]
        found = await backends.store.jobs(JobQuery(project=project, names=names, limit=_ALL))
        existing.update(((job.project, job.name), job) for job in found)
    calendars = await plan_calendars(backends, file, now)
    changes, new = [], []
    for entry in file.jobs:
        old = existing.get((entry.spec.project, entry.name))
        digest = digest_of(entry.document)
        planned, job = _planned(entry, old, digest, file.set_name, now)
        if job is not None:
            new.append(job)
            planned = _with_calendar_notes(planned, entry.spec, job, calendars)
        changes.append(planned)
    removed = await _dropped(backends, file) if prune else []
    changes += [_removal(job) for job in removed]
    etag = _etag([*existing.values(), *removed], calendars.versions)
    return _Prepared(
        Plan(tuple(changes), calendars.changes, file.warnings, etag),
        tuple(new),
        tuple(job.id for job in removed),
        calendars.new,
    )


def _planned(
    entry: JobEntry, old: Job | None, digest: str, set_name: str, now: datetime
) -> tuple[PlannedChange, NewJob | None]:
    if old is not None and old.digest == digest and old.set_name == set_name:
        words = words_of(entry.spec, old.anchor)
        return PlannedChange(entry.name, Change.UNCHANGED, old.id, words, old.next_at), None
    standing = _standing(entry.spec, old, now)
    new = _new_job(entry, old, digest, set_name, standing)
    planned = PlannedChange(
        name=entry.name,
        change=Change.NEW if old is None else Change.CHANGED,
        job_id=None if old is None else old.id,
        schedule=words_of(entry.spec, standing.anchor),
        next_at=new.next_at,
        differences=() if old is None else tuple(_changes_of(old, entry, set_name)),
        notes=tuple(_notes(entry.spec, standing, now)),
    )
    return planned, new


def _new_job(
    entry: JobEntry, old: Job | None, digest: str, set_name: str, standing: _Standing
) -> NewJob:
    is_held = _is_held(entry.spec, old)
    return NewJob(
        id=old.id if old is not None else new_job_id(),
        project=entry.spec.project,
        name=entry.name,
        document=entry.document,
        digest=digest,
        rules=rules_of(entry.spec),
        set_name=set_name,
        next_at=None if is_held else standing.next_at,
        held_from=standing.next_at if is_held else None,
        anchor=standing.anchor,
        enabled=entry.spec.enabled,
        expected_version=old.version if old is not None else 0,
        restarts=standing.restarts,
        claimed_cursor=standing.claimed_cursor,
        unanswered=standing.unanswered,
        calendars=entry.spec.schedule.calendars if entry.spec.schedule else (),
    )


def _is_held(spec: JobSpec, old: Job | None) -> bool:
    return not spec.enabled or (old is not None and old.paused)


def _standing(spec: JobSpec, old: Job | None, now: datetime) -> _Standing:
    """Where saving a job leaves its schedule: it moves forwards or stays, and replays nothing."""
    if old is None:
        return _Standing(now, _next_after(spec, now, now))
    old_spec = read_job(old.document)
    if _times_of(old_spec) == _times_of(spec):
        return _kept_standing(spec, old, now)
    table = timetable(old_spec, old.anchor)
    if table is None or old.cursor is None:
        return _Standing(now, _next_after(spec, now, now))
    next_at = _next_after(spec, now, answered_until(table, old.cursor, now))
    passed = pass_over(table, old.cursor, now).passed
    if passed is None:
        return _Standing(now, next_at)
    return _Standing(now, next_at, True, old.cursor, (_unanswered(old, passed),))


def _kept_standing(spec: JobSpec, old: Job, now: datetime) -> _Standing:
    """The due times stay the same; only what the job file's `enabled` did may move the schedule."""
    is_held = _is_held(spec, old)
    if old.cursor is None or is_held == (old.held_from is not None):
        return _Standing(old.anchor, old.cursor, restarts=False)
    table = timetable(spec, old.anchor)
    if is_held or table is None:
        return _Standing(old.anchor, old.cursor, False, old.cursor)
    over = pass_over(table, old.cursor, now)
    unanswered = () if over.passed is None else (_unanswered(old, over.passed),)
    return _Standing(old.anchor, over.next_at, False, old.cursor, unanswered)


def _unanswered(old: Job, passed: MissedRange) -> Unanswered:
    """What a save finds unanswered: a hold was the reason, or nobody fired it in time."""
    is_missed = old.held_from is None
    return Unanswered(
        passed.first,
        passed.last,
        passed.count,
        RunState.MISSED if is_missed else RunState.SKIPPED,
        "schedule changed" if is_missed else old.hold_cause,
    )


def _next_after(spec: JobSpec, anchor: datetime, after: datetime) -> datetime | None:
    table = timetable(spec, anchor)
    return table.next_after(after) if table else None


def _times_of(spec: JobSpec) -> object:
    """What decides the due times: if it stays, a change of the job does not move the schedule."""
    schedule = spec.schedule
    if schedule is None:
        return None
    return (
        schedule.expressions,
        schedule.timezone,
        schedule.dst,
        schedule.run_once,
        schedule.starts,
        schedule.ends,
        schedule.interval_from,
    )


def timetable(spec: JobSpec, anchor: datetime) -> Timetable | None:
    """The due times of a job; None: on demand only."""
    if spec.schedule is None:
        return None
    return compile_schedule(spec.schedule, key=f"{spec.project}/{spec.name}", anchor=anchor)


def words_of(spec: JobSpec, anchor: datetime) -> str:
    """The schedule in words; "" on demand."""
    table = timetable(spec, anchor)
    return describe(table) if table else ""


def _notes(spec: JobSpec, standing: _Standing, now: datetime) -> list[str]:
    table = timetable(spec, standing.anchor)
    if table is None or spec.schedule is None:
        return []
    notes, next_at = [], standing.next_at
    if next_at is None and not table.after_previous:
        notes.append("its schedule has no due time left: it will never run by itself")
    elif spec.schedule.run_once and next_at is not None:
        notes.append(
            f"run_once: next start {next_at:%Y-%m-%d %H:%M:%S} UTC, then the job is finished"
        )
    notes += [change.text for change in clock_changes(table, now) if change.is_affected]
    return notes


def _with_calendar_notes(
    planned: PlannedChange, spec: JobSpec, job: NewJob, calendars: PlannedCalendars
) -> PlannedChange:
    """The change, with which of its next due times calendars will skip or move."""
    table = timetable(spec, job.anchor)
    blackouts = calendars.blackouts_of(spec)
    next_at = job.next_at or job.held_from
    if table is None or next_at is None or not blackouts:
        return planned
    effects = calendar_effects(blackouts, *due_times_from(table, next_at, _NOTED))
    return replace(planned, notes=(*planned.notes, *(effect.words for effect in effects)))


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


def _etag(jobs: Sequence[Job], calendars: Sequence[str]) -> str:
    parts = sorted([*(f"{job.id}:{job.version}" for job in jobs), *calendars])
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
    wakes: Wakes = await backends.store.save_jobs([], removed=[job.id], actor=actor)
    backends.announce(wakes)


async def upcoming(backends: Backends, job: Job, limit: int) -> tuple[datetime, ...]:
    """The next due times of a job, as far as they are known; empty while it is held."""
    table = timetable(read_job(job.document), job.anchor)
    if table is None or job.next_at is None:
        return ()
    return due_times_from(table, job.next_at, limit)[0]


def due_times_from(
    table: Timetable, next_at: datetime, limit: int
) -> tuple[tuple[datetime, ...], datetime | None]:
    """The due times from a cursor on, and the one after these, as far as they are known."""
    if table.run_once or table.after_previous:
        return (next_at,), None
    known = (next_at, *table.upcoming(next_at, limit))
    return known[:limit], known[limit] if len(known) > limit else None


def require_enabled(job: Job) -> None:
    """`Conflict` unless the job may run at all."""
    if not job.enabled:
        raise Conflict(
            f"job {job.name} is disabled", code="job_disabled", hint=f"rota job enable {job.name}"
        )
