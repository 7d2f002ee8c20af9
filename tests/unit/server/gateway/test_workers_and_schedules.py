from __future__ import annotations

import pytest

from tests.unit.server.gateway.served import Served, job

pytestmark = pytest.mark.anyio


async def test_workers_are_listed_with_what_they_hold(served: Served) -> None:
    await served.apply(job())
    await served.trigger()
    await (await served.worker("busy")).claim()
    gone = await served.worker("gone")
    await served.backends.store.end_session(gone.session)

    alive = (await served.get("workers")).json()["items"]
    every = (await served.get("workers", params={"all": "true"})).json()["items"]

    assert [(each["worker"], each["state"], each["running"]) for each in alive] == [
        ("busy", "alive", 1)
    ]
    assert alive[0]["lease"] == "30s"
    assert {(each["worker"], each["state"]) for each in every} == {
        ("busy", "alive"),
        ("gone", "gone"),
    }


async def test_a_worker_is_shown_with_what_it_offers_and_what_is_in_use(served: Served) -> None:
    worker = await served.worker(resources={"cpu": 4_000, "memory": 8 * 1024**3 * 1_000})
    await served.apply(job(resources={"cpu": 1.5, "memory": "512MiB"}))
    await served.trigger()
    await worker.claim()

    [shown] = (await served.get("workers")).json()["items"]

    assert shown["resources"] == {"cpu": "4", "memory": "8GiB"}
    assert shown["used"] == {"cpu": "1.5", "memory": "512MiB"}


async def test_a_schedule_is_previewed_in_words_and_times_of_its_zone(served: Served) -> None:
    params = {
        "expression": "30 2 * * *",
        "timezone": "Europe/Berlin",
        "from": "2027-03-26T12:00:00Z",
        "count": "3",
    }

    answer = (await served.get("schedule/preview", params=params)).json()

    assert answer["words"] == "every day at 02:30, Europe/Berlin"
    assert answer["kinds"] == ["fixed"]
    assert answer["next"] == [
        "2027-03-27T02:30:00+01:00",
        "2027-03-28T03:00:00+02:00",
        "2027-03-29T02:30:00+02:00",
    ]
    change = answer["clock_changes"][0]
    assert change["at"] == "2027-03-28T01:00:00Z"
    assert "does not exist" in change["text"]


async def test_several_expressions_are_previewed_together(served: Served) -> None:
    params = [
        ("expression", "0 2 * * *"),
        ("expression", "0 2 * *"),
        ("from", "2027-01-01T00:30:00Z"),
        ("count", "3"),
    ]

    answer = (await served.get("schedule/preview", params=params)).json()

    assert answer["next"] == [
        "2027-01-01T01:02:00Z",
        "2027-01-01T02:00:00Z",
        "2027-01-01T02:02:00Z",
    ]
    assert "4 fields" in answer["warnings"][0]["message"]


@pytest.mark.parametrize(
    "params",
    [
        {"expression": "0 0 30 2 *"},
        {"expression": "0 25 * * *"},
        {"expression": "@daily", "timezone": "../../etc/passwd"},
        {"expression": ""},
    ],
)
async def test_an_impossible_schedule_is_refused(served: Served, params: dict[str, str]) -> None:
    answer = await served.get("schedule/preview", params=params)

    assert answer.status_code == 422
    assert answer.json()["errors"]
