"""Short routes: status, history and log of a job. `jobfiles` has the one that submits a file."""

from __future__ import annotations

from typing import Annotated

import msgspec
from fastapi import Query

from rota.api.answers import Page
from rota.api.jobs import JobAndRun
from rota.api.output import LogWindow
from rota.api.runs import Run as RunAnswer
from rota.domain.errors import NotFound
from rota.domain.job import Job
from rota.domain.run import Run
from rota.operations.engine import Engine
from rota.operations.previews import next_starts
from rota.ports.records import RunQuery
from rota.server.gateway.filters import MAX_LIMIT, Cursor, Limit
from rota.server.gateway.jobs import job_answer
from rota.server.gateway.output import show_log
from rota.server.gateway.parameters import PastJob, UsedEngine, api_router
from rota.server.gateway.runs import list_history, run_answer

router = api_router("shortcuts")


@router.get("/retrieve_history_execution/{job}")
async def show_history(
    engine: UsedEngine, job: PastJob, limit: Limit = 100, cursor: Cursor = None
) -> Page[RunAnswer]:
    """The runs of a job, newest first; also of one that was deleted."""
    return await list_history(engine, job, limit, cursor)


@router.get("/last_execution_logs/{job}")
async def show_last_log(
    engine: UsedEngine,
    job: PastJob,
    tail: Annotated[int | None, Query(ge=1, le=MAX_LIMIT)] = None,
) -> LogWindow:
    """What the newest run of a job printed."""
    run = await _last_run(engine, job)
    if run is None:
        hint = "" if job.deleted_at else f"rota trigger {job.name}"
        raise NotFound(f"job {job.name} has never run", code="never_run", hint=hint)
    return await show_log(engine, run, tail=tail)


@router.get("/job_status/{job}")
async def show_status(engine: UsedEngine, job: PastJob) -> JobAndRun:
    """A job and how it last went."""
    next_at = await next_starts(engine, [job])
    shown = job_answer(job, next_at[job.id])
    run = await _last_run(engine, job)
    if run is None:
        return JobAndRun(job=shown, last_run=None)
    last = await run_answer(engine, run)
    return JobAndRun(job=msgspec.structs.replace(shown, last_state=last.state), last_run=last)


async def _last_run(engine: Engine, job: Job) -> Run | None:
    found = await engine.store.runs(RunQuery(project=job.project, job_id=job.id, limit=1))
    return found[0] if found else None
