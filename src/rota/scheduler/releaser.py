"""What waits for a time and is no schedule that fires."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from rota.operations import firing, holding
from rota.operations.backends import Backends
from rota.ports.clock import Clock
from rota.ports.queue import TIMES
from rota.scheduler.held_shards import HeldShards
from rota.scheduler.pacing import at_each_wake


@dataclass(frozen=True, slots=True)
class ReleaserConfig:
    interval: timedelta = timedelta(seconds=1)  # how often the store is asked at least
    batch_size: int = 1_000  # runs and schedules in one transaction


class Releaser:
    """Lets runs go whose time or back-off has come, ends pauses, and lets schedules that count
    from the end of a run go on."""

    name = "releaser"

    def __init__(
        self,
        backends: Backends,
        clock: Clock,
        shards: HeldShards,
        config: ReleaserConfig | None = None,
    ) -> None:
        self._backends = backends
        self._clock = clock
        self._shards = shards
        self._config = config or ReleaserConfig()
        self._pause = timedelta(0)

    async def run(self) -> None:
        await at_each_wake(self._backends.queue, TIMES, self.run_once, lambda: self._pause)

    async def run_once(self) -> int:
        """Do what has come due; returns how many runs, pauses and schedules that were."""
        self._pause = self._config.interval
        if not self._shards.is_leading:
            return 0
        done = await holding.end_pauses(self._backends, self._config.batch_size)
        done += await firing.rearm(self._backends, self._config.batch_size)
        done += await self._release()
        return done

    async def _release(self) -> int:
        store = self._backends.store
        moments = [await store.next_eligible_at(), await store.next_pause_end()]
        now = await store.now()
        released = 0
        if moments[0] is not None and moments[0] <= now:
            released = await firing.release_eligible(self._backends, self._config.batch_size)
            moments[0] = await store.next_eligible_at()
        waits = [moment - now for moment in moments if moment is not None]
        self._pause = max(min([self._pause, *waits]), timedelta(0))
        return released
