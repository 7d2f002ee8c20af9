"""Jobs: list, look, apply, hold, delete."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query
from starlette.responses import Response

from rota.domain.quantities import parse_duration
from rota.operations import definitions, pauses
from rota.operations.backends import Backends
from rota.operations.pauses import Moved
from rota.operations.previews import next_starts, outlook
from rota.operations.status import lateness
from rota.ports.records import JobQuery
from rota.server.gateway.auth import Editor, Operator
from rota.server.gateway.etags import IfMatch, quote, require_match, unquote
from rota.server.gateway.instants import looking_ahead, read_times, zone_of
from rota.server.gateway.jobfiles import APPLY_BODY, JOB_FILE_BODY, FileToApply, SentJobFile
from rota.server.gateway.paging import Cursor, Limit, decode_cursor, encode_cursor, listing
from rota.server.gateway.shapes.job import (
    JobDetail,
    JobShape,
    MovedJobShape,
    PauseBody,
    UpcomingShape,
)
from rota.server.gateway.shapes.models import Listing
from rota.server.gateway.shapes.plan import PlanShape, ValidationShape
from rota.server.gateway.shapes.problem import Fault
from rota.server.gateway.wiring import NamedJob, Project, UsedBackends, api_router

router = api_router("jobs")


@router.get("/jobs")
async def list_jobs(
    backends: UsedBackends,
    project: Project,
    name: Annotated[str | None, Query(max_length=200, description="may have `*`")] = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Listing[JobShape]:
    """Jobs by name."""
    query = JobQuery(
        project=project,
        name_like=name,
        after_name=decode_cursor("jobs", cursor, ""),
        limit=limit + 1,
    )
    found = await backends.store.jobs(query)
    next_at = await next_starts(backends, found[:limit])
    return listing(
        found,
        limit,
        lambda job: JobShape.of(job, next_at[job.id]),
        lambda job: encode_cursor("jobs", job.name),
    )


@router.post("/jobs:apply", openapi_extra=APPLY_BODY)
async def apply_jobs(
    actor: Editor,
    backends: UsedBackends,
    file: FileToApply,
    response: Response,
    plan: Annotated[bool, Query(description="only say what would be changed")] = False,
    prune: Annotated[bool, Query(description="remove what the file no longer has")] = False,
    if_match: IfMatch = "",
) -> PlanShape:
    """Create and change the jobs, calendars and carts of a file, all or none; starts no cart."""
    if plan:
        made = await definitions.plan(backends, file, prune=prune, is_admin=actor.is_admin)
        require_match(if_match, made.etag)
    else:
        made = await definitions.apply(
            backends,
            file,
            actor=actor.name,
            is_admin=actor.is_admin,
            prune=prune,
            if_match=unquote(if_match),
        )
    response.headers["ETag"] = quote(made.etag)
    return PlanShape.of(made, applied=not plan)


@router.post("/jobs:validate", openapi_extra=JOB_FILE_BODY)
async def validate_jobs(file: SentJobFile) -> ValidationShape:
    """Check a job file; all that is wrong with it is in the problem's `errors`."""
    warnings = [Fault.model_validate(warning) for warning in file.warnings]
    return ValidationShape(valid=True, warnings=warnings)


@router.get("/jobs/{job}")
async def show_job(backends: UsedBackends, job: NamedJob, response: Response) -> JobDetail:
    """A job with its document, and how late its runs start."""
    response.headers["ETag"] = quote(job.digest)
    next_at = await next_starts(backends, [job])
    followers = await backends.store.followers(job.project, [job.name])
    late = await lateness(backends, job)
    return JobDetail.in_full(job, next_at[job.id], late, followers.get(job.name, ()))


@router.delete("/jobs/{job}", status_code=204)
async def delete_job(
    actor: Editor, backends: UsedBackends, job: NamedJob, if_match: IfMatch = ""
) -> None:
    """Take a job out of service; live runs finish, history stays."""
    require_match(if_match, job.digest)
    await definitions.delete(backends, job, actor=actor.name)


@router.post("/jobs/{job}:pause")
async def pause_job(
    actor: Operator, backends: UsedBackends, job: NamedJob, body: PauseBody | None = None
) -> MovedJobShape:
    """Nothing of the job starts until it is resumed, or until a time; due times are SKIPPED."""
    now = await backends.store.now()
    body = body or PauseBody()
    [until] = read_times(looking_ahead(now, zone_of(job)), {"until": body.until})
    if body.length is not None:
        until = now + parse_duration(body.length)
    moved = await pauses.pause(backends, job, actor=actor.name, until=until)
    return await _moved(backends, moved)


@router.post("/jobs/{job}:resume")
async def resume_job(actor: Operator, backends: UsedBackends, job: NamedJob) -> MovedJobShape:
    """End a pause; what fell into it is not caught up."""
    return await _moved(backends, await pauses.resume(backends, job, actor=actor.name))


@router.post("/jobs/{job}:skip")
async def skip_next(actor: Operator, backends: UsedBackends, job: NamedJob) -> MovedJobShape:
    """Leave out the next due time that would run: the ledger has it as SKIPPED."""
    return await _moved(backends, await pauses.skip_next(backends, job, actor=actor.name))


@router.post("/jobs/{job}:enable")
async def enable_job(actor: Editor, backends: UsedBackends, job: NamedJob) -> MovedJobShape:
    """Switch a job on."""
    return await _moved(backends, await pauses.enable(backends, job, actor=actor.name))


@router.post("/jobs/{job}:disable")
async def disable_job(actor: Editor, backends: UsedBackends, job: NamedJob) -> MovedJobShape:
    """Switch a job off: no due times, no triggers. What runs goes on."""
    return await _moved(backends, await pauses.disable(backends, job, actor=actor.name))


async def _moved(backends: Backends, moved: Moved) -> MovedJobShape:
    next_at = await next_starts(backends, [moved.job])
    return MovedJobShape.after(moved, next_at[moved.job.id])


@router.get("/jobs/{job}/upcoming")
async def list_upcoming(
    backends: UsedBackends, job: NamedJob, count: Annotated[int, Query(ge=1, le=100)] = 5
) -> UpcomingShape:
    """The next due times of a job, as far as they are known."""
    return UpcomingShape.of(job, await outlook(backends, job, count))
