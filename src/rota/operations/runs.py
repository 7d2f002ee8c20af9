"""Runs as people and programs handle them: trigger, cancel, retry, resolve, hold, reprioritise."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from rota.domain.errors import Conflict, Invalid, NotFound
from rota.domain.ids import new_run_id
from rota.domain.job import Job
from rota.domain.jobfile import parse_inputs
from rota.domain.run import Run, Trigger
from rota.domain.spec import GREATEST_PRIORITY, LEAST_PRIORITY
from rota.domain.states import RunState, is_final
from rota.operations.definitions import require_runnable
from rota.operations.engine import Engine
from rota.ports.records import Idempotency, JobQuery, NewRun, RunQuery, SubmittedRun

_AMBIGUOUS_SHOWN = 5


@dataclass(frozen=True, slots=True)
class TriggerOptions:
    """How a run is asked for."""

    inputs: Mapping[str, Any]
    at: datetime | None = None  # not before; None: now
    priority: int | None = None  # None: the job's
    idempotency_key: str = ""  # "": every request is a new one
    said: str = ""  # a time that counts from now, as it was written: a repeat has the same text


async def trigger(
    engine: Engine, job: Job, options: TriggerOptions, *, actor: str
) -> tuple[Run, bool]:
    """A new run of a job, durable on return; and whether the idempotency key was a repeat."""
    require_runnable(engine, job)
    inputs = parse_inputs(engine.specs.of(job), options.inputs)
    now = await engine.store.now()
    new = NewRun(
        id=new_run_id(now),
        job_id=job.id,
        job_version=job.version,
        trigger=Trigger.MANUAL,
        created_by=actor,
        inputs=inputs or None,
        at=options.at,
        priority=options.priority,
    )
    submitted = await engine.store.submit_one(new, _idempotency(job, options, actor))
    return _run_of(submitted), submitted.is_repeat


def _run_of(submitted: SubmittedRun) -> Run:
    if submitted.run is None:
        raise NotFound("the run of this Idempotency-Key is not kept any more", code="run_not_found")
    return submitted.run


def _idempotency(job: Job, options: TriggerOptions, actor: str) -> Idempotency | None:
    if not options.idempotency_key:
        return None
    body = [job.id, dict(options.inputs), options.said or str(options.at), options.priority]
    text = json.dumps(body, sort_keys=True, default=str)
    digest = hashlib.sha256(text.encode()).hexdigest()
    return Idempotency(f"{job.project}/{actor}/{options.idempotency_key}", digest)


async def retry(engine: Engine, run: Run, *, actor: str) -> Run:
    """A new run like one that has ended, with the same inputs and the job's current version."""
    if run.cart is not None:
        raise Conflict(
            f"run {run.id} is of cart {run.cart}, which decides when it runs again",
            code="run_of_cart",
            hint=f"rota cart retry {run.cart} --item {run.item}"
            if run.item
            else f"rota cart resume {run.cart} runs a check again",
        )
    if not is_final(run.state):
        raise Conflict(
            f"run {run.id} is {run.state.lower()}, it has not ended",
            code="run_not_final",
            hint=f"rota run show {run.id}",
        )
    jobs = await engine.store.jobs(JobQuery(project=run.project, ids=[run.job_id]))
    if not jobs:
        raise Conflict(f"job {run.job} of run {run.id} was deleted", code="job_deleted")
    job = jobs[0]
    require_runnable(engine, job)
    now = await engine.store.now()
    inputs = parse_inputs(engine.specs.of(job), run.inputs or {})
    new = NewRun(
        id=new_run_id(now),
        job_id=job.id,
        job_version=job.version,
        trigger=Trigger.RETRY,
        created_by=actor,
        inputs=inputs or None,
        priority=run.priority,
        retry_of=run.id,
    )
    submitted = await engine.store.submit_one(new)
    return _run_of(submitted)


async def cancel(engine: Engine, run: Run, *, actor: str) -> Run:
    """Cancel a run that waits, or ask one that is live to stop. Final runs are a `Conflict`."""
    cancelled = await engine.store.cancel([run.id], actor=actor)
    after = await find_run(engine, run.id, project=run.project)
    if not cancelled and is_final(run.state):
        raise Conflict(f"run {run.id} has already ended: {run.state.lower()}", code="run_is_final")
    if not cancelled and after.state is RunState.UNKNOWN:
        raise Conflict(
            f"run {run.id} is unknown: nobody can stop it",
            code="run_is_unknown",
            hint=f"rota run resolve {run.id} --as completed|failed|retry",
        )
    return after


async def resolve(engine: Engine, run: Run, state: RunState, *, actor: str) -> Run:
    """A person says what became of an UNKNOWN run: COMPLETED, FAILED, or SCHEDULED to retry."""
    await engine.store.resolve(run.id, state, actor=actor)
    return await find_run(engine, run.id, project=run.project)


async def find_run(engine: Engine, run_id: str, *, project: str = "default") -> Run:
    """A run by its id or a unique part of it (its beginning)."""
    found = await engine.store.runs(RunQuery(project=project, ids=[run_id]))
    if not found and run_id.startswith("r_"):
        query = RunQuery(project=project, id_prefix=run_id, limit=_AMBIGUOUS_SHOWN)
        found = await engine.store.runs(query)
    if not found:
        raise NotFound(f"no run {run_id!r}", code="run_not_found", hint="rota run list shows them")
    if len(found) > 1:
        shown = ", ".join(run.id for run in found)
        raise Conflict(
            f"{run_id!r} is the beginning of several runs: {shown}",
            code="ambiguous_id",
            hint="type more of the id",
        )
    return found[0]


async def hold(engine: Engine, run: Run, *, actor: str) -> Run:
    """It goes nowhere until it is let go. `Conflict`: it does not wait."""
    await engine.store.hold_run(run.id, actor=actor)
    return await find_run(engine, run.id, project=run.project)


async def let_go(engine: Engine, run: Run, *, actor: str) -> Run:
    """It waits again like any other. `Conflict`: nobody holds it."""
    await engine.store.let_go(run.id, actor=actor)
    return await find_run(engine, run.id, project=run.project)


async def set_priority(engine: Engine, run: Run, priority: int, *, actor: str) -> Run:
    """Let it stand in another line. `Conflict`: it does not wait."""
    if not LEAST_PRIORITY <= priority <= GREATEST_PRIORITY:
        raise Invalid(
            f"a priority is from {LEAST_PRIORITY} to {GREATEST_PRIORITY}, not {priority}",
            code="bad_priority",
            hint=f"{GREATEST_PRIORITY} goes first",
        )
    await engine.store.set_priority(run.id, priority, actor=actor)
    return await find_run(engine, run.id, project=run.project)
