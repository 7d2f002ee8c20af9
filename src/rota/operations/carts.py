"""Carts as people and programs handle them: hand in, plan, look, and steer."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from rota.domain.carts import commands
from rota.domain.carts.budget import MOST_IN_FLIGHT, limit_of
from rota.domain.carts.definition import CartRules, Scope
from rota.domain.carts.progress import Pace, eta
from rota.domain.carts.states import ItemState
from rota.domain.carts.template import CartItem, CartTemplate
from rota.domain.carts.waves import waves_in_words
from rota.domain.errors import Conflict, Invalid, NotFound, Problem
from rota.domain.ids import CartId, new_cart_id
from rota.domain.job import rules_of
from rota.domain.shape import shape_of, unmet
from rota.operations.backends import Backends
from rota.operations.cart_items import ItemJob, ItemReader
from rota.operations.definitions import require_enabled
from rota.ports.carts import (
    Cart,
    CartQuery,
    Command,
    Commanded,
    DueTemplate,
    NewCart,
    NewItem,
    Overview,
)
from rota.ports.records import Idempotency, JobQuery, Role

_CHUNK = 2_000  # items in one transaction
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


async def submit(
    backends: Backends, request: CartRequest, items: AsyncIterator[CartItem], *, actor: str
) -> Cart:
    """Check and store all items, then let the cart begin.

    Nothing is left of one that is refused, and nothing starts before all of it is stored.
    """
    await _refuse_unknown(backends, request)
    cart = new_cart_id()
    reader = ItemReader(request.template, request.count)
    try:
        async for chunk in _chunks(items):
            first = reader.seen
            new = await _read(backends, reader, chunk, request.project)
            if not first:
                await backends.store.create_cart(_new_cart(cart, request, reader.rules(), actor))
            if not reader.problems:
                await backends.store.add_items(cart, first, new)
        reader.finish()
        idempotency = _idempotency(request, reader, actor)
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
    await _refuse_unknown(backends, request)
    reader = ItemReader(request.template, request.count)
    async for chunk in _chunks(items):
        await _read(backends, reader, chunk, request.project)
    reader.finish()
    rules = reader.rules()
    waves = [reader.waves[number] for number in sorted(reader.waves)]
    in_scope = reader.seen if rules.failures.scope is Scope.CART else waves[0]
    slots, unrunnable = await _capacity(backends, reader)
    pace = Pace(_expected(reader), _window(rules), slots, rules.between.wait)
    return CartPlan(
        name=request.template.name,
        items=reader.seen,
        waves=waves_in_words(waves),
        wave_count=len(waves),
        limit=limit_of(rules.failures.allow, in_scope),
        rules=rules,
        eta=eta(pace, waves),
        unrunnable=unrunnable,
    )


async def _refuse_unknown(backends: Backends, request: CartRequest) -> None:
    """Names that the cart uses beside those of its items' jobs."""
    template, project = request.template, request.project
    between, calendars = template.rules.between, template.rules.calendars
    jobs = {between.check: "between.check", template.rollback: "rollback"}
    jobs.pop("", None)
    problems = []
    if jobs:
        found = await backends.store.jobs(JobQuery(project=project, names=list(jobs)))
        known = {job.name for job in found}
        problems = [Problem(f"there is no job {n!r}", jobs[n]) for n in jobs if n not in known]
    if calendars:
        stored = {each.calendar.name for each in await backends.store.calendars(project, calendars)}
        problems += [
            Problem(f"there is no calendar {name!r}", "calendars")
            for name in calendars
            if name not in stored
        ]
    if problems:
        raise Invalid("the cart names what is not there", problems)


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
            require_enabled(job)
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
        },
        starts_at=request.starts_at,
    )


def _idempotency(request: CartRequest, reader: ItemReader, actor: str) -> Idempotency | None:
    if not request.idempotency_key:
        return None
    body = [request.template.name, reader.rules().to_document(), str(request.starts_at)]
    text = json.dumps([*body, reader.digest()], sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()
    return Idempotency(f"{request.project}/{actor}/{request.idempotency_key}", digest)


def _window(rules: CartRules) -> int:
    return min(rules.max_parallel or MOST_IN_FLIGHT, MOST_IN_FLIGHT)


def _expected(reader: ItemReader) -> timedelta | None:
    """How long an item takes, by what is known of the jobs; the slowest counts."""
    known = [
        timedelta(seconds=each.job.expected_seconds)
        for each in reader.jobs.values()
        if each.job.expected_seconds is not None
    ]
    told = [each.spec.expect for each in reader.jobs.values() if each.spec.expect is not None]
    return max(known or told, default=None)


async def _capacity(backends: Backends, reader: ItemReader) -> tuple[int | None, list[str]]:
    """Slots of the live workers that can run these jobs, and jobs that none of them can."""
    sessions = await backends.store.sessions(alive_only=True)
    slots, unrunnable = 0, []
    for name, each in reader.jobs.items():
        rules = rules_of(each.spec)
        able = [
            session
            for session in sessions
            if session.pool == rules.pool
            and not unmet(shape_of(rules), session.labels, session.functions)
        ]
        slots = max(slots, sum(session.slots for session in able))
        if not able:
            unrunnable.append(f"{name}: no live worker of pool {rules.pool} can run it")
    return slots or None, unrunnable


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


async def time_left(backends: Backends, cart: Cart, overview: Overview) -> timedelta | None:
    """How long the cart will still take, by what is known now; None: nobody knows.

    Waves beyond those that were looked at are taken to be like these.
    """
    name = cart.document.get("job", "")
    jobs = await backends.store.jobs(JobQuery(project=cart.project, names=[name])) if name else []
    seconds = jobs[0].expected_seconds if jobs else None
    expected = None if seconds is None else timedelta(seconds=seconds)
    sessions = await backends.store.sessions(alive_only=True)
    slots = sum(session.slots for session in sessions) or None
    pace = Pace(expected, _window(cart.rules), slots, cart.rules.between.wait)
    known = eta(pace, overview.left)
    looked_at = sum(overview.left)
    if known is None or not looked_at:
        return known
    items = overview.items
    all_left = items.get(ItemState.PENDING, 0) + items.get(ItemState.OPEN, 0)
    return known * (all_left / looked_at)
