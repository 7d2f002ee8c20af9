"""When a run that waits is likely to start."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial

from rota.domain.run import Run
from rota.domain.states import RunState
from rota.operations.backends import Backends
from rota.operations.forecasting import make_forecast

_AHEAD = timedelta(hours=1)
_PATIENCE = timedelta(seconds=1)  # an answer without an estimate is better than none


async def likely_start(backends: Backends, run: Run) -> datetime | None:
    """By the forecast; None: it is not known, or takes too long to find out."""
    make = partial(make_forecast, backends)
    forecast = await backends.forecast.get_within(_PATIENCE, _AHEAD, make)
    if forecast is None:
        return None
    known = _known_time(run)
    if known is not None and known >= forecast.until:
        return known
    found = next((each for each in forecast.runs if each.id == run.id), None)
    start = forecast.start_of(found) if found else None
    return None if start is None else max(start, await backends.store.now())


def _known_time(run: Run) -> datetime | None:
    """The instant for which it waits; None: it waits for something else, perhaps besides."""
    if run.state is RunState.SCHEDULED:
        return run.eligible_at
    times = [reason.eligible_at for reason in run.reasons]
    known = [time for time in times if time is not None]
    return max(known) if known and len(known) == len(times) else None
