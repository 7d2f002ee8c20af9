from __future__ import annotations

import pytest

from rota.operations import workers
from tests.unit.server.gateway.served import Served, job

pytestmark = pytest.mark.anyio


async def test_a_held_run_is_not_claimed_until_it_is_released(served: Served) -> None:
    await served.apply(job())
    run = (await served.trigger())["id"]
    worker = await served.worker()

    held = (await served.post(f"runs/{run}:hold")).json()
    while_held = await worker.claim()
    released = await served.post(f"runs/{run}:release")

    assert (held["state"], held["reasons"][0]["gate"]) == ("BLOCKED", "hold")
    assert while_held == []
    assert released.json()["state"] in {"SCHEDULED", "QUEUED"}
    assert released.json()["reasons"] == []


async def test_a_run_that_waits_gets_another_priority(served: Served) -> None:
    await served.apply(job(max_concurrency=9))
    await served.trigger()
    second = (await served.trigger())["id"]

    moved = await served.post(f"runs/{second}:reprioritise", json={"priority": 9})

    assert (moved.status_code, moved.json()["priority"]) == (200, 9)
    session = (await served.worker()).session
    claimed = await workers.claim(served.backends, session, 1)
    assert [work.run for work in claimed.works] == [second]


@pytest.mark.parametrize(
    ("verb", "body"), [("hold", None), ("release", None), ("reprioritise", {"priority": 1})]
)
async def test_a_run_that_has_ended_is_not_steered(served: Served, verb: str, body: object) -> None:
    await served.apply(job())
    run = await served.run_through()

    answer = await served.post(f"runs/{run}:{verb}", json=body)

    assert answer.status_code == 409


async def test_there_are_ten_priorities(served: Served) -> None:
    await served.apply(job())
    run = (await served.trigger())["id"]

    answer = await served.post(f"runs/{run}:reprioritise", json={"priority": 10})

    assert answer.status_code == 422
    assert [error["path"] for error in answer.json()["errors"]] == ["priority"]
