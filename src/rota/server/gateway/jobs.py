"""Jobs: list, show, hold, delete, their upcoming due times, and short routes to how they went."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Any

import msgspec
from fastapi import Depends, Query
from pydantic import Field, model_validator
from starlette.responses import Response

from rota.api import jobs as api
from rota.api.answers import Page
from rota.api.jobs import ClockChange, JobAndRun, SchedulePreview
from rota.api.output import LogWindow
from rota.api.runs import Run as RunAnswer
from rota.domain.access import ProjectSet
from rota.domain.errors import Invalid, NotFound
from rota.domain.following import follow_words
from rota.domain.job import Job
from rota.domain.jobfile import read_job, to_yaml
from rota.domain.jobfile.walls import shown_walls
from rota.domain.lateness import Lateness
from rota.domain.quantities import parse_duration
from rota.domain.run import Run
from rota.domain.schedule import Explanation, describe, explain
from rota.domain.schedule.explanation import MOST_EXPLAINED
from rota.domain.spec import Dst, Fold, Gap, JobSpec, Schedule
from rota.operations import definitions, pauses
from rota.operations.engine import Engine
from rota.operations.pauses import Moved
from rota.operations.previews import Upcoming, find_upcoming, next_starts
from rota.operations.specs import timetable
from rota.operations.workers import lateness
from rota.ports.records import JobQuery, RunQuery
from rota.server.gateway.auth import Asking, Editor, Listed, Operator, Stopper, Viewer
from rota.server.gateway.filters import (
    MAX_LIMIT,
    CreatedBy,
    Cursor,
    Limit,
    creator_meant,
    decode_cursor,
    encode_cursor,
    page,
)
from rota.server.gateway.output import show_log
from rota.server.gateway.parameters import (
    NAME,
    Body,
    Duration,
    FromQuery,
    IfMatch,
    NamedJob,
    PastJob,
    Project,
    TimeText,
    UsedEngine,
    api_router,
    looking_ahead,
    quote,
    read_times,
    require_match,
    zone_named,
    zone_of,
)
from rota.server.gateway.routing import fill, problem_answers
from rota.server.gateway.runs import list_history, run_answer

router = api_router("jobs")


class PauseBody(Body):
    """How long a pause lasts; without either, until the job is resumed."""

    until: TimeText | None = None  # also 11:00: the next time that it is so late
    length: Duration | None = Field(default=None, alias="for")

    @model_validator(mode="after")
    def _one_at_most(self) -> PauseBody:
        if self.until is not None and self.length is not None:
            raise ValueError("give either `until` or `for`")
        return self


@dataclass(frozen=True, slots=True)
class _Definition:
    """Description of one version of a job."""

    title: str = ""
    description: str = ""
    owner: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    type: str = ""
    schedule: api.Schedule | None = None
    follows: tuple[str, ...] = ()
    after: tuple[api.Follow, ...] = ()
    unreadable: str = ""  # why this server cannot read it; "": it can


def job_answer(job: Job, next_at: datetime | None) -> api.Job:
    return fill(api.Job, job, **_worked_out(job, next_at))


def _detail_answer(
    job: Job, next_at: datetime | None, lateness: Lateness | None, followers: Sequence[str]
) -> api.JobDetail:
    document = dict(job.document)
    return fill(
        api.JobDetail,
        job,
        **_worked_out(job, next_at),
        document=document,
        yaml=to_yaml([document]),
        lateness=None if lateness is None else fill(api.Lateness, lateness),
        followed_by=tuple(followers),
    )


def _moved_answer(moved: Moved, next_at: datetime | None) -> api.MovedJob:
    told = _worked_out(moved.job, next_at)
    return fill(api.MovedJob, moved.job, **told, answered=_answered(moved.answered))


def _upcoming_answer(job: Job, found: Upcoming) -> api.Upcoming:
    return fill(
        api.Upcoming,
        found,
        times=tuple(_on_clocks(job, time) for time in found.times),
        schedule=found.words,
        clock_changes=tuple(fill(api.ClockChange, it) for it in found.clock_changes),
        calendars=tuple(fill(api.CalendarEffect, it) for it in found.calendars),
        answered=_answered(found.answered),
    )


def _answered(stretches: Iterable[object]) -> tuple[api.Answered, ...]:
    return tuple(fill(api.Answered, stretch) for stretch in stretches)


def _on_clocks(job: Job, time: datetime) -> datetime:
    zone = zone_of(job)
    return zone.local(time) if zone else time


def _worked_out(job: Job, next_at: datetime | None) -> dict[str, Any]:
    """Compute the fields of an answer that a job does not have itself."""
    definition = _definition(job)
    return {
        "etag": job.digest,
        "title": definition.title,
        "description": definition.description,
        "owner": definition.owner,
        "labels": definition.labels,
        "type": definition.type,
        "schedule": definition.schedule,
        "follows": definition.follows,
        "after": definition.after,
        "unreadable": definition.unreadable,
        "next_at": _on_clocks(job, next_at) if next_at else None,
        "set": job.set_name,
        "status": _status(job, definition),
        **shown_walls(job.document),
    }


def _status(job: Job, definition: _Definition) -> str:
    if job.deleted_at is not None:
        return "deleted"
    if job.finished_at is not None:
        return "finished"
    if not job.enabled:
        return "disabled"
    if job.paused:
        return "paused"
    if definition.schedule is None and not definition.unreadable:
        return "active" if definition.follows else "on demand"
    if job.stuck_since is not None:
        return "stuck"
    return "active" if job.next_at is not None or job.waits else "finished"


_MAX_KNOWN = 10_000
_known: dict[tuple[str, int], _Definition] = {}  # a version never changes


def _definition(job: Job) -> _Definition:
    """Describe a job, cached: reading the document takes a millisecond, too long for a list."""
    key = (job.id, job.version)
    if key not in _known:
        if len(_known) >= _MAX_KNOWN:
            _known.clear()
        _known[key] = _read(job)
    return _known[key]


def _read(job: Job) -> _Definition:
    """Read a definition; one that this release cannot read is described as such, not raised.

    One job written by a newer release, or in a zone unknown here, must not hide the others.
    """
    try:
        return _describe(read_job(job.document), job.anchor)
    except Invalid as error:
        reasons = "; ".join(map(str, error.problems)) or str(error)
    return _Definition(unreadable=reasons)


def _describe(spec: JobSpec, anchor: datetime) -> _Definition:
    return _Definition(
        title=spec.title,
        description=spec.description,
        owner=spec.owner,
        labels=spec.labels,
        type=spec.type,
        schedule=_schedule(spec, anchor),
        follows=spec.after.jobs,
        after=tuple(
            fill(api.Follow, follow, words=follow_words(follow)) for follow in spec.after.follows
        ),
    )


def _schedule(spec: JobSpec, anchor: datetime) -> api.Schedule | None:
    table = timetable(spec, anchor)
    if spec.schedule is None or table is None:
        return None
    return fill(
        api.Schedule,
        spec.schedule,
        words=describe(table),
        kinds=table.kinds,
        spread_seconds=table.spread_delay.total_seconds(),
        jitter_seconds=spec.schedule.jitter.total_seconds(),
    )


@router.get("/jobs")
async def list_jobs(
    project: Listed,
    caller: Asking,
    engine: UsedEngine,
    name: Annotated[str | None, Query(max_length=200, description="may have `*`")] = None,
    created_by: CreatedBy = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Page[api.Job]:
    """Jobs by name."""
    after_project, after_name = _position(cursor, project)
    query = JobQuery(
        project=project,
        name_like=name,
        created_by=creator_meant(caller, project, created_by),
        after_project=after_project,
        after_name=after_name,
        limit=limit + 1,
    )
    found = await definitions.with_last_runs(engine, await engine.store.jobs(query))
    next_at = await next_starts(engine, found[:limit])
    return page(
        found,
        limit,
        lambda job: job_answer(job, next_at[job.id]),
        lambda job: _cursor(job, project),
    )


def _cursor(job: Job, project: ProjectSet) -> str:
    if isinstance(project, str):
        return encode_cursor("jobs", job.name)
    return encode_cursor("jobs of projects", f"{job.project}/{job.name}")


def _position(cursor: str | None, project: ProjectSet) -> tuple[str, str]:
    """Return project and name of the previous page's last job; "": the first page."""
    if isinstance(project, str):
        return "", decode_cursor("jobs", cursor, "")
    after_project, _, after_name = decode_cursor("jobs of projects", cursor, "").partition("/")
    return after_project, after_name


@router.get("/jobs/{job}")
async def show_job(
    caller: Viewer, engine: UsedEngine, job: NamedJob, response: Response
) -> api.JobDetail:
    """A job with its document, and how late its runs start."""
    response.headers["ETag"] = quote(job.digest)
    [job] = await definitions.with_last_runs(engine, [job])
    next_at = await next_starts(engine, [job])
    followers = await engine.store.followers(job.project, [job.name])
    late = await lateness(engine, job)
    return _detail_answer(job, next_at[job.id], late, followers.get(job.name, ()))


@router.delete("/jobs/{job}", status_code=204)
async def delete_job(
    actor: Editor, engine: UsedEngine, job: NamedJob, if_match: IfMatch = ""
) -> None:
    """Take a job out of service; live runs finish, history stays."""
    require_match(if_match, job.digest)
    await definitions.delete(engine, job, actor=actor.name)


@router.post("/jobs/{job}:pause")
async def pause_job(
    actor: Stopper, engine: UsedEngine, job: NamedJob, body: PauseBody | None = None
) -> api.MovedJob:
    """Nothing of the job starts until it is resumed, or until a time; due times are SKIPPED."""
    now = await engine.store.now()
    body = body or PauseBody()
    [until] = read_times(looking_ahead(now, zone_of(job)), {"until": body.until})
    if body.length is not None:
        until = now + parse_duration(body.length)
    moved = await pauses.pause(engine, job, actor=actor.name, until=until)
    return await _moved(engine, moved)


@router.post("/jobs/{job}:resume")
async def resume_job(actor: Operator, engine: UsedEngine, job: NamedJob) -> api.MovedJob:
    """End a pause; what fell into it is not caught up."""
    return await _moved(engine, await pauses.resume(engine, job, actor=actor.name))


@router.post("/jobs/{job}:skip")
async def skip_next(actor: Stopper, engine: UsedEngine, job: NamedJob) -> api.MovedJob:
    """Leave out the next due time that would run: the ledger has it as SKIPPED."""
    return await _moved(engine, await pauses.skip_next(engine, job, actor=actor.name))


@router.post("/jobs/{job}:enable")
async def enable_job(actor: Editor, engine: UsedEngine, job: NamedJob) -> api.MovedJob:
    """Switch a job on."""
    return await _moved(engine, await pauses.enable(engine, job, actor=actor.name))


@router.post("/jobs/{job}:disable")
async def disable_job(actor: Editor, engine: UsedEngine, job: NamedJob) -> api.MovedJob:
    """Switch a job off: no due times, no triggers. What runs goes on."""
    return await _moved(engine, await pauses.disable(engine, job, actor=actor.name))


async def _moved(engine: Engine, moved: Moved) -> api.MovedJob:
    next_at = await next_starts(engine, [moved.job])
    return _moved_answer(moved, next_at[moved.job.id])


@router.get("/jobs/{job}/upcoming")
async def list_upcoming(
    caller: Viewer,
    engine: UsedEngine,
    job: NamedJob,
    count: Annotated[int, Query(ge=1, le=100)] = 5,
) -> api.Upcoming:
    """The next due times of a job, as far as they are known."""
    return _upcoming_answer(job, await find_upcoming(engine, job, count))


schedule_router = api_router("schedules")


@dataclass(frozen=True, slots=True)
class _Setting:
    """Fields beside its expression that decide what a schedule means."""

    timezone: Annotated[str, Query(max_length=100)] = "UTC"
    gap: Annotated[Gap, Query(description="a time that does not exist")] = Gap.RUN_AFTER
    fold: Annotated[Fold, Query(description="a time that comes twice")] = Fold.FIRST
    job: Annotated[str | None, Query(pattern=NAME, description="the name that `H` depends on")] = (
        None
    )


def preview_answer(explained: Explanation) -> SchedulePreview:
    return fill(
        SchedulePreview,
        explained,
        next=tuple(time.at for time in explained.next),
        warnings=problem_answers(explained.warnings),
        clock_changes=tuple(fill(ClockChange, it) for it in explained.clock_changes),
    )


@schedule_router.get("/schedule/preview")
async def preview_schedule(
    caller: Viewer,
    engine: UsedEngine,
    project: Project,
    expression: Annotated[list[str], Query(description="cron, interval or time; repeatable")],
    setting: Annotated[_Setting, Depends()],
    start: FromQuery = None,
    count: Annotated[int, Query(ge=1, le=MOST_EXPLAINED)] = 5,
) -> SchedulePreview:
    """A schedule in words, and its next due times."""
    now = await engine.store.now()
    reading = looking_ahead(now, zone_named(setting.timezone))
    [after] = read_times(reading, {"from": start}, code="malformed")
    schedule = Schedule(tuple(expression), setting.timezone, Dst(setting.gap, setting.fold))
    explained = await asyncio.to_thread(
        explain,
        schedule,
        key="" if setting.job is None else f"{project}/{setting.job}",
        after=after or now,
        count=count,
    )
    return preview_answer(explained)


short_router = api_router("shortcuts")  # `jobfiles` has the one that submits a file


@short_router.get("/retrieve_history_execution/{job}")
async def show_history(
    caller: Viewer, engine: UsedEngine, job: PastJob, limit: Limit = 100, cursor: Cursor = None
) -> Page[RunAnswer]:
    """The runs of a job, newest first; also of one that was deleted."""
    return await list_history(caller, engine, job, limit, cursor)


@short_router.get("/last_execution_logs/{job}")
async def show_last_log(
    caller: Viewer,
    engine: UsedEngine,
    job: PastJob,
    tail: Annotated[int | None, Query(ge=1, le=MAX_LIMIT)] = None,
) -> LogWindow:
    """Output of the newest run of a job."""
    run = await _last_run(engine, job)
    if run is None:
        hint = "" if job.deleted_at else f"rota trigger {job.name}"
        raise NotFound(f"job {job.name} has never run", code="never_run", hint=hint)
    return await show_log(caller, engine, run, tail=tail)


@short_router.get("/job_status/{job}")
async def show_status(caller: Viewer, engine: UsedEngine, job: PastJob) -> JobAndRun:
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
