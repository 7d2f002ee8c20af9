"""What comes next, with calendars considered; and what was decided about it beforehand."""

from __future__ import annotations

import json
from datetime import date, timedelta
from typing import Any

import pytest

from tests.unit.server.gateway.served import YAML, Served, job

pytestmark = pytest.mark.anyio


async def days_ahead(served: Served, days: int) -> date:
    return (await served.backends.store.now()).date() + timedelta(days=days)


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
