"""Carts as people and programs handle them: hand in, plan, look, and steer."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from rota.domain.carts import commands
from rota.domain.carts.budget import limit
from rota.domain.carts.definition import CartRules
from rota.domain.carts.facts import CartFacts
from rota.domain.carts.intake import ItemJob, ItemReader, NewItem
from rota.domain.carts.progress import eta
from rota.domain.carts.states import CartState, ItemState
from rota.domain.carts.template import CartItem, CartTemplate
from rota.domain.carts.waves import waves_in_words
from rota.domain.errors import Conflict, Invalid, NotFound, Problem
from rota.domain.ids import CartId, new_cart_id
from rota.domain.jobfile import read_job
from rota.operations.backends import Backends
from rota.operations.cart_forecasts import forecast, jobs_of
from rota.operations.cart_references import references_of, require_known
from rota.operations.definitions import find_job, require_runnable
from rota.ports.carts import (
    Cart,
    CartQuery,
    Command,
    Commanded,
    DueTemplate,
    NewCart,
    Overview,
)
from rota.ports.records import Idempotency, JobQuery, Role

_CHUNK = 2_000  # items in one transaction
_LATE = timedelta(minutes=1)  # that a request may be on its way
_AMBIGUOUS_SHOWN = 5
WAVES_LOOKED_AT = 1_000  # to tell how long a cart will take


@dataclass(frozen=True, slots=True)
class CartRequest:
    """A cart that somebody hands in; its items come one after another."""

    template: CartTemplate  # without its items
    count: int  # how many there will be
    project: str = "default"
    starts_at: datetime | None = None  # None: at once
    idempotency_key: str = ""  # "": every request is a new one
    due: DueTemplate | None = None  # the due time of its template that it answers; None: none
    undoes: str = ""  # which cart it rolls back, and as of which version; "": none


@dataclass(frozen=True, slots=True)
class CartPlan:
    """What a cart would do."""

    name: str
    items: int
    waves: str  # their sizes, in words
    wave_count: int
    limit: int  # so many may fail; of the first wave if the scope is a wave
    rules: CartRules
    eta: timedelta | None  # None: nothing is known of its jobs' durations
    unrunnable: Sequence[str]  # jobs that no live worker can run, and why
    starts_at: datetime | None  # None: at once


async def each(items: Iterable[CartItem]) -> AsyncGenerator[CartItem, None]:
    """Items that are there already, as those that still come."""
    for item in items:
        yield item


async def submit(
    backends: Backends, request: CartRequest, items: AsyncIterator[CartItem], *, actor: str
) -> Cart:
    """Check and store all items, then let the cart begin.

    Nothing is left of one that is refused, and nothing starts before all of it is stored.
    """
    await _require_coming(backends, request.starts_at)
    await _require_known(backends, request)
    cart = new_cart_id()
    reader = await _reader(backends, request)
    try:
        async for chunk in _chunks(items):
            first = reader.seen
            new = await _read(backends, reader, chunk, request.project)
            if not first:
                await backends.store.create_cart(_new_cart(cart, request, reader.rules(), actor))
            if not reader.bad:
                await backends.store.add_items(cart, first, new)
        reader.finish()
        new_cart = _new_cart(cart, request, reader.rules(), actor)
        idempotency = _idempotency(request.idempotency_key, new_cart, reader.digest())
        submitted, wakes = await backends.store.submit_cart(cart, idempotency, request.due)
    except BaseException:
        await backends.store.discard_cart(cart)
        raise
    backends.announce(wakes)
    return await find_cart(backends, submitted, project=request.project)


async def plan(
    backends: Backends, request: CartRequest, items: AsyncIterator[CartItem]
) -> CartPlan:
    """What `submit` would do, without doing it; refuses what it would refuse."""
    await _require_coming(backends, request.starts_at)
    await _require_known(backends, request)
    reader = await _reader(backends, request)
    async for chunk in _chunks(items):
        await _read(backends, reader, chunk, request.project)
    reader.finish()
    rules = reader.rules()
    waves = [reader.waves[number] for number in sorted(reader.waves)]
    facts = CartFacts(rules, CartState.PLANNED, reader.seen, items_in_wave=waves[0])
    coming = await forecast(backends, facts, list(reader.jobs.values()))
    return CartPlan(
        name=request.template.name,
        items=reader.seen,
        waves=waves_in_words(waves),
        wave_count=len(waves),
        limit=limit(facts),
        rules=rules,
        eta=eta(coming.pace, waves),
        unrunnable=coming.unrunnable,
        starts_at=request.starts_at,
    )


async def _require_coming(backends: Backends, starts_at: datetime | None) -> None:
    """A time that has passed is a mistake: everything would start now."""
    if starts_at is None or starts_at >= await backends.store.now() - _LATE:
        return
    problem = Problem(
        f"{starts_at.isoformat()} has passed", "starts_at", hint="leave it out to start at once"
    )
    raise Invalid("the cart was to start in the past", [problem], code="starts_in_the_past")


async def _require_known(backends: Backends, request: CartRequest) -> None:
    template = request.template
    named = references_of(template.rules, template.rollback)
    await require_known(backends, request.project, list(named))


async def _reader(backends: Backends, request: CartRequest) -> ItemReader:
    template, undo = request.template, None
    if template.rollback:
        job = await find_job(backends, template.rollback, project=request.project)
        undo = read_job(job.document)
    return ItemReader(template, request.count, undo)


async def _chunks(items: AsyncIterator[CartItem]) -> AsyncIterator[list[CartItem]]:
    chunk: list[CartItem] = []
    async for item in items:
        chunk.append(item)
        if len(chunk) == _CHUNK:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


async def _read(
    backends: Backends, reader: ItemReader, chunk: list[CartItem], project: str
) -> list[NewItem]:
    names = reader.unknown_jobs(chunk)
    if names:
        query = JobQuery(project=project, names=sorted(names), limit=len(names))
        for job in await backends.store.jobs(query):
            require_runnable(backends, job)
            reader.jobs[job.name] = ItemJob.of(job)
    # Thousands of inputs take a while to check, and leases are renewed on this loop.
    return await asyncio.to_thread(reader.read_all, chunk)


def _new_cart(cart: CartId, request: CartRequest, rules: CartRules, actor: str) -> NewCart:
    template = request.template
    return NewCart(
        id=cart,
        project=request.project,
        name=template.name,
        rules=rules,
        items=request.count,
        created_by=actor,
        document={
            "job": template.job,
            "description": template.description,
            "labels": dict(template.labels),
            "rollback": template.rollback,
            "priority": template.priority,
            **({"undoes": request.undoes} if request.undoes else {}),
        },
        starts_at=request.starts_at,
    )


def _idempotency(key: str, cart: NewCart, items: str) -> Idempotency | None:
    """With a digest of all that was asked for; `items` is that of the items."""
    if not key:
        return None
    body = [cart.name, cart.rules.to_document(), cart.document, str(cart.starts_at), items]
    digest = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
    return Idempotency(f"{cart.project}/{cart.created_by}/{key}", digest)


async def find_cart(backends: Backends, cart: str, *, project: str = "default") -> Cart:
    """A cart by its id, the beginning of it, or its name (the newest of that name)."""
    store = backends.store
    found = await store.carts(CartQuery(project=project, ids=[cart]))
    if not found and cart.startswith("c_"):
        found = await store.carts(CartQuery(project, id_prefix=cart, limit=_AMBIGUOUS_SHOWN))
    if not found:
        found = await store.carts(CartQuery(project, name=cart, limit=1))
    if not found:
        raise NotFound(f"no cart {cart!r}", code="cart_not_found", hint="rota cart list shows them")
    if len(found) > 1:
        shown = ", ".join(each.id for each in found)
        raise Conflict(
            f"{cart!r} is the beginning of several carts: {shown}",
            code="ambiguous_id",
            hint="type more of the id",
        )
    return found[0]


async def command(backends: Backends, cart: Cart, what: Command, *, actor: str) -> Commanded:
    """Pause, resume, cancel, approve, retry or edit; raises why not."""
    done = await backends.store.command_cart(cart.id, what, actor=actor)
    backends.announce(done.wakes)
    return done


def approver(name: str, role: Role) -> commands.Approver:
    """Someone with a role, which includes those before it."""
    roles = list(Role)
    return commands.Approver(name, {each.value for each in roles[: roles.index(role) + 1]})


async def time_left(
    backends: Backends, cart: Cart, facts: CartFacts, overview: Overview
) -> timedelta | None:
    """How long the cart will still take, by what is known now; None: nobody knows.

    Waves beyond those that were looked at are taken to be like these.
    """
    looked_at = sum(overview.left)
    if not looked_at:
        return timedelta(0)
    jobs = await jobs_of(backends, cart)
    known = eta((await forecast(backends, facts, jobs)).pace, overview.left)
    if known is None:
        return None
    items = overview.items
    all_left = items.get(ItemState.PENDING, 0) + items.get(ItemState.OPEN, 0)
    return known * (all_left / looked_at)
