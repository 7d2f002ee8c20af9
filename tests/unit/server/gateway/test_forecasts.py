from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import pytest
from anyio.lowlevel import checkpoint

from rota.domain.access import Role
from rota.operations.forecasts import predict_starts
from rota.server.gateway import forecasts
from tests.unit.server.gateway.served import Served, job

pytestmark = pytest.mark.anyio


async def test_the_time_ahead_is_told_with_load_and_jobs(served: Served) -> None:
    await served.worker()
    await served.apply(job("often", schedule="every 10m", expect="2m"), job("never"))

    answer = (await served.get("forecast", params={"for": "55m", "buckets": 6})).json()

    [often] = answer["jobs"]
    assert (often["job"], often["starts"], often["waits_for"]) == ("often", 5, "")
    assert often["expected"]["source"] == "expect"
    assert often["expected"]["usual_seconds"] == 120
    assert often["first_start_at"] == often["first_due_at"]
    assert (answer["starts"], answer["cut"], answer["runs"]) == (5, False, [])
    assert answer["load"]["peak"]["amount"] == 1
    assert [bucket["peak"] for bucket in answer["load"]["buckets"]].count(1) >= 5
    assert answer["load"]["measures"][0] == "slots"
    assert answer["accuracy"] is None


async def test_without_a_worker_everything_waits_for_one(served: Served) -> None:
    await served.apply(job("often", schedule="every 10m", overlap="allow"))

    answer = (await served.get("forecast", params={"for": "55m", "job": "often"})).json()

    [short] = answer["saturations"]
    assert (short["what"], short["waiting"], short["jobs"]) == ("worker:default", 5, ["often"])
    assert {(run["start_at"], run["wait_seconds"]) for run in answer["runs"]} == {(None, None)}
    assert answer["jobs"][0]["unplaced"] == short["unplaced"] == 5


async def test_a_job_that_is_not_there_is_told(served: Served) -> None:
    await served.apply(job("often", schedule="every 10m"))

    answer = await served.get("forecast", params={"job": "oftn"})

    assert answer.status_code == 404
    assert answer.json()["hint"] == 'did you mean "often"?'


async def test_what_was_predicted_to_run_out_is_a_metric(served: Served) -> None:
    await served.apply(job("often", schedule="every 10m", overlap="allow"))
    name = "rota_forecast_saturation_seconds_ahead{"
    before = (await served.get("/metrics")).text

    await predict_starts(served.engine, timedelta(hours=1), timedelta(days=1))

    after = (await served.get("/metrics")).text
    [(label, seconds)] = [line.split() for line in after.splitlines() if line.startswith(name)]
    assert name not in before  # nothing is predicted for it
    assert label == f'{name}resource="worker:default"}}'
    assert 0 < float(seconds) <= 600


async def test_a_part_of_the_time_ahead_can_be_asked_for(served: Served) -> None:
    await served.apply(job("often", schedule="every 10m", overlap="allow"))
    begin = await served.engine.store.now() + timedelta(hours=2)

    window = {"from": begin.isoformat(), "to": (begin + timedelta(hours=1)).isoformat()}
    answer = (await served.get("forecast", params={**window, "job": "often"})).json()

    assert answer["starts"] == 6
    assert all(datetime.fromisoformat(run["due_at"]) >= begin for run in answer["runs"])


@pytest.mark.parametrize(
    ("params", "path"),
    [
        ({"for": "never"}, "for"),
        ({"measure": "gpus"}, "measure"),
        ({"to": "2020-01-01T00:00Z"}, "to"),
        ({"from": "soon"}, "from"),
        ({"buckets": "0"}, "buckets"),
    ],
)
async def test_what_cannot_be_answered_is_refused_by_name(
    served: Served, params: dict[str, str], path: str
) -> None:
    answer = await served.get("forecast", params=params)

    assert answer.status_code in (400, 422)
    assert path in answer.json()["errors"][0]["path"]


async def test_before_and_after_a_change_are_told(served: Served) -> None:
    await served.worker()
    await served.apply(job("often", schedule="every 10m", expect="2m"), job("other"))

    body = {"for": "55m", "add_workers": {"default": 1}, "move": {"other": "every 5m"}}
    answer = (await served.post("simulations", json=body)).json()

    before, after = answer["before"], answer["after"]
    assert (before["workers"], after["workers"]) == (1, 2)
    assert {each["name"]: each["waits"]["runs"] for each in before["jobs"]} == {"often": 5}
    assert {each["name"]: each["waits"]["runs"] for each in after["jobs"]} == {
        "often": 5,
        "other": 10,
    }


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"for": "long"}, 422),
        ({"for": "8d"}, 422),
        ({"add_workers": {"default": 0}}, 422),
        ({"add_workers": {"gpu": 1}}, 409),
        ({"without": ["nobody"]}, 404),
        ({"fro": "1h"}, 422),
    ],
)
async def test_what_cannot_be_is_refused(served: Served, body: dict[str, Any], status: int) -> None:
    assert (await served.post("simulations", json=body)).status_code == status


@dataclass
class Slow:
    """A look ahead that takes until it is let go, and how many there are at once."""

    real: Callable[..., Awaitable[Any]]
    call: tuple[str, str]  # by which callers ask for it
    going: int = 0
    most: int = 0
    done: asyncio.Event = field(default_factory=asyncio.Event)

    async def __call__(self, *args: Any) -> Any:
        self.going += 1
        self.most = max(self.most, self.going)
        try:
            await self.done.wait()
            return await self.real(*args)
        finally:
            self.going -= 1


CALLS = {
    "look_ahead": ("GET", "/api/v1/forecast"),
    "simulate_change": ("POST", "/api/v1/simulations"),
}


@pytest.fixture(params=CALLS)
def slow(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Slow:
    slow = Slow(getattr(forecasts, request.param), CALLS[request.param])
    monkeypatch.setattr(forecasts, request.param, slow)
    return slow


async def asked_at_once(served: Served, slow: Slow, callers: Sequence[Role]) -> list[int]:
    """What so many requests are answered that are sent together, sorted."""
    method, path = slow.call
    clients = [await served.client(role) for role in callers]
    body: dict[str, Any] = {"json": {}} if method == "POST" else {}
    asked = [asyncio.create_task(each.request(method, path, **body)) for each in clients]
    for _ in range(100):  # all of them get as far as they can
        await checkpoint()
    slow.done.set()
    return sorted([(await each).status_code for each in asked])


async def test_a_caller_looks_ahead_once_at_a_time_and_few_wait(served: Served, slow: Slow) -> None:
    answers = await asked_at_once(served, slow, [Role.VIEWER] * 8)

    assert (answers, slow.most) == ([200] * 5 + [429] * 3, 1)
    assert await asked_at_once(served, slow, [Role.VIEWER]) == [200]


async def test_two_callers_look_ahead_at_a_time_and_the_others_wait(
    served: Served, slow: Slow
) -> None:
    answers = await asked_at_once(served, slow, [*Role])

    assert (answers, slow.most) == ([200] * 4, 2)
