"""What was forecast, held against what real processes then did."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

import pytest

from rota.api.forecasts import ForecastStart
from rota.sdk.client import Client
from testkit.waiting import eventually
from tests.system.conftest import Up
from tests.system.jobs import apply, job, runs_of, settle

pytestmark = [pytest.mark.campaign, pytest.mark.timeout(180)]

SECOND = timedelta(seconds=1)
AHEAD = 20 * SECOND
TICKS = [f"tick-{number}" for number in range(5)]
DUE = 3 * len(TICKS)  # starts: each of them is due four times, the last perhaps too late
BACKLOG = {"call": 6, "licensed": 3, "slow": 2, "batch": 12, "big": 1}
ITEM, FLAKY = "item", "flaky"
JOBS = (
    *(job(name, "sleep 0.4", schedule="every 5s", priority=9) for name in TICKS),
    job("batch", "sleep 1", resources={"memory": "2GiB"}),
    job("big", "sleep 2", resources={"memory": "8GiB"}),  # all that the worker has
    job("call", "true", rate_limits=["api"]),
    job("licensed", "sleep 1", resources={"licence": 1}),
    job("slow", "sleep 3", priority=3),
    job(ITEM, "sleep 1", priority=7),
    job(FLAKY, '[ "$ROTA_ATTEMPT" = 2 ]', retry={"attempts": 2, "delay": "12s"}),
)


def test_nine_of_ten_starts_come_when_they_were_predicted(up: Up) -> None:
    """Schedules, a backlog, a cart, limits, a run that needs the whole worker, and retries."""
    client = up(slots="4", resources="cpu=64,memory=8GiB", worker_name="only").client
    client.put_limit("api", tokens=1, per=2 * SECOND, burst=1)
    client.put_resource("licence", total=1)
    apply(client, *JOBS)
    for name in (*BACKLOG, ITEM):
        settle(client, client.trigger(name))  # so that it is known how long it takes
    begin(client)

    made_at, predicted = foretold(client)

    assert sum(len(predicted[name]) for name in TICKS) >= DUE
    begun = [name for name, starts in predicted.items() if not starts]
    assert len(begun) <= 2, begun  # all that there were of these, before the forecast was made
    assert sum(len(predicted[name]) for name in BACKLOG) >= sum(BACKLOG.values()) / 2
    told = [
        (name, (start - made_at) / SECOND, (actual - made_at) / SECOND)
        for name, starts in predicted.items()
        for start, actual in came(client, name, starts, made_at)
    ]
    missed = [each for each in told if abs(each[2] - each[1]) > max(2, each[2] / 10)]
    assert len(missed) <= len(told) / 10, missed


def begin(client: Client) -> None:
    """What has failed and waits for another attempt, a backlog and a cart."""
    client.trigger_many(FLAKY, [{}] * 2)
    eventually(lambda: [run.failures for run in runs_of(client, FLAKY)] == [1, 1])
    client.drain_worker("only")
    for name, count in BACKLOG.items():
        client.trigger_many(name, [{}] * count)
    items = [{"key": str(number)} for number in range(3)]
    client.submit_cart({"name": "rollout", "job": ITEM}, items)
    client.resume_worker("only")


def foretold(client: Client) -> tuple[datetime, Mapping[str, list[ForecastStart]]]:
    """When the forecast was made, and the starts of each job that it has in the time ahead."""
    names = (*BACKLOG, ITEM, FLAKY, *TICKS)  # those first that might all begin meanwhile
    made = {name: client.forecast(AHEAD, job=name) for name in names}
    starts = {name: [run for run in made[name].runs if run.start_at] for name in names}
    return min(forecast.made_at for forecast in made.values()), starts


def came(
    client: Client, name: str, predicted: list[ForecastStart], since: datetime
) -> list[tuple[datetime, datetime]]:
    """When runs of a job were to start, and when they did: the new ones in their order."""

    def found() -> list[datetime]:
        runs = runs_of(client, name)
        starts = {run.id: run.started_at for run in runs if run.started_at}
        began = {run: at for run, at in starts.items() if at >= since}
        assert began.keys() >= {each.run for each in predicted if each.run}
        known = [began.pop(each.run) for each in predicted if each.run]
        new = sorted(began.values())
        assert len(known) + len(new) >= len(predicted)
        return known + new

    ordered = sorted(predicted, key=lambda each: each.run is None)
    starts = [each.start_at for each in ordered if each.start_at]
    actual = eventually(found, within=2 * AHEAD)[: len(starts)]
    return list(zip(starts, actual, strict=True))
