"""Job files and calendars as request bodies, read by the job file's own validator."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import Depends, Query
from starlette.requests import Request

from rota.domain.calendars import Calendar
from rota.domain.errors import Invalid
from rota.domain.jobfile import JobFile, read_file
from rota.domain.jobfile.calendars import read_calendar
from rota.gateway.wiring import CalendarName, Project

_MEDIA_TYPES = ("application/yaml", "application/x-yaml", "text/yaml", "application/json")
_SET = "api"  # of jobs that come without a file's name


def _body(description: str) -> dict[str, Any]:
    """What OpenAPI says of such a body."""
    content = {
        "application/yaml": {"schema": {"type": "string"}},
        "text/yaml": {"schema": {"type": "string"}},
        "application/json": {"schema": {"type": "object"}},
    }
    return {"requestBody": {"required": True, "description": description, "content": content}}


JOB_FILE_BODY = _body("A job file; `GET /api/v1/schema` has its schema.")
CALENDAR_BODY = _body("One of a job file's `calendars`; the name may be left out.")


async def _job_file(
    request: Request,
    project: Project,
    name: Annotated[
        str, Query(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$", description="the file's name")
    ] = _SET,
) -> JobFile:
    text = await _text(request)
    # A big file takes seconds to read, and leases are renewed on this loop.
    return await asyncio.to_thread(read_file, text, name=name, project=project)


async def _calendar(request: Request, calendar: CalendarName) -> Calendar:
    text = await _text(request)
    # Holidays take a while to be looked up.
    return await asyncio.to_thread(read_calendar, text, name=calendar)


async def _text(request: Request) -> str:
    _refuse_other_types(request)
    try:
        return (await request.body()).decode()
    except UnicodeDecodeError as error:
        raise Invalid(
            f"the body is not UTF-8: {error.reason} at byte {error.start}", code="malformed"
        ) from error


def _refuse_other_types(request: Request) -> None:
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type not in _MEDIA_TYPES:
        raise Invalid(
            "jobs and calendars are YAML or JSON",
            code="unsupported_media_type",
            hint="send Content-Type: application/yaml or application/json",
        )


SentJobFile = Annotated[JobFile, Depends(_job_file)]
SentCalendar = Annotated[Calendar, Depends(_calendar)]
