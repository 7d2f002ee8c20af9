"""Backfills: run past due times that were missed or failed, or a whole range once more."""

from __future__ import annotations

import asyncio
import hashlib
import json
from dataclasses import dataclass
from datetime import datetime

from rota.domain.backfill import (
    DEFAULT_MAX_PARALLEL,
    Backfill,
    BackfillPlan,
    Only,
    answered_end,
    backfill_priority,
    due_times,
    plan_backfill,
)
from rota.domain.errors import Conflict, Invalid, Problem
from rota.domain.ids import new_backfill_id, new_run_id
from rota.domain.job import Job
from rota.domain.jobfile import read_job
from rota.domain.run import Trigger
from rota.domain.schedule import Timetable
from rota.operations.definitions import require_runnable
from rota.operations.engine import Engine
from rota.operations.specs import timetable_of
from rota.ports.records import Idempotency, NewRun


@dataclass(frozen=True, slots=True)
class BackfillRequest:
    """Selection of the due times to run, and how many of them at once."""

    since: datetime
    until: datetime | None = None  # inclusive; None: up to now
    only: Only | None = None  # None: all due times of the range
    max_parallel: int = DEFAULT_MAX_PARALLEL
    idempotency_key: str = ""  # "": every request is a new one
    said: str = ""  # times that count from now, as they were written: a repeat has the same text


async def plan(engine: Engine, job: Job, request: BackfillRequest) -> BackfillPlan:
    """Return what a backfill would run and what it would leave out; write nothing."""
    await require_runnable(engine, job)
    now = await engine.store.now()
    _refuse_range(request, now)
    until = answered_end(request.until or now, job.next_at, now)
    # A dense schedule takes a while to walk, and leases are renewed on this loop.
    due = await asyncio.to_thread(due_times, _timetable(job), request.since, until)
    runs = await engine.store.due_runs(job.id, due)
    return plan_backfill(due, runs, request.only)


def _refuse_range(request: BackfillRequest, now: datetime) -> None:
    if request.until is not None and request.since > request.until:
        problem = Problem("from lies after to", "from")
    elif request.since > now:
        problem = Problem("from lies in the future: nothing was due there yet", "from")
    else:
        return
    raise Invalid("the range is empty", [problem], code="empty_range")


def _timetable(job: Job) -> Timetable:
    table = timetable_of(job)
    if table is None:
        reason = "has no schedule"
    elif table.after_previous:
        reason = "has due times that follow from the ends of its runs"
    elif table.run_once:
        reason = "runs once"
    else:
        return table
    raise Conflict(
        f"job {job.name} {reason}: there are no due times to backfill",
        code="nothing_to_backfill",
        hint=f"rota job trigger {job.name}",
    )


async def backfill(
    engine: Engine, job: Job, request: BackfillRequest, *, actor: str
) -> tuple[Backfill, bool]:
    """Insert the runs of a backfill, durable on return; and say whether the key was a repeat."""
    planned = await plan(engine, job, request)
    now = await engine.store.now()
    new = Backfill(
        id=new_backfill_id(),
        job_id=job.id,
        max_parallel=request.max_parallel,
        created_by=actor,
        runs=len(planned.repeats),
        first=planned.first,
        last=planned.last,
        skipped=planned.skipped,
    )
    runs = _runs(job, planned, actor, now)
    submitted = await engine.store.submit_backfill(new, runs, _idempotency(job, request, actor))
    return submitted.backfill, submitted.is_repeat


def _runs(job: Job, planned: BackfillPlan, actor: str, now: datetime) -> list[NewRun]:
    priority = backfill_priority(read_job(job.document).priority)
    return [
        NewRun(
            id=new_run_id(now),
            job_id=job.id,
            job_version=job.version,
            trigger=Trigger.BACKFILL,
            created_by=actor,
            priority=priority,
            retry_of=repeat.retry_of,
            due_at=repeat.due_at,
        )
        for repeat in planned.repeats
    ]


def _idempotency(job: Job, request: BackfillRequest, actor: str) -> Idempotency | None:
    if not request.idempotency_key:
        return None
    times = [request.said] if request.said else [request.since, request.until]
    body = [job.id, *times, request.only, request.max_parallel]
    text = json.dumps(["backfill", *body], default=str)
    digest = hashlib.sha256(text.encode()).hexdigest()
    return Idempotency(f"{job.project}/{actor}/{request.idempotency_key}", digest)
