"""The verbs of the store port that are about lines, the weights of shares, and places in line."""

from __future__ import annotations

from rota.adapters.store.driving import Driver, Urgency
from rota.adapters.store.scripts import places, weighing
from rota.domain.ids import RunId
from rota.ports.limits import LineState, ShareWeight
from rota.ports.places import Place


class LineVerbs:
    """Implements a part of `rota.ports.limits.LimitStore`, and `rota.ports.places.PlaceStore`."""

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
