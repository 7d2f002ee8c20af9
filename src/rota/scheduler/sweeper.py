"""The slow loop that makes every wake-up optional."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from rota.operations import firing
from rota.operations.backends import Backends
from rota.ports.clock import Clock
from rota.scheduler.held_shards import HeldShards

_KEYS_AT_ONCE = 200  # whoever wants one of them waits until they have been looked at


@dataclass(frozen=True, slots=True)
class SweeperConfig:
    interval: timedelta = timedelta(seconds=5)
    batch_size: int = 1_000
    forget_interval: timedelta = timedelta(hours=1)  # how often what is over is looked for
    load_within: timedelta = timedelta(hours=1)  # a cart whose items stopped coming is forgotten


class Sweeper:
    """Releases what a lost wake-up forgot, ends what passed its deadline, forgets old workers."""

    name = "sweeper"

    def __init__(
        self,
        backends: Backends,
        clock: Clock,
        shards: HeldShards,
        config: SweeperConfig | None = None,
    ) -> None:
        self._backends = backends
        self._clock = clock
        self._shards = shards
        self._config = config or SweeperConfig()
        self._forgets_at = 0.0  # monotonic

    async def run_once(self) -> int:
        if not self._shards.is_leading:
            return 0
        await self._forget()
        return await firing.sweep(self._backends, self._config.batch_size)

    async def _forget(self) -> None:
        now, limit = self._clock.monotonic(), self._config.batch_size
        if now < self._forgets_at:
            return
        store = self._backends.store
        await store.forget_loading_carts(await store.now() - self._config.load_within)
        await store.forget_keys(_KEYS_AT_ONCE)
        if await store.forget_sessions(limit) < limit:
            self._forgets_at = now + self._config.forget_interval.total_seconds()

    async def run(self) -> None:
        while True:
            await self.run_once()
            await self._clock.sleep(self._config.interval)
