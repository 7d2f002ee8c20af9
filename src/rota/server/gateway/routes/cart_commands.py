"""Steering carts: pause, resume, cancel, approve, retry, edit."""

from __future__ import annotations

from starlette.responses import Response

from rota.operations import cart_changes
from rota.operations.carts import approver, command
from rota.ports.carts import ApproveCart, CancelCart, PauseCart
from rota.server.gateway.auth import Operator
from rota.server.gateway.etags import IfMatch, quote, require_match
from rota.server.gateway.shapes.cart import (
    ApproveBody,
    CancelBody,
    CommandedCartShape,
    EditBody,
    ResumeBody,
    RetryBody,
)
from rota.server.gateway.wiring import NamedCart, UsedBackends, api_router

router = api_router("carts")


@router.post("/carts/{cart}:pause")
async def pause_cart(
    actor: Operator, backends: UsedBackends, cart: NamedCart
) -> CommandedCartShape:
    """Start nothing more, retries included; what workers hold goes on to its end."""
    done = await command(backends, cart, PauseCart(), actor=actor.name)
    return CommandedCartShape.of_command(done)


@router.post("/carts/{cart}:resume")
async def resume_cart(
    actor: Operator, backends: UsedBackends, cart: NamedCart, body: ResumeBody | None = None
) -> CommandedCartShape:
    """Let a paused cart go on, if need be with more failures allowed."""
    what = (body or ResumeBody()).command()
    return CommandedCartShape.of_command(await command(backends, cart, what, actor=actor.name))


@router.post("/carts/{cart}:cancel")
async def cancel_cart(
    actor: Operator, backends: UsedBackends, cart: NamedCart, body: CancelBody | None = None
) -> CommandedCartShape:
    """Start nothing more and end it; what workers hold is stopped, or goes on to its end."""
    what = CancelCart(stops_running=(body or CancelBody()).running == "stop")
    return CommandedCartShape.of_command(await command(backends, cart, what, actor=actor.name))


@router.post("/carts/{cart}:approve")
async def approve_cart(
    actor: Operator, backends: UsedBackends, cart: NamedCart, body: ApproveBody | None = None
) -> CommandedCartShape:
    """Let the next wave open: by someone with the role it asks for, and not by the submitter."""
    what = ApproveCart(approver(actor.name, actor.role), (body or ApproveBody()).wave)
    return CommandedCartShape.of_command(await command(backends, cart, what, actor=actor.name))


@router.post("/carts/{cart}:retry")
async def retry_cart(
    actor: Operator, backends: UsedBackends, cart: NamedCart, body: RetryBody | None = None
) -> CommandedCartShape:
    """Run items that have ended once more, in their waves."""
    selection = (body or RetryBody()).selection()
    done = await cart_changes.retry(backends, cart, selection, actor=actor.name)
    return CommandedCartShape.of_command(done)


@router.patch("/carts/{cart}")
async def edit_cart(
    actor: Operator,
    backends: UsedBackends,
    cart: NamedCart,
    body: EditBody,
    response: Response,
    if_match: IfMatch = "",
) -> CommandedCartShape:
    """Change its rules, and items of waves that are not open yet."""
    require_match(if_match, str(cart.version))
    by = approver(actor.name, actor.role)
    done = await cart_changes.edit(backends, cart, body.change(), by=by)
    response.headers["ETag"] = quote(str(done.cart.version))
    return CommandedCartShape.of_command(done)
