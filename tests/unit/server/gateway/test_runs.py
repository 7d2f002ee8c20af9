from __future__ import annotations

from typing import Any

import pytest

from rota.domain.access import Role
from rota.domain.ids import JobId, RunId
from rota.domain.run import Trigger
from rota.ports.records import NewRun
from rota.ports.work import StepOutcome
from tests.unit.server.gateway.recorded import Recorded, follow
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
    job_id = JobId((await served.get("jobs/tidy")).json()["id"])
    ids = [RunId(f"r_1k0ghsf35spcrm222222222{number}") for number in range(2)]
    await served.engine.store.submit(
        [NewRun(each, job_id, 1, Trigger.MANUAL, created_by="ann") for each in ids]
    )

    answer = await served.get(f"runs/{ids[0][:16]}")

    assert answer.status_code == 409
    assert answer.json()["code"] == "ambiguous_id"


async def test_too_short_a_beginning_is_told_to_be_so(served: Served) -> None:
    await served.apply(job())
    run = await served.trigger()

    answers = [await served.get(f"runs/{run['id'][:length]}") for length in (2, 15, 16)]

    assert [answer.status_code for answer in answers] == [404, 404, 200]
    assert answers[1].json()["hint"].startswith("type 16 characters of its id or more")


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
    room = "worker {} has room (0 of 100 slots are taken); if it is gone, that is known by "
    assert with_one["message"].startswith(room.format("two"))
    assert with_none["message"] == "all workers that fit are draining: one, two"
    assert with_none["action"] == "rota worker resume one"
    assert (await reason(served, run))["message"].startswith(room.format("one"))


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
    await served.engine.store.end_session(worker.session)
    assert (await served.get(f"runs/{run['id']}")).json()["state"] == "UNKNOWN"

    answer = await served.post(f"runs/{run['id']}:resolve", json={"as": "failed"})

    assert answer.json()["state"] == "FAILED"


@pytest.mark.parametrize("body", [{"as": "maybe"}, {}, {"as": "failed", "also": 1}])
async def test_a_wrong_resolution_is_refused(served: Served, body: dict[str, object]) -> None:
    await served.apply(job())
    run = await served.trigger()

    answer = await served.post(f"runs/{run['id']}:resolve", json=body)

    assert answer.status_code == 422


GREET = job("greet", inputs={"who": {"type": "string"}, "times": {"type": "integer", "default": 1}})


async def test_triggering_makes_a_run_and_says_where_it_is(served: Served) -> None:
    await served.apply(job())

    answer = await served.post("jobs/tidy/runs", Role.OPERATOR)

    run = answer.json()
    assert answer.status_code == 202
    assert answer.headers["location"] == f"/api/v1/runs/{run['id']}"
    assert (run["state"], run["trigger"], run["created_by"]) == ("BLOCKED", "manual", "operator")
    assert run["url"] == f"/runs/{run['id']}"


async def test_a_run_for_now_takes_four_transactions(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    await served.apply(job())
    await served.trigger("tidy")
    recorded = Recorded()
    follow(served.engine.store, recorded, monkeypatch)

    await served.trigger("tidy")

    assert recorded.round_trips == 4  # its job, the time in its id, itself, and how it is seen


async def test_inputs_are_checked_and_kept(served: Served) -> None:
    await served.apply(GREET)

    run = await served.trigger("greet", inputs={"who": "Ada"})

    assert run["inputs"] == {"who": "Ada", "times": 1}


async def test_wrong_inputs_are_all_named(served: Served) -> None:
    await served.apply(GREET)

    answer = await served.post("jobs/greet/runs", json={"inputs": {"times": "often", "where": 1}})

    assert answer.status_code == 422
    assert len(answer.json()["errors"]) == 3


CHOSEN = job(
    "grow",
    inputs={
        "size": {"type": "choice", "options": ["small", "large"]},
        "day": {"pattern": "[0-9]{4}-[0-9]{2}", "default": "2026-01"},
    },
)


async def test_what_is_no_choice_or_does_not_match_is_told_with_its_place(served: Served) -> None:
    await served.apply(CHOSEN)

    answer = await served.post("jobs/grow/runs", json={"inputs": {"size": "smal", "day": "2026-1"}})

    assert answer.status_code == 422
    assert [(each["path"], each["message"], each["hint"]) for each in answer.json()["errors"]] == [
        ("size", 'input "size" must be "small" or "large", not "smal"', 'did you mean "small"?'),
        ("day", 'input "day" must match [0-9]{4}-[0-9]{2}, not "2026-1"', ""),
    ]


async def test_a_run_tells_what_it_follows_and_what_follows_it(served: Served) -> None:
    after = [{"job": "tidy", "with": {"run": "run"}}]
    await served.apply(
        job(), job("report", after=after, inputs={"run": {}}), job("log", after=["tidy"])
    )
    first = await served.run_through()

    await served.engine.store.follow_ends(10)

    shown = (await served.get(f"runs/{first}")).json()
    [report] = [each for each in shown["followed_by"] if each["job"] == "report"]
    assert (len(shown["followed_by"]), shown["after"]) == (2, None)
    following = (await served.get(f"runs/{report['id']}")).json()
    assert following["after"] == {"id": first, "job": "tidy", "state": "COMPLETED"}
    assert (following["follows"], following["inputs"]) == (first, {"run": first})


async def test_what_was_not_handed_on_cannot_be_retried(served: Served) -> None:
    after = [{"job": "tidy", "with": {"rows": "outputs.rows"}}]
    rows = {"type": "integer", "default": 0}
    await served.apply(job(), job("report", after=after, inputs={"rows": rows}))
    first = await served.run_through()
    await served.engine.store.follow_ends(10)
    [report] = (await served.get(f"runs/{first}")).json()["followed_by"]

    answer = await served.post(f"runs/{report['id']}:retry")

    assert (answer.status_code, answer.json()["code"]) == (409, "not_handed")
    assert f"rota run retry {first}" in answer.json()["hint"]


async def test_steps_and_jobs_have_their_titles(served: Served) -> None:
    steps = [{"name": "one", "title": "Первый", "run": "true"}, {"run": "true"}]
    await served.apply(job(steps=steps, title="整頓"))
    await served.trigger()
    worker = await served.worker()
    [work] = await worker.claim()
    told = (StepOutcome("one", "completed"), StepOutcome("step 2", "completed"))
    await worker.finish(work, steps=told)

    shown = (await served.get(f"runs/{work.run}")).json()

    assert shown["title"] == "整頓"
    assert [step["title"] for step in shown["attempts"][0]["steps"]] == ["Первый", ""]
    assert (await served.get("jobs/tidy")).json()["title"] == "整頓"


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
    claimed = await served.engine.store.claim(session, 1)
    assert claimed.batch.runs == [second]


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
