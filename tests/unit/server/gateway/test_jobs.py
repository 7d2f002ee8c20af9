from __future__ import annotations

import json
from dataclasses import replace
from datetime import date, timedelta
from typing import Any

import pytest

from rota.domain.access import Role
from rota.domain.lateness import Congestion
from rota.ports.records import JobQuery, NewJob
from rota.server.gateway.jobs import job_answer
from testkit.builders import new_job
from tests.unit.server.gateway.served import YAML, Served, job, job_file

pytestmark = pytest.mark.anyio


NIGHTLY = job("nightly", schedule="0 2 * * *", description="tidies up", labels={"team": "data"})


async def test_applying_a_file_creates_its_jobs(served: Served) -> None:
    plan = await served.apply(NIGHTLY, job("on-demand"))

    assert plan["applied"] is True
    assert [(c["name"], c["change"]) for c in plan["changes"]] == [
        ("nightly", "new"),
        ("on-demand", "new"),
    ]
    assert plan["changes"][0]["schedule"] == "every day at 02:00 UTC"


async def test_a_plan_changes_nothing(served: Served) -> None:
    plan = await served.apply(NIGHTLY, plan="true")

    assert plan["applied"] is False
    assert (await served.get("jobs/nightly")).status_code == 404


async def test_a_job_is_shown_with_its_document_and_schedule_in_words(served: Served) -> None:
    await served.apply(NIGHTLY)

    answer = await served.get("jobs/nightly")

    shown = answer.json()
    assert shown["status"] == "active"
    assert shown["schedule"] == {
        "expressions": ["0 2 * * *"],
        "timezone": "UTC",
        "calendars": [],
        "words": "every day at 02:00 UTC",
        "kinds": ["fixed"],
        "spread_seconds": 0.0,
        "jitter_seconds": 0.0,
    }
    assert (shown["description"], shown["labels"]) == ("tidies up", {"team": "data"})
    assert shown["next_at"].endswith("T02:00:00Z")
    assert shown["last_state"] is None
    assert shown["document"]["schedule"] == "0 2 * * *"
    assert "name: nightly" in shown["yaml"]
    assert answer.headers["etag"] == f'"{shown["etag"]}"'


async def test_a_job_is_found_by_its_id(served: Served) -> None:
    plan = await served.apply(NIGHTLY)

    answer = await served.get(f"jobs/{plan['changes'][0]['job_id']}")

    assert answer.json()["name"] == "nightly"


async def test_jobs_of_another_project_are_not_found(served: Served) -> None:
    await served.apply(NIGHTLY)

    answer = await served.get("jobs/nightly", params={"project": "other"})

    assert answer.status_code == 404


async def test_jobs_are_listed_in_parts(served: Served) -> None:
    await served.apply(*(job(f"job-{letter}") for letter in "dbace"))

    names: list[str] = []
    cursor: str | None = None
    parts = 0
    while parts == 0 or cursor:
        params: dict[str, str] = {"limit": "2"} | ({"cursor": cursor} if cursor else {})
        part = (await served.get("jobs", params=params)).json()
        names += [each["name"] for each in part["items"]]
        cursor = part["next_cursor"]
        parts += 1

    assert names == ["job-a", "job-b", "job-c", "job-d", "job-e"]
    assert parts == 3


async def test_jobs_are_listed_by_a_pattern(served: Served) -> None:
    await served.apply(job("nightly-a"), job("nightly-b"), job("weekly"))

    part = (await served.get("jobs", params={"name": "nightly-*"})).json()

    assert [each["name"] for each in part["items"]] == ["nightly-a", "nightly-b"]


async def test_applying_with_the_etag_of_an_old_plan_is_refused(served: Served) -> None:
    await served.apply(job(description="one"))
    plan = await served.apply(job(description="two"), plan="true")
    await served.apply(job(description="three"))

    answer = await served.post(
        "jobs:apply",
        content=job_file(job(description="two")),
        headers={**YAML, "If-Match": f'"{plan["etag"]}"'},
    )

    assert answer.status_code == 412
    assert answer.json()["code"] == "etag_mismatch"
    assert (await served.get("jobs/tidy")).json()["description"] == "three"


async def test_applying_with_the_etag_of_the_plan_is_done(served: Served) -> None:
    await served.apply(job(description="one"))
    plan = await served.post("jobs:apply?plan=true", content=job_file(job()), headers=YAML)

    answer = await served.post(
        "jobs:apply",
        content=job_file(job()),
        headers={**YAML, "If-Match": plan.headers["etag"]},
    )

    assert answer.status_code == 200


async def test_pruning_removes_what_the_same_file_dropped(served: Served) -> None:
    await served.apply(job("kept"), job("dropped"), name="mine")
    await served.apply(job("foreign"), name="theirs")

    plan = await served.apply(job("kept"), name="mine", prune="true")

    changes = {change["name"]: change["change"] for change in plan["changes"]}
    assert changes == {"kept": "unchanged", "dropped": "removed"}
    left = (await served.get("jobs")).json()["items"]
    assert [each["name"] for each in left] == ["foreign", "kept"]


async def test_a_wrong_file_is_refused_with_every_error_and_its_place(served: Served) -> None:
    text = 'jobs:\n  - name: a\n    shedule: "0 2 * * *"\n    steps:\n      - run: "true"\n' + (
        '  - name: b\n    schedule: "0 25 * * *"\n    steps:\n      - run: "true"\n'
    )

    answer = await served.post("jobs:apply", content=text, headers=YAML)

    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"
    first, second = answer.json()["errors"]
    assert (first["line"], first["column"]) == (3, 5)
    assert "shedule" in first["message"]
    assert "schedule" in first["hint"]
    assert second["line"] == 7
    assert (await served.get("jobs")).json()["items"] == []


async def test_validation_tells_warnings_and_changes_nothing(served: Served) -> None:
    text = job_file(job(schedule="0 2 * *"))

    answer = await served.post("jobs:validate", Role.VIEWER, content=text, headers=YAML)

    assert answer.json()["valid"] is True
    assert "4 fields" in answer.json()["warnings"][0]["message"]
    assert (await served.get("jobs")).json()["items"] == []


async def test_json_files_are_read_too(served: Served) -> None:
    headers = {"Content-Type": "application/json; charset=utf-8"}

    answer = await served.post("jobs:apply", content=job_file(job()), headers=headers)

    assert answer.status_code == 200


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", ""])
async def test_what_a_form_could_send_is_not_read_as_a_file(
    served: Served, content_type: str
) -> None:
    headers = {"Content-Type": content_type} if content_type else {}

    answer = await served.post("jobs:apply", content=job_file(job()), headers=headers)

    assert answer.status_code == 415


async def test_a_body_that_is_not_text_is_refused(served: Served) -> None:
    answer = await served.post("jobs:apply", content=b"jobs: \xff\xfe", headers=YAML)

    assert answer.status_code == 400
    assert answer.json()["code"] == "malformed"


async def test_an_alias_bomb_is_refused(served: Served) -> None:
    lines = ["a: &a [x, x, x, x, x, x, x, x, x]"]
    lines += [
        f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]"
        for before, name in zip("abcdefgh", "bcdefghi", strict=True)
    ]

    answer = await served.post("jobs:apply", content="\n".join(lines), headers=YAML)

    assert answer.status_code == 422


async def test_a_paused_job_is_shown_as_paused_until_it_is_resumed(served: Served) -> None:
    await served.apply(NIGHTLY)

    paused = (await served.post("jobs/nightly:pause", Role.OPERATOR)).json()
    resumed = (await served.post("jobs/nightly:resume", Role.OPERATOR)).json()

    assert (paused["status"], paused["paused_by"], paused["next_at"]) == (
        "paused",
        "operator",
        None,
    )
    assert resumed["status"] == "active"
    assert resumed["next_at"] is not None


@pytest.mark.parametrize("body", [{"until": "2099-01-01T00:00:00Z"}, {"for": "2h"}])
async def test_a_pause_may_have_an_end(served: Served, body: dict[str, str]) -> None:
    await served.apply(NIGHTLY)

    paused = (await served.post("jobs/nightly:pause", Role.OPERATOR, json=body)).json()
    resumed = (await served.post("jobs/nightly:resume", Role.OPERATOR)).json()

    assert (paused["status"], paused["paused_until"] is None) == ("paused", False)
    assert resumed["paused_until"] is None


@pytest.mark.parametrize(
    "body",
    [
        {"until": "2099-01-01T00:00:00Z", "for": "2h"},
        {"until": "2001-01-01T00:00:00Z"},
        {"until": "2099-01-32"},
        {"until": "25:00"},
        {"until": "10000-01-01T00:00"},
        {"for": "soon"},
        {"forever": "yes"},
    ],
    ids=str,
)
async def test_a_pause_with_an_end_that_cannot_be_is_refused(
    served: Served, body: dict[str, str]
) -> None:
    await served.apply(NIGHTLY)

    answer = await served.post("jobs/nightly:pause", json=body)

    assert answer.status_code == 422
    assert (await served.get("jobs/nightly")).json()["paused"] is False


async def test_skipping_moves_to_the_due_time_after_the_next(served: Served) -> None:
    await served.apply(NIGHTLY)
    upcoming = (await served.get("jobs/nightly/upcoming")).json()["times"]

    skipped = (await served.post("jobs/nightly:skip", Role.OPERATOR)).json()

    assert skipped["next_at"] == upcoming[1]
    ledger = await served.get("jobs/nightly/ledger", params={"until": "2099-01-01T00:00:00Z"})
    [entry] = ledger.json()["items"]
    assert (entry["first"], entry["state"], entry["cause"]) == (
        upcoming[0],
        "SKIPPED",
        "skip next",
    )


async def test_a_job_on_demand_has_nothing_to_skip(served: Served) -> None:
    await served.apply(job())

    answer = await served.post("jobs/tidy:skip")

    assert (answer.status_code, answer.json()["code"]) == (409, "nothing_due")


async def test_a_job_tells_how_late_its_runs_start(served: Served) -> None:
    await served.apply(job())
    before = (await served.get("jobs/tidy")).json()["lateness"]
    await served.run_through()

    lateness = (await served.get("jobs/tidy")).json()["lateness"]

    assert before is None
    assert lateness["count"] == 1
    assert 0 <= lateness["p50"] == lateness["p95"] == lateness["p99"]


async def test_a_stuck_job_is_shown_as_stuck(served: Served) -> None:
    await served.apply(NIGHTLY)
    [found] = await served.engine.store.jobs(JobQuery())
    seen = Congestion(101, False, found.anchor, None)
    await served.engine.store.mark_stuck({found.id: seen}, [found.id])

    shown = (await served.get("jobs/nightly")).json()

    assert (shown["status"], shown["stuck_since"] is None) == ("stuck", False)


async def test_a_job_whose_next_due_time_waits_for_its_run_is_active(served: Served) -> None:
    await served.apply(job(schedule="every 1h", interval_from="completion"))
    [found] = await served.engine.store.jobs(JobQuery())

    waiting = replace(found, next_at=None, waits=True)
    over = replace(found, next_at=None, waits=False)

    statuses = (job_answer(waiting, None).status, job_answer(over, None).status)
    assert statuses == ("active", "finished")


async def test_a_disabled_job_is_shown_as_disabled_until_it_is_enabled(served: Served) -> None:
    await served.apply(NIGHTLY)

    disabled = (await served.post("jobs/nightly:disable", Role.EDITOR)).json()
    enabled = (await served.post("jobs/nightly:enable", Role.EDITOR)).json()

    assert (disabled["status"], enabled["status"]) == ("disabled", "active")


async def test_a_deleted_job_is_gone(served: Served) -> None:
    await served.apply(NIGHTLY)

    answer = await served.delete("jobs/nightly")

    assert answer.status_code == 204
    assert answer.content == b""
    assert (await served.get("jobs/nightly")).status_code == 404


async def test_who_asks_for_a_deleted_job_is_told_where_its_history_is(served: Served) -> None:
    await served.apply(NIGHTLY)
    await served.delete("jobs/nightly")

    refused = (await served.post("jobs/nightly/runs")).json()

    assert refused["code"] == "job_not_found"
    assert refused["hint"] == "it was deleted; rota job history nightly shows its runs"


@pytest.mark.parametrize(
    ("typed", "hint"),
    [
        ("helo", 'did you mean "hello"?'),
        ("buildandtset", 'did you mean "BuildAndTest"?'),
        ("something-else", "rota job list shows them"),
    ],
)
async def test_a_mistyped_job_gets_the_nearest_one(served: Served, typed: str, hint: str) -> None:
    await served.apply(job("hello"), job("BuildAndTest"))

    answers = [
        await served.get(f"jobs/{typed}"),
        await served.post(f"jobs/{typed}/runs"),
        await served.post(f"jobs/{typed}:pause"),
        await served.get(f"jobs/{typed}/runs"),
        await served.get(f"job_status/{typed}"),
    ]

    assert [answer.status_code for answer in answers] == [404] * 5
    assert {answer.json()["hint"] for answer in answers} == {hint}


async def test_jobs_of_other_projects_are_not_suggested(served: Served) -> None:
    await served.apply(job("hello"))

    answer = await served.get("jobs/helo", params={"project": "other"})

    assert answer.json()["hint"] == "rota job list shows them"


async def test_deleting_another_version_than_was_seen_is_refused(served: Served) -> None:
    await served.apply(NIGHTLY)

    answer = await served.delete("jobs/nightly", headers={"If-Match": '"another"'})

    assert answer.status_code == 412
    assert (await served.get("jobs/nightly")).status_code == 200


async def test_upcoming_times_come_with_the_schedule_in_words(served: Served) -> None:
    await served.apply(job(schedule="30 2 * * *", timezone="Europe/Berlin"))

    answer = (await served.get("jobs/tidy/upcoming", params={"count": "3"})).json()

    assert len(answer["times"]) == 3
    assert answer["schedule"] == "every day at 02:30, Europe/Berlin"
    assert any("does not exist" in change["text"] for change in answer["clock_changes"])


async def test_a_job_on_demand_has_no_upcoming_times(served: Served) -> None:
    await served.apply(job())

    answer = (await served.get("jobs/tidy/upcoming")).json()

    assert answer == {
        "times": [],
        "schedule": "",
        "clock_changes": [],
        "calendars": [],
        "answered": [],
        "problem": "",
    }
    assert (await served.get("jobs/tidy")).json()["status"] == "on demand"


async def days_ahead(served: Served, days: int) -> date:
    return (await served.engine.store.now()).date() + timedelta(days=days)


async def apply_closed(served: Served, last: date, **fields: object) -> dict[str, Any]:
    """A job whose calendar is closed from yesterday up to and including a date."""
    yesterday = await days_ahead(served, -1)
    calendar = {"name": "moving", "windows": [f"{yesterday}/{last}"], **fields}
    file = {"calendars": [calendar], "jobs": [job(schedule="0 2 * * *", calendars=["moving"])]}
    answer = await served.post("jobs:apply", content=json.dumps(file), headers=YAML)
    plan: dict[str, Any] = answer.json()
    return plan


async def test_next_is_the_first_due_time_that_runs_wherever_it_is_shown(served: Served) -> None:
    last = await days_ahead(served, 10)

    planned = (await apply_closed(served, last))["changes"][0]["next_at"]
    again = (await apply_closed(served, last))["changes"][0]["next_at"]
    shown = (await served.get("jobs/tidy")).json()["next_at"]
    [listed] = (await served.get("jobs")).json()["items"]
    status = (await served.get("job_status/tidy")).json()["job"]["next_at"]

    assert {planned, again, shown, listed["next_at"], status} == {
        f"{last + timedelta(days=1)}T02:00:00Z"
    }


async def test_a_job_that_calendars_rule_out_for_long_is_warned_about(served: Served) -> None:
    last = await days_ahead(served, 10)

    plan = await apply_closed(served, last)

    [warning] = plan["warnings"]
    assert warning["message"].startswith(
        "tidy: its next 5 due times are ruled out by calendar moving: the first that runs is "
    )
    assert (warning["path"], warning["warning"]) == ("jobs[0].calendars", True)


async def test_a_job_that_is_only_ruled_out_at_first_is_not_warned_about(served: Served) -> None:
    assert (await apply_closed(served, await days_ahead(served, 2)))["warnings"] == []


async def test_skipping_leaves_out_what_would_have_run(served: Served) -> None:
    last = await days_ahead(served, 10)
    await apply_closed(served, last)

    moved = (await served.post("jobs/tidy:skip")).json()

    calendar, skipped = moved["answered"]
    assert (calendar["cause"], calendar["count"] > 5) == ("calendar moving", True)
    assert (skipped["cause"], skipped["count"]) == ("skip next", 1)
    assert skipped["first"] == f"{last + timedelta(days=1)}T02:00:00Z"
    assert moved["next_at"] == f"{last + timedelta(days=2)}T02:00:00Z"
    ledger = (await served.get("jobs/tidy/ledger")).json()["items"]
    assert [entry["cause"] for entry in ledger] == ["skip next", "calendar moving"]


async def test_a_pending_skip_is_shown_with_what_comes(served: Served) -> None:
    await served.apply(job(schedule="0 2 * * *"))
    before = (await served.get("jobs/tidy")).json()["next_at"]
    await served.post("jobs/tidy:skip")

    [answered] = (await served.get("jobs/tidy/upcoming")).json()["answered"]

    assert (answered["first"], answered["cause"]) == (before, "skip next")


async def test_next_has_the_offset_of_the_schedules_zone(served: Served) -> None:
    await served.apply(job(schedule="0 2 * * *", timezone="Asia/Kolkata"))

    shown = (await served.get("jobs/tidy")).json()["next_at"]
    [first, *_] = (await served.get("jobs/tidy/upcoming")).json()["times"]

    assert shown.endswith("T02:00:00+05:30")
    assert first == shown


async def test_a_jobs_schedule_tells_its_type_and_its_spread(served: Served) -> None:
    await served.apply(job(schedule=["*/10 2 * * *", "0 9 * * *", "1h"], spread="10m"))

    schedule = (await served.get("jobs/tidy")).json()["schedule"]

    assert schedule["kinds"] == ["elapsed", "fixed", "interval"]
    assert 0 < schedule["spread_seconds"] < 600


async def test_a_plan_tells_type_and_clock_changes_where_they_matter(served: Served) -> None:
    berlin = {"timezone": "Europe/Berlin"}

    touched = await served.apply(job("a", schedule="*/10 2 * * *", **berlin))
    untouched = await served.apply(job("b", schedule="*/10 * * * *", **berlin))

    [kind, *changes] = touched["changes"][0]["notes"]
    assert kind == "type: elapsed"
    assert [change[:12] for change in changes] == ["clocks: Sun "] * 2
    assert untouched["changes"][0]["notes"] == []


@pytest.mark.parametrize("schedule", ["0 2 * * *", None])
async def test_an_unknown_calendar_is_told_where_it_is_named(
    served: Served, schedule: str | None
) -> None:
    line = f"    schedule: '{schedule}'\n" if schedule else ""
    text = (
        "calendars: [{name: weekends, windows: [Sat]}]\njobs:\n  - name: tidy\n"
        f"    steps: [{{run: x}}]\n{line}    calendars: [weekends, weekend]\n"
    )

    answer = await served.post("jobs:apply", content=text, headers=YAML)

    [error] = answer.json()["errors"]
    assert error["message"] == 'there is no calendar "weekend"'
    assert error["hint"] == 'did you mean "weekends"?'
    assert (error["line"], error["column"]) == (6 if schedule else 5, 27)


async def apply(served: Served, document: dict[str, object]) -> None:
    client = await served.client()
    answer = await client.post("/api/v1/jobs:apply", content=job_file(document), headers=YAML)
    answer.raise_for_status()


@pytest.fixture
async def unreadable(served: Served) -> NewJob:
    """Beside another job, one in a zone that is not known here."""
    await apply(served, job("readable", schedule="@daily"))
    now = await served.engine.store.now()
    new = new_job("unreadable", now, next_at=now + timedelta(hours=1))
    document = {**new.document, "schedule": "@daily", "timezone": "Moon/Tycho"}
    new = replace(new, document=document)
    await served.engine.store.save_jobs([new], removed=(), actor="test")
    return new


async def test_it_is_listed_with_the_reason_beside_the_others(
    served: Served, unreadable: NewJob
) -> None:
    client = await served.client()

    listed = (await client.get("/api/v1/jobs")).json()["items"]

    assert [(each["name"], bool(each["unreadable"])) for each in listed] == [
        ("readable", False),
        ("unreadable", True),
    ]
    assert "Moon/Tycho" in listed[1]["unreadable"]


@pytest.mark.parametrize("path", ["", "/upcoming"])
async def test_it_can_be_looked_at(served: Served, unreadable: NewJob, path: str) -> None:
    client = await served.client()

    answer = await client.get(f"/api/v1/jobs/unreadable{path}")

    assert answer.status_code == 200


@pytest.mark.parametrize("verb", ["pause", "disable"])
async def test_it_can_be_held(served: Served, unreadable: NewJob, verb: str) -> None:
    client = await served.client()

    answer = await client.post(f"/api/v1/jobs/unreadable:{verb}")

    assert (answer.status_code, answer.json()["next_at"]) == (200, None)


async def test_it_can_be_replaced_by_one_that_is_readable(
    served: Served, unreadable: NewJob
) -> None:
    client = await served.client()

    await apply(served, job("unreadable", schedule="@daily"))

    assert (await client.get("/api/v1/jobs/unreadable")).json()["unreadable"] == ""


async def test_it_can_be_deleted(served: Served, unreadable: NewJob) -> None:
    client = await served.client()

    answer = await client.delete("/api/v1/jobs/unreadable")

    assert answer.status_code in (200, 204)
    assert await served.engine.store.jobs(JobQuery(names=["unreadable"])) == []
