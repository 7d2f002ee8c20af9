"""What callers ask for, read strictly: `Invalid` names what is wrong with it."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from google.protobuf.timestamp_pb2 import Timestamp

from rota.contracts import client_pb2 as pb
from rota.domain.errors import Invalid
from rota.domain.jobfile import JobFile, read_file
from rota.domain.spec import DEFAULT_PROJECT
from rota.server.gateway.paging import MAX_LIMIT
from rota.server.gateway.strictness import parse_json

_PROJECT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_KEY = re.compile(r"[\x21-\x7e]{0,200}")
_MAX_REFERENCE = 200
_USUAL_SIZE = 100  # of a page
SET = "api"  # of jobs that come without a file's name


def project_of(project: str) -> str:
    """The project that is meant."""
    if project and not _PROJECT.fullmatch(project):
        raise malformed("project: letters, digits, '.', '_' and '-' are allowed")
    return project or DEFAULT_PROJECT


def reference(value: str, what: str) -> str:
    """A name or an id."""
    if not value or len(value) > _MAX_REFERENCE or not value.isprintable():
        raise malformed(f"{what}: a name or an id is needed")
    return value


def idempotency_key(key: str) -> str:
    if not _KEY.fullmatch(key):
        raise malformed("idempotency_key: at most 200 visible ASCII characters are allowed")
    return key


def page_size(page: pb.Page) -> int:
    return size_of(page.size, "page.size")


def size_of(size: int, what: str) -> int:
    """How many a page has at most."""
    if size > MAX_LIMIT:
        raise malformed(f"{what}: {MAX_LIMIT:,} at most")
    return size or _USUAL_SIZE


def inputs_of(text: str) -> Mapping[str, Any]:
    """Inputs from JSON; none from nothing."""
    try:
        inputs = parse_json(text.encode()) if text else {}
    except (ValueError, RecursionError) as error:
        raise malformed(f"inputs_json: {error}") from error
    if not isinstance(inputs, dict):
        raise malformed("inputs_json: an object is needed")
    return inputs


def instant_of(message: Timestamp, what: str) -> datetime:
    try:
        instant: datetime = message.ToDatetime(tzinfo=UTC)
    except (ValueError, OverflowError) as error:
        raise malformed(f"{what}: not a time between the years 1 and 9999") from error
    return instant


async def file_of(text: str, project: str, limit: int, set_name: str) -> JobFile:
    """The jobs of a file."""
    if len(text.encode()) > limit:
        raise Invalid(f"a job file may have {limit:,} bytes", code="too_large")
    # A big file takes seconds to read, and leases are renewed on this loop.
    return await asyncio.to_thread(read_file, text, name=set_name, project=project)


def drafted(draft: pb.JobDraft) -> str:
    """The job file that a draft stands for; reading it finds what is wrong with it."""
    job: dict[str, Any] = {"name": draft.name}
    if draft.schedule:
        job["schedule"] = list(draft.schedule)
    if draft.timezone:
        job["timezone"] = draft.timezone
    match draft.code.WhichOneof("code"):
        case "script":
            job["steps"] = [{"run": step} for step in draft.code.script.steps]
            if draft.code.script.path:
                job["source"] = {"path": draft.code.script.path}
        case "function":
            job |= {"type": "python", "function": draft.code.function}
        case _:
            raise malformed("job.code: a script or a function is needed")
    return json.dumps({"jobs": [job]})


def malformed(message: str) -> Invalid:
    return Invalid(message, code="malformed")
