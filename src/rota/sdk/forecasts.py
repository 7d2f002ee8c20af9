"""Calls about forecasts and simulations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta

from rota.api.forecasts import Comparison, Forecast
from rota.sdk.exchange import Call, Instant, get, post
from rota.sdk.verbs import Verb


def forecast(
    lasting: timedelta | str | None = None,
    *,
    start: Instant | None = None,
    end: Instant | None = None,
    measure: str | None = None,
    buckets: int | None = None,
    job: str | None = None,
    created_by: str | None = None,
) -> Call[Forecast]:
    """Forecast when runs will start and what they will wait for, for a time (`24h`) or until one.

    `measure` is what the load is measured in: slots, a resource of workers, a named resource or a
    rate limit. With `job` only its starts, one by one. `created_by` is `me`, or for admins
    anybody's handle: who asked for the runs, or made the job that will.
    """
    if isinstance(lasting, timedelta):
        lasting = f"{lasting.total_seconds():.6f}s"
    call = get(Forecast, "/forecast", to=end, measure=measure, buckets=buckets, job=job)
    return call.with_query(**{"from": start, "for": lasting, "created_by": created_by})


def simulate(
    lasting: str = "24h",
    *,
    add_workers: Mapping[str, int] | None = None,
    move: Mapping[str, str] | None = None,
    without: Sequence[str] = (),
) -> Call[Comparison]:
    """Simulate how runs would wait with more workers (by pool), other schedules, or fewer jobs."""
    body = {
        "for": lasting,
        "add_workers": dict(add_workers or {}),
        "move": dict(move or {}),
        "without": list(without),
    }
    return post(Comparison, "/simulations", body)


class ForecastVerbs:
    forecast = Verb(forecast)
    simulate = Verb(simulate)
