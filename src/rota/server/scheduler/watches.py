"""Slow loops: expired worker leases, congested jobs, start predictions."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from random import uniform

from rota.domain.ids import SessionId
from rota.domain.lease import Sight, is_silent, look_at
from rota.operations.engine import Engine
from rota.operations.forecasts import predict_starts
from rota.operations.workers import watch_congestion
from rota.ports.clock import Clock
from rota.server.scheduler.shards import HeldShards


class CongestionWatch:
    """Raises an alarm about jobs whose runs wait in vain."""

    name = "congestion-watch"

    def __init__(
        self,
        engine: Engine,
        clock: Clock,
        shards: HeldShards,
        interval: timedelta = timedelta(seconds=30),
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._shards = shards
        self._interval = interval

    async def run_once(self) -> int:
        return await watch_congestion(self._engine) if self._shards.is_leading else 0

    async def run(self) -> None:
        while True:
            await self.run_once()
            await self._clock.sleep(self._interval)


@dataclass(frozen=True, slots=True)
class StartPredictorConfig:
    interval: timedelta = timedelta(minutes=10)
    ahead: timedelta = timedelta(hours=1)  # how far it looks
    kept: timedelta = timedelta(days=2)  # how long predictions are remembered


class StartPredictor:
    """Records predicted starts of runs, to measure how accurate forecasts are."""

    name = "start-predictor"

    def __init__(
        self,
        engine: Engine,
        clock: Clock,
        shards: HeldShards,
        config: StartPredictorConfig | None = None,
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._shards = shards
        self._config = config or StartPredictorConfig()

    async def run_once(self) -> int:
        if not self._shards.is_leading:
            return 0
        return await predict_starts(self._engine, self._config.ahead, self._config.kept)

    async def run(self) -> None:
        while True:
            await self._clock.sleep(self._config.interval)
            await self.run_once()


class LeaseReaper:
    """Ends the sessions of workers whose lease has expired.

    Two conditions: the lease has expired by the store's clock, and this server has seen no beat for
    a whole lease by its own. Every server looks, each at its own pace: if a worker and a server die
    together, the worker's runs wait no longer.
    """

    name = "lease-reaper"

    def __init__(
        self, engine: Engine, clock: Clock, interval: timedelta = timedelta(seconds=1)
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._interval = interval
        self._sights: dict[SessionId, Sight] = {}

    async def run_once(self) -> int:
        """Look at all sessions; return how many were ended."""
        hearts = await self._engine.store.heartbeats()
        now, before = self._clock.monotonic(), self._sights
        self._sights = {h.session: look_at(before.get(h.session), h.beats, now) for h in hearts}
        silent = {
            h.session: h.beats for h in hearts if is_silent(self._sights[h.session], h.lease, now)
        }
        return len(await self._engine.store.reap(silent))

    async def run(self) -> None:
        while True:
            await self.run_once()
            await self._clock.sleep(self._interval * uniform(0.75, 1.25))  # noqa: S311 - no secret
