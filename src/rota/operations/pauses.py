"""Pauses: keep a job from firing, for a while or for one due time, and record it in the ledger."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from rota.domain.errors import Conflict, Invalid, NotFound
from rota.domain.firing import skip_next_start
from rota.domain.job import Job
from rota.domain.schedule import DueRange, pass_over
from rota.domain.states import Cause, RunState
from rota.operations.calendars import blackouts_of
from rota.operations.definitions import find_job, retry_if_fired
from rota.operations.engine import Engine
from rota.operations.firing import after_firing, overdue_firing, skip_unreadable
from rota.operations.specs import timetable_of
from rota.ports.records import Answered, ScheduleMove

_MICROSECOND = timedelta(microseconds=1)

# Given the job as it stands once it has answered what is overdue; None: nothing to do.
Decide = Callable[[Job, datetime], ScheduleMove | None]


@dataclass(frozen=True, slots=True)
class Moved:
    """A job after a change of its schedule's standing."""

    job: Job
    answered: tuple[Answered, ...] = ()  # what the change wrote into the ledger


async def pause(engine: Engine, job: Job, *, actor: str, until: datetime | None = None) -> Moved:
    """Stop all starts of the job until it is resumed, or until a time; due times meanwhile are
    SKIPPED. Pausing again changes that time.
    """

    def decide(job: Job, now: datetime) -> ScheduleMove | None:
        if until is not None and until <= now:
            raise Invalid(
                f"{until.isoformat()} has passed", code="time_passed", hint="name a later time"
            )
        if job.paused and job.paused_until == until:
            return None
        return replace(
            _change_hold(job, replace(job, paused=True), "paused", now), paused_until=until
        )

    return await _move(engine, job, decide, actor)


async def resume(engine: Engine, job: Job, *, actor: str) -> Moved:
    """End a pause; due times inside it are recorded as skipped, not caught up."""
    return await _move(engine, job, _resumed, actor)


async def disable(engine: Engine, job: Job, *, actor: str) -> Moved:
    """Disable a job: no due times, no triggers. Live runs go on."""

    def decide(job: Job, now: datetime) -> ScheduleMove | None:
        if not job.enabled:
            return None
        return _change_hold(job, replace(job, enabled=False), "disabled", now)

    return await _move(engine, job, decide, actor)


async def enable(engine: Engine, job: Job, *, actor: str) -> Moved:
    """Enable a job; due times while it was disabled are skipped, not caught up."""

    def decide(job: Job, now: datetime) -> ScheduleMove | None:
        if job.enabled:
            return None
        return _change_hold(job, replace(job, enabled=True), "enabled", now)

    return await _move(engine, job, decide, actor)


async def skip_next(engine: Engine, job: Job, *, actor: str) -> Moved:
    """Skip the next due time that would run, and record that in the ledger.

    Due times before it that calendars rule out are answered with it.
    """
    names = job.document.get("calendars", ())
    blackouts = await blackouts_of(engine, job.project, names) if names else ()

    def decide(job: Job, _: datetime) -> ScheduleMove:
        table = timetable_of(job)
        skip = skip_next_start(table, blackouts, job.next_at) if table and job.next_at else None
        if skip is None:
            raise Conflict(
                f"job {job.name} has no due time to skip",
                code="nothing_due",
                hint=f"rota job show {job.name} tells why",
            )
        ruled_out = [_skipped(it.stretch, it.cause) for it in skip.ruled_out]
        skipped = _skipped(DueRange(skip.due, skip.due, 1), Cause.SKIP_NEXT)
        return replace(
            _unmoved(job, "skipped"), next_at=skip.next_at, answered=(*ruled_out, skipped)
        )

    return await _move(engine, job, decide, actor)


async def end_pauses(engine: Engine, limit: int) -> int:
    """Resume jobs whose pause has reached its end."""
    jobs = await engine.store.ended_pauses(limit)
    for job in jobs:
        with skip_unreadable(job.id), suppress(Conflict, NotFound):  # somebody else moved it
            await _move(engine, job, _resumed_if_over, actor="scheduler")
    return len(jobs)


async def _move(engine: Engine, job: Job, decide: Decide, actor: str) -> Moved:
    """Move a schedule as decided, and decide again if it fired meanwhile."""

    async def decide_and_move() -> Moved:
        current = await find_job(engine, job.id, project=job.project)
        move = await _decided(engine, current, decide)
        if move is None:
            return Moved(current)
        await engine.store.move_schedules([move], actor=actor)
        moved = await find_job(engine, job.id, project=job.project)
        return Moved(moved, tuple(move.answered))

    return await retry_if_fired(decide_and_move)


async def _decided(engine: Engine, job: Job, decide: Decide) -> ScheduleMove | None:
    """Decide the move after overdue times were answered: a hold is not the cause of those."""
    now = await engine.store.now()
    overdue = await overdue_firing(engine, job, now)
    stands = job if overdue is None else after_firing(job, overdue)
    # A long hold takes a while to be counted, and leases are renewed on this loop.
    move = await asyncio.to_thread(decide, stands, now)
    return None if move is None else replace(move, overdue=overdue)


def _resumed(job: Job, now: datetime) -> ScheduleMove | None:
    if not job.paused:
        return None
    move = _change_hold(job, replace(job, paused=False), "resumed", _end_of_pause(job, now))
    return replace(move, paused_until=None)


def _resumed_if_over(job: Job, now: datetime) -> ScheduleMove | None:
    """Resume if the pause is over: somebody may have moved its end meanwhile."""
    is_over = job.paused_until is not None and job.paused_until <= now
    return _resumed(job, now) if is_over else None


def _unmoved(job: Job, kind: str) -> ScheduleMove:
    """Return a move that changes nothing."""
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


def _change_hold(job: Job, after: Job, kind: str, end: datetime) -> ScheduleMove:
    """Return the move to another hold, or to none.

    Due times inside the previous hold, until `end`, are answered if its cause is over.
    """
    cursor, answered = job.cursor, tuple[Answered, ...]()
    if job.hold_cause != after.hold_cause:
        cursor, answered = _answered(job, end, must_read=not after.is_held)
    return replace(
        _unmoved(after, kind),
        next_at=None if after.is_held else cursor,
        held_from=cursor if after.is_held else None,
        answered=answered,
    )


def _answered(
    job: Job, end: datetime, *, must_read: bool
) -> tuple[datetime | None, tuple[Answered, ...]]:
    """Return where a schedule goes on after a hold, and what the hold left without a run.

    A job that this release cannot read can be held by another cause, but not released.
    """
    if job.held_from is None:
        return job.cursor, ()
    try:
        table = timetable_of(job)
    except Invalid:
        if must_read:
            raise
        return job.cursor, ()
    over = pass_over(table, job.held_from, end) if table else None
    if over is None or over.passed is None:
        return job.cursor, ()
    return over.next_at, (_skipped(over.passed, job.hold_cause),)


def _skipped(stretch: DueRange, cause: str) -> Answered:
    return Answered(stretch.first, stretch.last, stretch.count, RunState.SKIPPED, cause)


def _end_of_pause(job: Job, now: datetime) -> datetime:
    """Return the last instant of a pause: a job paused until noon runs at noon."""
    if job.paused_until is None:
        return now
    return min(now, job.paused_until - _MICROSECOND)
