"""Handing in much at once: a whole file whose jobs start now, or one job many times."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rota.domain.errors import Invalid, Problem
from rota.domain.ids import JobId, RunId, new_run_ids
from rota.domain.job import Job
from rota.domain.jobfile import JobEntry, JobFile, parse_input_sets, parse_inputs
from rota.domain.run import Trigger
from rota.operations.definitions import apply, find_job, require_runnable
from rota.operations.engine import Engine
from rota.operations.runs import TriggerOptions, trigger
from rota.ports.records import Idempotency, NewRun


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
    """Those that a schedule or another job starts have to wait for it."""
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
    """One run for each set of inputs, all or none; and whether the key was a repeat."""
    require_runnable(engine, job)
    now, spec = await engine.store.now(), engine.specs.of(job)

    def new_runs() -> list[NewRun]:
        ids = new_run_ids(now, len(inputs))
        return [
            NewRun(run, job.id, job.version, Trigger.MANUAL, actor, values or None)
            for run, values in zip(ids, parse_input_sets(spec, inputs), strict=True)
        ]

    # Thousands of sets take a while to check, and leases are renewed on this loop.
    new = await asyncio.to_thread(new_runs)
    submitted = await engine.store.submit(new, _idempotency(job, inputs, actor, idempotency_key))
    return submitted.runs, submitted.is_repeat


def _idempotency(
    job: Job, inputs: Sequence[Mapping[str, Any]], actor: str, key: str
) -> Idempotency | None:
    if not key:
        return None
    text = json.dumps(["batch", job.id, [dict(given) for given in inputs]], sort_keys=True)
    return Idempotency(f"{job.project}/{actor}/{key}", hashlib.sha256(text.encode()).hexdigest())
