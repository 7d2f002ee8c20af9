"""Predictions that are remembered, so that they can be held against what came."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from itertools import islice
from math import inf

from rota.domain.forecast.ahead import RunAhead
from rota.domain.forecast.forecast import Forecast
from rota.domain.forecast.saturation import saturations
from rota.domain.ids import RunId, instant, micros, scheduled_run_id
from rota.domain.shared_keys import SECOND
from rota.operations.backends import Backends
from rota.operations.forecasting import beside_the_loop, make_forecast
from rota.ports.forecasts import PredictedStart

_MOST = 2_000  # remembered of one forecast


async def predict_starts(backends: Backends, ahead: timedelta, kept: timedelta) -> int:
    """Remember when the next runs are thought to start and what runs out, and forget what is old.

    What was first thought of a run stays. Of what comes because other runs end no id is known yet.
    """
    forecast = await make_forecast(backends, ahead)
    short = await beside_the_loop(saturations, forecast.runs, forecast.seconds)
    backends.shortages.note(forecast.made_at, short)
    starts = [*islice(_known(forecast), _MOST)]
    if starts:
        await backends.store.save_predictions(starts)
    await backends.store.forget_predictions(forecast.made_at - kept)
    return len(starts)


def _known(forecast: Forecast) -> Iterator[PredictedStart]:
    """The coming starts of runs whose ids are known."""
    for run in forecast.runs:
        run_id = _id_of(forecast, run)
        if run_id is not None and 0 < run.start_at < inf and not run.worker:
            yield PredictedStart(run_id, forecast.instant(run.start_at))


def _id_of(forecast: Forecast, run: RunAhead) -> RunId | None:
    """That of a run which is there, or that of the due time which it will answer."""
    table = forecast.tables.get(run.job.id)
    if run.id is not None or run.job.cart is not None or table is None or table.after_previous:
        return run.id
    due_at = instant(micros(forecast.made_at) + round(run.due_at * SECOND))
    return scheduled_run_id(run.job.id, due_at)
