"""Carts: submit, plan, list, show; and templates of carts defined in job files."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Annotated, Any

from fastapi import Depends, Path, Query
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from rota.api import carts as api
from rota.api.answers import Page
from rota.api.events import Event
from rota.domain.access import ProjectSet
from rota.domain.carts.definition import MAX_ORDER, CartRules, Share
from rota.domain.carts.facts import ItemState
from rota.domain.errors import Invalid, Problem
from rota.domain.quantities import format_duration
from rota.operations import carts
from rota.operations.cart_changes import cause_meant
from rota.operations.cart_templates import (
    TemplateRequest,
    delete_template,
    find_template,
    plan_template,
    submit_template,
    words_if_readable,
)
from rota.operations.carts import CartPlan, CartRequest, CartView, view
from rota.operations.watching import CartStands, RunningItem
from rota.ports.carts import Cart, CartQuery, Item, ItemQuery, Template
from rota.server.gateway.auth import API, Asking, Editor, Listed, Operator, Viewer
from rota.server.gateway.cart_submissions import CART_BODY, Submission, reading_submission
from rota.server.gateway.events import One, event_page
from rota.server.gateway.filters import (
    MAX_LIMIT,
    CartFilter,
    CreatedBy,
    Cursor,
    Limit,
    creator_meant,
    decode_age,
    decode_cursor,
    encode_age,
    encode_cursor,
    page,
    parse_cart_filter,
    states_named,
)
from rota.server.gateway.parameters import (
    NAME,
    IdempotencyKey,
    IfMatch,
    NamedCart,
    Project,
    Settings,
    UsedEngine,
    api_router,
    looking_back,
    quote,
    require_match,
)
from rota.server.gateway.proxies import link_to
from rota.server.gateway.routing import fill
from rota.server.gateway.runs import seen_answer

PLAIN = r"^[^\x00]*$"  # text that every store can compare
# An open item has the letter of its run.
LEGEND: Mapping[str, str] = {
    "P": "PENDING",
    "D": "SCHEDULED",
    "B": "BLOCKED",
    "Q": "QUEUED",
    "L": "CLAIMED",
    "R": "PROCESSING",
    "U": "UNKNOWN",
    "C": "COMPLETED",
    "F": "FAILED",
    "T": "TIMED_OUT",
    "X": "CANCELLED",
    "S": "SKIPPED",
    "M": "MISSED",
}
_LETTERS = {state: letter for letter, state in LEGEND.items()}

ItemKey = Annotated[str, Field(max_length=200, pattern=PLAIN, examples=["db-001"])]
_State = Annotated[str, Field(max_length=1_000)]
_Term = Annotated[str | None, Query(max_length=1_000)]
_States = Annotated[
    tuple[_State, ...], Query(max_length=100, description="such as `failed,timed_out`")
]
_Keys = Annotated[tuple[ItemKey, ...], Query(max_length=1_000)]

router = api_router("carts")


def cart_answer(cart: Cart) -> api.Cart:
    return fill(api.Cart, cart, **cart_fields(cart))


def cart_fields(cart: Cart) -> dict[str, Any]:
    """Return the fields of an answer that a cart does not have itself: its rules and its origin."""
    document = cart.document
    return {
        **_rules(cart.rules),
        "job": document.get("job", ""),
        "title": document.get("title", ""),
        "description": document.get("description", ""),
        "labels": document.get("labels", {}),
        "rollback": document.get("rollback", ""),
        "priority": document.get("priority"),
        "url": link_to(f"/carts/{cart.id}"),
    }


def _rules(rules: CartRules) -> dict[str, Any]:
    failures, between = rules.failures, rules.between
    return {
        "order": rules.order,
        "group_size": tuple(_written(size) for size in rules.group_sizes),
        "max_parallel": rules.max_parallel,
        "failures": fill(
            api.CartFailures, failures, allow=_written(failures.allow), of=failures.scope
        ),
        "between": fill(api.CartBetween, between, wait=format_duration(between.wait)),
        "calendars": rules.calendars,
        "within": None if rules.within is None else format_duration(rules.within),
    }


def _written(share: Share) -> int | str:
    return str(share) if share.is_percent else int(share.value)


def detail_answer(view: CartView) -> api.CartDetail:
    return fill(api.CartDetail, view.cart, **_detail_fields(view))


def watched_answer(stands: CartStands) -> api.WatchedCart:
    running = tuple(map(_running_answer, stands.running))
    fields = _detail_fields(stands.view)
    return fill(api.WatchedCart, stands.view.cart, running=running, **fields)


def _running_answer(item: RunningItem) -> api.RunningItem:
    shown = seen_answer(item.run, item.note)
    return fill(api.RunningItem, shown, key=item.key, run=shown.id)


def _detail_fields(view: CartView) -> dict[str, Any]:
    """Return the fields of a cart's answer that are worked out."""
    return {
        **cart_fields(view.cart),
        "failures_in_scope": view.failures,
        "limit": view.limit,
        "breached": view.is_breached,
        "progress": api.CartProgress(
            total=view.cart.items,
            done=view.done,
            open=view.by_state[ItemState.OPEN],
            states={str(state): count for state, count in view.by_state.items()},
            runs={str(state): count for state, count in view.open_runs.items()},
        ),
        "place": view.place,
        "eta": view.eta,
        "why": view.why,
        "gate": None if view.gate is None else fill(api.CartGate, view.gate),
        "failure_groups": tuple(fill(api.FailureGroup, it) for it in view.failure_groups),
        "stranded": tuple(fill(api.StrandedItem, it) for it in view.overview.stranded),
    }


def cart_plan_answer(plan: CartPlan) -> api.CartPlan:
    return fill(
        api.CartPlan,
        plan,
        **_rules(plan.rules),
        eta_seconds=None if plan.eta is None else plan.eta.total_seconds(),
        unrunnable=tuple(plan.unrunnable),
    )


def item_answer(item: Item) -> api.CartItem:
    return fill(api.CartItem, item)


def cells_answer(states: Iterable[str]) -> api.Cells:
    """Encode the states of all items, a letter each."""
    return api.Cells(cells="".join(_LETTERS[state] for state in states), legend=LEGEND)


def _template_answer(template: Template) -> api.CartTemplate:
    words = words_if_readable(template)
    return fill(api.CartTemplate, template, etag=template.digest, words=words)


def _template_detail(template: Template) -> api.CartTemplateDetail:
    words = words_if_readable(template)
    return fill(api.CartTemplateDetail, template, etag=template.digest, words=words)


def cart_query(
    project: ProjectSet, wanted: CartFilter, cursor: str | None, limit: int
) -> CartQuery:
    """Build the query of a page; it asks for one more than fits, to know whether more follow."""
    return CartQuery(
        project=project,
        name_like=wanted.name_like,
        states=sorted(wanted.states or ()),
        before=decode_age("carts", cursor),
        limit=limit + 1,
    )


def cart_cursor(cart: Cart) -> str:
    return encode_age("carts", cart.created_at, cart.id)


def item_query(
    cart: Cart,
    *,
    states: Sequence[str],
    wave: int | None,
    cause: str | None,
    keys: Sequence[str],
    cursor: str | None,
    limit: int,
) -> ItemQuery:
    """Build the query for a page of items; states are written as in `failed,timed_out`."""
    return ItemQuery(
        cart=cart.id,
        states=sorted(_item_states(states)),
        wave=wave,
        cause=cause,
        keys=keys or None,
        after=decode_cursor("cart_items", cursor, 0) - 1,
        limit=limit + 1,
    )


def item_cursor(item: Item) -> str:
    return encode_cursor("cart_items", item.number + 1)


def _item_states(told: Sequence[str]) -> set[ItemState]:
    try:
        return {state for each in told for state in states_named(each, ItemState)}
    except ValueError as error:
        problem = Problem(f"state: {error}", "state")
        raise Invalid("the filter cannot be read", [problem], code="bad_filter") from error


@router.post(
    "/carts",
    status_code=202,
    response_model=api.Cart,
    responses={200: {"model": api.CartPlan, "description": "what it would do"}},
    openapi_extra=CART_BODY,
)
async def submit_cart(
    request: Request,
    actor: Operator,
    engine: UsedEngine,
    project: Project,
    response: Response,
    plan: Annotated[bool, Query(description="only say what it would do")] = False,
    idempotency_key: IdempotencyKey = "",
) -> api.Cart | api.CartPlan:
    """Hand in a cart, as one document or line by line; 200 for a plan, which stores nothing."""
    async with reading_submission(request) as sent:
        if not isinstance(sent, Submission):
            of_template = TemplateRequest(
                sent.name, project, sent.inputs, sent.starts_at, idempotency_key
            )
            if plan:
                return _planned(response, await plan_template(engine, of_template))
            made = await submit_template(engine, of_template, actor=actor.name)
            return _submitted(response, made)
        header = sent.header
        wanted = CartRequest(
            header.template, header.count, project, header.starts_at, idempotency_key
        )
        async with aclosing(sent.items) as items:
            if plan:
                return _planned(response, await carts.plan(engine, wanted, items))
            made = await carts.submit(engine, wanted, items, actor=actor.name)
            return _submitted(response, made)


def _planned(response: Response, plan: CartPlan) -> api.CartPlan:
    response.status_code = 200
    return cart_plan_answer(plan)


def _submitted(response: Response, cart: Cart) -> api.Cart:
    response.headers["Location"] = link_to(f"{API}/carts/{cart.id}", cart.project)
    return cart_answer(cart)


@router.get("/carts")
async def list_carts(
    project: Listed,
    caller: Asking,
    engine: UsedEngine,
    where: Annotated[
        str, Query(max_length=2_000, description="such as `state:running name:upgrade-*`")
    ] = "",
    state: _Term = None,
    name: _Term = None,
    active: _Term = None,
    created_by: CreatedBy = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Page[api.Cart]:
    """Carts, newest first. `where` and the single terms must all hold."""
    given = {"state": state, "name": name, "active": active}
    terms = [(key, value) for key, value in given.items() if value is not None]
    wanted = parse_cart_filter(where, terms, looking_back(await engine.store.now(), None))
    if wanted.states is not None and not wanted.states:
        return Page(items=())
    creator = creator_meant(caller, project, created_by)
    query = replace(cart_query(project, wanted, cursor, limit), created_by=creator)
    return page(await engine.store.carts(query), limit, cart_answer, cart_cursor)


@router.get("/carts/{cart}")
async def show_cart(
    caller: Viewer, engine: UsedEngine, cart: NamedCart, response: Response
) -> api.CartDetail:
    """A cart: how far, how bad, what next."""
    response.headers["ETag"] = quote(str(cart.version))
    return detail_answer(await view(engine, cart))


@router.get("/carts/{cart}/items")
async def list_items(
    caller: Viewer,
    engine: UsedEngine,
    cart: NamedCart,
    state: _States = (),
    wave: Annotated[int | None, Query(ge=1, le=MAX_ORDER)] = None,
    cause: Annotated[str | None, Query(max_length=1_000, pattern=PLAIN)] = None,
    key: _Keys = (),
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Page[api.CartItem]:
    """Items by number; those for which all conditions hold. Of a cause a part is enough."""
    meant = await cause_meant(engine, cart, cause)
    query = item_query(
        cart, states=state, wave=wave, cause=meant, keys=key, cursor=cursor, limit=limit
    )
    found = await engine.store.items(query)
    return page(found, limit, item_answer, item_cursor)


@router.get("/carts/{cart}/waves")
async def list_waves(
    caller: Viewer,
    engine: UsedEngine,
    cart: NamedCart,
    limit: Limit = MAX_LIMIT,
    cursor: Cursor = None,
) -> Page[api.CartWave]:
    """Waves by number, with how many of their items are where."""
    after = decode_cursor("cart_waves", cursor, 0)
    found = await engine.store.waves(cart.id, after, limit + 1)
    return page(
        found,
        limit,
        lambda wave: fill(api.CartWave, wave),
        lambda wave: encode_cursor("cart_waves", wave.number),
    )


@router.get("/carts/{cart}/cells")
async def show_cells(caller: Viewer, engine: UsedEngine, cart: NamedCart) -> api.Cells:
    """The state of every item, a letter each."""
    # 100,000 letters take a while, and leases are renewed on this loop.
    return await asyncio.to_thread(cells_answer, await engine.store.cells(cart.id))


@router.get("/carts/{cart}/failure-groups")
async def list_failure_groups(
    caller: Viewer, engine: UsedEngine, cart: NamedCart, limit: Limit = 100
) -> Page[api.FailureGroup]:
    """Why items failed, the most frequent cause first."""
    found = await engine.store.failure_groups(cart.id, limit)
    return Page(items=tuple(fill(api.FailureGroup, group) for group in found))


@router.get("/carts/{cart}/events")
async def list_cart_events(
    caller: Viewer,
    engine: UsedEngine,
    settings: Settings,
    cart: NamedCart,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Page[Event]:
    """Events of a cart, in order; `GET /events/stream?cart=` has them live."""
    one = One(cart.id, cart.project, cart.name)
    return await event_page(engine, settings, one, cursor=cursor, limit=limit)


async def _template(
    engine: UsedEngine,
    project: Project,
    template: Annotated[str, Path(pattern=NAME, description="name")],
) -> Template:
    return await find_template(engine, template, project=project)


_NamedTemplate = Annotated[Template, Depends(_template)]


@router.get("/cart-templates")
async def list_cart_templates(
    caller: Viewer, engine: UsedEngine, project: Project, limit: Limit = 100, cursor: Cursor = None
) -> Page[api.CartTemplate]:
    """Carts that were applied, by name."""
    after = decode_cursor("cart_templates", cursor, "")
    found = [each for each in await engine.store.templates(project) if each.name > after]
    # Templates with thousands of items take seconds to read, and leases are renewed on this loop.
    return await asyncio.to_thread(
        page,
        found,
        limit,
        _template_answer,
        lambda template: encode_cursor("cart_templates", template.name),
    )


@router.get("/cart-templates/{template}")
async def show_cart_template(
    caller: Viewer, template: _NamedTemplate, response: Response
) -> api.CartTemplateDetail:
    """One of them, with its document."""
    response.headers["ETag"] = quote(template.digest)
    return await asyncio.to_thread(_template_detail, template)


@router.delete("/cart-templates/{template}", status_code=204)
async def delete_cart_template(
    actor: Editor, engine: UsedEngine, template: _NamedTemplate, if_match: IfMatch = ""
) -> None:
    """Forget it; carts that were made of it go on."""
    require_match(if_match, template.digest)
    await delete_template(engine, template, actor=actor.name)
