from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import httpx
import pytest

from rota.domain.access import Role
from rota.domain.calendars import Calendar, Holidays, blackout
from rota.ports.records import NewCalendar
from tests.unit.server.gateway.served import YAML, Served, job

pytestmark = pytest.mark.anyio

WEEKENDS = {"windows": ["Sat,Sun"]}
ALWAYS = ["Mon-Wed", "Thu-Sun"]


async def put(
    served: Served, name: str = "weekends", role: Role = Role.EDITOR, **kwargs: Any
) -> httpx.Response:
    kwargs.setdefault("json", WEEKENDS)
    client = await served.client(role)
    return await client.put(f"/api/v1/calendars/{name}", **kwargs)


async def apply(
    served: Served, *calendars: Mapping[str, object], **fields: object
) -> httpx.Response:
    """A nightly job, and the calendars of its file."""
    file = {"calendars": calendars, "jobs": [job("nightly", schedule="0 2 * * *", **fields)]}
    return await served.post("jobs:apply", content=json.dumps(file), headers=YAML)


async def test_a_calendar_is_created_changed_and_left_alone(served: Served) -> None:
    created = await put(served)
    changed = await put(served, json={"windows": ["Sun"], "inside": "run_after"})
    again = await put(served, json={"windows": ["Sun"], "inside": "run_after"})

    assert [answer.status_code for answer in (created, changed, again)] == [201, 200, 200]
    assert created.json() == {
        "name": "weekends",
        "change": "new",
        "words": "all day on Saturday and Sunday, UTC: due times inside are skipped",
        "etag": created.headers["etag"].strip('"'),
        "differences": [],
        "applied": True,
    }
    assert changed.json()["differences"] == [
        "inside  (none) → run_after",
        "windows[0]  Sat,Sun → Sun",
    ]
    assert again.json()["change"] == "unchanged"


async def test_a_calendar_is_shown_with_the_jobs_that_use_it(served: Served) -> None:
    await put(served, json={**WEEKENDS, "timezone": "Europe/Berlin"})
    await apply(served, calendars=["weekends"])

    answer = await served.get("calendars/weekends", Role.VIEWER)

    shown = answer.json()
    assert (shown["windows"], shown["timezone"], shown["inside"]) == (
        ["Sat,Sun"],
        "Europe/Berlin",
        "skip",
    )
    assert (shown["version"], shown["updated_by"], shown["used_by"]) == (1, "editor", ["nightly"])
    assert shown["yaml"] == "name: weekends\nwindows:\n  - Sat,Sun\ntimezone: Europe/Berlin\n"
    assert answer.headers["etag"] == f'"{shown["etag"]}"'


async def test_calendars_are_listed_in_parts(served: Served) -> None:
    for name in "cab":
        await put(served, name)

    first = (await served.get("calendars", params={"limit": 2})).json()
    rest = (await served.get("calendars", params={"cursor": first["next_cursor"]})).json()

    names = [each["name"] for part in (first, rest) for each in part["items"]]
    assert (names, rest["next_cursor"]) == (["a", "b", "c"], None)


async def test_a_plan_changes_nothing(served: Served) -> None:
    answer = await put(served, params={"plan": "true"})

    assert (answer.status_code, answer.json()["applied"]) == (200, False)
    assert answer.json()["change"] == "new"
    assert (await served.get("calendars/weekends")).status_code == 404


@pytest.mark.parametrize("exists", [True, False])
async def test_an_old_etag_is_refused(served: Served, exists: bool) -> None:
    old = (await put(served)).headers["etag"]
    await put(served, json={"windows": ["Sun"]})
    if not exists:
        await served.delete("calendars/weekends")

    answer = await put(served, headers={"If-Match": old})

    assert answer.status_code == 412


async def test_the_present_etag_is_taken(served: Served) -> None:
    etag = (await put(served)).headers["etag"]

    answer = await put(served, json={"windows": ["Sun"]}, headers={"If-Match": etag})

    assert answer.status_code == 200


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({"windows": ["Sat", "Satt"]}, "windows[1]"),
        ({"windows": []}, ""),
        ({"windows": ["daily"]}, "windows"),
        ({"windows": ["Sat"], "timezone": "../../etc/passwd"}, "timezone"),
        ({"windows": ["Sat"], "inside": "later"}, "inside"),
        ({"windows": ["Sat"], "name": "other"}, "name"),
        ({"windows": ["Sat"], "odd": 1}, "odd"),
        ({"holidays": {"country": "XX"}}, "holidays.country"),
    ],
    ids=str,
)
async def test_what_is_wrong_is_told_with_its_path(
    served: Served, body: dict[str, object], path: str
) -> None:
    answer = await put(served, json=body)

    assert answer.status_code == 422
    assert [error["path"] for error in answer.json()["errors"]] == [path]


async def test_a_calendar_in_use_cannot_be_deleted(served: Served) -> None:
    await put(served)
    await apply(served, calendars=["weekends"])

    answer = await served.delete("calendars/weekends")

    assert answer.status_code == 409
    assert "nightly" in answer.json()["hint"]


async def test_a_calendar_that_nobody_uses_is_deleted(served: Served) -> None:
    await put(served)

    answer = await served.delete("calendars/weekends")

    assert answer.status_code == 204
    assert (await served.get("calendars/weekends")).status_code == 404


async def test_the_next_windows_are_previewed(served: Served) -> None:
    await put(served)

    answer = await served.get(
        "calendars/weekends/windows", params={"from": "2026-05-09T10:00:00Z", "count": 2}
    )

    assert answer.json() == {
        "windows": [
            {"begins": "2026-05-09T00:00:00Z", "ends": "2026-05-11T00:00:00Z"},
            {"begins": "2026-05-16T00:00:00Z", "ends": "2026-05-18T00:00:00Z"},
        ]
    }


async def test_calendars_and_jobs_of_a_file_are_applied_together(served: Served) -> None:
    nights = {"name": "nights", "windows": ["daily 22:00-06:00"], "inside": "run_after"}

    plan = (await apply(served, nights, calendars=["nights"])).json()
    again = (await apply(served, nights, calendars=["nights"])).json()

    assert [(it["name"], it["change"]) for it in plan["calendars"]] == [("nights", "new")]
    assert len(plan["changes"][0]["notes"]) == 5
    assert "02:00:00 UTC is inside calendar nights: runs " in plan["changes"][0]["notes"][0]
    assert [it["change"] for it in again["calendars"]] == ["unchanged"]
    assert (await served.get("jobs/nightly")).json()["schedule"]["calendars"] == ["nights"]


async def test_a_changed_calendar_makes_an_old_plan_stale(served: Served) -> None:
    nights = {"name": "nights", "windows": ["daily 22:00-06:00"]}
    before = (await apply(served, nights, calendars=["nights"])).json()["etag"]

    after = (await apply(served, nights, calendars=["nights"])).json()["etag"]
    await put(served, "nights")
    changed = (await apply(served, nights, calendars=["nights"])).json()["etag"]

    assert len({before, after, changed}) == 3


async def test_an_unknown_calendar_is_refused_with_the_nearest_name(served: Served) -> None:
    await put(served)

    answer = await apply(served, calendars=["weekend"])

    [error] = answer.json()["errors"]
    assert (answer.status_code, error["path"]) == (422, "jobs[0].calendars[0]")
    assert error["hint"] == 'did you mean "weekends"?'
    assert (await served.get("jobs")).json()["items"] == []


async def test_calendars_of_other_projects_are_unknown(served: Served) -> None:
    await put(served, params={"project": "other"})

    answer = await apply(served, calendars=["weekends"])

    assert answer.status_code == 422


async def test_calendars_that_leave_no_time_together_are_refused(served: Served) -> None:
    first, second = ({"name": f"c{n}", "windows": [window]} for n, window in enumerate(ALWAYS))

    answer = await apply(served, first, second, calendars=["c0", "c1"])

    [error] = answer.json()["errors"]
    assert (answer.status_code, error["path"]) == (422, "jobs[0].calendars")
    assert (await served.get("calendars")).json()["items"] == []


async def test_a_change_that_would_leave_a_job_no_time_is_refused(served: Served) -> None:
    await put(served, "c0", json={"windows": [ALWAYS[0]]})
    await put(served, "c1", json={"windows": ["Sat"]})
    await apply(served, calendars=["c0", "c1"])

    alone = await put(served, "c1", json={"windows": [ALWAYS[1]]})
    by_file = await served.post(
        "jobs:apply",
        content=json.dumps({"calendars": [{"name": "c1", "windows": [ALWAYS[1]]}], "jobs": []}),
        headers=YAML,
    )

    assert (alone.status_code, by_file.status_code) == (422, 422)
    assert "nightly" in alone.json()["detail"]
    assert (await served.get("calendars/c1")).json()["windows"] == ["Sat"]


async def test_coming_due_times_say_what_calendars_do_to_them(served: Served) -> None:
    await put(served, json={"windows": ["daily 01:00-03:00"]})
    await apply(served, calendars=["weekends"])

    skipped = (await served.get("jobs/nightly/upcoming", params={"count": 2})).json()
    await put(served, json={"windows": ["daily 01:00-03:00"], "inside": "run_after"})
    moved = (await served.get("jobs/nightly/upcoming", params={"count": 2})).json()

    assert [it["due"] for it in skipped["calendars"]] == skipped["times"]
    assert {it["released_at"] for it in skipped["calendars"]} == {None}
    assert moved["calendars"][0]["released_at"] == moved["times"][0].replace("T02", "T03")
    assert moved["calendars"][0]["calendar"] == "weekends"


async def test_a_calendar_that_the_server_cannot_read_says_why(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    await put(served)
    await apply(served, calendars=["weekends"])
    monkeypatch.setattr(blackout, "_package", lambda: None)
    holidays = NewCalendar("default", Calendar("weekends", holidays=Holidays("DE", "SN")), 1)
    await served.engine.store.save_calendars([holidays], actor="another server")

    listed = (await served.get("calendars")).json()["items"][0]
    upcoming = (await served.get("jobs/nightly/upcoming")).json()
    windows = await served.get("calendars/weekends/windows")

    assert (listed["words"], "pip install" in listed["problem"]) == ("", True)
    assert "pip install rota[holidays]" in upcoming["problem"]
    assert len(upcoming["times"]) == 5
    assert windows.status_code == 422
