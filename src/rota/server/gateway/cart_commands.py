"""Steering carts: pause, resume, cancel, approve, retry, edit, roll back."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import Query
from pydantic import Field, StrictInt, StrictStr
from starlette.responses import Response

from rota.api import carts as api
from rota.domain.carts.definition import MAX_ITEMS, MAX_ORDER
from rota.operations import cart_changes
from rota.operations.cart_changes import (
    SELECTED,
    CartChange,
    ItemChange,
    allowance,
    plan_rollback,
    rollback,
)
from rota.operations.carts import approver, command, rehearse
from rota.operations.engine import Engine
from rota.operations.tokens import Caller
from rota.ports.carts import (
    ApproveCart,
    CancelCart,
    Cart,
    Commanded,
    PauseCart,
    ResumeCart,
    Selection,
    Steering,
)
from rota.server.gateway.auth import API, Operator, Stopper
from rota.server.gateway.carts import PLAIN, ItemKey, cart_answer, cart_fields, cart_plan_answer
from rota.server.gateway.parameters import (
    Body,
    IfMatch,
    NamedCart,
    UsedEngine,
    api_router,
    quote,
    require_match,
)
from rota.server.gateway.proxies import link_to
from rota.server.gateway.routing import fill

MAX_CHANGES = 10_000  # of items in one request

router = api_router("carts")


class ResumeBody(Body):
    """How a cart goes on."""

    # How many may fail from now on; None: as many as before.
    allow: StrictInt | StrictStr | None = Field(default=None, examples=[30, "3%"])

    def command(self) -> ResumeCart:
        return ResumeCart(None if self.allow is None else allowance(self.allow))


class ApproveBody(Body):
    """Approval of a cart's next wave."""

    # The number of the wave; None: whichever comes next.
    wave: int | None = Field(default=None, ge=1, le=MAX_ORDER)


class CancelBody(Body):
    """Fate of what workers hold."""

    running: Literal["stop", "finish"] = "stop"


class RetryBody(Body):
    """Which of the items that have ended run once more; all conditions hold together."""

    select: Literal["failed", "failed+skipped", "all"] = "failed"
    from_wave: int | None = Field(default=None, ge=1, le=MAX_ORDER)
    keys: list[ItemKey] | None = Field(default=None, min_length=1, max_length=MAX_CHANGES)
    cause: Annotated[str, Field(max_length=1_000, pattern=PLAIN)] | None = None

    def selection(self) -> Selection:
        return Selection(SELECTED[self.select], self.from_wave, self.keys, self.cause)


class ItemChangeBody(Body):
    """A change of an item whose wave is not open yet."""

    key: ItemKey
    order: int | None = Field(default=None, ge=1, le=MAX_ORDER)
    inputs: dict[str, Any] | None = Field(default=None, alias="with")
    skip: bool = False


class EditBody(Body):
    """Changes to a cart; what is left out stays."""

    max_parallel: int | None = Field(default=None, ge=1, le=MAX_ITEMS)
    failures: dict[str, Any] = Field(default_factory=dict, examples=[{"allow": "3%"}])
    between: dict[str, Any] = Field(default_factory=dict, examples=[{"wait": "10m"}])
    items: list[ItemChangeBody] = Field(
        default_factory=list, max_length=MAX_CHANGES, examples=[[{"key": "db-002", "skip": True}]]
    )

    def change(self) -> CartChange:
        items = [ItemChange(it.key, it.order, it.inputs, it.skip) for it in self.items]
        return CartChange(self.max_parallel, self.failures, self.between, items)


def commanded_answer(done: Commanded) -> api.CommandedCart:
    told = cart_fields(done.cart)
    return fill(api.CommandedCart, done.cart, **told, changed=done.has_changed, affected=done.items)


Plan = Annotated[bool, Query(description="only say whether it would change the cart")]


async def _steered(
    engine: Engine, cart: Cart, what: Steering, actor: Caller, *, plan: bool
) -> api.CommandedCart:
    if plan:
        return commanded_answer(await rehearse(engine, cart, what))
    return commanded_answer(await command(engine, cart, what, actor=actor.name))


@router.post("/carts/{cart}:pause")
async def pause_cart(
    actor: Stopper, engine: UsedEngine, cart: NamedCart, plan: Plan = False
) -> api.CommandedCart:
    """Start nothing more, retries included; what workers hold goes on to its end."""
    return await _steered(engine, cart, PauseCart(), actor, plan=plan)


@router.post("/carts/{cart}:resume")
async def resume_cart(
    actor: Operator,
    engine: UsedEngine,
    cart: NamedCart,
    body: ResumeBody | None = None,
    plan: Plan = False,
) -> api.CommandedCart:
    """Let a paused cart go on, if need be with more failures allowed."""
    return await _steered(engine, cart, (body or ResumeBody()).command(), actor, plan=plan)


@router.post("/carts/{cart}:cancel")
async def cancel_cart(
    actor: Stopper,
    engine: UsedEngine,
    cart: NamedCart,
    body: CancelBody | None = None,
    plan: Plan = False,
) -> api.CommandedCart:
    """Start nothing more and end it; what workers hold is stopped, or goes on to its end."""
    what = CancelCart(stops_running=(body or CancelBody()).running == "stop")
    return await _steered(engine, cart, what, actor, plan=plan)


@router.post("/carts/{cart}:approve")
async def approve_cart(
    actor: Operator,
    engine: UsedEngine,
    cart: NamedCart,
    body: ApproveBody | None = None,
    plan: Plan = False,
) -> api.CommandedCart:
    """Let the next wave open: by someone with the role it asks for, and not by the submitter."""
    by = approver(actor.name, actor.role_in(cart.project))
    what = ApproveCart(by, (body or ApproveBody()).wave)
    return await _steered(engine, cart, what, actor, plan=plan)


@router.post("/carts/{cart}:retry")
async def retry_cart(
    actor: Operator, engine: UsedEngine, cart: NamedCart, body: RetryBody | None = None
) -> api.CommandedCart:
    """Run items that have ended once more, in their waves."""
    selection = (body or RetryBody()).selection()
    done = await cart_changes.retry(engine, cart, selection, actor=actor.name)
    return commanded_answer(done)


@router.patch("/carts/{cart}")
async def edit_cart(
    actor: Operator,
    engine: UsedEngine,
    cart: NamedCart,
    body: EditBody,
    response: Response,
    if_match: IfMatch = "",
) -> api.CommandedCart:
    """Change its rules, and items of waves that are not open yet."""
    require_match(if_match, str(cart.version))
    by = approver(actor.name, actor.role_in(cart.project))
    done = await cart_changes.edit(engine, cart, body.change(), by=by)
    response.headers["ETag"] = quote(str(done.cart.version))
    return commanded_answer(done)


@router.post(
    "/carts/{cart}:rollback",
    status_code=202,
    response_model=api.Cart,
    responses={200: {"model": api.CartPlan, "description": "what it would do"}},
)
async def roll_back_cart(
    actor: Operator,
    engine: UsedEngine,
    cart: NamedCart,
    response: Response,
    plan: Annotated[bool, Query(description="only say what it would do")] = False,
) -> api.Cart | api.CartPlan:
    """Run the rollback job of a stopped cart for what was started, the last wave first.

    Answers with the cart that does it. One that was paused is cancelled.
    """
    if plan:
        response.status_code = 200
        return cart_plan_answer(await plan_rollback(engine, cart))
    undoing = await rollback(engine, cart, actor=actor.name)
    response.headers["Location"] = link_to(f"{API}/carts/{undoing.id}", undoing.project)
    return cart_answer(undoing)
