"""For machines that watch: is it alive, is it ready, how much."""

from __future__ import annotations

import time
from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from rota.api.answers import Health
from rota.domain.errors import Unavailable
from rota.operations.engine import Engine
from rota.ports.carts import CartQuery
from rota.server.gateway import metrics
from rota.server.gateway.filters import ACTIVE_CART_STATES
from rota.server.gateway.parameters import UsedEngine, open_router

_GOOD_FOR_SECONDS = 1.0

router = open_router("health")


class Readiness:
    """Checks the store, which is a write, at most once a second: anyone may ask.

    `hindrance` says what else keeps this server from its roles; "" when nothing does.
    """

    def __init__(
        self,
        engine: Engine,
        monotonic: Callable[[], float] = time.monotonic,
        hindrance: Callable[[], str] = str,
    ) -> None:
        self._engine = engine
        self._hindrance = hindrance
        self._monotonic = monotonic
        self._checked_at = float("-inf")
        self._error: Unavailable | None = None

    async def require(self) -> None:
        """`Unavailable` unless nothing hinders it and the store can be read and written."""
        if why := self._hindrance():
            raise Unavailable(why, code="not_ready")
        now = self._monotonic()
        if now - self._checked_at >= _GOOD_FOR_SECONDS:
            self._checked_at = now
            self._error = await self._check()
        if self._error is not None:
            raise self._error

    async def _check(self) -> Unavailable | None:
        try:
            await self._engine.store.check()
        except Unavailable as error:
            return error
        return None


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
async def show_metrics(request: Request, engine: UsedEngine) -> Response:
    """Metrics in the text format of Prometheus."""
    counts = await engine.store.counts()
    now = await engine.store.now()
    active = CartQuery(states=sorted(ACTIVE_CART_STATES), limit=metrics.MAX_CARTS + 1)
    carts = await engine.store.carts(active)
    shortages = engine.outlook.shortages.seconds_ahead(now)
    present = metrics.Present(now, counts, carts, shortages)
    text = metrics.render(present, request.app.state.requests)
    return Response(text, media_type=metrics.CONTENT_TYPE)
