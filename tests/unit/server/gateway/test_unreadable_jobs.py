"""A job that this release cannot read stands in nobody's way."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from rota.ports.records import JobQuery, NewJob
from testkit.builders import new_job
from tests.unit.server.gateway.served import YAML, Served, job, job_file

pytestmark = pytest.mark.anyio


async def apply(served: Served, document: dict[str, object]) -> None:
    client = await served.client()
    answer = await client.post("/api/v1/jobs:apply", content=job_file(document), headers=YAML)
    answer.raise_for_status()


@pytest.fixture
async def unreadable(served: Served) -> NewJob:
    """Beside another job, one in a zone that is not known here."""
    await apply(served, job("readable", schedule="@daily"))
    now = await served.backends.store.now()
    new = new_job("unreadable", now, next_at=now + timedelta(hours=1))
    document = {**new.document, "schedule": "@daily", "timezone": "Moon/Tycho"}
    new = replace(new, document=document)
    await served.backends.store.save_jobs([new], removed=(), actor="test")
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
    assert await served.backends.store.jobs(JobQuery(names=["unreadable"])) == []
