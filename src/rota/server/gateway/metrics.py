"""Prometheus metrics: counts of the store, and durations of requests."""

from __future__ import annotations

from collections import Counter as Sums
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from math import isinf

from prometheus_client import CollectorRegistry, Histogram, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from rota.domain.carts.facts import ItemState
from rota.domain.lateness import DELAY_BOUNDS
from rota.ports.carts import Cart
from rota.ports.records import Counts

CONTENT_TYPE = CONTENT_TYPE_LATEST
MAX_JOB_SERIES = 2_000
MAX_CARTS = 200  # whose items are exported
_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


class Requests:
    """Histogram of request durations, by route template."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._seconds = Histogram(
            "rota_http_request_duration_seconds",
            "Time to answer a request.",
            ["method", "route", "status"],
            registry=self.registry,
            buckets=_BUCKETS,
        )

    def observe(self, method: str, route: str, status: int, seconds: float) -> None:
        known = method if method in {"GET", "POST", "DELETE"} else "other"
        self._seconds.labels(known, route, str(status)).observe(seconds)


@dataclass(frozen=True, slots=True)
class Present:
    """Current state that is exported."""

    now: datetime
    counts: Counts
    carts: Sequence[Cart]  # that have not ended, the newest first
    shortages: Mapping[str, float]  # seconds until resources run out, as far as that is predicted


class _Snapshot(Collector):
    """Latest counts of the store, and predictions."""

    def __init__(self, present: Present) -> None:
        self._counts = present.counts
        self._carts = present.carts
        self._now = present.now
        self._shortages = present.shortages

    def collect(self) -> Iterator[Metric]:
        yield from _finished(self._counts.finished)
        yield _gauge("rota_runs_active", "Runs that are not final.", self._counts.runs)
        yield _gauge("rota_workers", "Worker sessions.", self._counts.sessions)
        ages = GaugeMetricFamily(
            "rota_queue_oldest_age_seconds",
            "How long the oldest queued run waits for a worker.",
            labels=["pool"],
        )
        for pool, queued_at in self._counts.oldest_queued_at.items():
            ages.add_metric([pool], max(0.0, (self._now - queued_at).total_seconds()))
        yield ages
        yield _start_delays(self._counts.start_delays)
        yield from _cart_items(self._carts)
        yield _saturation(self._shortages)


def _gauge(name: str, text: str, values: Mapping[tuple[str, str], int]) -> Metric:
    family = GaugeMetricFamily(name, text, labels=["state", "pool"])
    for labels, value in values.items():
        family.add_metric(labels, value)
    return family


def _start_delays(delays: Mapping[tuple[str, float], tuple[int, float]]) -> Metric:
    """Build the histogram; buckets are cumulative, each has all that is below its bound."""
    text = "Time from release to start of runs that have ended."
    family = HistogramMetricFamily("rota_run_start_delay_seconds", text, labels=["pool"])
    for pool in sorted({pool for pool, _ in delays}):
        total, buckets = 0, []
        for bound in DELAY_BOUNDS:
            total += delays.get((pool, bound), (0, 0.0))[0]
            buckets.append(("+Inf" if isinf(bound) else str(bound), total))
        seconds = sum(seconds for (of, _), (_, seconds) in delays.items() if of == pool)
        family.add_metric([pool], buckets, seconds)
    return family


def _finished(finished: Mapping[tuple[str, str], int]) -> Iterator[Metric]:
    """Count ends by job and state; leave out the job if that makes too many series, and say so."""
    is_cut = len(finished) > MAX_JOB_SERIES
    sums: Sums[tuple[str, str]] = Sums()
    for (job, state), count in finished.items():
        sums["" if is_cut else job, state] += count
    runs = CounterMetricFamily("rota_runs", "Runs that ended.", labels=["job", "state"])
    for labels, count in sums.items():
        runs.add_metric(labels, count)
    yield runs
    text = f"1 while there are more than {MAX_JOB_SERIES} series by job, so that none is told."
    yield GaugeMetricFamily("rota_job_label_dropped", text, value=is_cut)


def _cart_items(carts: Sequence[Cart]) -> Iterator[Metric]:
    """Count items of carts that have not ended; of too many carts, the newest only, and say so.

    Such carts have names of their own, so they are labelled by name, which outlives a submission.
    """
    text = "Items of carts that have not ended; those that timed out count as FAILED."
    family = GaugeMetricFamily("rota_cart_items", text, labels=["cart", "state"])
    for cart in carts[:MAX_CARTS]:
        for state, count in _states(cart).items():
            family.add_metric([cart.name, state], count)
    yield family
    text = f"1 while there are more than {MAX_CARTS} such carts, so that only the newest are told."
    yield GaugeMetricFamily("rota_cart_label_dropped", text, value=len(carts) > MAX_CARTS)


def _saturation(shortages: Mapping[str, float]) -> Metric:
    text = "Time until runs are going to wait for it, as predicted for the next hour; 0: they do."
    name = "rota_forecast_saturation_seconds_ahead"
    family = GaugeMetricFamily(name, text, labels=["resource"])
    for resource, seconds in shortages.items():
        family.add_metric([resource], seconds)
    return family


def _states(cart: Cart) -> Mapping[ItemState, int]:
    return {
        ItemState.PENDING: cart.pending,
        ItemState.OPEN: cart.open,
        ItemState.COMPLETED: cart.completed,
        ItemState.FAILED: cart.failed,
        ItemState.CANCELLED: cart.cancelled,
        ItemState.SKIPPED: cart.skipped,
    }


def render(present: Present, requests: Requests) -> bytes:
    """Render all metrics in the text format."""
    snapshot = CollectorRegistry()
    snapshot.register(_Snapshot(present))
    return generate_latest(snapshot) + generate_latest(requests.registry)
