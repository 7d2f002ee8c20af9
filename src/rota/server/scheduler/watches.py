"""The slow loops that look ahead and look for trouble."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from rota.operations.engine import Engine
from rota.operations.forecasts import predict_starts
from rota.operations.status import watch_congestion
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
    """Remembers when runs were thought to start: how far forecasts are to be trusted."""

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
