from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import httpx
import pytest

from rota.domain.access import Role
from rota.domain.ids import JobId
from rota.domain.states import RunState
from rota.ports.records import Answered, JobQuery, ScheduleMove
from tests.unit.server.gateway.served import Served, job

pytestmark = pytest.mark.anyio


HOURLY = job(schedule="0 * * * *", priority=5)


HOUR = timedelta(hours=1)


async def next_hour(served: Served, name: str = "tidy") -> datetime:
    """The next due time of the hourly job."""
    return datetime.fromisoformat((await served.get(f"jobs/{name}")).json()["next_at"])


async def asked(
    served: Served, hours: int, *, key: str = "", plan: bool = False, **body: object
) -> httpx.Response:
    """A request for so many hourly due times before now."""
    begin = await next_hour(served) - hours * HOUR
    return await served.post(
        "jobs/tidy:backfill",
        Role.OPERATOR,
        json={"from": begin.isoformat(), **body},
        params={"plan": plan},
        headers={"Idempotency-Key": key} if key else {},
    )


async def runs_of(served: Served, backfill: str) -> list[dict[str, Any]]:
    """By due time."""
    listed = (await served.get("runs", params={"where": f"backfill:{backfill}"})).json()["items"]
    return sorted(listed, key=lambda run: str(run["due_at"]))


async def finished(served: Served, *results: str) -> None:
    """Let the runs that wait end one after another in these ways."""
    worker = await served.worker()
    for result in results:
        for work in await worker.claim():
            await worker.finish(work, result)


async def test_due_times_of_the_past_run_one_after_another(served: Served) -> None:
    await served.worker()
    await served.apply(HOURLY)
    upcoming = await next_hour(served)

    answer = await asked(served, 3, to=(upcoming + HOUR).isoformat())

    made = answer.json()
    runs = await runs_of(served, made["id"])
    due = [upcoming - 3 * HOUR, upcoming - 2 * HOUR, upcoming - HOUR]
    assert (answer.status_code, made["runs"], made["skipped"]) == (202, 3, [])
    assert answer.headers["location"] == f"/api/v1/runs?backfill={made['id']}"
    assert [datetime.fromisoformat(run["due_at"]) for run in runs] == due
    assert [datetime.fromisoformat(made[end]) for end in ("first", "last")] == [due[0], due[2]]
    assert [run["state"] for run in runs] == ["QUEUED", "BLOCKED", "BLOCKED"]
    assert {(run["trigger"], run["backfill"], run["priority"]) for run in runs} == {
        ("backfill", made["id"], 3)
    }


async def test_max_parallel_lets_several_go_at_once(served: Served) -> None:
    await served.worker()
    await served.apply(HOURLY)

    made = (await asked(served, 4, max_parallel=3)).json()

    states = [run["state"] for run in await runs_of(served, made["id"])]
    assert states == ["QUEUED", "QUEUED", "QUEUED", "BLOCKED"]


async def test_a_plan_writes_nothing(served: Served) -> None:
    await served.apply(HOURLY)

    answer = await asked(served, 3, plan=True)

    plan = answer.json()
    assert (answer.status_code, plan["id"], plan["runs"]) == (200, None, 3)
    assert (await served.get("runs")).json()["items"] == []


async def test_what_is_being_backfilled_is_left_out(served: Served) -> None:
    await served.apply(HOURLY)
    await asked(served, 2)

    again = (await asked(served, 3)).json()

    [group] = again["skipped"]
    assert (again["runs"], group["cause"], group["count"]) == (1, "active", 2)


async def test_only_missing_leaves_out_what_completed(served: Served) -> None:
    await served.apply(HOURLY)
    await asked(served, 3)
    await finished(served, "COMPLETED", "FAILED", "COMPLETED")

    plan = (await asked(served, 4, plan=True, only="missing")).json()

    assert plan["runs"] == 2
    assert [(group["cause"], group["count"]) for group in plan["skipped"]] == [("completed", 2)]


async def test_only_failed_repeats_what_failed(served: Served) -> None:
    await served.apply(HOURLY)
    first = (await asked(served, 3)).json()
    await finished(served, "COMPLETED", "FAILED", "COMPLETED")
    failed = (await runs_of(served, first["id"]))[1]

    second = (await asked(served, 4, only="failed")).json()

    [run] = await runs_of(served, second["id"])
    assert (run["due_at"], run["retry_of"]) == (failed["due_at"], failed["id"])
    assert {group["cause"]: group["count"] for group in second["skipped"]} == {
        "completed": 2,
        "not_failed": 1,
    }


async def test_the_same_key_gives_the_same_backfill(served: Served) -> None:
    await served.apply(HOURLY)
    first = await asked(served, 3, key="once")

    again = await asked(served, 3, key="once")
    other = await asked(served, 3, key="once", max_parallel=2)

    assert (first.status_code, again.status_code, other.status_code) == (202, 200, 409)
    assert again.json() == first.json()
    assert len((await served.get("runs")).json()["items"]) == 3


async def test_a_range_that_ended_before_it_began_is_refused(served: Served) -> None:
    await served.apply(HOURLY)

    answer = await asked(served, 3, to="2020-01-01T00:00:00Z")

    assert (answer.status_code, answer.json()["code"]) == (422, "empty_range")


async def test_a_range_that_is_yet_to_come_is_refused(served: Served) -> None:
    await served.apply(HOURLY)

    answer = await served.post("jobs/tidy:backfill", json={"from": "2999-01-01T00:00:00Z"})

    assert (answer.status_code, answer.json()["code"]) == (422, "empty_range")


async def test_too_many_due_times_are_refused_with_a_way_to_go_on(served: Served) -> None:
    await served.apply(HOURLY)

    answer = await served.post("jobs/tidy:backfill", json={"from": "0001-01-01T00:00:00Z"})

    assert (answer.status_code, answer.json()["code"]) == (422, "backfill_too_large")
    assert "1971-02-21T15:00:00+00:00" in answer.json()["hint"]


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"schedule": "0 * * * *", "run_once": True},
        {"schedule": "1h", "interval_from": "completion"},
    ],
    ids=["on demand", "once", "from completion"],
)
async def test_a_job_without_due_times_of_its_own_has_nothing_to_backfill(
    served: Served, fields: dict[str, Any]
) -> None:
    await served.apply(job(**fields))

    answer = await served.post("jobs/tidy:backfill", json={"from": "2026-01-01T00:00:00Z"})

    assert (answer.status_code, answer.json()["code"]) == (409, "nothing_to_backfill")
    assert answer.json()["hint"] == "rota job trigger tidy"


async def test_a_disabled_job_is_not_backfilled(served: Served) -> None:
    await served.apply(job(schedule="0 * * * *", enabled=False))

    answer = await served.post("jobs/tidy:backfill", json={"from": "2026-01-01T00:00:00Z"})

    assert (answer.status_code, answer.json()["code"]) == (409, "job_disabled")


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"from": "2026-01-01T25:00:00"},
        {"from": "0001-01-01T00:00:00+14:00"},
        {"from": "2026-01-01T00:00:00Z", "only": "some"},
        {"from": "2026-01-01T00:00:00Z", "max_parallel": 0},
        {"from": "2026-01-01T00:00:00Z", "max_parallel": 1_001},
        {"since": "2026-01-01T00:00:00Z"},
    ],
)
async def test_a_wrong_request_is_refused(served: Served, body: object) -> None:
    await served.apply(HOURLY)

    answer = await served.post("jobs/tidy:backfill", json=body)

    assert answer.status_code == 422
    assert answer.json()["errors"]


async def test_a_run_that_waits_for_its_turn_says_so(served: Served) -> None:
    await served.apply(HOURLY)
    made = (await asked(served, 2)).json()
    _, second = await runs_of(served, made["id"])

    why = (await served.get(f"runs/{second['id']}/why")).json()

    assert why["summary"] == (
        "blocked: it is not its turn in the backfill of tidy (max_parallel: 1)"
    )
    assert why["passed"] == ["time", "pause", "hold", "max_concurrency"]
    assert why["since"] == second["created_at"]


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
    [known] = await served.engine.store.jobs(JobQuery(ids=[JobId(job_id)]))
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
        answered=[
            Answered(
                start + timedelta(days=10 * n),
                start + timedelta(days=10 * n + n),
                n + 1,
                RunState.SKIPPED,
                "paused",
            )
            for n in range(stretches)
        ],
    )
    await served.engine.store.move_schedules([move], actor="test")
