"""Event history, as a list and as a live stream."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from typing import Annotated, Any

from fastapi import Header, Query
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from rota.api import events as api
from rota.api.answers import Page
from rota.domain.errors import Denied, Invalid
from rota.operations.carts import find_cart
from rota.operations.engine import Engine
from rota.operations.output import follow_events
from rota.ports.records import Event
from rota.server.gateway.auth import Credential, TrustedTokens
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
    Project,
    Settings,
    UsedEngine,
    api_router,
)
from rota.server.gateway.routing import encode

MOST_LATEST = 100_000
KEEP_ALIVE = b": still here\n\n"
_RECHECK_SECONDS = 5.0

Frames = AsyncGenerator[bytes, None]


def frame(data: bytes, *, event: str = "", event_id: str = "") -> bytes:
    """Encode one server-sent event. `data` is JSON, which has no raw line breaks."""
    fields = {"id": event_id, "event": event}
    head = "".join(f"{name}: {value}\n" for name, value in fields.items() if value)
    return b"%bdata: %b\n\n" % (head.encode(), data)


class EventStream(StreamingResponse):
    """Response that sends frames as they come, and closes their source when the caller is gone."""

    media_type = "text/event-stream"

    def __init__(self, frames: Frames) -> None:
        # nginx would otherwise collect frames before it passes them on.
        super().__init__(frames, headers={"X-Accel-Buffering": "no"})
        self._frames = frames

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            await self._frames.aclose()


def still_allowed(request: Request) -> Callable[[], Awaitable[bool]]:
    """Return a check, cheap to call often, that a stream's caller is still allowed to read it."""
    tokens: TrustedTokens = request.app.state.tokens
    credential: Credential = request.state.credential
    checked_at = time.monotonic()

    async def check() -> bool:
        nonlocal checked_at
        if time.monotonic() - checked_at < _RECHECK_SECONDS:
            return True
        checked_at = time.monotonic()
        try:
            await tokens.caller(credential.secret)
        except Denied:
            return False
        return True

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
_OfCart = Annotated[
    str | None,
    Query(
        pattern=NAME, description="only those of this cart: id, a beginning only it has, or name"
    ),
]


def event_answer(
    event: Event, source: str, names: Mapping[str, str], *, only: str = ""
) -> api.Event:
    """Build the answer of an event; with `only`, it names this one of a batch's subjects alone."""
    ids = [only] if only else list(event.ids)
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
    engine: Engine,
    settings: GatewaySettings,
    *,
    after: int = 0,
    cursor: str | None,
    limit: int,
    ids: Sequence[str] = (),
    only: str = "",
    called: str = "",
) -> Page[api.Event]:
    """Return a page of the history, in order: of `ids`, or of the one `only`, named `called`."""
    position = decode_cursor("events", cursor, after)
    found = await engine.store.events(position, limit + 1, ids=[only] if only else ids)
    names = {only: called} if only else await engine.store.names(_named_in(found))
    return page(
        found,
        limit,
        lambda event: event_answer(event, settings.base_url, names, only=only),
        lambda event: encode_cursor("events", event.seq),
    )


@router.get("/events")
async def list_events(
    engine: UsedEngine,
    project: Project,
    settings: Settings,
    after: Annotated[int, Query(ge=0, le=MAX_INTEGER, description="id of an event")] = 0,
    tail: Annotated[
        int, Query(ge=0, le=MOST_LATEST, description="begin with the latest so many")
    ] = 0,
    cart: _OfCart = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Page[api.Event]:
    """Events past a position, or the latest ones, in order."""
    ids = [(await find_cart(engine, cart, project=project)).id] if cart else ()
    if tail and cursor is None:
        after = max(after, await engine.store.position_before_latest(tail, ids=ids))
    return await event_page(engine, settings, after=after, cursor=cursor, limit=limit, ids=ids)


@router.get("/events/stream", response_class=StreamingResponse, responses=STREAM_RESPONSES)
async def stream_events(
    request: Request,
    engine: UsedEngine,
    project: Project,
    settings: Settings,
    after: Annotated[
        int | None, Query(ge=0, le=MAX_INTEGER, description="id of an event; else what is to come")
    ] = None,
    cart: _OfCart = None,
    last_event_id: Annotated[str, Header(max_length=100)] = "",
) -> EventStream:
    """Events as they happen."""
    if last_event_id:
        after = _position(last_event_id)
    if cart is not None:
        cart = (await find_cart(engine, cart, project=project)).id
    frames = _frames(engine, follow_events(engine, after), settings.base_url, cart)
    return EventStream(while_allowed(frames, still_allowed(request)))


def _position(event_id: str) -> int:
    if not event_id.isdecimal() or int(event_id) > MAX_INTEGER:
        raise Invalid("this Last-Event-ID is of another stream", code="bad_cursor")
    return int(event_id)


async def _frames(
    engine: Engine,
    batches: AsyncGenerator[list[Event], None],
    source: str,
    cart: str | None,
) -> AsyncGenerator[bytes, None]:
    async with aclosing(batches):
        async for events in batches:
            wanted = [event for event in events if cart is None or cart in event.ids]
            names = await engine.store.names(_named_in(wanted)) if wanted else {}
            told = [event_answer(event, source, names) for event in wanted]
            frames = [frame(encode(each), event_id=each.id) for each in told]
            yield b"".join(frames) or KEEP_ALIVE
