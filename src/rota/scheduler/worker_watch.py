"""Lets runs go for which a worker has come."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from rota.operations.backends import Backends
from rota.ports.queue import WORKERS
from rota.scheduler.held_shards import HeldShards
from rota.scheduler.pacing import at_each_wake


@dataclass(frozen=True, slots=True)
class WorkerWatchConfig:
    interval: timedelta = timedelta(seconds=5)  # how often the store is asked at least
    batch_size: int = 1_000  # runs that ask for the same, in one transaction


class WorkerWatch:
    """Looks after runs that no worker could take when they came to the queue."""

    name = "worker watch"

    def __init__(
        self, backends: Backends, shards: HeldShards, config: WorkerWatchConfig | None = None
    ) -> None:
        self._backends = backends
        self._shards = shards
        self._config = config or WorkerWatchConfig()
        self._pause = timedelta(0)

    async def run(self) -> None:
        await at_each_wake(self._backends.queue, WORKERS, self.run_once, lambda: self._pause)

    async def run_once(self) -> int:
        """Let runs pass the gates again that a worker can take now; returns how many."""
        self._pause = self._config.interval
        if not self._shards.is_leading:
            return 0
        released = await self._backends.store.release_fitting(self._config.batch_size)
        if released.count:
            self._backends.announce(released.wakes)
            self._pause = timedelta(0)  # there may be more
        return released.count
