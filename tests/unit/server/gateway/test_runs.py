from __future__ import annotations

from typing import Any

import pytest

from rota.ports.records import Role
from tests.unit.server.gateway.served import Served, job

pytestmark = pytest.mark.anyio


async def test_a_finished_run_is_shown_with_its_attempts(served: Served) -> None:
    await served.apply(job())
    run_id = await served.run_through()

    run = (await served.get(f"runs/{run_id}", Role.VIEWER)).json()

    assert run["state"] == "COMPLETED"
    assert run["duration_seconds"] == 0
    [attempt] = run["attempts"]
    assert (attempt["number"], attempt["worker"], attempt["result"]) == (
        1,
        "worker-1",
        "COMPLETED",
    )
    assert attempt["output"] == {"state": "none", "bytes": 0, "lines": 0, "truncated": False}
    assert run["late_results"] == []
    assert "session" not in run


async def test_a_run_is_found_by_a_beginning_only_it_has(served: Served) -> None:
    await served.apply(job())
    run = await served.trigger()

    answer = await served.get(f"runs/{run['id'][:-3]}")

    assert answer.json()["id"] == run["id"]


async def test_a_beginning_of_several_runs_is_refused(served: Served) -> None:
    await served.apply(job())
    await served.trigger()
    await served.trigger()

    answer = await served.get("runs/r_")

    assert answer.status_code == 409
    assert answer.json()["code"] == "ambiguous_id"


async def test_an_unknown_run_is_not_found(served: Served) -> None:
    answer = await served.get("runs/r_nothing")

    assert answer.status_code == 404
    assert answer.json()["code"] == "run_not_found"


class TestPoolWithoutWorkers:
    """To whoever looks its runs are blocked, and as soon as there is a worker they are queued."""

    async def looks(self, served: Served, run: str) -> list[Any]:
        """The run wherever it is shown."""
        [listed] = (await served.get("runs")).json()["items"]
        [of_job] = (await served.get("jobs/alone/runs")).json()["items"]
        status = (await served.get("job_status/alone")).json()
        last = status["last_run"]
        assert status["job"]["last_state"] == last["state"]
        shown = (await served.get(f"runs/{run}")).json()
        told = (await served.get(f"runs/{run}/why")).json()
        return [listed, of_job, last, shown, told]

    async def test_its_runs_are_blocked_wherever_they_are_shown(self, served: Served) -> None:
        await served.apply(job("alone"))
        run = await served.trigger("alone")

        looks = [run, *await self.looks(served, run["id"])]

        assert {each["state"] for each in looks} == {"BLOCKED"}
        assert {each["reasons"][0]["key"] for each in looks} == {"no_worker:default"}
        assert {each["waiting"] for each in looks[:-1]} == {"no worker serves pool default"}
        assert looks[-1]["summary"] == "blocked: no worker serves pool default"

    async def test_they_are_queued_as_soon_as_it_has_one(self, served: Served) -> None:
        await served.apply(job("alone"))
        run = await served.trigger("alone")

        await served.worker("one")

        assert {each["state"] for each in await self.looks(served, run["id"])} == {"QUEUED"}

    async def test_they_are_found_by_the_state_that_they_are_shown_in(self, served: Served) -> None:
        await served.apply(job("alone"), job("elsewhere", pool="other"))
        here, there = await served.trigger("alone"), await served.trigger("elsewhere")
        await served.worker("one", pool="other")

        blocked = (await served.get("runs", params={"state": "blocked"})).json()["items"]
        queued = (await served.get("runs", params={"where": "state:queued"})).json()["items"]

        assert [each["id"] for each in blocked] == [here["id"]]
        assert [each["id"] for each in queued] == [there["id"]]

    async def test_it_is_so_too_with_another_priority_and_for_a_retry(self, served: Served) -> None:
        await served.apply(job("alone"))
        run = await served.trigger("alone")

        moved = (await served.post(f"runs/{run['id']}:reprioritise", json={"priority": 9})).json()
        await served.post(f"runs/{run['id']}:cancel")
        again = (await served.post(f"runs/{run['id']}:retry")).json()

        assert [each["state"] for each in (moved, again)] == ["BLOCKED", "BLOCKED"]


async def test_runs_are_filtered_by_words_and_by_single_terms(served: Served) -> None:
    await served.apply(job("nightly-a"), job("nightly-b"), job("other"))
    done = await served.run_through("nightly-a")
    waiting = (await served.trigger("nightly-b"))["id"]
    await served.trigger("other")

    async def found(**params: str) -> list[str]:
        answer = await served.get("runs", params=params)
        return [run["id"] for run in answer.json()["items"]]

    assert await found(where="job:nightly-*") == [waiting, done]
    assert await found(where="job:nightly-* state:completed") == [done]
    assert await found(where="job:nightly-*", active="true") == [waiting]
    assert await found(where="job:nightly-*", state="Queued,completed") == [waiting, done]
    assert await found(where="state:completed", active="true") == []
    assert await found(since="1h", until="2099-01-01T00:00:00Z", job="nightly-a") == [done]
    assert await found(until="1h") == []
    assert await found(trigger="schedule") == []


async def test_runs_are_listed_in_parts(served: Served) -> None:
    await served.apply(job())
    made = [(await served.trigger())["id"] for _ in range(5)]

    first = (await served.get("runs", params={"limit": "3"})).json()
    cursor = first["next_cursor"]
    second = (await served.get("runs", params={"limit": "3", "cursor": cursor})).json()

    assert [run["id"] for run in first["items"] + second["items"]] == made[::-1]
    assert second["next_cursor"] is None


async def test_an_unknown_filter_is_refused_with_the_nearest(served: Served) -> None:
    answer = await served.get("runs", params={"where": "stat:failed"})

    assert answer.status_code == 400
    [error] = answer.json()["errors"]
    assert "state" in error["hint"]


async def test_why_names_the_gate_and_what_to_do(served: Served) -> None:
    await served.apply(job())
    run = await served.trigger()

    answer = (await served.get(f"runs/{run['id']}/why")).json()

    assert answer["state"] == "BLOCKED"
    assert answer["reasons"][0]["gate"] == "worker"
    assert answer["reasons"][0]["action"] == "rota worker list"
    assert "pause" in answer["passed"]


async def test_why_counts_no_slots_of_workers_that_drain(served: Served) -> None:
    await served.apply(job())
    run = await served.trigger()
    await served.worker("one")
    await served.worker("two")
    before = await reason(served, run)
    await served.post("workers/one/drain")
    with_one = await reason(served, run)
    await served.post("workers/two/drain")
    with_none = await reason(served, run)
    await served.post("workers/one/resume")

    assert before["message"] == "0 of 200 slots are taken"
    assert with_one["message"] == "0 of 100 slots are taken"
    assert with_none["message"] == "all workers that fit are draining: one, two"
    assert with_none["action"] == "rota worker resume one"
    assert await reason(served, run) == with_one


async def test_why_names_the_only_worker_when_it_drains(served: Served) -> None:
    await served.apply(job())
    run = await served.trigger()
    await served.worker("only")
    await served.post("workers/only/drain")

    assert (await reason(served, run))["message"] == "worker only is draining"


async def reason(served: Served, run: dict[str, Any]) -> dict[str, Any]:
    """Why a run waits."""
    [found] = (await served.get(f"runs/{run['id']}/why")).json()["reasons"]
    return dict(found)


async def test_a_blocked_run_says_what_it_waits_for(served: Served) -> None:
    await served.apply(job(max_concurrency=1))
    await served.trigger()

    second = await served.trigger()

    assert second["state"] == "BLOCKED"
    assert second["waiting"] == second["reasons"][0]["message"]


async def test_the_events_of_a_run_name_only_it(served: Served) -> None:
    await served.apply(job())
    body: dict[str, object] = {"inputs": [{}, {}]}
    first, _ = (await served.post("jobs/tidy/runs:batch", json=body)).json()["runs"]

    answer = (await served.get(f"runs/{first}/events")).json()

    assert answer["items"]
    assert {tuple(event["data"]["ids"]) for event in answer["items"]} == {(first,)}
    assert {tuple(event["data"]["names"]) for event in answer["items"]} == {("tidy",)}
    assert all(event["type"].startswith("rota.run.") for event in answer["items"])


async def test_events_name_the_jobs_of_their_runs(served: Served) -> None:
    await served.apply(job())
    await served.trigger()

    events = (await served.get("events")).json()["items"]

    named = {event["type"]: event["data"]["names"] for event in events}
    assert named["rota.job.created"] == named["rota.run.queued"] == ["tidy"]


async def test_a_waiting_run_is_cancelled(served: Served) -> None:
    await served.apply(job())
    run = await served.trigger()

    answer = await served.post(f"runs/{run['id']}:cancel", Role.OPERATOR)

    assert answer.json()["state"] == "CANCELLED"


async def test_a_run_that_has_ended_is_not_cancelled(served: Served) -> None:
    await served.apply(job())
    run_id = await served.run_through()

    answer = await served.post(f"runs/{run_id}:cancel")

    assert answer.status_code == 409
    assert answer.json()["code"] == "run_is_final"


async def test_a_retry_is_a_new_run(served: Served) -> None:
    await served.apply(job())
    run_id = await served.run_through()

    answer = await served.post(f"runs/{run_id}:retry", Role.OPERATOR)

    assert answer.status_code == 202
    assert answer.json()["retry_of"] == run_id
    assert answer.headers["location"] == f"/api/v1/runs/{answer.json()['id']}"


async def test_an_unknown_run_is_resolved_by_a_person(served: Served) -> None:
    await served.apply(job(delivery="at_most_once"))
    run = await served.trigger()
    worker = await served.worker()
    await worker.claim()
    await served.backends.store.end_session(worker.session)
    assert (await served.get(f"runs/{run['id']}")).json()["state"] == "UNKNOWN"

    answer = await served.post(f"runs/{run['id']}:resolve", json={"as": "failed"})

    assert answer.json()["state"] == "FAILED"


@pytest.mark.parametrize("body", [{"as": "maybe"}, {}, {"as": "failed", "also": 1}])
async def test_a_wrong_resolution_is_refused(served: Served, body: dict[str, object]) -> None:
    await served.apply(job())
    run = await served.trigger()

    answer = await served.post(f"runs/{run['id']}:resolve", json=body)

    assert answer.status_code == 422
