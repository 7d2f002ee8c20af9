"""Keeping a job from firing, for a while or for one due time, with the ledger told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta

from rota.domain.errors import Conflict, Invalid
from rota.domain.job import Job
from rota.domain.jobfile import read_job
from rota.domain.schedule import MissedRange, following, pass_over
from rota.domain.states import RunState
from rota.operations.backends import Backends
from rota.operations.definitions import find_job, timetable
from rota.ports.records import ScheduleMove, Unanswered

_TRIES = 5  # a schedule may fire between the look at it and the move
_MICROSECOND = timedelta(microseconds=1)

Decide = Callable[[Job, datetime], ScheduleMove | None]  # None: nothing to do


async def pause(backends: Backends, job: Job, *, actor: str, until: datetime | None = None) -> Job:
    """Nothing of the job starts until it is resumed, or until a time; due times meanwhile are
    SKIPPED. Pausing again changes that time."""

    def decide(job: Job, now: datetime) -> ScheduleMove | None:
        if until is not None and until <= now:
            raise Invalid(
                f"{until.isoformat()} has passed", code="time_passed", hint="name a later time"
            )
        if job.paused and job.paused_until == until:
            return None
        return replace(_hold(job, "paused"), paused=True, paused_until=until)

    return await _move(backends, job, decide, actor)


async def resume(backends: Backends, job: Job, *, actor: str) -> Job:
    """End a pause; what fell into it is recorded as skipped, not caught up."""

    def decide(job: Job, now: datetime) -> ScheduleMove | None:
        if not job.paused:
            return None
        gone_on = _let_go(job, "resumed", _end_of_pause(job, now))
        if not job.enabled:
            gone_on = replace(gone_on, next_at=None, held_from=gone_on.next_at)
        return replace(gone_on, paused=False, paused_until=None)

    return await _move(backends, job, decide, actor)


async def disable(backends: Backends, job: Job, *, actor: str) -> Job:
    """Switch a job off: no due times, no triggers. What runs goes on."""

    def decide(job: Job, _: datetime) -> ScheduleMove | None:
        return replace(_hold(job, "disabled"), enabled=False) if job.enabled else None

    return await _move(backends, job, decide, actor)


async def enable(backends: Backends, job: Job, *, actor: str) -> Job:
    """Switch a job on; what fell into the time it was off is skipped, not caught up."""

    def decide(job: Job, now: datetime) -> ScheduleMove | None:
        if job.enabled:
            return None
        move = _hold(job, "enabled") if job.paused else _let_go(job, "enabled", now)
        return replace(move, enabled=True)

    return await _move(backends, job, decide, actor)


async def skip_next(backends: Backends, job: Job, *, actor: str) -> Job:
    """Leave out the next due time; the ledger says so."""

    def decide(job: Job, _: datetime) -> ScheduleMove:
        table = timetable(read_job(job.document), job.anchor)
        if job.next_at is None or table is None:
            raise Conflict(
                f"job {job.name} has no due time to skip",
                code="nothing_due",
                hint=f"rota job show {job.name} tells why",
            )
        skipped = Unanswered(job.next_at, job.next_at, 1, RunState.SKIPPED, "skip next")
        next_at = following(table, job.next_at)
        return replace(_stay(job, "skipped"), next_at=next_at, ranges=(skipped,))

    return await _move(backends, job, decide, actor)


async def _move(backends: Backends, job: Job, decide: Decide, actor: str) -> Job:
    """Move a schedule as decided, and decide again if it fired meanwhile."""
    for tries_left in reversed(range(_TRIES)):
        move = decide(job, await backends.store.now())
        if move is None:
            return job
        try:
            backends.announce(await backends.store.move_schedules([move], actor=actor))
            break
        except Conflict:
            if not tries_left:
                raise
        job = await find_job(backends, job.id, project=job.project)
    return await find_job(backends, job.id, project=job.project)


def _stay(job: Job, kind: str) -> ScheduleMove:
    """A move that leaves everything as it is."""
    return ScheduleMove(
        kind=kind,
        job_id=job.id,
        expected_schedule_version=job.schedule_version,
        expected_next_at=job.next_at,
        enabled=job.enabled,
        paused=job.paused,
        next_at=job.next_at,
        held_from=job.held_from,
        paused_until=job.paused_until,
    )


def _hold(job: Job, kind: str) -> ScheduleMove:
    """The schedule stops where it stands."""
    return replace(_stay(job, kind), next_at=None, held_from=job.cursor)


def _let_go(job: Job, kind: str, end: datetime) -> ScheduleMove:
    """The schedule goes on after a hold that lasted until `end`, this instant included."""
    move = replace(_stay(job, kind), next_at=job.cursor, held_from=None)
    table = timetable(read_job(job.document), job.anchor)
    if table is None or job.held_from is None:
        return move
    over = pass_over(table, job.held_from, end)
    return replace(move, next_at=over.next_at, ranges=_skipped(over.passed, job.hold_cause))


def _skipped(stretch: MissedRange | None, cause: str) -> tuple[Unanswered, ...]:
    if stretch is None:
        return ()
    return (Unanswered(stretch.first, stretch.last, stretch.count, RunState.SKIPPED, cause),)


def _end_of_pause(job: Job, now: datetime) -> datetime:
    """The last instant of a pause: a job paused until noon runs at noon."""
    if job.paused_until is None:
        return now
    return min(now, job.paused_until - _MICROSECOND)
