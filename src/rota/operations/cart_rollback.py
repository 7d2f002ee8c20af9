"""Undoing what a cart has done, by a cart of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

from rota.domain.carts.definition import Between, CartRules, OnBreach, Order
from rota.domain.carts.intake import inputs_for
from rota.domain.carts.states import FINAL_CART_STATES, CartState, PauseReason
from rota.domain.carts.template import CartItem, CartTemplate
from rota.domain.errors import Conflict
from rota.domain.jobfile import read_job
from rota.domain.spec import JobSpec
from rota.domain.states import RunState
from rota.operations import carts
from rota.operations.backends import Backends
from rota.operations.cart_views import view
from rota.operations.carts import CartPlan, CartRequest, each
from rota.operations.definitions import find_job
from rota.ports.carts import CancelCart, Cart, CartQuery, Item, ItemQuery
from rota.ports.records import RunQuery

_SUFFIX = "-rollback"
_MAX_NAME = 128
_PAGE = 10_000
_LOOKED_AT = 100  # carts of the name, newest first
_GOING_ON = (RunState.CLAIMED, RunState.PROCESSING, RunState.UNKNOWN)
_STOPPED = (CartState.CANCELLED, CartState.FAILED)


async def rollback(backends: Backends, cart: Cart, *, actor: str) -> Cart:
    """Run the cart's rollback job for every item that was started, the last wave first.

    Each item has the key and those inputs of before that the rollback job declares. As many are in
    flight and may fail as before; the new cart has no gates, takes no heed of calendars, and is
    paused when too many fail. A cart that is paused is cancelled by this: resumed, it would do
    again what is being undone. What was undone is not undone again, unless it was done again.
    """
    cart = await carts.find_cart(backends, cart.id, project=cart.project)
    request, items = await _request(backends, cart)
    if cart.state is CartState.PAUSED:
        await carts.plan(backends, request, each(items))  # what is refused stays paused
        cancel = CancelCart(expected_version=cart.version)
        cart = (await carts.command(backends, cart, cancel, actor=actor)).cart
    request = replace(request, undoes=_as_it_stands(cart))
    return await carts.submit(backends, request, each(items), actor=actor)


async def plan_rollback(backends: Backends, cart: Cart) -> CartPlan:
    """What `rollback` would do; nothing is changed."""
    request, items = await _request(backends, cart)
    return await carts.plan(backends, request, each(items))


async def _request(backends: Backends, cart: Cart) -> tuple[CartRequest, Sequence[CartItem]]:
    job = str(cart.document.get("rollback", ""))
    await _require_undoable(backends, cart, job)
    name = cart.name[: _MAX_NAME - len(_SUFFIX)] + _SUFFIX
    await _refuse_second(backends, cart, name)
    spec = read_job((await find_job(backends, job, project=cart.project)).document)
    touched = [item async for item in _touched(backends, cart)]
    if not touched:
        raise Conflict(
            f"nothing of the cart {cart.id} was started: there is nothing to undo",
            code="nothing_to_roll_back",
        )
    items = _reversed(touched, spec)
    template = CartTemplate(
        name=name,
        rules=_rules(cart.rules),
        items=(),
        job=job,
        description=f"rollback of {cart.id}",
        labels=cart.document.get("labels", {}),
        priority=cart.document.get("priority"),
    )
    return CartRequest(template, len(items), cart.project), items


async def _require_undoable(backends: Backends, cart: Cart, job: str) -> None:
    if not job:
        raise Conflict(
            f"the cart {cart.id} has no rollback job",
            code="no_rollback",
            hint="write rollback: JOB into its template before it is submitted",
        )
    if not await _is_stopped(backends, cart):
        is_over = cart.state in FINAL_CART_STATES
        raise Conflict(
            f"the cart {cart.id} is {cart.state}: only what was cancelled, or stopped by its "
            "failures, is rolled back",
            code="cart_not_stopped",
            hint=f"submit a cart of the job {job}" if is_over else f"rota cart cancel {cart.id}",
        )
    await _require_at_rest(backends, cart)


async def _require_at_rest(backends: Backends, cart: Cart) -> None:
    """Nothing of it may still be done while it is undone. What waits is called off by that."""
    query = RunQuery(cart.project, cart=cart.id, states=_GOING_ON, limit=_PAGE)
    if cart.open and (going_on := len(await backends.store.runs(query))):
        runs = "1 run" if going_on == 1 else f"{going_on:,} runs"
        raise Conflict(
            f"{runs} of the cart {cart.id} did not end yet",
            code="cart_is_running",
            hint=f"wait for that, or: rota cart cancel {cart.id}",
        )


async def _is_stopped(backends: Backends, cart: Cart) -> bool:
    """Whether it was cancelled, or more of it failed than may."""
    if cart.state is CartState.PARTIAL:
        return (await view(backends, cart)).is_breached
    is_breached = cart.state is CartState.PAUSED and cart.reason == PauseReason.FAILURES
    return is_breached or cart.state in _STOPPED or cart.ending in _STOPPED


async def _refuse_second(backends: Backends, cart: Cart, name: str) -> None:
    """`Conflict` if nothing of the cart was started since it was rolled back."""
    query = CartQuery(cart.project, name=name, limit=_LOOKED_AT)
    for made in await backends.store.carts(query):
        if made.document.get("undoes") == _as_it_stands(cart):
            raise Conflict(
                f"the cart {cart.id} is rolled back by {made.id}, which is {made.state}; nothing "
                "of it was started since",
                code="already_rolled_back",
                hint=_instead(made),
                facts={"cart": made.id},
            )


def _as_it_stands(cart: Cart) -> str:
    """Its version grows with whatever makes its items run once more."""
    return f"{cart.id}@{cart.version}"


def _instead(undoing: Cart) -> str:
    """What to do rather than to undo everything twice."""
    if undoing.state not in FINAL_CART_STATES:
        return f"rota cart watch {undoing.id}"
    if undoing.state is CartState.COMPLETED:
        return f"to do that once more: rota cart retry {undoing.id} --from-wave 1"
    return f"what did not complete: rota cart retry {undoing.id} --skipped"


def _rules(rules: CartRules) -> CartRules:
    return replace(
        rules,
        order=Order.EXPLICIT,
        group_sizes=(),
        failures=replace(rules.failures, then=OnBreach.PAUSE),
        between=Between(),
        calendars=(),
    )


async def _touched(backends: Backends, cart: Cart) -> AsyncIterator[Item]:
    """The items that something was done for, whatever became of them since."""
    query = ItemQuery(cart.id, only_attempted=True, limit=_PAGE)
    while page := await backends.store.items(query):
        for item in page:
            yield item
        query = replace(query, after=page[-1].number)


def _reversed(touched: Sequence[Item], undo: JobSpec) -> list[CartItem]:
    last = max(item.wave for item in touched)
    return [
        CartItem(item.key, last - item.wave + 1, inputs_for(undo, item.inputs or {}))
        for item in touched
    ]
