from __future__ import annotations

import pytest

from tests.unit.refused_schedules import REFUSED, Refused
from tests.unit.server.gateway.served import YAML, Served, job_file

pytestmark = pytest.mark.anyio


async def test_a_schedule_is_previewed_in_words_and_times_of_its_zone(served: Served) -> None:
    params = {
        "expression": "30 2 * * *",
        "timezone": "Europe/Berlin",
        "from": "2027-03-26T12:00:00Z",
        "count": "3",
    }

    answer = (await served.get("schedule/preview", params=params)).json()

    assert answer["words"] == "every day at 02:30, Europe/Berlin"
    assert answer["kinds"] == ["fixed"]
    assert answer["next"] == [
        "2027-03-27T02:30:00+01:00",
        "2027-03-28T03:00:00+02:00",
        "2027-03-29T02:30:00+02:00",
    ]
    change = answer["clock_changes"][0]
    assert change["at"] == "2027-03-28T01:00:00Z"
    assert "does not exist" in change["text"]


async def test_several_expressions_are_previewed_together(served: Served) -> None:
    params = [
        ("expression", "0 2 * * *"),
        ("expression", "0 2 * *"),
        ("from", "2027-01-01T00:30:00Z"),
        ("count", "3"),
    ]

    answer = (await served.get("schedule/preview", params=params)).json()

    assert answer["next"] == [
        "2027-01-01T01:02:00Z",
        "2027-01-01T02:00:00Z",
        "2027-01-01T02:02:00Z",
    ]
    assert "4 fields" in answer["warnings"][0]["message"]


@pytest.mark.parametrize(
    "params",
    [
        {"expression": "0 0 30 2 *"},
        {"expression": "0 25 * * *"},
        {"expression": "@daily", "timezone": "../../etc/passwd"},
        {"expression": ""},
    ],
)
async def test_an_impossible_schedule_is_refused(served: Served, params: dict[str, str]) -> None:
    answer = await served.get("schedule/preview", params=params)

    assert answer.status_code == 422
    assert answer.json()["errors"]


@pytest.mark.parametrize("refused", REFUSED, ids=str)
@pytest.mark.parametrize("verb", ["validate", "apply"])
async def test_a_file_is_refused_with_the_place_and_the_reason(
    served: Served, refused: Refused, verb: str
) -> None:
    answer = await served.post(f"jobs:{verb}", content=job_file(refused.job), headers=YAML)

    [error] = answer.json()["errors"]
    assert answer.status_code == 422
    assert refused.message in error["message"]
    assert error["path"].startswith("jobs[0].")
    assert (await served.get("jobs")).json()["items"] == []


@pytest.mark.parametrize("refused", [r for r in REFUSED if r.is_whole_without_a_job], ids=str)
async def test_a_preview_is_refused_with_the_reason(served: Served, refused: Refused) -> None:
    expressions, zone = refused.preview

    answer = await served.get(
        "schedule/preview", params={"expression": expressions, "timezone": zone}
    )

    [error] = answer.json()["errors"]
    assert answer.status_code == 422
    assert refused.message in error["message"]
