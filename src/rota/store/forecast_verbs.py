"""The part of the store port that is about what is coming."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime

from rota.domain.forecast.forecast import Outcome
from rota.domain.ids import JobId
from rota.domain.keys import Key
from rota.ports.forecasts import ComingJob, OpenCart, OpenRun, PredictedStart, TokensLeft
from rota.store.driving import Driver, Urgency
from rota.store.scripts import forecasting


class ForecastVerbs:
    """Implements `rota.ports.forecasts.ForecastStore`."""

    _driver: Driver

    async def coming_jobs(self, before: datetime, limit: int) -> list[ComingJob]:
        return await self._driver.read(lambda _: forecasting.coming_jobs(before, limit))

    async def open_runs(self, limit: int) -> list[OpenRun]:
        return await self._driver.read(lambda _: forecasting.open_runs(limit))

    async def open_carts(self, limit: int) -> list[OpenCart]:
        return await self._driver.read(lambda _: forecasting.open_carts(limit))

    async def latest_durations(
        self, jobs: Collection[JobId], runs: int
    ) -> dict[JobId, list[float]]:
        return await self._driver.read(lambda _: forecasting.latest_durations(jobs, runs))

    async def tokens_left(self, limit: int) -> dict[Key, TokensLeft]:
        return await self._driver.read(lambda _: forecasting.tokens_left(limit))

    async def completions(self, limit: int) -> dict[tuple[str, str], datetime]:
        return await self._driver.read(lambda _: forecasting.completions(limit))

    async def save_predictions(self, starts: Sequence[PredictedStart]) -> None:
        await self._driver.write(lambda now: forecasting.save_predictions(now, starts), Urgency.API)

    async def forget_predictions(self, before: datetime) -> None:
        await self._driver.write(lambda _: forecasting.forget_predictions(before), Urgency.API)

    async def predicted_starts(self, since: datetime, limit: int) -> list[Outcome]:
        return await self._driver.read(lambda _: forecasting.predicted_starts(since, limit))
