"""Lets carts go on: opens their waves, starts their items, ends them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from rota.domain.calendars import end_of_blackout
from rota.operations.backends import Backends
from rota.ports.carts import CartLook
from rota.ports.queue import CARTS
from rota.scheduler.blackouts import Blackouts
from rota.scheduler.held_shards import HeldShards
from rota.scheduler.pacing import at_each_wake, until_next

_LONGEST_CLOSED = timedelta(seconds=10)  # by calendars, until they are looked at again


@dataclass(frozen=True, slots=True)
class CartKeeperConfig:
    interval: timedelta = timedelta(seconds=1)  # how often the store is asked at least
    batch_size: int = 100  # carts in one look


class CartKeeper:
    """Looks after the carts of this server's shards.

    Two keepers of one cart are harmless: each step is decided and done under the cart's lock.
    """

    name = "cart keeper"

    def __init__(
        self,
        backends: Backends,
        shards: HeldShards,
        config: CartKeeperConfig | None = None,
    ) -> None:
        self._backends = backends
        self._shards = shards
        self._config = config or CartKeeperConfig()
        self._blackouts = Blackouts(backends.store)
        self._pause = timedelta(0)

    async def run(self) -> None:
        await at_each_wake(self._backends.queue, CARTS, self.run_once, lambda: self._pause)

    async def run_once(self) -> int:
        """Let the carts go on that can; returns how many were looked at."""
        self._pause = self._config.interval
        shards = list(self._shards.epochs)
        if not shards:
            return 0
        store, limit = self._backends.store, self._config.batch_size
        looked_at = await store.now()
        looks = await store.carts_to_advance(shards, limit)
        self._blackouts.begin_look()
        for look in looks:
            await self._advance(look)
        self._pause = await self._until_next(looked_at) if len(looks) < limit else timedelta(0)
        return len(looks)

    async def _advance(self, look: CartLook) -> None:
        closed_until = await self._closed_until(look)
        has_more = True
        while has_more:
            advanced = await self._backends.store.advance_cart(look.id, closed_until)
            self._backends.announce(advanced.wakes)
            has_more = advanced.has_more

    async def _closed_until(self, look: CartLook) -> datetime | None:
        """Until when the cart's calendars surely keep its waves closed; None: they do not.

        That is not for long: somebody may change them, and nobody tells the carts.
        """
        if not look.calendars:
            return None
        now = await self._backends.store.now()
        await self._blackouts.look((look.project, name) for name in look.calendars)
        blackouts = self._blackouts.of(look.project, look.calendars)
        longest = now + _LONGEST_CLOSED
        if blackouts is None:
            return longest
        if not any(blackout.is_inside(now) for blackout in blackouts):
            return None
        return min(end_of_blackout(blackouts, now) or longest, longest)

    async def _until_next(self, looked_at: datetime) -> timedelta:
        store = self._backends.store
        next_at, now = await store.next_cart_look(), await store.now()
        return until_next(next_at, looked_at, now, self._config.interval)
