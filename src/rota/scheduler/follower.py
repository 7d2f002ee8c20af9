"""Follows completed runs with those of the jobs that come after."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from rota.operations.backends import Backends
from rota.ports.queue import FOLLOWED
from rota.scheduler.held_shards import HeldShards
from rota.scheduler.pacing import at_each_wake


@dataclass(frozen=True, slots=True)
class FollowerConfig:
    interval: timedelta = timedelta(seconds=1)  # how often the store is asked at least
    batch_size: int = 500  # completed runs in one transaction


class Follower:
    """Answers each completed run once, for all jobs that follow it.

    Two followers are harmless: each end is one's alone, and the run that answers it has one id.
    """

    name = "follower"

    def __init__(
        self, backends: Backends, shards: HeldShards, config: FollowerConfig | None = None
    ) -> None:
        self._backends = backends
        self._shards = shards
        self._config = config or FollowerConfig()
        self._pause = timedelta(0)

    async def run(self) -> None:
        await at_each_wake(self._backends.queue, FOLLOWED, self.run_once, lambda: self._pause)

    async def run_once(self) -> int:
        """Follow what has completed; returns how many runs that were."""
        self._pause = self._config.interval
        if not self._shards.is_leading:
            return 0
        followed = await self._backends.store.follow_ends(self._config.batch_size)
        if followed.count:
            self._backends.announce(followed.wakes)
        if followed.count == self._config.batch_size:
            self._pause = timedelta(0)
        return followed.count
