"""For machines that watch: is it alive, is it ready, how much."""

from __future__ import annotations

from typing import Literal

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from rota.ports.carts import CartQuery
from rota.server.gateway import metrics
from rota.server.gateway.filters import ACTIVE_CART_STATES
from rota.server.gateway.readiness import Readiness
from rota.server.gateway.shapes.models import Answer
from rota.server.gateway.wiring import UsedBackends, open_router

router = open_router("health")


class Health(Answer):
    status: Literal["ok", "ready"]


@router.get("/livez")
async def check_life() -> Health:
    """Whether the process answers."""
    return Health(status="ok")


@router.get("/readyz")
async def check_readiness(request: Request) -> Health:
    """Whether this server can do what its roles ask: 503 before, while it stops, and without the
    store."""
    readiness: Readiness = request.app.state.readiness
    await readiness.require()
    return Health(status="ready")


@router.get(
    "/metrics",
    response_class=PlainTextResponse,
)
async def show_metrics(request: Request, backends: UsedBackends) -> Response:
    """Metrics in the text format of Prometheus."""
    counts = await backends.store.counts()
    now = await backends.store.now()
    active = CartQuery(states=sorted(ACTIVE_CART_STATES), limit=metrics.MAX_CARTS + 1)
    carts = await backends.store.carts(active)
    shortages = backends.shortages.seconds_ahead(now)
    present = metrics.Present(now, counts, carts, shortages)
    text = metrics.render(present, request.app.state.requests)
    return Response(text, media_type=metrics.CONTENT_TYPE)
