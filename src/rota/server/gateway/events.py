"""The history of events, as a list and live."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import aclosing
from typing import Annotated

from fastapi import Header, Query
from starlette.requests import Request
from starlette.responses import StreamingResponse

from rota.api import events as api
from rota.api.answers import Page
from rota.domain.errors import Invalid
from rota.operations.carts import find_cart
from rota.operations.engine import Engine
from rota.operations.following import follow_events
from rota.ports.records import Event
from rota.server.gateway.answers import encode
from rota.server.gateway.paging import (
    MAX_INTEGER,
    Cursor,
    Limit,
    decode_cursor,
    encode_cursor,
    page,
)
from rota.server.gateway.parameters import NAME, Project, Settings, UsedEngine, api_router
from rota.server.gateway.settings import GatewaySettings
from rota.server.gateway.sse import (
    KEEP_ALIVE,
    STREAM_RESPONSES,
    EventStream,
    frame,
    still_allowed,
    while_allowed,
)

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
    """With `only`, of all the things a batch names this one alone is told."""
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
    """The ids of events whose names are told, each once."""
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
    """A part of the history, in order; of `ids`, or of one thing `only`, which people call so."""
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
    tail: Annotated[int, Query(ge=0, le=1_000, description="begin so many before the end")] = 0,
    cart: _OfCart = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Page[api.Event]:
    """Events past a position, or the latest ones, in order."""
    if tail:
        after = max(after, (await engine.store.counts()).last_event - tail)
    ids = [(await find_cart(engine, cart, project=project)).id] if cart else ()
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
