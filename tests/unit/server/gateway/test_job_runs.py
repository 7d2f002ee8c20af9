from __future__ import annotations

from datetime import timedelta

import pytest

from rota.domain.ids import JobId
from rota.domain.states import RunState
from rota.ports.records import JobQuery, Role, ScheduleMove, Unanswered
from tests.unit.server.gateway.served import Served, job

pytestmark = pytest.mark.anyio
GREET = job("greet", inputs={"who": {"type": "string"}, "times": {"type": "integer", "default": 1}})


async def test_triggering_makes_a_run_and_says_where_it_is(served: Served) -> None:
    await served.apply(job())

    answer = await served.post("jobs/tidy/runs", Role.OPERATOR)

    run = answer.json()
    assert answer.status_code == 202
    assert answer.headers["location"] == f"/api/v1/runs/{run['id']}"
    assert (run["state"], run["trigger"], run["created_by"]) == ("BLOCKED", "manual", "operator")
    assert run["url"] == f"/runs/{run['id']}"


async def test_inputs_are_checked_and_kept(served: Served) -> None:
    await served.apply(GREET)

    run = await served.trigger("greet", inputs={"who": "Ada"})

    assert run["inputs"] == {"who": "Ada", "times": 1}


async def test_wrong_inputs_are_all_named(served: Served) -> None:
    await served.apply(GREET)

    answer = await served.post("jobs/greet/runs", json={"inputs": {"times": "often", "where": 1}})

    assert answer.status_code == 422
    assert len(answer.json()["errors"]) == 3


async def test_a_run_for_later_waits(served: Served) -> None:
    await served.apply(job())

    run = await served.trigger(at="2099-01-01T01:00:00+01:00", priority=9)

    assert (run["state"], run["eligible_at"]) == ("SCHEDULED", "2099-01-01T00:00:00Z")
    assert run["priority"] == 9


@pytest.mark.parametrize(
    "body",
    [
        {"priority": 10},
        {"at": "2099-01-01T25:00:00"},
        {"at": "soon"},
        {"input": {}},
        {"inputs": []},
        [],
    ],
)
async def test_a_wrong_request_is_refused(served: Served, body: object) -> None:
    await served.apply(job())

    answer = await served.post("jobs/tidy/runs", json=body)

    assert answer.status_code == 422
    assert answer.json()["errors"]


async def test_the_same_idempotency_key_gives_the_same_run(served: Served) -> None:
    await served.apply(job())
    headers = {"Idempotency-Key": "once"}

    first = await served.post("jobs/tidy/runs", headers=headers)
    second = await served.post("jobs/tidy/runs", headers=headers)

    assert (first.status_code, second.status_code) == (202, 200)
    assert first.json()["id"] == second.json()["id"]
    assert len((await served.get("runs")).json()["items"]) == 1


async def test_the_same_idempotency_key_with_another_body_is_refused(served: Served) -> None:
    await served.apply(job())
    headers = {"Idempotency-Key": "once"}
    await served.post("jobs/tidy/runs", headers=headers)

    answer = await served.post("jobs/tidy/runs", headers=headers, json={"priority": 7})

    assert answer.status_code == 409


async def test_a_disabled_job_is_not_triggered(served: Served) -> None:
    await served.apply(job(enabled=False))

    answer = await served.post("jobs/tidy/runs")

    assert answer.status_code == 409
    assert answer.json()["hint"] == "rota job enable tidy"


async def test_a_batch_makes_one_run_for_each_set_of_inputs(served: Served) -> None:
    await served.apply(GREET)

    answer = await served.post(
        "jobs/greet/runs:batch", json={"inputs": [{"who": "Ada"}, {"who": "Grace"}]}
    )

    assert answer.status_code == 202
    ids = answer.json()["runs"]
    runs = [(await served.get(f"runs/{each}")).json() for each in ids]
    assert [run["inputs"]["who"] for run in runs] == ["Ada", "Grace"]


async def test_a_batch_with_one_wrong_set_makes_no_run(served: Served) -> None:
    await served.apply(GREET)

    answer = await served.post("jobs/greet/runs:batch", json={"inputs": [{"who": "Ada"}, {}]})

    assert answer.status_code == 422
    assert (await served.get("runs")).json()["items"] == []


async def test_a_batch_sent_twice_with_one_key_is_made_once(served: Served) -> None:
    await served.apply(GREET)
    body = {"inputs": [{"who": "Ada"}, {"who": "Grace"}]}
    headers = {"Idempotency-Key": "once"}

    first = await served.post("jobs/greet/runs:batch", json=body, headers=headers)
    second = await served.post("jobs/greet/runs:batch", json=body, headers=headers)

    assert (first.status_code, second.status_code) == (202, 200)
    assert first.json() == second.json()
    assert len((await served.get("runs")).json()["items"]) == 2


@pytest.mark.parametrize("count", [0, 10_001])
async def test_a_batch_has_a_size(served: Served, count: int) -> None:
    await served.apply(job())

    answer = await served.post("jobs/tidy/runs:batch", json={"inputs": [{}] * count})

    assert answer.status_code == 422


async def test_history_is_newest_first_and_in_parts(served: Served) -> None:
    await served.apply(job(), job("other"))
    made = [(await served.trigger())["id"] for _ in range(3)]
    await served.trigger("other")

    first = (await served.get("jobs/tidy/runs", params={"limit": "2"})).json()
    second = (
        await served.get("jobs/tidy/runs", params={"limit": "2", "cursor": first["next_cursor"]})
    ).json()

    assert [run["id"] for run in first["items"] + second["items"]] == made[::-1]
    assert second["next_cursor"] is None


async def test_the_ledger_answers_for_every_due_time_in_parts_the_newest_first(
    served: Served,
) -> None:
    plan = await served.apply(job(schedule="0 2 * * *"))
    await _hold(served, plan["changes"][0]["job_id"], stretches=5)

    first = (await served.get("jobs/tidy/ledger", params={"limit": "3"})).json()
    second = (
        await served.get("jobs/tidy/ledger", params={"limit": "3", "cursor": first["next_cursor"]})
    ).json()

    entries = first["items"] + second["items"]
    assert [entry["count"] for entry in entries] == [5, 4, 3, 2, 1]
    assert {(entry["state"], entry["cause"], entry["run"]) for entry in entries} == {
        ("SKIPPED", "paused", None)
    }
    assert second["next_cursor"] is None


async def _hold(served: Served, job_id: str, stretches: int) -> None:
    """Pauses that left stretches of 1, 2, 3 … due times without a run."""
    [known] = await served.backends.store.jobs(JobQuery(ids=[JobId(job_id)]))
    start = known.anchor - timedelta(days=100)
    move = ScheduleMove(
        kind="resumed",
        job_id=known.id,
        expected_schedule_version=known.schedule_version,
        expected_next_at=known.next_at,
        enabled=True,
        paused=False,
        next_at=known.next_at,
        held_from=None,
        unanswered=[
            Unanswered(
                start + timedelta(days=10 * n),
                start + timedelta(days=10 * n + n),
                n + 1,
                RunState.SKIPPED,
                "paused",
            )
            for n in range(stretches)
        ],
    )
    await served.backends.store.move_schedules([move], actor="test")
