"""Lets runs go that waited for keys which many share."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from rota.operations.backends import Backends
from rota.ports.queue import KEYS
from rota.scheduler.held_shards import HeldShards
from rota.scheduler.pacing import at_each_wake

_LEAST_PATIENCE = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class KeyKeeperConfig:
    interval: timedelta = timedelta(seconds=1)  # how often the store is asked at least
    patience: timedelta = timedelta(milliseconds=100)  # between looks while the queue stands still
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
        self._next_at: datetime | None = None  # when the next run may go, by the latest look
        self._patience = _LEAST_PATIENCE
        self.pause = timedelta(0)  # until the next look

    async def run(self) -> None:
        await at_each_wake(self._backends.queue, KEYS, self.run_once, lambda: self.pause)

    async def run_once(self) -> int:
        """Let runs go as far as there is room; returns how many."""
        self.pause = self._config.interval
        if not self._shards.is_leading:
            return 0
        released = await self._backends.store.release_keys(self._config.batch_size)
        if not released.count:
            self.pause = await self._until_next()
            return 0
        self._backends.announce(released.wakes)
        self._next_at, self._patience = None, _LEAST_PATIENCE
        self.pause = timedelta(0)
        return released.count

    async def _until_next(self) -> timedelta:
        """Whoever could not go when its time had come waits for the queue to move."""
        store = self._backends.store
        next_at, now = await store.next_key_at(), await store.now()
        if self._next_at is not None and self._next_at <= now:
            self._patience = min(2 * self._patience, self._config.patience)
        self._next_at = next_at
        wait = self._config.interval if next_at is None else next_at - now
        return max(min(wait, self._config.interval), self._patience)
