"""The jobs of a file, each beside the one that it replaces: what applying the file does to them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from rota.domain.errors import Problem
from rota.domain.ids import JobId, new_job_id
from rota.domain.job import Job, rules_of
from rota.domain.jobfile import JobEntry, JobFile
from rota.domain.schedule.zones import load_zone
from rota.domain.spec import JobSpec
from rota.operations.backends import Backends
from rota.operations.calendars import PlannedCalendars
from rota.operations.circumstances import Circumstances
from rota.operations.coming import Prospect, prospect, schedule_notes
from rota.operations.differences import Change, difference, differences, digest_of
from rota.operations.overdue import after_firing, overdue_firing
from rota.operations.planned_limits import PlannedLimits
from rota.operations.standing import Standing, standing
from rota.operations.timetables import timetable, words_of
from rota.ports.records import Firing, NewJob


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
    backends: Backends,
    file: JobFile,
    existing: Mapping[tuple[str, str], Job],
    circumstances: Circumstances,
) -> list[PlannedJob]:
    """What applying the file does to each of its jobs; `existing` has those that it names."""
    now, limits = circumstances.now, circumstances.limits
    edits = [
        await _with_overdue(backends, _edit(file, index, existing, limits), now)
        for index in range(len(file.jobs))
    ]
    # Schedules and long holds take a while to be counted, and leases are renewed on this loop.
    return await asyncio.to_thread(
        lambda: [_planned(edit, circumstances.calendars, now) for edit in edits]
    )


def removal(job: Job, followers: Sequence[str]) -> PlannedChange:
    """That the file dropped it; `followers` are jobs that still come after it."""
    note = f"jobs that come after it will wait for it in vain: {', '.join(followers)}"
    notes = (note,) if followers else ()
    return PlannedChange(job.name, Change.REMOVED, job.id, "", None, notes=notes)


def _edit(
    file: JobFile, index: int, existing: Mapping[tuple[str, str], Job], limits: PlannedLimits
) -> _Edit:
    entry = file.jobs[index]
    project, digest = entry.spec.project, digest_of(entry.document)
    return _Edit(
        entry,
        index,
        file.set_name,
        digest,
        existing.get((project, entry.name)),
        limits.shared[project],
        limits.newly_shared_in(project) & entry.spec.resources.keys(),
    )


async def _with_overdue(backends: Backends, edit: _Edit, now: datetime) -> _Edit:
    """What the version before owes is answered by its own rules, not lost with them."""
    if edit.old is None or edit.is_empty:
        return edit
    overdue = await overdue_firing(backends, edit.old, now)
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
    stands = standing(entry.spec, old, now)
    new = _new_job(edit, stands)
    planned = PlannedChange(
        name=entry.name,
        change=Change.NEW if old is None else Change.CHANGED,
        job_id=None if old is None else old.id,
        schedule=words_of(entry.spec, stands.anchor),
        next_at=new.next_at,
        differences=tuple(_changes_of(edit)),
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
        rules=rules_of(spec, edit.shared),
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


def _changes_of(edit: _Edit) -> Iterator[str]:
    if edit.old is None:
        return
    yield from difference(edit.old.set_name, edit.set_name, "set")
    yield from differences(edit.old.document, edit.entry.document)
    for name in sorted(edit.newly_shared):
        yield f"resources.{name}  of its worker → shared by all"
