"""Output of runs: by windows, searched, raw, live."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

from fastapi import Header, Query
from starlette.requests import Request
from starlette.responses import StreamingResponse

from rota.api import output as api
from rota.domain.errors import Invalid
from rota.domain.output import Block
from rota.domain.run import Run
from rota.domain.states import is_final
from rota.operations import output
from rota.operations.engine import Engine
from rota.operations.output import (
    AttemptBegan,
    AttemptPrinted,
    Followed,
    OutputLine,
    OutputPage,
    OutputWindow,
    follow_run,
)
from rota.server.gateway.auth import Viewer
from rota.server.gateway.events import (
    KEEP_ALIVE,
    STREAM_RESPONSES,
    EventStream,
    frame,
)
from rota.server.gateway.filters import MAX_INTEGER, MAX_LIMIT, Limit
from rota.server.gateway.parameters import NamedRun, UsedEngine, api_router
from rota.server.gateway.routing import encode, fill
from rota.server.gateway.runs import run_answer

router = api_router("runs")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_Attempt = Annotated[
    int | None, Query(ge=1, le=MAX_INTEGER, description="which attempt; the latest by default")
]
_Line = Annotated[int, Query(ge=0, le=MAX_INTEGER)]
_Tail = Annotated[int | None, Query(ge=1, le=MAX_LIMIT, description="the last so many lines")]


def _line_answer(line: OutputLine) -> api.LogLine:
    record = line.record
    return api.LogLine(
        n=line.number,
        at=_EPOCH + timedelta(milliseconds=record.at_ms),
        stream=record.stream,
        step=record.step,
        text=record.text.decode(errors="replace"),
        continues=not record.ends_line,
    )


def _block_answer(first_line: int, block: Block) -> api.LogBlock:
    return api.LogBlock(
        n=first_line,
        at=_EPOCH + timedelta(milliseconds=block.at_ms),
        stream=block.stream,
        step=block.step,
        text=block.text.decode(errors="replace"),
        continues=not block.ends_line,
    )


def _page_answer(run: str, attempt: int, page: OutputPage) -> api.LogPage:
    return fill(
        api.LogPage,
        page,
        run=run,
        attempt=attempt,
        blocks=tuple(_block_answer(*each) for each in page.blocks),
        complete=page.is_complete,
        truncated=page.summary.truncated,
        output_state=page.summary.state,
    )


def window_answer(run: str, attempt: int, window: OutputWindow) -> api.LogWindow:
    return fill(api.LogWindow, window, **_window_fields(run, attempt, window))


def lines_news(run: str, attempt: int, window: OutputWindow, skipped: int) -> api.LinesNews:
    fields = _window_fields(run, attempt, window)
    return fill(api.LinesNews, window, skipped=skipped, **fields)


def _window_fields(run: str, attempt: int, window: OutputWindow) -> dict[str, Any]:
    return {
        "run": run,
        "attempt": attempt,
        "lines": tuple(map(_line_answer, window.lines)),
        "complete": window.is_complete,
        "truncated": window.summary.truncated,
        "output_state": window.summary.state,
    }


@router.get("/runs/{run}/log")
async def show_log(
    caller: Viewer,
    engine: UsedEngine,
    run: NamedRun,
    attempt: _Attempt = None,
    first_line: _Line = 0,
    limit: Limit = MAX_LIMIT,
    tail: _Tail = None,
) -> api.LogWindow:
    """Some lines of a run's output."""
    number = run.attempt if attempt is None else attempt
    if number == 0:
        nothing = OutputWindow((), 0, 0, is_complete=is_final(run.state))
        return window_answer(run.id, 0, nothing)
    if tail is not None:
        window = await output.tail(engine, run.id, number, tail)
    else:
        window = await output.read_window(engine, run.id, number, first_line, limit)
    return window_answer(run.id, number, window)


@router.get("/runs/{run}/log/blocks")
async def list_log_blocks(
    caller: Viewer,
    engine: UsedEngine,
    run: NamedRun,
    attempt: _Attempt = None,
    first_line: _Line = 0,
    last: Annotated[
        int | None,
        Query(ge=1, le=MAX_INTEGER, description="begin so many lines before the end instead"),
    ] = None,
) -> api.LogPage:
    """About a megabyte of a run's output; lines that were printed together are one text."""
    number = run.attempt if attempt is None else attempt
    if number == 0:
        nothing = OutputPage((), 0, 0, is_complete=is_final(run.state))
        return _page_answer(run.id, 0, nothing)
    page = await output.read_page(engine, run.id, number, first_line, last=last)
    return _page_answer(run.id, number, page)


@router.get("/runs/{run}/log:search")
async def search_log(
    caller: Viewer,
    engine: UsedEngine,
    run: NamedRun,
    q: Annotated[str, Query(min_length=1, max_length=1_000, description="plain text")],
    attempt: _Attempt = None,
    after_line: _Line = 0,
    limit: Limit = 100,
) -> api.LogMatches:
    """Lines that contain a text, from a line on."""
    number = run.attempt if attempt is None else attempt
    if number == 0:
        return api.LogMatches(matches=(), next_line=None)
    found = await output.search(engine, run.id, number, q, after_line, limit)
    return api.LogMatches(
        matches=tuple(map(_line_answer, found.hits)),
        next_line=None if found.is_exhausted else found.next_line,
    )


@router.get(
    "/runs/{run}/log/raw",
    response_class=StreamingResponse,
    responses={200: {"description": "the bytes", "content": {"text/plain": {}}}},
)
async def raw_log(
    caller: Viewer, engine: UsedEngine, run: NamedRun, attempt: _Attempt = None
) -> StreamingResponse:
    """Output of an attempt, byte for byte."""
    number = run.attempt if attempt is None else attempt
    data = _printed(engine, run, number)
    # Read before the answer begins, so that unreadable output is an error, not a cut-off answer.
    first = await anext(data, b"")
    return StreamingResponse(
        _joined(first, data),
        media_type="text/plain; charset=utf-8",
        headers={"Content-Disposition": f'attachment; filename="{run.id}-{number}.log"'},
    )


async def _printed(engine: Engine, run: Run, number: int) -> AsyncGenerator[bytes, None]:
    if number > 0:
        async with aclosing(output.raw(engine, run.id, number)) as printed:
            async for data in printed:
                yield data


async def _joined(first: bytes, rest: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    async with aclosing(rest):
        yield first
        async for data in rest:
            yield data


@router.get("/runs/{run}/log/stream", response_class=StreamingResponse, responses=STREAM_RESPONSES)
async def stream_log(
    caller: Viewer,
    request: Request,
    engine: UsedEngine,
    run: NamedRun,
    attempt: _Attempt = None,
    from_line: _Line = 0,
    last_event_id: Annotated[str, Header(max_length=100)] = "",
) -> EventStream:
    """A run's output as it comes, from an attempt on, until the run has ended.

    Events: `lines` (a window of the log), `attempt` (a new one began), `end` (the run).
    """
    start = attempt or max(run.attempt, 1)
    if last_event_id:
        start, from_line = _position(last_event_id)
    followed = follow_run(engine, run, start, from_line)
    return EventStream(_frames(engine, run, followed), request)


def _position(event_id: str) -> tuple[int, int]:
    """Parse the position where a stream continues: `2.140` is line 140 of attempt 2."""
    attempt, _, line = event_id.partition(".")
    if not (attempt.isdecimal() and line.isdecimal()) or int(attempt) < 1:
        raise Invalid("this Last-Event-ID is of another stream", code="bad_cursor")
    return int(attempt), int(line)


async def _frames(
    engine: Engine, run: Run, followed: AsyncGenerator[Followed, None]
) -> AsyncGenerator[bytes, None]:
    async with aclosing(followed):
        async for each in followed:
            yield await _frame(engine, run, each)


async def _frame(engine: Engine, run: Run, followed: Followed) -> bytes:
    match followed:
        case None:
            return KEEP_ALIVE
        case AttemptBegan(number):
            data = b'{"attempt":%d}' % number
            return frame(data, event="attempt", event_id=f"{number}.0")
        case AttemptPrinted(number, window):
            if not window.lines and not window.is_last:
                return KEEP_ALIVE
            data = encode(window_answer(run.id, number, window))
            return frame(data, event="lines", event_id=f"{number}.{window.next_line}")
        case Run():
            return frame(encode(await run_answer(engine, followed)), event="end")
