from __future__ import annotations

import pytest

from rota.domain.access import Role
from tests.unit.server.gateway.served import YAML, Served, job, job_file

pytestmark = pytest.mark.anyio


async def test_submitting_a_job_without_a_schedule_also_runs_it(served: Served) -> None:
    text = job_file(job("now"), job("nightly", schedule="0 2 * * *"))

    answer = await served.post("submit_job", Role.EDITOR, content=text, headers=YAML)

    made = answer.json()
    assert answer.status_code == 201
    assert [(each["name"], each["run"] is not None) for each in made["jobs"]] == [
        ("now", True),
        ("nightly", False),
    ]
    assert made["job_ids"] == [each["id"] for each in made["jobs"]]
    assert made["runs"] == [made["jobs"][0]["run"]]


async def test_submitting_a_disabled_job_runs_nothing(served: Served) -> None:
    text = job_file(job(enabled=False))

    made = (await served.post("submit_job", content=text, headers=YAML)).json()

    assert made["runs"] == []


async def test_a_job_that_follows_another_is_not_started_at_once(served: Served) -> None:
    text = job_file(job("first"), job("second", after=["first"]))

    answer = await served.post("submit_job", content=text, headers=YAML)

    assert [each["run"] is None for each in answer.json()["jobs"]] == [False, True]


async def test_submitting_a_job_that_lacks_inputs_changes_nothing(served: Served) -> None:
    text = job_file(job("fine"), job("greet", inputs={"who": {"type": "string"}}))

    answer = await served.post("submit_job", content=text, headers=YAML)

    assert answer.status_code == 422
    assert answer.json()["errors"][0]["path"] == "jobs[1].inputs"
    assert (await served.get("jobs")).json()["items"] == []


async def test_submitting_twice_with_one_key_runs_once(served: Served) -> None:
    text, headers = job_file(job("a"), job("b")), {**YAML, "Idempotency-Key": "once"}

    first = await served.post("submit_job", content=text, headers=headers)
    second = await served.post("submit_job", content=text, headers=headers)

    assert first.json() == second.json()
    assert len((await served.get("runs")).json()["items"]) == 2


async def test_the_history_of_a_job_by_its_id(served: Served) -> None:
    plan = await served.apply(job())
    run_id = await served.run_through()

    answer = await served.get(f"retrieve_history_execution/{plan['changes'][0]['job_id']}")

    assert [run["id"] for run in answer.json()["items"]] == [run_id]


async def test_the_log_of_the_last_run(served: Served) -> None:
    await served.apply(job())
    await served.run_through(printed=b"old\n")
    run_id = await served.run_through(printed=b"one\ntwo\n")

    log = (await served.get("last_execution_logs/tidy", params={"tail": "1"})).json()

    assert log["run"] == run_id
    assert [line["text"] for line in log["lines"]] == ["two"]


async def test_a_job_that_never_ran_has_no_last_log(served: Served) -> None:
    await served.apply(job())

    answer = await served.get("last_execution_logs/tidy")

    assert (answer.status_code, answer.json()["code"]) == (404, "never_run")


async def test_the_status_of_a_job_has_its_last_run(served: Served) -> None:
    await served.apply(job())
    never = (await served.get("job_status/tidy")).json()
    run_id = await served.run_through()

    status = (await served.get("job_status/tidy")).json()

    assert never["last_run"] is None
    assert (status["job"]["name"], status["job"]["last_state"]) == ("tidy", "COMPLETED")
    assert (status["last_run"]["id"], status["last_run"]["state"]) == (run_id, "COMPLETED")


async def test_the_history_of_a_deleted_job_is_found_by_its_name(served: Served) -> None:
    await served.apply(job())
    run = await served.run_through(printed=b"swept\n")
    await served.delete("jobs/tidy")

    history = (await served.get("retrieve_history_execution/tidy")).json()
    log = (await served.get("last_execution_logs/tidy")).json()
    status = (await served.get("job_status/tidy")).json()
    runs = (await served.get("jobs/tidy/runs")).json()

    assert [each["id"] for each in history["items"]] == [run]
    assert [each["id"] for each in runs["items"]] == [run]
    assert [line["text"] for line in log["lines"]] == ["swept"]
    assert (status["job"]["status"], status["last_run"]["id"]) == ("deleted", run)
    assert (await served.get("jobs/tidy/ledger")).status_code == 200


async def test_a_job_in_service_hides_the_deleted_one_of_its_name(served: Served) -> None:
    await served.apply(job())
    await served.run_through()
    await served.delete("jobs/tidy")
    await served.apply(job())

    assert (await served.get("jobs/tidy/runs")).json()["items"] == []
