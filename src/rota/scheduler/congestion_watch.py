"""The slow look for schedules that are blocked, so that none is blocked in silence."""

from __future__ import annotations

from datetime import timedelta

from rota.operations.backends import Backends
from rota.operations.watching import watch_congestion
from rota.ports.clock import Clock
from rota.scheduler.held_shards import HeldShards


class CongestionWatch:
    """Raises an alarm about jobs whose runs wait in vain."""

    name = "congestion-watch"

    def __init__(
        self,
        backends: Backends,
        clock: Clock,
        shards: HeldShards,
        interval: timedelta = timedelta(seconds=30),
    ) -> None:
        self._backends = backends
        self._clock = clock
        self._shards = shards
        self._interval = interval

    async def run_once(self) -> int:
        return await watch_congestion(self._backends) if self._shards.is_leading else 0

    async def run(self) -> None:
        while True:
            await self.run_once()
            await self._clock.sleep(self._interval)
