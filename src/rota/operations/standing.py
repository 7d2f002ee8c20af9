"""Where the schedule of a job goes on when the job is saved: forwards, and nothing is replayed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from rota.domain.cause import Cause
from rota.domain.errors import Invalid
from rota.domain.job import Job
from rota.domain.jobfile import read_job
from rota.domain.schedule import DueRange, Timetable, pass_over
from rota.domain.spec import JobSpec
from rota.domain.states import RunState
from rota.operations.timetables import timetable, timetable_of
from rota.ports.records import RemovedJob, Unanswered


@dataclass(frozen=True, slots=True)
class Standing:
    """Where the schedule of a saved job goes on."""

    anchor: datetime
    next_at: datetime | None  # while the job is held: where it will go on
    restarts: bool = True  # the due times are others than before
    claimed_cursor: datetime | None = None  # where it stood, if that is what it moves on from
    unanswered: tuple[Unanswered, ...] = ()


def standing(spec: JobSpec, old: Job | None, now: datetime) -> Standing:
    """Where saving a job leaves its schedule. What was overdue is answered apart from this."""
    if old is None:
        return Standing(now, _next_after(spec, now, now))
    old_spec = _readable(old)
    if old_spec is not None and _times_of(old_spec) == _times_of(spec):
        return _kept(old, replace(old, enabled=spec.enabled), now)
    return Standing(
        anchor=now,
        next_at=_next_after(spec, now, max(now, old.answered_to)),
        claimed_cursor=old.cursor,
        unanswered=_left_open(old, now, Cause.SCHEDULE_CHANGED),
    )


def removed_job(job: Job, now: datetime) -> RemovedJob:
    """A job that leaves, with what its schedule has not answered."""
    unanswered = _left_open(job, now, Cause.DELETED)
    return RemovedJob(job.id, job.schedule_version, job.cursor, unanswered)


def _kept(old: Job, new: Job, now: datetime) -> Standing:
    """The due times stay the same; only what the job file's `enabled` did may move the schedule."""
    if old.cursor is None or old.hold_cause == new.hold_cause:
        return Standing(old.anchor, old.cursor, restarts=False)
    table = timetable_of(old)
    if not old.is_held or table is None:
        return Standing(old.anchor, old.cursor, False, old.cursor)
    over = pass_over(table, old.cursor, now)
    unanswered = () if over.passed is None else (_skipped(old, over.passed),)
    return Standing(old.anchor, over.next_at, False, old.cursor, unanswered)


def _left_open(job: Job, now: datetime, cause: Cause) -> tuple[Unanswered, ...]:
    """What has no answer yet: a hold was the reason, or nobody fired it in time."""
    if job.cursor is None or job.cursor > now:
        return ()
    table = _readable_timetable(job)
    # Of a job that cannot be read no other due time is known.
    passed = pass_over(table, job.cursor, now).passed if table else None
    passed = passed or DueRange(job.cursor, job.cursor, 1)
    if job.is_held:
        return (_skipped(job, passed),)
    return (Unanswered(passed.first, passed.last, passed.count, RunState.MISSED, cause),)


def _skipped(job: Job, passed: DueRange) -> Unanswered:
    return Unanswered(passed.first, passed.last, passed.count, RunState.SKIPPED, job.hold_cause)


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
