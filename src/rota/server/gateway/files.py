"""Files: uploads of a project, and artifacts of its runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, suppress
from typing import Annotated
from urllib.parse import quote

from fastapi import Path, Query
from starlette.requests import ClientDisconnect, Request
from starlette.responses import StreamingResponse

from rota.api import files as api
from rota.api.answers import Page
from rota.domain.errors import RotaError
from rota.operations import files
from rota.operations.engine import Engine
from rota.ports.files import ArtifactQuery, KeptFile
from rota.server.gateway.auth import Uploader, Viewer
from rota.server.gateway.filters import (
    MAX_INTEGER,
    Cursor,
    Limit,
    bad_cursor,
    decode_cursor,
    encode_cursor,
    page,
)
from rota.server.gateway.parameters import NamedRun, Project, UsedEngine, api_router
from rota.server.gateway.routing import fill

router = api_router("uploads")
run_router = api_router("runs")
_BEGINNING = "0 0 "
_PATIENCE = 30.0  # seconds to read what a refused caller still sends
_BYTES = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
_BODY = {
    "requestBody": {
        "required": True,
        "description": "the bytes of the file, of any length",
        "content": _BYTES,
    }
}

Digest = Annotated[
    str, Path(max_length=100, description="`sha256:` and 64 hexadecimal digits, of the whole file")
]
_Attempt = Annotated[
    int | None, Query(ge=1, le=MAX_INTEGER, description="which attempt; any, unless given")
]
_Step = Annotated[
    int | None, Query(ge=0, le=MAX_INTEGER, description="which step, from 0; any, unless given")
]


@router.put("/uploads/{digest}", openapi_extra=_BODY)
async def upload_file(
    caller: Uploader, engine: UsedEngine, project: Project, digest: Digest, request: Request
) -> api.Upload:
    """Upload a file, which is verified while it comes; the same again is harmless.

    It is kept for a day, and longer as soon as a job or a run names it.
    """
    length = request.headers.get("content-length", "")
    size = int(length) if length.isdecimal() else None
    try:
        kept = await files.take_in(engine, project, digest, _body(request), size)
    except ClientDisconnect:
        raise
    except RotaError:
        # Read to its end: whoever still sends would find the connection cut, not this answer.
        with suppress(TimeoutError, ClientDisconnect):
            async with asyncio.timeout(_PATIENCE):
                await _drain(request)
        raise
    return fill(api.Upload, kept)


async def _body(request: Request) -> AsyncIterator[bytes]:
    async for part in request.stream():
        yield part


async def _drain(request: Request) -> None:
    if "expect" in request.headers:  # it waits for leave to send
        return
    while (await request.receive()).get("more_body", False):
        pass


@router.get("/uploads/{digest}")
async def show_upload(
    caller: Uploader, engine: UsedEngine, project: Project, digest: Digest
) -> api.Upload:
    """A file of the project; it is kept for a day from now on at least."""
    return fill(api.Upload, await files.find_file(engine, project, digest))


@run_router.get("/runs/{run}/artifacts")
async def list_artifacts(
    caller: Viewer,
    engine: UsedEngine,
    run: NamedRun,
    attempt: _Attempt = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Page[api.Artifact]:
    """Files that the steps of a run left behind, by attempt, step and path."""
    after = _position(decode_cursor("artifacts", cursor, _BEGINNING))
    query = ArtifactQuery(run.id, attempt, after=after, limit=limit + 1)
    found = list(await engine.store.artifacts(query))
    return page(
        found,
        limit,
        lambda it: fill(api.Artifact, it),
        lambda it: encode_cursor("artifacts", f"{it.attempt} {it.step} {it.path}"),
    )


def _position(cursor: str) -> tuple[int, int, str]:
    attempt, _, rest = cursor.partition(" ")
    step, _, path = rest.partition(" ")
    if not (attempt.isdecimal() and step.isdecimal() and len(attempt + step) < 20):
        raise bad_cursor()
    return int(attempt), int(step), path


@run_router.get(
    "/runs/{run}/artifacts/{path:path}",
    response_class=StreamingResponse,
    responses={200: {"description": "the bytes", "content": _BYTES}},
)
async def download_artifact(
    caller: Viewer,
    engine: UsedEngine,
    project: Project,
    run: NamedRun,
    path: Annotated[str, Path(max_length=2_000, description="below the work folder")],
    attempt: _Attempt = None,
    step: _Step = None,
) -> StreamingResponse:
    """A file that a run left behind; of several with this path, the latest."""
    query = ArtifactQuery(run.id, attempt, step, path)
    return await _download(engine, await files.find_artifact(engine, query, project), path)


async def _download(engine: Engine, file: KeptFile, path: str) -> StreamingResponse:
    data = files.read_file(engine, file)
    # Read before the answer begins, so that a file that cannot be read is an error.
    first = await anext(data, b"")
    name = quote(path.rpartition("/")[2], safe="")
    return StreamingResponse(
        _joined(first, data),
        media_type="application/octet-stream",
        headers={
            "Content-Disposition": f"attachment; filename*=UTF-8''{name}",
            "Content-Length": str(file.size),
            "ETag": f'"{file.digest}"',
        },
    )


async def _joined(first: bytes, rest: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    async with aclosing(rest):
        yield first
        async for data in rest:
            yield data
