"""Reports of other systems by REST: who may make them, and what they change."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import httpx
import pytest

from rota.domain.access import Role, TokenTerms
from rota.domain.credentials import SecretKind, digest, new_secret
from rota.operations import external
from rota.operations.tokens import create_token
from testkit.builders import MINUTE
from testkit.identity import make_project
from tests.unit.server.gateway.served import Served

pytestmark = pytest.mark.anyio

CALLS: dict[str, Any] = {
    "announce": {"url": "https://ci.example.org/runs"},
    "cancel": {"url": "https://ci.example.org/cancel"},
}


def build(**fields: object) -> dict[str, object]:
    """A job that another system does."""
    return {"name": "build", "type": "external", "timeout": "1h", "external": CALLS, **fields}


async def begun(served: Served, **fields: object) -> str:
    """A run of such a job that has begun."""
    await served.apply(build(**fields))
    run = await served.trigger("build")
    await external.begin_waiting(served.engine)
    return str(run["id"])


async def token_of(served: Served, run: str) -> str:
    """The token that came with the announcement of a run."""
    token = new_secret(SecretKind.REPORT)
    leased = await served.engine.store.lease_announcements([digest(token)], MINUTE)
    assert [each.run for each, _ in leased] == [run]
    return token


async def report(
    served: Served, run: str, token: str, body: Mapping[str, object], **params: str
) -> httpx.Response:
    client = await served.browser({"Authorization": f"Bearer {token}"})
    return await client.patch(f"/api/v1/runs/{run}", json=body, params=params)


async def refuse_bytes(*_: object) -> None:
    raise AssertionError("nothing is to be kept")


def code_of(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["code"]


class TestWithTheToken:
    async def test_it_reports_to_the_end(self, served: Served) -> None:
        run = await begun(served)
        token = await token_of(served, run)

        going = {"state": "processing", "number": 1, "progress": 0.4, "message": "testing"}
        first = await report(served, run, token, going | {"output": "one\ntwo\n"})
        end = {"state": "completed", "number": 2, "outputs": {"id": 7}}
        last = await report(served, run, token, end)

        shown = (await served.get(f"runs/{run}")).json()
        log = (await served.get(f"runs/{run}/log")).json()
        assert (first.status_code, last.status_code) == (200, 200), first.text
        assert last.json() == {"run": run, "attempt": 1, "number": 2, "state": "completed"}
        assert (shown["state"], shown["outputs"]) == ("COMPLETED", {"id": 7})
        assert shown["external"]["number"] == 2
        assert [line["text"] for line in log["lines"]] == ["one", "two"]

    async def test_progress_is_shown_while_it_goes_on(self, served: Served) -> None:
        run = await begun(served)
        token = await token_of(served, run)

        await report(
            served,
            run,
            token,
            {"state": "processing", "number": 1, "progress": 0.4, "message": "x"},
        )

        shown = (await served.get(f"runs/{run}")).json()
        assert shown["progress"] == {"done": 40.0, "total": 100.0, "message": "x"}
        assert shown["worker"] == ""

    async def test_the_same_report_again_has_the_same_answer(self, served: Served) -> None:
        run = await begun(served)
        token = await token_of(served, run)
        end = {"state": "failed", "number": 5, "message": "no disk"}

        first, again = [await report(served, run, token, end) for _ in range(2)]

        assert (first.status_code, first.content) == (again.status_code, again.content)
        assert first.status_code == 200

    @pytest.mark.parametrize(
        "body",
        [
            {"number": True},
            {"number": "1"},
            {"number": 0},
            {"number": -1},
            {"number": 2**70},
            {"number": 1, "attempt": True},
            {"number": 1, "attempt": 0},
            {"number": 1, "attempt": -(2**70)},
            {"number": 1, "progress": True},
            {"number": 1, "progress": {"done": "1"}},
            {"number": 1, "message": "a\0b"},
        ],
    )
    async def test_what_is_no_report_is_refused(self, served: Served, body: Any) -> None:
        run = await begun(served)
        token = await token_of(served, run)

        refused = await report(served, run, token, {"state": "processing", **body})
        by_operator = await served.patch(f"runs/{run}", json={"state": "processing", **body})

        assert (refused.status_code // 100, by_operator.status_code // 100) == (4, 4)

    async def test_what_comes_late_again_and_again_leaves_nothing(
        self, served: Served, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run = await begun(served)
        token = await token_of(served, run)
        await report(served, run, token, {"state": "completed", "number": 1, "output": "one"})
        monkeypatch.setattr(type(served.engine.blobs), "put", refuse_bytes)

        for number in range(2, 5):
            late = {"state": "failed", "number": number, "output": "two"}
            assert (await report(served, run, token, late)).status_code == 409

        events = (await served.get(f"runs/{run}/events")).json()["items"]
        assert [event["type"] for event in events].count("rota.run.late_result") == 1

    async def test_an_older_report_is_refused(self, served: Served) -> None:
        run = await begun(served)
        token = await token_of(served, run)
        await report(served, run, token, {"state": "processing", "number": 5})

        late = await report(served, run, token, {"state": "failed", "number": 4})

        assert code_of(late) == (409, "report_stale")

    async def test_a_report_after_the_end_is_kept_aside(self, served: Served) -> None:
        run = await begun(served)
        token = await token_of(served, run)
        await report(served, run, token, {"state": "completed", "number": 1})

        late = await report(served, run, token, {"state": "failed", "number": 2, "message": "oh"})

        shown = (await served.get(f"runs/{run}")).json()
        assert code_of(late) == (409, "report_late")
        assert shown["state"] == "COMPLETED"
        assert [(each["result"], each["message"]) for each in shown["late_results"]] == [
            ("FAILED", "oh")
        ]

    async def test_the_token_of_an_earlier_attempt_changes_nothing(self, served: Served) -> None:
        run = await begun(served, retry={"attempts": 2})
        old = await token_of(served, run)
        await report(served, run, old, {"state": "failed", "number": 1})
        await served.engine.store.release_eligible(10)
        assert await external.begin_waiting(served.engine) == 1
        new = await token_of(served, run)

        late = await report(served, run, old, {"state": "completed", "number": 2})
        end = await report(served, run, new, {"state": "completed", "number": 1})

        assert code_of(late) == (409, "report_late")
        assert end.json()["attempt"] == 2

    async def test_a_number_is_needed(self, served: Served) -> None:
        run = await begun(served)
        token = await token_of(served, run)

        assert code_of(await report(served, run, token, {"state": "completed"})) == (
            422,
            "bad_report",
        )

    async def test_another_run_is_as_if_it_were_not_there(self, served: Served) -> None:
        first = await begun(served)
        token = await token_of(served, first)
        other = (await served.trigger("build"))["id"]

        body = {"state": "completed", "number": 1}
        foreign = await report(served, other, token, body)
        missing = await report(served, "r_missing", token, body)

        assert code_of(foreign) == code_of(missing) == (404, "run_not_found")

    async def test_a_forged_token_is_nobody(self, served: Served) -> None:
        run = await begun(served)

        forged = await report(
            served, run, new_secret(SecretKind.REPORT), {"state": "completed", "number": 1}
        )

        assert code_of(forged) == (401, "unauthenticated")
        assert (await served.get(f"runs/{run}")).json()["state"] == "PROCESSING"

    @pytest.mark.parametrize(
        ("path", "status"),
        [
            ("runs", 404),
            ("runs/RUN", 404),
            ("runs?project=*", 403),
            ("jobs", 404),
            ("whoami", 403),
            ("projects", 403),
            ("workers", 403),
            ("principals", 403),
        ],
    )
    async def test_it_is_for_nothing_else(self, served: Served, path: str, status: int) -> None:
        run = await begun(served)
        token = await token_of(served, run)
        client = await served.browser({"Authorization": f"Bearer {token}"})

        answer = await client.get(f"/api/v1/{path.replace('RUN', run)}")

        assert answer.status_code == status, answer.text

    async def test_no_cookie_is_such_a_token(self, served: Served) -> None:
        run = await begun(served)
        token = await token_of(served, run)
        client = await served.browser({"X-Rota-Request": "1"})
        client.cookies.set("rota_session", token)

        answer = await client.patch(f"/api/v1/runs/{run}", json={"state": "completed", "number": 1})

        assert answer.status_code == 401


class TestAsSomebody:
    async def test_an_operator_needs_no_number(self, served: Served) -> None:
        run = await begun(served)
        client = await served.client(Role.OPERATOR)

        answer = await client.patch(f"/api/v1/runs/{run}", json={"state": "completed"})

        events = (await served.get(f"runs/{run}/events")).json()["items"]
        assert answer.json() == {"run": run, "attempt": 1, "number": None, "state": "completed"}
        assert events[-1]["type"].endswith("run.finished")
        assert events[-1]["data"]["actor"] == "operator"

    async def test_a_viewer_may_not(self, served: Served) -> None:
        run = await begun(served)
        client = await served.client(Role.VIEWER)

        answer = await client.patch(f"/api/v1/runs/{run}", json={"state": "completed"})

        assert code_of(answer) == (403, "forbidden")

    async def test_a_foreign_project_is_as_if_it_were_not_there(self, served: Served) -> None:
        run = await begun(served)
        await make_project(served.engine.store, "web")

        _, token = await create_token(
            served.engine.store,
            name="web",
            role=Role.ADMIN,
            actor="test",
            terms=TokenTerms("web"),
        )

        own = await report(served, run, token, {"state": "completed"}, project="web")
        foreign = await report(served, run, token, {"state": "completed"})

        assert code_of(own) == (404, "run_not_found")
        assert code_of(foreign) == (404, "project_not_found")

    async def test_a_worker_reports_on_its_own_runs(self, served: Served) -> None:
        await served.apply({"name": "tidy", "steps": [{"run": "true"}]})
        run = (await served.trigger())["id"]

        answer = await served.patch(f"runs/{run}", json={"state": "completed"})

        assert code_of(answer) == (409, "not_external")

    @pytest.mark.parametrize(
        "body",
        [
            {"state": "done"},
            {"state": "processing", "number": 0},
            {"state": "processing", "progress": 1.5},
            {"state": "processing", "progress": {"done": -1}},
            {"state": "processing", "outputs": {}},
            {"state": "completed", "progress": 0.5},
            {"state": "completed", "message": "x" * 5_000},
            {"state": "processing", "output": "x" * 70_000},
            {"state": "completed", "outputs": {"a": "x" * 300_000}},
            {"state": "completed", "attempt": 9},
            {"state": "completed", "more": 1},
        ],
        ids=str,
    )
    async def test_what_makes_no_sense_changes_nothing(
        self, served: Served, body: dict[str, object]
    ) -> None:
        run = await begun(served)

        answer = await served.patch(f"runs/{run}", json=body)

        assert answer.status_code in (409, 422), answer.text
        assert (await served.get(f"runs/{run}")).json()["state"] == "PROCESSING"


class TestSeen:
    async def test_a_cancelled_run_ends_and_is_told(self, served: Served) -> None:
        run = await begun(served)

        await served.post(f"runs/{run}:cancel")
        await external.end_silent(served.engine)

        shown = (await served.get(f"runs/{run}")).json()
        assert shown["state"] == "CANCELLED"
        assert [each["what"] for each in shown["external"]["told"]] == ["announce", "cancel"]

    async def test_an_announcement_in_vain_is_told(self, served: Served) -> None:
        run = await begun(served, external=CALLS | {"heartbeat": "5m"})

        await asyncio.gather(*await external.announce_due(served.engine, 20))

        why = (await served.get(f"runs/{run}/why")).json()
        shown = (await served.get(f"runs/{run}")).json()
        assert "another system does it; the next report is due by" in why["summary"]
        assert "told of it once in vain: this server sends no" in why["reasons"][0]["message"]
        assert shown["external"]["told"][0]["tries"] == 1

    async def test_a_run_that_waits_says_why(self, served: Served) -> None:
        await served.apply(build(max_concurrency=1))
        await served.trigger("build")
        waiting = (await served.trigger("build"))["id"]
        await external.begin_waiting(served.engine)

        why = (await served.get(f"runs/{waiting}/why")).json()

        assert [each["gate"] for each in why["reasons"]] == ["max_concurrency"]

    async def test_nobody_takes_it_for_work_of_workers(self, served: Served) -> None:
        await begun(served)

        workers = (await served.get("workers")).json()
        pools = (await served.get("pools")).json()
        load = (await served.get("forecast", params={"measure": "slots"})).json()

        assert workers["items"] == []
        assert [each["name"] for each in pools["items"]] == []
        assert load.get("capacity", 0) == 0
