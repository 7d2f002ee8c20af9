"""Job files and calendars in requests, read by the job file's own validator.

A job file whose carts name files of items is sent as lines of JSON: the text of the job file as a
string, then the items, each with the name of its `cart`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import Depends, Query
from starlette.requests import Request
from starlette.responses import Response

from rota.api import plans as api
from rota.domain.calendars import Calendar
from rota.domain.errors import Invalid
from rota.domain.jobfile import JobFile
from rota.operations import definitions
from rota.operations.definitions import Plan
from rota.operations.runs import SubmittedJob, submit_file
from rota.operations.tokens import Caller
from rota.server.gateway.auth import EDITS, Author, Member, Tokens, TrustedTokens
from rota.server.gateway.cart_submissions import NDJSON, parsed_body
from rota.server.gateway.middleware import media_type_in
from rota.server.gateway.parameters import (
    NAME,
    CalendarName,
    IdempotencyKey,
    IfMatch,
    Project,
    UsedEngine,
    api_router,
    quote,
    require_match,
    unquote,
)
from rota.server.gateway.parsers import (
    FileCheck,
    check_job_file,
    parse_calendar,
    parse_job_file,
    parse_job_file_with_items,
)
from rota.server.gateway.routing import fill, problem_answers

router = api_router("jobs")
short_router = api_router("shortcuts")
_MEDIA_TYPES = ("application/yaml", "application/x-yaml", "text/yaml", "application/json")
_Name = Annotated[
    str | None,
    Query(pattern=NAME, description="the file's name; else what is there stays in its set"),
]


def _body(description: str) -> dict[str, Any]:
    """Return the OpenAPI description of such a body."""
    content = {
        "application/yaml": {"schema": {"type": "string"}},
        "text/yaml": {"schema": {"type": "string"}},
        "application/json": {"schema": {"type": "object"}},
    }
    return {"requestBody": {"required": True, "description": description, "content": content}}


_JOB_FILE = "A job file; `GET /api/v1/schema` has its schema."
_WITH_ITEMS = (
    " As lines of JSON: the file's text as a string, then the items of the files that its carts "
    'name, one a line: `{"cart": "upgrade", "key": "db-1", "with": {"version": 16}}`.'
)
JOB_FILE_BODY = _body(_JOB_FILE)
APPLY_BODY = _body(_JOB_FILE + _WITH_ITEMS)
APPLY_BODY["requestBody"]["content"][NDJSON] = {"schema": {"type": "string"}}
CALENDAR_BODY = _body("One of a job file's `calendars`; the name may be left out.")


async def _job_file(request: Request, project: Project, name: _Name = None) -> JobFile:
    _refuse_other_types(request)
    return await parsed_body(request, parse_job_file, name=name, project=project)


async def _checked(request: Request, project: Project, name: _Name = None) -> FileCheck:
    _refuse_other_types(request)
    return await parsed_body(request, check_job_file, name=name, project=project)


async def _file_to_apply(request: Request, project: Project, name: _Name = None) -> JobFile:
    if media_type_in(request.headers.get("content-type", "")) != NDJSON:
        return await _job_file(request, project, name)
    return await parsed_body(request, parse_job_file_with_items, name=name, project=project)


async def _calendar(request: Request, calendar: CalendarName) -> Calendar:
    _refuse_other_types(request)
    return await parsed_body(request, parse_calendar, name=calendar)


def _refuse_other_types(request: Request) -> None:
    media_type = media_type_in(request.headers.get("content-type", ""))
    if media_type not in _MEDIA_TYPES:
        raise Invalid(
            "jobs and calendars are YAML or JSON",
            code="unsupported_media_type",
            hint="send Content-Type: application/yaml or application/json",
        )


SentJobFile = Annotated[JobFile, Depends(_job_file)]
FileToCheck = Annotated[FileCheck, Depends(_checked)]
FileToApply = Annotated[JobFile, Depends(_file_to_apply)]  # may come with items of its carts
SentCalendar = Annotated[Calendar, Depends(_calendar)]


def plan_answer(plan: Plan, *, applied: bool) -> api.Plan:
    return fill(
        api.Plan,
        plan,
        changes=tuple(fill(api.Change, change) for change in plan.changes),
        calendars=tuple(fill(api.PlannedCalendar, it) for it in plan.calendars),
        limits=tuple(fill(api.PlannedDeclaration, it) for it in plan.limits),
        resources=tuple(fill(api.PlannedDeclaration, it) for it in plan.resources),
        carts=tuple(fill(api.PlannedCart, cart) for cart in plan.carts),
        warnings=problem_answers(plan.warnings),
        applied=applied,
    )


def _submission_answer(jobs: Sequence[SubmittedJob]) -> api.Submission:
    return api.Submission(
        job_ids=tuple(job.id for job in jobs),
        runs=tuple(job.run for job in jobs if job.run is not None),
        jobs=tuple(fill(api.SubmittedJob, job) for job in jobs),
    )


async def require_editor(
    tokens: TrustedTokens, actor: Caller, file: JobFile, *, prune: bool = False
) -> None:
    """Raise an error unless the caller may change every project in which a file changes something.

    That of the request counts only if the file says something about it.
    """
    pruned = {file.project} if prune else set()
    for project in sorted(file.projects | pruned):
        await EDITS.admit(tokens, actor, project)


@router.post("/jobs:apply", openapi_extra=APPLY_BODY)
async def apply_jobs(
    actor: Author,
    tokens: Tokens,
    engine: UsedEngine,
    file: FileToApply,
    response: Response,
    plan: Annotated[bool, Query(description="only say what would be changed")] = False,
    prune: Annotated[bool, Query(description="remove what the file no longer has")] = False,
    if_match: IfMatch = "",
) -> api.Plan:
    """Create and change the jobs, calendars and carts of a file, all or none; starts no cart."""
    await require_editor(tokens, actor, file, prune=prune)
    is_admin = actor.is_installation_admin
    if plan:
        made = await definitions.plan(engine, file, prune=prune, is_admin=is_admin)
        require_match(if_match, made.etag)
    else:
        made = await definitions.apply(
            engine,
            file,
            actor=actor.name,
            is_admin=is_admin,
            prune=prune,
            if_match=unquote(if_match),
        )
    response.headers["ETag"] = quote(made.etag)
    return plan_answer(made, applied=not plan)


@router.post("/jobs:validate", openapi_extra=JOB_FILE_BODY)
async def validate_jobs(caller: Member, tokens: Tokens, checked: FileToCheck) -> api.Validation:
    """Check a job file; all that is wrong with it is in the problem's `errors`."""
    for project in sorted(checked.projects):
        await tokens.require_project(caller, project)
    return api.Validation(valid=True, warnings=problem_answers(checked.warnings))


@short_router.post("/submit_job", status_code=201, openapi_extra=JOB_FILE_BODY)
async def submit_job(
    actor: Author,
    tokens: Tokens,
    engine: UsedEngine,
    file: SentJobFile,
    idempotency_key: IdempotencyKey = "",
) -> api.Submission:
    """Create and change the jobs of a file; those without a schedule run at once."""
    await require_editor(tokens, actor, file)
    submitted = await submit_file(
        engine,
        file,
        actor=actor.name,
        is_admin=actor.is_installation_admin,
        idempotency_key=idempotency_key,
    )
    return _submission_answer(submitted)
