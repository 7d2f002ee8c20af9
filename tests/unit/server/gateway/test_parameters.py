"""Times without an offset are on the clocks of the job that a request names."""

from __future__ import annotations

from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from tests.unit.server.gateway.served import Served, job

pytestmark = pytest.mark.anyio

BERLIN = ZoneInfo("Europe/Berlin")
NIGHTLY = job(schedule="0 2 * * *", timezone="Europe/Berlin")


def instant(text: str) -> datetime:
    return datetime.fromisoformat(text)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("2099-01-01T12:00", "2099-01-01T12:00+01:00"),
        ("2099-07-01", "2099-07-01T00:00+02:00"),
        ("2099-07-01T12:00Z", "2099-07-01T12:00+00:00"),
    ],
)
async def test_a_pause_ends_on_the_clocks_of_the_job(
    served: Served, written: str, meant: str
) -> None:
    await served.apply(NIGHTLY)

    paused = (await served.post("jobs/tidy:pause", json={"until": written})).json()

    assert instant(paused["paused_until"]) == instant(meant)


async def test_a_pause_until_a_time_of_day_ends_when_it_is_next_so_late(served: Served) -> None:
    await served.apply(NIGHTLY)
    now = await served.engine.store.now()

    paused = (await served.post("jobs/tidy:pause", json={"until": "11:00"})).json()

    end = instant(paused["paused_until"])
    assert f"{end.astimezone(BERLIN):%H:%M}" == "11:00"
    assert timedelta(0) < end - now <= timedelta(hours=25)


async def test_a_run_is_triggered_at_a_time_on_the_clocks_of_the_job(served: Served) -> None:
    await served.apply(NIGHTLY)

    run = (await served.post("jobs/tidy/runs", json={"at": "2099-01-01T12:00"})).json()

    assert instant(run["due_at"]) == instant("2099-01-01T11:00+00:00")


async def test_a_backfill_takes_dates_of_the_jobs_zone(served: Served) -> None:
    await served.apply(NIGHTLY)

    planned = await served.post(
        "jobs/tidy:backfill",
        params={"plan": "true"},
        json={"from": "2026-03-28", "to": "2026-03-30T00:00"},
    )

    assert planned.json()["runs"] == 2
    assert instant(planned.json()["first"]) == instant("2026-03-28T01:00+00:00")
    assert instant(planned.json()["last"]) == instant("2026-03-29T01:00+00:00")


@pytest.mark.parametrize("names", [("from", "to"), ("since", "until")])
async def test_the_ledger_is_asked_by_either_pair_of_words(
    served: Served, names: tuple[str, str]
) -> None:
    await served.apply(NIGHTLY)
    skipped = (await served.post("jobs/tidy:skip")).json()["answered"][0]["first"]
    day = instant(skipped).astimezone(BERLIN).date()

    async def items(first: object, last: object) -> list[object]:
        params = dict(zip(names, map(str, (first, last)), strict=True))
        found: list[object] = (await served.get("jobs/tidy/ledger", params=params)).json()["items"]
        return found

    assert len(await items(day, day + timedelta(days=1))) == 1
    assert await items(day + timedelta(days=1), day + timedelta(days=2)) == []


@pytest.mark.parametrize("since", ["5m", "yesterday", "today 00:00", "2026-01-01"])
async def test_the_ledger_takes_times_as_filters_do(served: Served, since: str) -> None:
    await served.apply(NIGHTLY)
    await served.post("jobs/tidy:skip")

    coming = await served.get("jobs/tidy/ledger", params={"since": since})
    until_then = await served.get("jobs/tidy/ledger", params={"until": since})
    of_runs = await served.get("runs", params={"where": f'since:"{since}"'})

    assert [entry["cause"] for entry in coming.json()["items"]] == ["skip next"]
    assert until_then.json()["items"] == []
    assert of_runs.status_code == 200


async def test_a_filter_has_times_on_the_clocks_of_the_readers_zone(served: Served) -> None:
    await served.apply(NIGHTLY)
    await served.post("jobs/tidy/runs")
    now = await served.engine.store.now()
    an_hour_ago = now.astimezone(ZoneInfo("Asia/Karachi")) - timedelta(hours=1)
    where = f"since:{an_hour_ago:%Y-%m-%dT%H:%M}"

    there = await served.get("runs", params={"where": where, "timezone": "Asia/Karachi"})
    in_utc = await served.get("runs", params={"where": where})

    assert [run["job"] for run in there.json()["items"]] == ["tidy"]
    assert in_utc.json()["items"] == []


async def test_a_run_in_five_minutes_is_the_same_request_when_it_is_repeated(
    served: Served,
) -> None:
    await served.apply(NIGHTLY)
    key = {"Idempotency-Key": "once"}

    first = await served.post("jobs/tidy/runs", json={"at": "5m"}, headers=key)
    again = await served.post("jobs/tidy/runs", json={"at": "5m"}, headers=key)
    other = await served.post("jobs/tidy/runs", json={"at": "6m"}, headers=key)

    assert (first.status_code, again.status_code, other.status_code) == (202, 200, 409)
    assert again.json()["id"] == first.json()["id"]
    wait = instant(first.json()["due_at"]) - await served.engine.store.now()
    assert timedelta(minutes=4) < wait <= timedelta(minutes=5)


async def test_a_backfill_of_the_last_days_is_the_same_request_when_it_is_repeated(
    served: Served,
) -> None:
    await served.apply(NIGHTLY)
    key = {"Idempotency-Key": "once"}

    first = await served.post("jobs/tidy:backfill", json={"from": "50h"}, headers=key)
    again = await served.post("jobs/tidy:backfill", json={"from": "50h"}, headers=key)

    assert (first.status_code, again.status_code) == (202, 200)
    assert again.json()["id"] == first.json()["id"]
    assert first.json()["runs"] in {2, 3}


async def test_a_reversed_range_is_refused(served: Served) -> None:
    await served.apply(NIGHTLY)

    params = {"from": "2026-02-01", "to": "2026-01-01"}
    answer = await served.get("jobs/tidy/ledger", params=params)

    assert (answer.status_code, answer.json()["code"]) == (422, "empty_range")
    assert answer.json()["errors"][0]["message"] == "from lies after to"


async def test_the_ledger_has_answers_to_coming_due_times_by_default(served: Served) -> None:
    await served.apply(NIGHTLY)
    await served.post("jobs/tidy:skip")

    [entry] = (await served.get("jobs/tidy/ledger")).json()["items"]

    assert (entry["state"], entry["cause"]) == ("SKIPPED", "skip next")
    assert instant(entry["first"]) > await served.engine.store.now()


@pytest.mark.parametrize(
    ("address", "text", "message"),
    [
        ("jobs/tidy/ledger", "soon", '"soon": not a time: write 5m, yesterday, today 14:00'),
        ("jobs/tidy/ledger", "10000-01-01", '"10000-01-01": outside the years 1970 to 9999'),
        ("schedule/preview?expression=@daily", "10000-01-01", "outside the years 1970 to 9999"),
    ],
)
async def test_what_is_no_time_is_told_under_its_name(
    served: Served, address: str, text: str, message: str
) -> None:
    await served.apply(NIGHTLY)
    joined = "&" if "?" in address else "?"

    answer = await served.get(f"{address}{joined}from={text}")

    assert answer.status_code == 400
    [error] = answer.json()["errors"]
    assert error["path"] == "from"
    assert message in error["message"]


async def test_all_times_of_a_request_are_told_together(served: Served) -> None:
    await served.apply(NIGHTLY)

    answer = await served.post("jobs/tidy:backfill", json={"from": "a", "to": "b"})

    assert [error["path"] for error in answer.json()["errors"]] == ["from", "to"]


async def test_a_preview_begins_on_the_clocks_of_its_zone_and_knows_the_job(
    served: Served,
) -> None:
    asked = {
        "expression": "30 2 * * *",
        "timezone": "Europe/Berlin",
        "from": "2027-03-28T00:00",
        "gap": "skip",
        "count": "1",
    }

    skipped = (await served.get("schedule/preview", params=asked)).json()
    hashed = [
        (await served.get("schedule/preview", params={"expression": "H H * * *", **job})).json()
        for job in ({}, {"job": "a"}, {"job": "b"})
    ]

    assert skipped["next"] == ["2027-03-29T02:30:00+02:00"]
    assert [len(it["warnings"]) for it in hashed] == [1, 0, 0]
    assert hashed[1]["words"] != hashed[2]["words"]
