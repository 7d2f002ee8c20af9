"""Firing: turn due schedules into runs, and release runs whose time has come."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime, timedelta

import structlog

from rota.domain.errors import Invalid
from rota.domain.firing import Answers, DueStart, FiringRules, answer_due_times
from rota.domain.gates import Gate
from rota.domain.ids import JobId, shard_of
from rota.domain.job import Job
from rota.domain.jobfile import read_job
from rota.domain.run import Reason
from rota.domain.schedule import Timetable
from rota.domain.states import Cause, RunState
from rota.operations.calendars import blackouts_of
from rota.operations.engine import Engine
from rota.operations.specs import stamp, timetable
from rota.ports.records import (
    Answered,
    DueSchedule,
    Fired,
    Firing,
    Ownership,
    PlannedRun,
    Rearmed,
)

log = structlog.get_logger()

_QUICKLY_COUNTED = timedelta(hours=6)
MISFIRE_GRACE = timedelta(seconds=2)  # what is less late than this was not missed, only late


def plan_firing(
    due: DueSchedule, rules: FiringRules, next_at: datetime | None, now: datetime
) -> Firing:
    """Decide what to do about a schedule that is due. `next_at` is the due time after this one."""
    answers = answer_due_times(rules, due.next_at, now, after=next_at)
    return _firing(due, rules.timetable, answers)


async def planned_firing(
    due: DueSchedule, rules: FiringRules, next_at: datetime | None, now: datetime
) -> Firing:
    """Plan a firing; in a thread if counting the due times of a long outage takes long."""
    if len(rules.timetable.sources) > 1 and now - due.next_at > _QUICKLY_COUNTED:
        return await asyncio.to_thread(plan_firing, due, rules, next_at, now)
    return plan_firing(due, rules, next_at, now)


def _firing(due: DueSchedule, table: Timetable, answers: Answers) -> Firing:
    has_runs = bool(answers.runs)
    return Firing(
        job_id=due.job_id,
        shard=due.shard,
        job_version=due.job_version,
        schedule_version=due.schedule_version,
        claimed_next_at=due.next_at,
        runs=[_planned(table, start) for start in answers.runs],
        answered=_answered(answers),
        next_at=answers.next_at,
        finishes_job=table.run_once and has_runs,
        waits=table.after_previous and has_runs,
    )


def _planned(table: Timetable, start: DueStart) -> PlannedRun:
    """Plan a run. After a blackout spread and jitter count from its end: many start then."""
    release_at = table.release_at(start.due) + (start.not_before - start.due)
    reason = _reason(start.calendar, release_at)
    return PlannedRun(start.due, release_at, reason, start.is_caught_up)


def _reason(calendar: str, until: datetime) -> Reason | None:
    if not calendar:
        return None
    return Reason(
        gate=Gate.CALENDAR,
        message=f"calendar {calendar} keeps it until {stamp(until)}",
        eligible_at=until,
        action=f"rota calendar show {calendar}",
    )


def _answered(answers: Answers) -> tuple[Answered, ...]:
    missed = [
        Answered(it.first, it.last, it.count, RunState.MISSED, Cause.DOWNTIME)
        for it in answers.missed
    ]
    skipped = [
        Answered(it.first, it.last, it.count, RunState.SKIPPED, it.cause, it.previous)
        for it in answers.skipped
    ]
    return (*missed, *skipped)


async def fire(engine: Engine, firings: Sequence[Firing], ownership: Ownership) -> Fired:
    """Insert the runs, advance the schedules, and dispatch the runs.

    A worker here that has nothing to do gets them in the same transaction: a second one for the
    claim would double how late they are. For the rest the store wakes the dispatchers.
    """
    turn = engine.idle_workers.next_of(_pool(engine, firings))
    with turn.claiming():
        fired = await engine.store.fire(firings, ownership, turn.room)
        await turn.give(fired.claimed)
    return fired


def _pool(engine: Engine, firings: Sequence[Firing]) -> str:
    """Return the pool that most of these runs are for, as far as it is known."""
    refs = [(each.job_id, each.job_version) for each in firings if each.runs]
    pools = Counter(spec.pool for ref in refs if (spec := engine.specs.get(ref)))
    return max(pools, key=pools.__getitem__, default="")


async def rearm(engine: Engine, limit: int) -> int:
    """Give schedules that count from the end of a run their next due time once it has ended."""
    waits = await engine.store.ended_waits(limit)
    if not waits:
        return 0
    documents = await engine.store.documents([(w.job_id, w.job_version) for w in waits])
    rearmed = []
    for wait in waits:
        with skip_unreadable(wait.job_id):
            table = timetable(read_job(documents[wait.job_id, wait.job_version]), wait.anchor)
            next_at = table.after_completion(wait.ended_at) if table else None
            rearmed.append(Rearmed(wait.job_id, wait.schedule_version, next_at))
    await engine.store.rearm(rearmed)
    return len(rearmed)


@contextmanager
def skip_unreadable(job_id: JobId) -> Iterator[None]:
    """Log and skip a schedule that this version cannot read; it must not stop the others."""
    try:
        yield
    except Invalid as error:
        log.error("schedule.unreadable", job_id=job_id, error=str(error))


async def release_eligible(engine: Engine, limit: int) -> int:
    """Release runs whose time or back-off has come."""
    return await engine.store.release_eligible(limit)


async def sweep(engine: Engine, limit: int) -> int:
    """Release runs that a lost wake-up left waiting, and end runs that passed their deadline."""
    return await engine.store.release_forgotten(limit)


async def overdue_firing(engine: Engine, job: Job, now: datetime) -> Firing | None:
    """Plan the firing that the scheduler would do now, for the version that the job has.

    None: nothing is overdue, the job is held, or this server cannot read it.
    """
    if job.next_at is None or job.next_at > now:
        return None
    due = DueSchedule(
        job_id=job.id,
        next_at=job.next_at,
        schedule_version=job.schedule_version,
        job_version=job.version,
        anchor=job.anchor,
        shard=shard_of(job.id),
    )
    with suppress(Invalid):
        rules = await _rules(engine, job)
        if rules is not None:
            after = rules.timetable.next_after(due.next_at)
            return await planned_firing(due, rules, after, now)
    return None


async def _rules(engine: Engine, job: Job) -> FiringRules | None:
    spec = read_job(job.document)
    table = timetable(spec, job.anchor)
    if table is None or spec.schedule is None:
        return None
    blackouts = await blackouts_of(engine, job.project, spec.schedule.calendars)
    return FiringRules(table, spec.schedule.misfire, MISFIRE_GRACE, blackouts)


def after_firing(job: Job, firing: Firing) -> Job:
    """Return the job as it stands after a firing."""
    return replace(job, next_at=firing.next_at, waits=firing.waits)
