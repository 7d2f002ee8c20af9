"""Watching of a run or a cart: all that happens to it, in one stream."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated

from fastapi import Header, Query
from starlette.requests import Request
from starlette.responses import StreamingResponse

from rota.api.answers import Answer
from rota.api.runs import Progress, ProgressNews, StepNews, TimeNews
from rota.domain.errors import Invalid
from rota.domain.run import Run
from rota.domain.watching import Place
from rota.operations.engine import Engine
from rota.operations.watching import (
    MOST_LINES,
    AttemptEnded,
    CartStands,
    LinesPrinted,
    News,
    ProgressMade,
    RunChanged,
    RunSettled,
    StepChanged,
    TimePassed,
    Told,
    watch_cart,
    watch_run,
)
from rota.server.gateway.auth import Viewer
from rota.server.gateway.carts import watched_answer
from rota.server.gateway.events import (
    STREAM_RESPONSES,
    EventStream,
    frame,
)
from rota.server.gateway.output import lines_news
from rota.server.gateway.parameters import NamedCart, NamedRun, UsedEngine, api_router
from rota.server.gateway.routing import encode
from rota.server.gateway.runs import attempt_answer, run_detail, seen_answer, step_answer

router = api_router("runs")
cart_router = api_router("carts")

_Lines = Annotated[
    int,
    Query(
        ge=0,
        le=MOST_LINES,
        description="of output that came at once, no more than so many of the newest lines",
    ),
]


@router.get("/runs/{run}/stream", response_class=StreamingResponse, responses=STREAM_RESPONSES)
async def stream_run(
    caller: Viewer,
    request: Request,
    engine: UsedEngine,
    run: NamedRun,
    lines: _Lines = MOST_LINES,
    last_event_id: Annotated[str, Header(max_length=100)] = "",
) -> EventStream:
    """All that happens to a run, from its latest attempt on, until nothing more does by itself.

    Events: `run` (it stands in another way), `step` (one began or ended), `progress`, `lines` (a
    window of the log), `attempt` (one ended), `time` (a second has passed), `end` (the
    run with its attempts). The begin of a step comes before its lines, its end after them.
    """
    place = place_in(last_event_id) if last_event_id else None
    frames = _frames(engine, run, watch_run(engine, run, place, lines))
    return EventStream(frames, request)


def place_in(event_id: str) -> Place:
    """Parse the place from which a watcher goes on."""
    try:
        return Place.parse(event_id)
    except ValueError as error:
        raise Invalid("this is no place in the stream of a run", code="bad_cursor") from error


async def _frames(
    engine: Engine, run: Run, told: AsyncGenerator[Told, None]
) -> AsyncGenerator[bytes, None]:
    async with aclosing(told):
        async for each in told:
            name, answer = await news_answer(engine, run, each.news)
            yield frame(encode(answer), event=name, event_id=str(each.place))


async def news_answer(engine: Engine, run: Run, news: News) -> tuple[str, Answer]:
    """Build the answer of what happened to a run, and the name of its event."""
    match news:
        case RunChanged(seen):
            return "run", seen_answer(seen)
        case StepChanged(attempt, number, step):
            answer = step_answer(step, await _titles(engine, run))
            return "step", StepNews(attempt=attempt, number=number, step=answer)
        case ProgressMade(attempt, progress):
            return "progress", ProgressNews(attempt=attempt, progress=Progress(**progress))
        case LinesPrinted(attempt, window, skipped):
            return "lines", lines_news(run.id, attempt, window, skipped)
        case AttemptEnded(ended):
            return "attempt", attempt_answer(ended, titles=await _titles(engine, run))
        case TimePassed(at):
            return "time", TimeNews(at=at)
        case RunSettled(settled):
            return "end", await run_detail(engine, settled)


async def _titles(engine: Engine, run: Run) -> dict[str, str]:
    """Return the titles of a run's steps; a job that this release cannot read has none."""
    ref = (run.job_id, run.job_version)
    spec = (await engine.specs.find(engine.store, [ref])).get(ref)
    return {step.name: step.title for step in spec.steps if step.title} if spec else {}


@cart_router.get(
    "/carts/{cart}/stream", response_class=StreamingResponse, responses=STREAM_RESPONSES
)
async def stream_cart(
    caller: Viewer, request: Request, engine: UsedEngine, cart: NamedCart
) -> EventStream:
    """A cart as it goes, with some of the items that run, until it has ended or is paused.

    Events: `cart` (it stands in another way), `time` (a second has passed), `end` (the
    cart). Each has all there is to tell: who comes back asks again.
    """
    frames = _cart_frames(watch_cart(engine, cart))
    return EventStream(frames, request)


async def _cart_frames(
    told: AsyncGenerator[CartStands | TimePassed, None],
) -> AsyncGenerator[bytes, None]:
    async with aclosing(told):
        async for each in told:
            if isinstance(each, TimePassed):
                yield frame(encode(TimeNews(at=each.at)), event="time")
            else:
                name = "end" if each.is_settled else "cart"
                yield frame(encode(watched_answer(each)), event=name)
