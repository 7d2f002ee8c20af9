"""Lets runs go that waited for keys which many share."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from rota.operations.backends import Backends
from rota.ports.queue import KEYS
from rota.scheduler.held_shards import HeldShards
from rota.scheduler.pacing import at_each_wake


@dataclass(frozen=True, slots=True)
class KeyKeeperConfig:
    interval: timedelta = timedelta(seconds=1)  # how often the store is asked at least
    batch_size: int = 200  # runs in one step


class KeyKeeper:
    """Gives room in rate limits, named resources, quotas and `exclusive_by` to those who wait.

    It decides nothing for good: keys are taken when a run is claimed, so that two keepers at once
    are harmless. What a lost wake-up forgot is found by the next look.
    """

    name = "key keeper"

    def __init__(
        self,
        backends: Backends,
        shards: HeldShards,
        config: KeyKeeperConfig | None = None,
    ) -> None:
        self._backends = backends
        self._shards = shards
        self._config = config or KeyKeeperConfig()
        self._pause = timedelta(0)

    async def run(self) -> None:
        await at_each_wake(self._backends.queue, KEYS, self.run_once, lambda: self._pause)

    async def run_once(self) -> int:
        """Let runs go as far as there is room; returns how many."""
        self._pause = self._config.interval
        if not self._shards.is_leading:
            return 0
        released = await self._backends.store.release_keys(self._config.batch_size)
        if not released.count:
            self._pause = await self._until_next()
            return 0
        self._backends.announce(released.wakes)
        self._pause = timedelta(0)
        return released.count

    async def _until_next(self) -> timedelta:
        store = self._backends.store
        next_at, now = await store.next_key_at(), await store.now()
        wait = self._config.interval if next_at is None else next_at - now
        return max(min(wait, self._config.interval), timedelta(0))
