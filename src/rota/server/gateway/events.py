"""Event history, as a list and as a live stream."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Annotated, Any

from fastapi import Header, Query
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from rota.api import events as api
from rota.api.answers import Page
from rota.domain.access import ProjectSet
from rota.domain.errors import Invalid
from rota.operations.carts import find_cart
from rota.operations.engine import Engine
from rota.operations.output import follow_events
from rota.operations.tokens import Caller
from rota.ports.records import Event
from rota.server.gateway.auth import Listed, TrustedTokens, is_still_admitted
from rota.server.gateway.filters import (
    MAX_INTEGER,
    Cursor,
    Limit,
    decode_cursor,
    encode_cursor,
    page,
)
from rota.server.gateway.parameters import (
    NAME,
    GatewaySettings,
    Settings,
    UsedEngine,
    api_router,
)
from rota.server.gateway.routing import encode
from rota.server.gateway.turns import OpenStreams

MOST_LATEST = 100_000
KEEP_ALIVE = b": still here\n\n"
_RECHECK_SECONDS = 4.0  # less than the pause of a stream that has nothing to tell

Frames = AsyncGenerator[bytes, None]


def frame(data: bytes, *, event: str = "", event_id: str = "") -> bytes:
    """Encode one server-sent event. `data` is JSON, which has no raw line breaks."""
    fields = {"id": event_id, "event": event}
    head = "".join(f"{name}: {value}\n" for name, value in fields.items() if value)
    return b"%bdata: %b\n\n" % (head.encode(), data)


class EventStream(StreamingResponse):
    """Response that sends frames as they come, for as long as its caller may see them.

    It closes their source when the caller is gone. Refused if too many streams are open.
    """

    media_type = "text/event-stream"

    def __init__(self, frames: Frames, request: Request) -> None:
        frames = while_allowed(frames, still_allowed(request))
        # nginx would otherwise collect frames before it passes them on.
        super().__init__(frames, headers={"X-Accel-Buffering": "no"})
        self._frames = frames
        self._streams: OpenStreams = request.app.state.streams
        self._caller: Caller = request.state.caller

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Counted here, not in the route: whatever is begun here is also ended here.
        async with aclosing(self._frames):
            with self._streams.one_of(self._caller.name):
                await super().__call__(scope, receive, send)


def still_allowed(request: Request) -> Callable[[], Awaitable[bool]]:
    """Return a check, cheap to call often, that a stream's caller is still allowed to read it.

    It looks at once when this server was told that rights have changed, and now and then anyway:
    to be told may fail.
    """
    tokens: TrustedTokens = request.app.state.tokens
    checked_at, changes = time.monotonic(), tokens.changes

    async def check() -> bool:
        nonlocal checked_at, changes
        is_recent = time.monotonic() - checked_at < _RECHECK_SECONDS
        if is_recent and changes == tokens.changes:
            return True
        checked_at, changes = time.monotonic(), tokens.changes
        return await is_still_admitted(request)

    return check


async def while_allowed(frames: Frames, check: Callable[[], Awaitable[bool]]) -> Frames:
    """Yield the frames until the caller is no longer allowed to see them."""
    try:
        async for each in frames:
            if not await check():
                return
            yield each
    finally:
        await frames.aclose()


# What OpenAPI says of a stream.
STREAM_RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {"description": "events", "content": {"text/event-stream": {}}}
}


router = api_router("events")
_MOST_NAMED = 10  # of the ids of an event
_BEFORE_PROJECTS = ""  # what events have as their project that are older than these
_OF_ONE = frozenset({"state", "cause"})  # what a batch has in common
_OfCart = Annotated[
    str | None,
    Query(
        pattern=NAME, description="only those of this cart: id, a beginning only it has, or name"
    ),
]


@dataclass(frozen=True, slots=True)
class One:
    """A run or cart whose own history is asked for."""

    id: str
    project: str
    name: str

    def alone(self, event: Event) -> Event:
        """Return an event as if it were about this one of a batch's subjects alone.

        Events from before they had a project may be about a batch of several ones: nothing else of
        these is shown.
        """
        is_old = event.project != self.project
        data = {key: each for key, each in event.data.items() if not is_old or key in _OF_ONE}
        return replace(event, ids=(self.id,), project=self.project, data=data)


def event_answer(event: Event, source: str, names: Mapping[str, str]) -> api.Event:
    ids = list(event.ids)
    called = dict.fromkeys(names[each] for each in ids[:_MOST_NAMED] if each in names)
    return api.Event(
        id=str(event.seq),
        source=source,
        type=f"rota.{event.kind}",
        time=event.at,
        subject=ids[0] if len(ids) == 1 else None,
        data={
            "names": [*called],
            **event.data,
            "ids": ids,
            "actor": event.actor,
            "project": event.project,
        },
    )


def _named_in(events: Iterable[Event]) -> list[str]:
    """List the ids of events whose names are shown, each once."""
    return list(dict.fromkeys(each for event in events for each in event.ids[:_MOST_NAMED]))


async def event_page(
    engine: Engine, settings: GatewaySettings, one: One, *, cursor: str | None, limit: int
) -> Page[api.Event]:
    """Return a page of the history of one run or cart, in order."""
    position = decode_cursor("events", cursor, 0)
    projects = {one.project, _BEFORE_PROJECTS}
    found = await engine.store.events(position, limit + 1, ids=[one.id], projects=projects)
    return page(
        found,
        limit,
        lambda event: event_answer(one.alone(event), settings.base_url, {one.id: one.name}),
        _cursor,
    )


def _cursor(event: Event) -> str:
    return encode_cursor("events", event.seq)


@router.get("/events")
async def list_events(
    project: Listed,
    engine: UsedEngine,
    settings: Settings,
    after: Annotated[int, Query(ge=0, le=MAX_INTEGER, description="id of an event")] = 0,
    tail: Annotated[
        int, Query(ge=0, le=MOST_LATEST, description="begin with the latest so many")
    ] = 0,
    cart: _OfCart = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Page[api.Event]:
    """Events of a project past a position, or the latest ones, in order.

    With `project=*` those of all projects that you have a role in, and with a role in the
    installation also its own: of workers, servers and tokens, and all that happened before events
    had a project.
    """
    store, among = engine.store, await _among(engine, project, cart)
    if tail and cursor is None:
        after = max(after, await store.position_before_latest(tail, **among))
    position = decode_cursor("events", cursor, after)
    found = await store.events(position, limit + 1, **among)
    names = await store.names(_named_in(found), projects=among["projects"])
    return page(found, limit, lambda each: event_answer(each, settings.base_url, names), _cursor)


async def _among(engine: Engine, project: ProjectSet, cart: str | None) -> dict[str, Any]:
    """Return among which events of the store to look, those of a cart if one is given."""
    if cart is None:
        return {"projects": (project,) if isinstance(project, str) else project}
    found = await find_cart(engine, cart, project=project)
    return {"projects": (found.project,), "ids": [found.id]}


@router.get("/events/stream", response_class=StreamingResponse, responses=STREAM_RESPONSES)
async def stream_events(
    project: Listed,
    request: Request,
    engine: UsedEngine,
    settings: Settings,
    after: Annotated[
        int | None, Query(ge=0, le=MAX_INTEGER, description="id of an event; else what is to come")
    ] = None,
    cart: _OfCart = None,
    last_event_id: Annotated[str, Header(max_length=100)] = "",
) -> EventStream:
    """Events of a project as they happen; `project=*` as in `GET /events`."""
    if last_event_id:
        after = _position(last_event_id)
    among = await _among(engine, project, cart)
    batches = follow_events(engine, after, **among)
    frames = _frames(engine, batches, settings.base_url, among["projects"])
    return EventStream(frames, request)


def _position(event_id: str) -> int:
    if not event_id.isdecimal() or int(event_id) > MAX_INTEGER:
        raise Invalid("this Last-Event-ID is of another stream", code="bad_cursor")
    return int(event_id)


async def _frames(
    engine: Engine,
    batches: AsyncGenerator[list[Event], None],
    source: str,
    projects: Collection[str] | None,
) -> AsyncGenerator[bytes, None]:
    async with aclosing(batches):
        async for events in batches:
            ids = _named_in(events)
            names = await engine.store.names(ids, projects=projects) if ids else {}
            told = [event_answer(event, source, names) for event in events]
            frames = [frame(encode(each), event_id=each.id) for each in told]
            yield b"".join(frames) or KEEP_ALIVE
