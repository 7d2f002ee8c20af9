"""What can be asked about what is coming."""

from __future__ import annotations

from datetime import timedelta

from rota.sdk.calls import Instant
from rota.sdk.exchange import Call, get
from rota.sdk.forecast_answers import Forecast


def forecast(
    lasting: timedelta | str | None = None,
    *,
    start: Instant | None = None,
    end: Instant | None = None,
    measure: str | None = None,
    buckets: int | None = None,
    job: str | None = None,
) -> Call[Forecast]:
    """When runs will start and what they will wait for, for a while (`24h`) or until a time.

    `measure` is what the load is told of: slots, a resource of workers, a named resource or a rate
    limit. With `job` only its starts, one by one.
    """
    if isinstance(lasting, timedelta):
        lasting = f"{lasting.total_seconds():.6f}s"
    call = get(Forecast, "/forecast", to=end, measure=measure, buckets=buckets, job=job)
    return call.with_query(**{"from": start, "for": lasting})
