"""Reports from a program: what is sent, and which numbers it has."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rota.sdk import errors
from rota.sdk.client import AsyncClient, Client
from rota.sdk.external import AsyncExternalRun, ExternalRun
from tests.unit.sdk.answering import Answering, document, problem

REPORT = "PATCH /runs/r_1"
ACCEPTED = document({"run": "r_1", "attempt": 1, "number": 1, "state": "processing"})


def announcement(server: Answering, path: str = "/api/v1/runs/r_1?project=shop") -> dict[str, Any]:
    return {"run": "r_1", "report": {"url": f"{server.url}{path}", "token": "rotar_x"}}


def test_an_announcement_is_all_that_is_needed(server: Answering) -> None:
    server.on(REPORT, ACCEPTED)

    with ExternalRun.announced(announcement(server)) as run:
        run.update("processing", progress=0.4, message="testing")
        run.update("completed", outputs={"build": 7})

    first, last = server.asked
    assert first.headers["Authorization"] == "Bearer rotar_x"
    assert first.query == {"project": ["shop"]}
    assert first.document.pop("number") < last.document["number"]
    assert {k: v for k, v in first.document.items() if k != "number"} == {
        "state": "processing",
        "progress": 0.4,
        "message": "testing",
    }
    assert last.document["outputs"] == {"build": 7}


def test_numbers_grow_if_the_program_is_restarted(server: Answering) -> None:
    server.on(REPORT, ACCEPTED)

    for _ in range(2):
        with ExternalRun.announced(announcement(server)) as run:
            run.update("processing")

    before, after = (each.document["number"] for each in server.asked)
    assert before < after


def test_an_event_loop_reports_in_the_same_way(server: Answering) -> None:
    server.on(REPORT, ACCEPTED)

    async def work() -> None:
        async with AsyncExternalRun.announced(announcement(server)) as run:
            await run.update("processing", progress={"done": 1, "total": 2})
        async with AsyncClient(server.url, "secret") as client:
            await client.external("r_1").update("failed", message="no disk")

    asyncio.run(work())

    announced, operator = (each.document for each in server.asked)
    assert announced["progress"] == {"done": 1, "total": 2}
    assert operator == {"state": "failed", "message": "no disk"}


def test_an_operator_counts_nothing(server: Answering) -> None:
    server.on(REPORT, ACCEPTED)

    with Client(server.url, "secret") as client:
        client.external("r_1").update("cancelled")

    assert server.asked[0].document == {"state": "cancelled"}


def test_what_comes_late_is_a_conflict(server: Answering) -> None:
    server.on(REPORT, problem(409, code="report_late"))

    with (
        ExternalRun.announced(announcement(server)) as run,
        pytest.raises(errors.Conflict) as refusal,
    ):
        run.update("completed")

    assert refusal.value.code == "report_late"


@pytest.mark.parametrize(
    "message",
    [{}, {"report": None}, {"report": {"url": "https://a/"}}],
    ids=str,
)
def test_what_is_no_announcement_is_refused(message: dict[str, Any]) -> None:
    with pytest.raises(errors.Invalid, match="is no announcement"):
        ExternalRun.announced(message)


def test_a_report_url_below_a_prefix_keeps_it(server: Answering) -> None:
    server.on("PATCH /rota/api/v1/runs/r_1", ACCEPTED, prefix="")

    with ExternalRun.announced(announcement(server, "/rota/api/v1/runs/r_1")) as run:
        run.update("processing")

    assert server.asked[0].path == "/rota/api/v1/runs/r_1"
