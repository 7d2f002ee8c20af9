"""What was forecast, held against what real processes then did."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from tests.system.conftest import Up
from tests.system.jobs import apply, job, settle

from rota.sdk import calls
from rota.sdk.answers import Run
from rota.sdk.client import Client
from rota.testing.waiting import eventually

SECOND = timedelta(seconds=1)
AHEAD = 20 * SECOND
TICKS = ["tick-1", "tick-2", "tick-3"]
TRIGGERED = {"batch": 10, "slow": 2}
ITEM = "item"
JOBS = (
    *(job(name, "sleep 0.4", schedule="every 5s", priority=9) for name in TICKS),
    job("batch", "sleep 1"),
    job("slow", "sleep 3", priority=3),
    job(ITEM, "sleep 1", priority=7),
)


def test_nine_of_ten_starts_come_when_they_were_predicted(up: Up) -> None:
    client = up(slots="2").client
    apply(client, *JOBS)
    for name in (*TRIGGERED, ITEM):
        settle(client, client.trigger(name))  # so that it is known how long it takes
    begin(client)

    predicted = {name: list(predictions(client, name)) for name in (*TICKS, *TRIGGERED, ITEM)}

    assert sum(map(len, predicted.values())) >= 25
    came = {name: eventually_started(client, name, starts) for name, starts in predicted.items()}
    errors = [
        (abs(actual - expected), max(2 * SECOND, (actual - made_at) / 10))
        for name, starts in predicted.items()
        for (made_at, expected), actual in zip(starts, came[name], strict=True)
    ]
    near = sum(error <= tolerance for error, tolerance in errors)
    assert near >= 0.9 * len(errors), sorted(error for error, _ in errors)


def begin(client: Client) -> None:
    """A backlog and a cart, beside what schedules do."""
    for name, count in TRIGGERED.items():
        client.trigger_many(name, [{}] * count)
    items = [{"key": str(number)} for number in range(3)]
    client.submit_cart({"name": "rollout", "job": ITEM}, items)


def predictions(client: Client, name: str) -> Iterator[tuple[datetime, datetime]]:
    """When the forecast was made, and when it has a run of the job start, in order."""
    forecast = client.forecast(AHEAD, job=name)
    for run in forecast.runs:
        if run.start_at is not None:
            yield forecast.made_at, run.start_at


def eventually_started(
    client: Client, name: str, starts: list[tuple[datetime, datetime]]
) -> list[datetime]:
    """When as many runs of the job really started, from then on."""
    since = starts[0][0]

    def found() -> list[datetime]:
        runs: list[Run] = list(client.each(calls.list_runs(job=name)))
        began = [run.first_started_at for run in runs if run.first_started_at is not None]
        later = sorted(at for at in began if at >= since)
        assert len(later) >= len(starts)
        return later[: len(starts)]

    return eventually(found, within=2 * AHEAD)
