"""The part of the store port that is about lines, the weights of shares, and places in line."""

from __future__ import annotations

from rota.domain.ids import RunId
from rota.ports.forecasts import LineState, Place, ShareWeight
from rota.store.driving import Driver, Urgency
from rota.store.scripts import places, weighing


class LineVerbs:
    """Implements `rota.ports.forecasts.LineStore`."""

    _driver: Driver

    async def share_weights(self) -> list[ShareWeight]:
        return await self._driver.read(lambda _: weighing.share_weights())

    async def set_share_weight(self, share: str, weight: float, *, actor: str) -> None:
        await self._driver.write(
            lambda now: weighing.set_weight(now, share, weight, actor), Urgency.API
        )

    async def lines(self, pool: str) -> list[LineState]:
        return await self._driver.read(lambda _: weighing.lines(pool))

    async def place_of(self, run: RunId) -> Place | None:
        return await self._driver.read(lambda now: places.place_of(now, run))
