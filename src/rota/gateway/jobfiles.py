"""Job files as request bodies."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import Depends, Query
from starlette.requests import Request

from rota.domain.errors import Invalid
from rota.domain.jobfile import JobFile, read_file
from rota.gateway.wiring import Project

_MEDIA_TYPES = ("application/yaml", "application/x-yaml", "text/yaml", "application/json")
_SET = "api"  # of jobs that come without a file's name

# What OpenAPI says of such a body.
JOB_FILE_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "A job file; `GET /api/v1/schema` has its schema.",
        "content": {
            "application/yaml": {"schema": {"type": "string"}},
            "text/yaml": {"schema": {"type": "string"}},
            "application/json": {"schema": {"type": "object"}},
        },
    }
}


async def _job_file(
    request: Request,
    project: Project,
    name: Annotated[
        str, Query(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$", description="the file's name")
    ] = _SET,
) -> JobFile:
    _refuse_other_types(request)
    try:
        text = (await request.body()).decode()
    except UnicodeDecodeError as error:
        raise Invalid(
            f"the body is not UTF-8: {error.reason} at byte {error.start}", code="malformed"
        ) from error
    # A big file takes seconds to read, and leases are renewed on this loop.
    return await asyncio.to_thread(read_file, text, name=name, project=project)


def _refuse_other_types(request: Request) -> None:
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type not in _MEDIA_TYPES:
        raise Invalid(
            "a job file is YAML or JSON",
            code="unsupported_media_type",
            hint="send Content-Type: application/yaml or application/json",
        )


SentJobFile = Annotated[JobFile, Depends(_job_file)]
