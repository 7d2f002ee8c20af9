"""The short routes: hand in a file, ask how it went."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from fastapi import Query

from rota.domain.errors import NotFound
from rota.domain.job import Job
from rota.domain.run import Run
from rota.operations.backends import Backends
from rota.operations.previews import next_starts
from rota.operations.submissions import submit_file
from rota.operations.why import see_runs
from rota.ports.records import RunQuery
from rota.server.gateway.auth import Editor
from rota.server.gateway.jobfiles import JOB_FILE_BODY, SentJobFile
from rota.server.gateway.paging import MAX_LIMIT, Cursor, Limit
from rota.server.gateway.routes.job_runs import list_history
from rota.server.gateway.routes.logs import show_log
from rota.server.gateway.shapes.job import JobShape
from rota.server.gateway.shapes.log import LogWindow
from rota.server.gateway.shapes.models import Answer, Listing
from rota.server.gateway.shapes.plan import SubmissionShape
from rota.server.gateway.shapes.run import RunShape
from rota.server.gateway.wiring import IdempotencyKey, PastJob, UsedBackends, api_router

router = api_router("shortcuts")


class JobStatus(Answer):
    """A job and how it last went."""

    job: JobShape
    last_run: RunShape | None  # None: never run


@router.post("/submit_job", status_code=201, openapi_extra=JOB_FILE_BODY)
async def submit_job(
    actor: Editor,
    backends: UsedBackends,
    file: SentJobFile,
    idempotency_key: IdempotencyKey = "",
) -> SubmissionShape:
    """Create and change the jobs of a file; those without a schedule run at once."""
    submitted = await submit_file(
        backends,
        file,
        actor=actor.name,
        is_admin=actor.is_admin,
        idempotency_key=idempotency_key,
    )
    return SubmissionShape.of(submitted)


@router.get("/retrieve_history_execution/{job}")
async def show_history(
    backends: UsedBackends, job: PastJob, limit: Limit = 100, cursor: Cursor = None
) -> Listing[RunShape]:
    """The runs of a job, newest first; also of one that was deleted."""
    return await list_history(backends, job, limit, cursor)


@router.get("/last_execution_logs/{job}")
async def show_last_log(
    backends: UsedBackends,
    job: PastJob,
    tail: Annotated[int | None, Query(ge=1, le=MAX_LIMIT)] = None,
) -> LogWindow:
    """What the newest run of a job printed."""
    run = await _last_run(backends, job)
    if run is None:
        hint = "" if job.deleted_at else f"rota trigger {job.name}"
        raise NotFound(f"job {job.name} has never run", code="never_run", hint=hint)
    return await show_log(backends, run, tail=tail)


@router.get("/job_status/{job}")
async def show_status(backends: UsedBackends, job: PastJob) -> JobStatus:
    """A job and how it last went."""
    run = await _last_run(backends, job)
    next_at = await next_starts(backends, [job])
    if run is None:
        return JobStatus(job=JobShape.of(job, next_at[job.id]), last_run=None)
    seen = replace(job, last_state=run.state)
    return JobStatus(job=JobShape.of(seen, next_at[job.id]), last_run=RunShape.of(run))


async def _last_run(backends: Backends, job: Job) -> Run | None:
    found = await see_runs(backends, RunQuery(project=job.project, job_id=job.id, limit=1))
    return found[0] if found else None
