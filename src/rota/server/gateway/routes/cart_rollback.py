"""Undoing what a cart has done."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query
from starlette.responses import Response

from rota.operations.cart_changes import plan_rollback, rollback
from rota.server.gateway.auth import API, Operator
from rota.server.gateway.shapes.cart import CartPlanShape, CartShape
from rota.server.gateway.wiring import NamedCart, UsedBackends, api_router

router = api_router("carts")


@router.post(
    "/carts/{cart}:rollback",
    status_code=202,
    response_model=CartShape,
    responses={200: {"model": CartPlanShape, "description": "what it would do"}},
)
async def roll_back_cart(
    actor: Operator,
    backends: UsedBackends,
    cart: NamedCart,
    plan: Annotated[bool, Query(description="only say what it would do")] = False,
) -> Response:
    """Run the rollback job of a stopped cart for what was started, the last wave first.

    Answers with the cart that does it. One that was paused is cancelled.
    """
    if plan:
        planned = CartPlanShape.of(await plan_rollback(backends, cart))
        return Response(planned.model_dump_json(), 200, media_type="application/json")
    undoing = await rollback(backends, cart, actor=actor.name)
    headers = {"Location": f"{API}/carts/{undoing.id}"}
    return Response(CartShape.of(undoing).model_dump_json(), 202, headers, "application/json")
