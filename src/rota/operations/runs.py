"""Runs as people and programs use them: trigger, cancel, retry, resolve, hold, reprioritise."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from rota.domain.errors import Conflict, Invalid, NotFound, Problem
from rota.domain.following import INPUT_CAUSE
from rota.domain.ids import (
    RUN_BEGINNING,
    JobId,
    RunId,
    is_run_beginning,
    new_run_id,
    new_run_ids,
)
from rota.domain.job import Job
from rota.domain.jobfile import JobEntry, JobFile, parse_input_sets, parse_inputs
from rota.domain.run import Run, Trigger
from rota.domain.spec import GREATEST_PRIORITY, LEAST_PRIORITY
from rota.domain.states import RunState, is_final
from rota.operations.definitions import apply, find_job, require_runnable
from rota.operations.engine import Engine
from rota.operations.files import require_inputs
from rota.operations.projects import plan_projects, refuse_priority
from rota.ports.records import FollowingRun, Idempotency, JobQuery, NewRun, RunQuery, SubmittedRun

_AMBIGUOUS_SHOWN = 5
_FOLLOWING_SHOWN = 20


@dataclass(frozen=True, slots=True)
class TriggerOptions:
    """Options of a triggered run."""

    inputs: Mapping[str, Any]
    at: datetime | None = None  # not before; None: now
    priority: int | None = None  # None: the job's
    idempotency_key: str = ""  # "": every request is a new one
    said: str = ""  # a time that counts from now, as it was written: a repeat has the same text


async def trigger(
    engine: Engine, job: Job, options: TriggerOptions, *, actor: str
) -> tuple[Run, bool]:
    """Create a run of a job, durable on return; also return whether the key was a repeat."""
    inputs = await require_triggerable(engine, job, options)
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


async def require_triggerable(engine: Engine, job: Job, options: TriggerOptions) -> dict[str, Any]:
    """Return the inputs of a run that may be triggered; else raise what keeps it from that."""
    await require_runnable(engine, job)
    await refuse_priority(engine, job.project, options.priority)
    inputs = parse_inputs(engine.specs.of(job), options.inputs)
    await require_inputs(engine, job.project, [inputs])
    return inputs


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
    """Create a run like one that has ended, with the same inputs and the job's current version."""
    if run.cart is not None:
        raise Conflict(
            f"run {run.id} is of cart {run.cart}, which decides when it runs again",
            code="run_of_cart",
            hint=f"rota cart retry {run.cart} --item {run.item}"
            if run.item
            else f"rota cart resume {run.cart} runs a check again",
        )
    if run.trigger is Trigger.PROBE:
        raise Conflict(
            f"run {run.id} is a probe: a run like it would do the work of {run.job} once more",
            code="run_is_probe",
            hint=f"rota why {await engine.store.probed_by(run.id)} tells what it asked about",
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
    if run.cause == INPUT_CAUSE and run.follows and not run.attempt:
        raise Conflict(
            f"run {run.id} was not handed what it needs: {run.message}",
            code="not_handed",
            hint=f"rota run retry {run.follows} makes a new one, or trigger {run.job} with inputs",
        )
    await require_runnable(engine, job)
    await refuse_priority(engine, run.project, run.priority)
    now = await engine.store.now()
    inputs = parse_inputs(engine.specs.of(job), run.inputs or {})
    await require_inputs(engine, job.project, [inputs])
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
    """Cancel a run that waits, or ask a live one to stop. `Conflict` if it is final."""
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
    """Resolve an UNKNOWN run as a person says: COMPLETED, FAILED, or SCHEDULED to retry."""
    await engine.store.resolve(run.id, state, actor=actor)
    return await find_run(engine, run.id, project=run.project)


async def is_settled(engine: Engine, run: Run) -> bool:
    """Return whether nothing more happens by itself: it has ended, or waits for a person."""
    if run.state is not RunState.UNKNOWN:
        return is_final(run.state)
    probes = await engine.store.probes_about(run.id)
    return not (probes and probes[-1].is_awaited)


async def find_run(engine: Engine, run_id: str, *, project: str = "default") -> Run:
    """Find a run by its id or a unique prefix of it that has its time."""
    found = await engine.store.runs(RunQuery(project=project, ids=[run_id]))
    if not found and is_run_beginning(run_id):
        query = RunQuery(project=project, id_prefix=run_id, limit=_AMBIGUOUS_SHOWN)
        found = await engine.store.runs(query)
    if not found:
        raise no_such_run(run_id)
    if len(found) > 1:
        shown = ", ".join(run.id for run in found)
        raise Conflict(
            f"{run_id!r} is the beginning of several runs: {shown}",
            code="ambiguous_id",
            hint="type more of the id",
        )
    return found[0]


def no_such_run(run_id: str) -> NotFound:
    """Return the error for a run that is not there, and for one that is not the caller's."""
    return NotFound(f"no run {run_id!r}", code="run_not_found", hint=_hint(run_id))


def _hint(run_id: str) -> str:
    is_short = run_id.startswith("r_") and len(run_id) < RUN_BEGINNING
    shorter = f"type {RUN_BEGINNING} characters of its id or more; " if is_short else ""
    return f"{shorter}rota run list shows them"


async def linked_runs(engine: Engine, run: Run) -> tuple[Run | None, list[FollowingRun]]:
    """Return the run that this one follows, and the first of those that follow it."""
    query = RunQuery(project=run.project, ids=[run.follows or ""])
    before = await engine.store.runs(query) if run.follows else []
    following = await engine.store.runs_following(run.id, _FOLLOWING_SHOWN)
    return before[0] if before else None, following


async def hold(engine: Engine, run: Run, *, actor: str) -> Run:
    """Hold a waiting run until it is released. `Conflict`: it does not wait."""
    await engine.store.hold_run(run.id, actor=actor)
    return await find_run(engine, run.id, project=run.project)


async def let_go(engine: Engine, run: Run, *, actor: str) -> Run:
    """Release a held run, so that it waits like any other. `Conflict`: nobody holds it."""
    await engine.store.let_go(run.id, actor=actor)
    return await find_run(engine, run.id, project=run.project)


async def set_priority(engine: Engine, run: Run, priority: int, *, actor: str) -> Run:
    """Change the priority of a waiting run, and so its chain. `Conflict`: it does not wait."""
    if not LEAST_PRIORITY <= priority <= GREATEST_PRIORITY:
        raise Invalid(
            f"a priority is from {LEAST_PRIORITY} to {GREATEST_PRIORITY}, not {priority}",
            code="bad_priority",
            hint=f"{GREATEST_PRIORITY} goes first",
        )
    await refuse_priority(engine, run.project, priority)
    await engine.store.set_priority(run.id, priority, actor=actor)
    return await find_run(engine, run.id, project=run.project)


@dataclass(frozen=True, slots=True)
class SubmittedJob:
    """A job of a submitted file."""

    id: JobId
    name: str
    run: RunId | None  # None: its schedule or another job will start it, or it is disabled


async def submit_file(
    engine: Engine,
    file: JobFile,
    *,
    actor: str,
    is_admin: bool = False,
    idempotency_key: str = "",
) -> list[SubmittedJob]:
    """Apply a file and trigger its jobs that nothing else starts, once each.

    Nothing is changed if one of them could not be triggered.
    """
    file = (await plan_projects(engine, file)).file
    _refuse_missing_inputs(file)
    await apply(engine, file, actor=actor, is_admin=is_admin)
    return [await _submitted(engine, entry, actor, idempotency_key) for entry in file.jobs]


def _refuse_missing_inputs(file: JobFile) -> None:
    problems: list[Problem] = []
    for index, entry in enumerate(file.jobs):
        if _starts_at_once(entry):
            try:
                parse_inputs(entry.spec, {})
            except Invalid as error:
                path = f"jobs[{index}].inputs"
                problems += [Problem(p.message, path, entry.line) for p in error.problems]
    if problems:
        raise Invalid(
            "a job without a schedule is triggered at once, and inputs are missing",
            problems,
            hint="give the inputs defaults, or apply the file and trigger the job with its inputs",
        )


def _starts_at_once(entry: JobEntry) -> bool:
    """Return whether nothing else, a schedule or another job, starts the job."""
    spec = entry.spec
    return spec.enabled and spec.schedule is None and not spec.after.jobs


async def _submitted(engine: Engine, entry: JobEntry, actor: str, key: str) -> SubmittedJob:
    job = await find_job(engine, entry.name, project=entry.spec.project)
    if not _starts_at_once(entry):
        return SubmittedJob(job.id, job.name, None)
    options = TriggerOptions(inputs={}, idempotency_key=f"{key}/{job.name}" if key else "")
    run, _ = await trigger(engine, job, options, actor=actor)
    return SubmittedJob(job.id, job.name, run.id)


async def trigger_batch(
    engine: Engine,
    job: Job,
    inputs: Sequence[Mapping[str, Any]],
    *,
    actor: str,
    idempotency_key: str = "",
) -> tuple[tuple[RunId, ...], bool]:
    """Create one run for each set of inputs, all or none; and say whether the key was a repeat."""
    await require_runnable(engine, job)
    now, spec = await engine.store.now(), engine.specs.of(job)

    def new_runs() -> list[NewRun]:
        ids = new_run_ids(now, len(inputs))
        return [
            NewRun(run, job.id, job.version, Trigger.MANUAL, actor, values or None)
            for run, values in zip(ids, parse_input_sets(spec, inputs), strict=True)
        ]

    # Thousands of sets take a while to check, and leases are renewed on this loop.
    new = await asyncio.to_thread(new_runs)
    await require_inputs(engine, job.project, [run.inputs for run in new if run.inputs])
    submitted = await engine.store.submit(
        new, _batch_idempotency(job, inputs, actor, idempotency_key)
    )
    return submitted.runs, submitted.is_repeat


def _batch_idempotency(
    job: Job, inputs: Sequence[Mapping[str, Any]], actor: str, key: str
) -> Idempotency | None:
    if not key:
        return None
    text = json.dumps(["batch", job.id, [dict(given) for given in inputs]], sort_keys=True)
    return Idempotency(f"{job.project}/{actor}/{key}", hashlib.sha256(text.encode()).hexdigest())
