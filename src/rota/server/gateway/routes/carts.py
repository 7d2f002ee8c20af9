"""Carts: hand in, plan, list, look."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Annotated

from fastapi import Query
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from rota.domain.carts.definition import MAX_ORDER
from rota.operations import carts
from rota.operations.cart_changes import cause_meant
from rota.operations.cart_templates import TemplateRequest, plan_template, submit_template
from rota.operations.carts import CartPlan, CartRequest, view
from rota.ports.carts import Cart
from rota.server.gateway.auth import API, Operator
from rota.server.gateway.cart_intake import JSON, SentTemplate, read_submission
from rota.server.gateway.cart_lists import cart_cursor, cart_query, item_cursor, item_query
from rota.server.gateway.cart_schema import CART_BODY
from rota.server.gateway.etags import quote
from rota.server.gateway.filters import parse_cart_filter
from rota.server.gateway.instants import looking_back
from rota.server.gateway.paging import (
    MAX_LIMIT,
    Cursor,
    Limit,
    decode_cursor,
    encode_cursor,
    listing,
)
from rota.server.gateway.shapes.cart import (
    PLAIN,
    CartDetail,
    CartPlanShape,
    CartShape,
    CellsShape,
    FailureGroupShape,
    ItemKey,
    ItemShape,
    WaveShape,
)
from rota.server.gateway.shapes.event import EventShape
from rota.server.gateway.shapes.models import Listing
from rota.server.gateway.wiring import (
    IdempotencyKey,
    NamedCart,
    Project,
    Settings,
    UsedBackends,
    api_router,
)

router = api_router("carts")
_State = Annotated[str, Field(max_length=1_000)]
_Term = Annotated[str | None, Query(max_length=1_000)]
_States = Annotated[
    tuple[_State, ...], Query(max_length=100, description="such as `failed,timed_out`")
]
_Keys = Annotated[tuple[ItemKey, ...], Query(max_length=1_000)]


@router.post(
    "/carts",
    status_code=202,
    response_model=CartShape,
    responses={200: {"model": CartPlanShape, "description": "what it would do"}},
    openapi_extra=CART_BODY,
)
async def submit_cart(
    request: Request,
    actor: Operator,
    backends: UsedBackends,
    project: Project,
    plan: Annotated[bool, Query(description="only say what it would do")] = False,
    idempotency_key: IdempotencyKey = "",
) -> Response:
    """Hand in a cart, as one document or line by line; 200 for a plan, which stores nothing."""
    sent = await read_submission(request)
    if isinstance(sent, SentTemplate):
        of_template = TemplateRequest(
            sent.name, project, sent.inputs, sent.starts_at, idempotency_key
        )
        if plan:
            return _planned(await plan_template(backends, of_template))
        return _submitted(await submit_template(backends, of_template, actor=actor.name))
    header = sent.header
    wanted = CartRequest(header.template, header.count, project, header.starts_at, idempotency_key)
    async with aclosing(sent.items) as items:
        if plan:
            return _planned(await carts.plan(backends, wanted, items))
        return _submitted(await carts.submit(backends, wanted, items, actor=actor.name))


def _planned(plan: CartPlan) -> Response:
    return Response(CartPlanShape.of(plan).model_dump_json(), 200, media_type=JSON)


def _submitted(cart: Cart) -> Response:
    headers = {"Location": f"{API}/carts/{cart.id}"}
    return Response(CartShape.of(cart).model_dump_json(), 202, headers, JSON)


@router.get("/carts")
async def list_carts(
    backends: UsedBackends,
    project: Project,
    where: Annotated[
        str, Query(max_length=2_000, description="such as `state:running name:upgrade-*`")
    ] = "",
    state: _Term = None,
    name: _Term = None,
    active: _Term = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Listing[CartShape]:
    """Carts, newest first. `where` and the single terms must all hold."""
    given = {"state": state, "name": name, "active": active}
    terms = [(key, value) for key, value in given.items() if value is not None]
    wanted = parse_cart_filter(where, terms, looking_back(await backends.store.now(), None))
    if wanted.states is not None and not wanted.states:
        return Listing(items=[])
    found = await backends.store.carts(cart_query(project, wanted, cursor, limit))
    return listing(found, limit, CartShape.of, cart_cursor)


@router.get("/carts/{cart}")
async def show_cart(backends: UsedBackends, cart: NamedCart, response: Response) -> CartDetail:
    """A cart: how far, how bad, what next."""
    response.headers["ETag"] = quote(str(cart.version))
    return CartDetail.of_view(await view(backends, cart))


@router.get("/carts/{cart}/items")
async def list_items(
    backends: UsedBackends,
    cart: NamedCart,
    state: _States = (),
    wave: Annotated[int | None, Query(ge=1, le=MAX_ORDER)] = None,
    cause: Annotated[str | None, Query(max_length=1_000, pattern=PLAIN)] = None,
    key: _Keys = (),
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Listing[ItemShape]:
    """Items by number; those for which all conditions hold. Of a cause a part is enough."""
    meant = await cause_meant(backends, cart, cause)
    query = item_query(
        cart, states=state, wave=wave, cause=meant, keys=key, cursor=cursor, limit=limit
    )
    found = await backends.store.items(query)
    return listing(found, limit, ItemShape.model_validate, item_cursor)


@router.get("/carts/{cart}/waves")
async def list_waves(
    backends: UsedBackends, cart: NamedCart, limit: Limit = MAX_LIMIT, cursor: Cursor = None
) -> Listing[WaveShape]:
    """Waves by number, with how many of their items are where."""
    after = decode_cursor("cart_waves", cursor, 0)
    found = await backends.store.waves(cart.id, after, limit + 1)
    return listing(
        found,
        limit,
        WaveShape.model_validate,
        lambda wave: encode_cursor("cart_waves", wave.number),
    )


@router.get("/carts/{cart}/cells")
async def show_cells(backends: UsedBackends, cart: NamedCart) -> CellsShape:
    """The state of every item, a letter each."""
    # 100,000 letters take a while, and leases are renewed on this loop.
    return await asyncio.to_thread(CellsShape.of, await backends.store.cells(cart.id))


@router.get("/carts/{cart}/failure-groups")
async def list_failure_groups(
    backends: UsedBackends, cart: NamedCart, limit: Limit = 100
) -> Listing[FailureGroupShape]:
    """Why items failed, the most frequent cause first."""
    found = await backends.store.failure_groups(cart.id, limit)
    return Listing(items=[FailureGroupShape.model_validate(group) for group in found])


@router.get("/carts/{cart}/events")
async def list_cart_events(
    backends: UsedBackends,
    settings: Settings,
    cart: NamedCart,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Listing[EventShape]:
    """What happened to a cart, in order; `GET /events/stream?cart=` has it live."""
    after = decode_cursor("events", cursor, 0)
    found = await backends.store.events(after, limit + 1, ids=[cart.id])
    names: dict[str, str] = {cart.id: cart.name}
    return listing(
        found,
        limit,
        lambda event: EventShape.of(event, settings.base_url, names, only=cart.id),
        lambda event: encode_cursor("events", event.seq),
    )
