"""The history of events, as a list and live."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated

from fastapi import Header, Query
from starlette.requests import Request
from starlette.responses import StreamingResponse

from rota.domain.errors import Invalid
from rota.operations.backends import Backends
from rota.operations.carts import find_cart
from rota.operations.following import follow_events
from rota.ports.records import Event
from rota.server.gateway.paging import (
    MAX_INTEGER,
    Cursor,
    Limit,
    decode_cursor,
    encode_cursor,
    listing,
)
from rota.server.gateway.shapes.event import EventShape, named_in
from rota.server.gateway.shapes.models import Listing
from rota.server.gateway.sse import (
    KEEP_ALIVE,
    STREAM_RESPONSES,
    EventStream,
    frame,
    still_allowed,
    while_allowed,
)
from rota.server.gateway.wiring import NAME, Project, Settings, UsedBackends, api_router

router = api_router("events")
_OfCart = Annotated[
    str | None,
    Query(
        pattern=NAME, description="only those of this cart: id, a beginning only it has, or name"
    ),
]


@router.get("/events")
async def list_events(
    backends: UsedBackends,
    project: Project,
    settings: Settings,
    after: Annotated[int, Query(ge=0, le=MAX_INTEGER, description="id of an event")] = 0,
    tail: Annotated[int, Query(ge=0, le=1_000, description="begin so many before the end")] = 0,
    cart: _OfCart = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Listing[EventShape]:
    """Events past a position, or the latest ones, in order."""
    if tail:
        after = max(after, (await backends.store.counts()).last_event - tail)
    position = decode_cursor("events", cursor, after)
    ids = [(await find_cart(backends, cart, project=project)).id] if cart else ()
    found = await backends.store.events(position, limit + 1, ids=ids)
    names = await backends.store.names(named_in(found))
    return listing(
        found,
        limit,
        lambda event: EventShape.of(event, settings.base_url, names),
        lambda event: encode_cursor("events", event.seq),
    )


@router.get("/events/stream", response_class=StreamingResponse, responses=STREAM_RESPONSES)
async def stream_events(
    request: Request,
    backends: UsedBackends,
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
        cart = (await find_cart(backends, cart, project=project)).id
    frames = _frames(backends, follow_events(backends, after), settings.base_url, cart)
    return EventStream(while_allowed(frames, still_allowed(request)))


def _position(event_id: str) -> int:
    if not event_id.isdecimal() or int(event_id) > MAX_INTEGER:
        raise Invalid("this Last-Event-ID is of another stream", code="bad_cursor")
    return int(event_id)


async def _frames(
    backends: Backends,
    batches: AsyncGenerator[list[Event], None],
    source: str,
    cart: str | None,
) -> AsyncGenerator[bytes, None]:
    async with aclosing(batches):
        async for events in batches:
            wanted = [event for event in events if cart is None or cart in event.ids]
            names = await backends.store.names(named_in(wanted)) if wanted else {}
            shapes = [EventShape.of(event, source, names) for event in wanted]
            frames = [frame(each.model_dump_json(), event_id=each.id) for each in shapes]
            yield b"".join(frames) or KEEP_ALIVE
