"""Undoing what a cart has done, by a cart of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Sequence
from dataclasses import replace

from rota.domain.carts.definition import Between, CartRules, OnBreach, Order
from rota.domain.carts.states import CartState, PauseReason
from rota.domain.carts.template import CartItem, CartTemplate
from rota.domain.errors import Conflict
from rota.domain.jobfile import read_job
from rota.operations import carts
from rota.operations.backends import Backends
from rota.operations.carts import CartPlan, CartRequest, each
from rota.operations.definitions import find_job
from rota.ports.carts import CancelCart, Cart, Item, ItemQuery

_SUFFIX = "-rollback"
_MAX_NAME = 128
_PAGE = 10_000
_STOPPED = (CartState.CANCELLED, CartState.FAILED)


async def rollback(backends: Backends, cart: Cart, *, actor: str) -> Cart:
    """Run the cart's rollback job for every item that was started, the last wave first.

    Each item has the key and those inputs of before that the rollback job declares. As many are in
    flight and may fail as before; the new cart has no gates, takes no heed of calendars, and is
    paused when too many fail. A cart that is paused is cancelled by this: resumed, it would do
    again what is being undone.
    """
    cart = await carts.find_cart(backends, cart.id, project=cart.project)
    request, items = await _request(backends, cart)
    if cart.state is CartState.PAUSED:
        await carts.plan(backends, request, each(items))  # what is refused stays paused
        cancel = CancelCart(expected_version=cart.version)
        await carts.command(backends, cart, cancel, actor=actor)
    return await carts.submit(backends, request, each(items), actor=actor)


async def plan_rollback(backends: Backends, cart: Cart) -> CartPlan:
    """What `rollback` would do; nothing is changed."""
    request, items = await _request(backends, cart)
    return await carts.plan(backends, request, each(items))


async def _request(backends: Backends, cart: Cart) -> tuple[CartRequest, Sequence[CartItem]]:
    name = str(cart.document.get("rollback", ""))
    _require_undoable(cart, name)
    job = await find_job(backends, name, project=cart.project)
    touched = [item async for item in _touched(backends, cart)]
    if not touched:
        raise Conflict(
            f"nothing of the cart {cart.id} was started: there is nothing to undo",
            code="nothing_to_roll_back",
        )
    items = _reversed(touched, read_job(job.document).inputs.keys())
    template = CartTemplate(
        name=cart.name[: _MAX_NAME - len(_SUFFIX)] + _SUFFIX,
        rules=_rules(cart.rules),
        items=(),
        job=name,
        description=f"rollback of {cart.id}",
        labels=cart.document.get("labels", {}),
        priority=cart.document.get("priority"),
    )
    return CartRequest(template, len(items), cart.project), items


def _require_undoable(cart: Cart, job: str) -> None:
    if not job:
        raise Conflict(
            f"the cart {cart.id} has no rollback job",
            code="no_rollback",
            hint="write rollback: JOB into its template before it is submitted",
        )
    is_breached = cart.state is CartState.PAUSED and cart.reason == PauseReason.FAILURES
    is_stopped = cart.state in _STOPPED or cart.ending in _STOPPED
    if not is_stopped and not is_breached:
        raise Conflict(
            f"the cart {cart.id} is {cart.state}: only what was cancelled, or stopped by its "
            "failures, is rolled back",
            code="cart_not_stopped",
            hint=f"rota cart cancel {cart.id}",
        )
    if cart.open:
        raise Conflict(
            f"{cart.open:,} items of the cart {cart.id} are still running",
            code="cart_is_running",
            hint=f"wait for their end, or: rota cart cancel {cart.id}",
        )


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


def _reversed(touched: Sequence[Item], declared: Collection[str]) -> list[CartItem]:
    last = max(item.wave for item in touched)
    return [
        CartItem(
            key=item.key,
            order=last - item.wave + 1,
            inputs={k: v for k, v in (item.inputs or {}).items() if k in declared},
        )
        for item in touched
    ]
