"""The slow loop that makes every wake-up optional."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from rota.operations import firing
from rota.operations.backends import Backends
from rota.ports.clock import Clock
from rota.scheduler.held_shards import HeldShards


@dataclass(frozen=True, slots=True)
class SweeperConfig:
    interval: timedelta = timedelta(seconds=5)
    batch_size: int = 1_000


class Sweeper:
    """Releases what a lost wake-up forgot and ends what passed its deadline."""

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

    async def run_once(self) -> int:
        if not self._shards.is_leading:
            return 0
        return await firing.sweep(self._backends, self._config.batch_size)

    async def run(self) -> None:
        while True:
            await self.run_once()
            await self._clock.sleep(self._config.interval)
