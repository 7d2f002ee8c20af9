from __future__ import annotations

import pytest

from rota.domain.access import Role
from rota.ports.queue import EVENTS
from rota.server.gateway import events
from tests.unit.server.gateway.served import Served, job
from tests.unit.server.gateway.streaming import streaming

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("path", ["runs/{run}/log/stream", "runs/{run}/stream", "events/stream"])
async def test_a_foreign_event_id_is_refused(served: Served, path: str) -> None:
    await served.apply(job())
    run_id = await served.run_through()

    answer = await served.get(path.format(run=run_id), headers={"Last-Event-ID": "x-1"})

    assert answer.status_code == 400


async def test_events_are_cloud_events_in_order(served: Served) -> None:
    await served.apply(job())
    run = await served.trigger()

    part = (await served.get("events", params={"limit": "1000"})).json()

    kinds = [event["type"] for event in part["items"]]
    assert kinds.index("rota.job.created") < kinds.index("rota.run.queued")
    event = next(each for each in part["items"] if each["type"] == "rota.run.queued")
    assert event["specversion"] == "1.0"
    assert event["source"] == "http://127.0.0.1:7700"
    assert (event["subject"], event["data"]["ids"]) == (run["id"], [run["id"]])
    assert event["time"].endswith("Z")


async def test_events_are_listed_in_parts(served: Served) -> None:
    await served.apply(job())
    for _ in range(3):
        await served.trigger()
    every = (await served.get("events")).json()["items"]

    first = (await served.get("events", params={"limit": "2"})).json()
    second = (await served.get("events", params={"cursor": first["next_cursor"]})).json()
    after = (await served.get("events", params={"after": first["items"][-1]["id"]})).json()

    assert first["items"] + second["items"] == every
    assert after["items"] == second["items"]


async def test_events_are_streamed_as_they_happen_and_from_where_one_left_off(
    served: Served,
) -> None:
    await served.apply(job())
    before = (await served.get("events")).json()["items"][-1]["id"]

    async with streaming(served, "events/stream", {"Last-Event-ID": before}) as stream:
        await stream.started()
        run = await served.trigger()
        event = await stream.event()

    assert event["id"] == event["data"]["id"]
    assert int(event["id"]) > int(before)
    assert run["id"] in event["data"]["data"]["ids"]


async def test_a_stream_without_a_position_tells_only_what_is_to_come(served: Served) -> None:
    await served.apply(job())

    async with streaming(served, "events/stream") as stream:
        await stream.started()
        served.engine.queue.announce(EVENTS)
        run = await served.trigger()
        event = await stream.event()

    assert event["data"]["data"]["ids"] == [run["id"]]


async def test_a_stream_ends_when_its_token_is_revoked(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "_RECHECK_SECONDS", 0.0)
    listed = (await served.get("tokens")).json()["items"]
    [viewer] = [token["id"] for token in listed if token["role"] == Role.VIEWER]

    async with streaming(served, "events/stream") as stream:
        await stream.started()
        await served.delete(f"tokens/{viewer}")
        served.engine.queue.announce(EVENTS)
        ended = await stream.ended()

    assert ended


async def test_nobody_listens_once_a_caller_has_left(served: Served) -> None:
    await served.apply(job())
    async with streaming(served, "events/stream", after=0) as stream:
        await stream.event()
        assert served.engine.queue.watched(EVENTS)

    assert not served.engine.queue.watched(EVENTS)
