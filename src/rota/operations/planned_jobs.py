"""Plan of a job file for its jobs: what is saved of each, where its schedule goes on, and who may.

Read top down: the position of a schedule after an edit, the change of one job beside the version
that it replaces, then the shares that jobs name. Nothing is written here: the result
is a `NewJob` for the store, and a `PlannedChange` that people see before and after they apply.

No due time may get lost by an edit. Overdue ones are answered by the rules of the version before;
those that the old schedule leaves open are recorded as skipped or missed. As long as what decides
the due times stays equal, the schedule does not move.

Each share has a part of busy workers, so only an admin may create one: nobody gets more by making
up names.
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from rota.domain.errors import Invalid, Problem, quoted
from rota.domain.ids import JobId, new_job_id
from rota.domain.job import Job, rules_of
from rota.domain.jobfile import JobEntry, JobFile, read_job
from rota.domain.jobfile.export import Change, difference, differences, digest_of
from rota.domain.jobfile.text import Report
from rota.domain.jobfile.uses import Written
from rota.domain.schedule import DueRange, Timetable, pass_over
from rota.domain.schedule.zones import load_zone
from rota.domain.spec import JobSpec
from rota.domain.states import Cause, RunState
from rota.operations.calendars import PlannedCalendars
from rota.operations.engine import Engine
from rota.operations.firing import after_firing, overdue_firing
from rota.operations.planned_limits import Circumstances, PlannedLimits
from rota.operations.previews import Prospect, prospect, schedule_notes
from rota.operations.specs import timetable, timetable_of, words_of
from rota.ports.records import Answered, Firing, NewJob, RemovedJob


@dataclass(frozen=True, slots=True)
class SchedulePosition:
    """Position at which the schedule of a saved job goes on."""

    anchor: datetime
    next_at: datetime | None  # while the job is held: where it will go on
    restarts: bool = True  # the due times are others than before
    claimed_cursor: datetime | None = None  # where it stood, if that is what it moves on from
    answered: tuple[Answered, ...] = ()


def schedule_position(spec: JobSpec, old: Job | None, now: datetime) -> SchedulePosition:
    """Return where saving a job leaves its schedule. Overdue times are answered separately."""
    if old is None:
        return SchedulePosition(now, _next_after(spec, now, now))
    old_spec = _readable(old)
    if old_spec is not None and _times_of(old_spec) == _times_of(spec):
        return _kept(old, replace(old, enabled=spec.enabled), now)
    return SchedulePosition(
        anchor=now,
        next_at=_next_after(spec, now, max(now, old.answered_to)),
        claimed_cursor=old.cursor,
        answered=_left_open(old, now, Cause.SCHEDULE_CHANGED),
    )


def removed_job(job: Job, now: datetime) -> RemovedJob:
    """Return the removal of a job, with the due times that its schedule has not answered."""
    answered = _left_open(job, now, Cause.DELETED)
    return RemovedJob(job.id, job.schedule_version, job.cursor, answered)


def _kept(old: Job, new: Job, now: datetime) -> SchedulePosition:
    """Keep the due times; only a change of the job file's `enabled` may move the schedule."""
    if old.cursor is None or old.hold_cause == new.hold_cause:
        return SchedulePosition(old.anchor, old.cursor, restarts=False)
    table = timetable_of(old)
    if not old.is_held or table is None:
        return SchedulePosition(old.anchor, old.cursor, False, old.cursor)
    over = pass_over(table, old.cursor, now)
    answered = () if over.passed is None else (_skipped(old, over.passed),)
    return SchedulePosition(old.anchor, over.next_at, False, old.cursor, answered)


def _left_open(job: Job, now: datetime, cause: Cause) -> tuple[Answered, ...]:
    """Return the due times without a run: a hold was the reason, or nobody fired in time."""
    if job.cursor is None or job.cursor > now:
        return ()
    table = _readable_timetable(job)
    # Of a job that cannot be read no other due time is known.
    passed = pass_over(table, job.cursor, now).passed if table else None
    passed = passed or DueRange(job.cursor, job.cursor, 1)
    if job.is_held:
        return (_skipped(job, passed),)
    return (Answered(passed.first, passed.last, passed.count, RunState.MISSED, cause),)


def _skipped(job: Job, passed: DueRange) -> Answered:
    return Answered(passed.first, passed.last, passed.count, RunState.SKIPPED, job.hold_cause)


def _readable(job: Job) -> JobSpec | None:
    try:
        return read_job(job.document)
    except Invalid:
        return None


def _readable_timetable(job: Job) -> Timetable | None:
    try:
        return timetable_of(job)
    except Invalid:
        return None


def _next_after(spec: JobSpec, anchor: datetime, after: datetime) -> datetime | None:
    table = timetable(spec, anchor)
    return table.next_after(after) if table else None


def _times_of(spec: JobSpec) -> object:
    """Return what decides the due times: while it is equal, the schedule does not move."""
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
class _Edit:
    """A job of the file, beside the one that it replaces."""

    entry: JobEntry
    index: int  # of the entry in the file
    set_name: str
    digest: str
    old: Job | None  # as it stands once what is overdue is answered; None: it would be created
    shared: frozenset[str]  # the named resources of its project
    newly_shared: frozenset[str]  # those that the job takes and that only its workers had so far
    overdue: Firing | None = None

    @property
    def is_empty(self) -> bool:
        old = self.old
        is_same = old is not None and (old.digest, old.set_name) == (self.digest, self.set_name)
        return is_same and not self.newly_shared


@dataclass(frozen=True, slots=True)
class PlannedJob:
    change: PlannedChange
    new: NewJob | None  # None: nothing is to be saved
    warnings: tuple[Problem, ...]


async def plan_jobs(
    engine: Engine,
    file: JobFile,
    existing: Mapping[tuple[str, str], Job],
    circumstances: Circumstances,
) -> list[PlannedJob]:
    """Plan what applying the file does to each of its jobs; `existing` has those that it names."""
    now, limits = circumstances.now, circumstances.limits
    edits = [
        await _with_overdue(engine, _edit(file, index, existing, limits), now)
        for index in range(len(file.jobs))
    ]
    # Schedules and long holds take a while to be counted, and leases are renewed on this loop.
    return await asyncio.to_thread(
        lambda: [_planned(edit, circumstances.calendars, now) for edit in edits]
    )


def removal(job: Job, followers: Sequence[str]) -> PlannedChange:
    """Return the removal of a job that the file dropped; `followers` still follow it."""
    note = f"jobs that come after it will wait for it in vain: {', '.join(followers)}"
    notes = (note,) if followers else ()
    return PlannedChange(job.name, Change.REMOVED, job.id, "", None, notes=notes)


def _edit(
    file: JobFile, index: int, existing: Mapping[tuple[str, str], Job], limits: PlannedLimits
) -> _Edit:
    entry = file.jobs[index]
    project, digest = entry.spec.project, digest_of(entry.document)
    old = existing.get((project, entry.name))
    return _Edit(
        entry,
        index,
        file.set_of(old.set_name if old else None),
        digest,
        old,
        limits.shared[project],
        limits.newly_shared_in(project) & entry.spec.resources.keys(),
    )


async def _with_overdue(engine: Engine, edit: _Edit, now: datetime) -> _Edit:
    """Answer overdue due times by the rules of the version before, so that none is lost."""
    if edit.old is None or edit.is_empty:
        return edit
    overdue = await overdue_firing(engine, edit.old, now)
    if overdue is None:
        return edit
    return replace(edit, old=after_firing(edit.old, overdue), overdue=overdue)


def _planned(edit: _Edit, calendars: PlannedCalendars, now: datetime) -> PlannedJob:
    change, new = _change(edit, now)
    ahead = _prospect(edit.entry.spec, new or edit.old, calendars)
    told = _on_clocks(_with_prospect(change, ahead), edit.entry.spec)
    return PlannedJob(told, new, _ruled_out(ahead, edit))


def _change(edit: _Edit, now: datetime) -> tuple[PlannedChange, NewJob | None]:
    entry, old = edit.entry, edit.old
    if old is not None and edit.is_empty:
        words = words_of(entry.spec, old.anchor)
        return PlannedChange(entry.name, Change.UNCHANGED, old.id, words, old.next_at), None
    position = schedule_position(entry.spec, old, now)
    new = _new_job(edit, position)
    planned = PlannedChange(
        name=entry.name,
        change=Change.NEW if old is None else Change.CHANGED,
        job_id=None if old is None else old.id,
        schedule=words_of(entry.spec, position.anchor),
        next_at=new.next_at,
        differences=tuple(_changes_of(edit)),
        notes=_notes(entry.spec, position, now),
    )
    return planned, new


def _new_job(edit: _Edit, position: SchedulePosition) -> NewJob:
    spec, old = edit.entry.spec, edit.old
    is_held = not spec.enabled or (old is not None and old.paused)
    return NewJob(
        id=old.id if old is not None else new_job_id(),
        project=spec.project,
        name=edit.entry.name,
        document=edit.entry.document,
        digest=edit.digest,
        rules=rules_of(spec, edit.shared),
        set_name=edit.set_name,
        next_at=None if is_held else position.next_at,
        held_from=position.next_at if is_held else None,
        anchor=position.anchor,
        enabled=spec.enabled,
        expected_version=old.version if old is not None else 0,
        expected_schedule_version=None if old is None else old.schedule_version,
        overdue=edit.overdue,
        restarts=position.restarts,
        claimed_cursor=position.claimed_cursor,
        answered=position.answered,
        calendars=edit.entry.calendars,
    )


def _notes(spec: JobSpec, position: SchedulePosition, now: datetime) -> tuple[str, ...]:
    table = timetable(spec, position.anchor)
    if table is None or spec.schedule is None:
        return ()
    return tuple(schedule_notes(spec.schedule, table, position.next_at, now))


def _prospect(
    spec: JobSpec, job: NewJob | Job | None, calendars: PlannedCalendars
) -> Prospect | None:
    """Return what calendars will do to the job's next due times; None if it has no such."""
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


def _changes_of(edit: _Edit) -> Iterator[str]:
    if edit.old is None:
        return
    yield from difference(edit.old.set_name, edit.set_name, "set")
    yield from differences(edit.old.document, edit.entry.document)
    for name in sorted(edit.newly_shared):
        yield f"resources.{name}  of its worker → shared by all"


@dataclass(frozen=True, slots=True)
class _Known:
    shares: frozenset[str]  # that have a weight
    projects: frozenset[str]  # of the names in question
    ours: frozenset[str]  # projects that the file itself is about
    is_admin: bool  # who names a share that is not known makes it


async def plan_shares(
    engine: Engine, file: JobFile, jobs: Sequence[PlannedJob], *, is_admin: bool
) -> tuple[str, ...]:
    """Return the shares to create; `Invalid` if a new or changed job may not name its own."""
    named = [
        entry.share
        for entry, job in zip(file.jobs, jobs, strict=True)
        if entry.share is not None and job.change.change is not Change.UNCHANGED
    ]
    if not named:
        return ()
    names = frozenset(share.name for share in named)
    shares = frozenset(each.share for each in await engine.store.share_weights())
    projects = await _projects(engine, file, names)
    known = _Known(shares, projects, file.projects, is_admin)
    report = Report()
    for share in named:
        if problem := _problem_of(share, known):
            report.add(problem)
    report.raise_errors("the job file")
    return tuple(sorted(names - shares))


def with_notes(file: JobFile, jobs: Sequence[PlannedJob], new: Collection[str]) -> list[PlannedJob]:
    """Add a note to the jobs that name a new share."""
    return [
        _noted(job, _share_notes(entry.spec, new))
        for entry, job in zip(file.jobs, jobs, strict=True)
    ]


def _share_notes(spec: JobSpec, new: Collection[str]) -> tuple[str, ...]:
    return (f"share {spec.share} is new and weighs 1",) if spec.share in new else ()


def _noted(job: PlannedJob, notes: tuple[str, ...]) -> PlannedJob:
    return replace(job, change=replace(job.change, notes=(*job.change.notes, *notes)))


async def _projects(engine: Engine, file: JobFile, names: frozenset[str]) -> frozenset[str]:
    """Return which of these names are those of projects."""
    ours = file.projects
    others = await engine.store.projects(names - ours) if names - ours else []
    return ours | {project.name for project in others}


def _problem_of(share: Written, known: _Known) -> Problem | None:
    name = quoted(share.name)
    if "/" in share.name:
        return share.problem(f"share {name} reads like a user of a project", "use no slash")
    is_project = share.name in known.projects
    if is_project and (known.is_admin or share.name in known.ours):
        return share.problem(f"share {name} is the name of a project", "give it another name")
    if known.is_admin or (share.name in known.shares and not is_project):
        return None
    # Without a guess which one was meant: whose shares these are is not for everybody to know.
    command = f"an admin makes it: rota share set {shlex.quote(share.name)} --weight 1"
    return share.problem(f"there is no share {name}", command)
