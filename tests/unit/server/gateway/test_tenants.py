"""What a member of one project finds out about another one on the same workers: nothing."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from rota.domain.access import Role
from rota.ports.queue import EVENTS
from rota.ports.records import NewToken
from rota.ports.work import Hello
from rota.server.gateway import events
from tests.unit.server.gateway.served import YAML, Served, job, job_file
from tests.unit.server.gateway.streaming import streaming
from tests.unit.server.gateway.tenants import HIDDEN_POOL, MARK, OURS, THEIRS, Tenants, settle

pytestmark = pytest.mark.anyio

_ENDLESS = ("/stream",)
# Parameters of routes that have them: some have no default, and one shows more than is usual.
_MADE_UP = {"digest": "sha256:" + "0" * 64, "path": "made-up"}
_GIVEN = {"q": "x", "expression": "every 5m", "all": "true"}


@pytest.fixture
async def tenants(served: Served, tmp_path: Path) -> Tenants:
    return await settle(served, tmp_path / "rota.db")


@dataclass(frozen=True, slots=True)
class Route:
    """A GET route of the API, and how it is asked about things of some names."""

    declared: str  # its path
    path: str  # with the names in it
    parameters: frozenset[str]

    async def ask(self, tenants: Tenants, project: str | None) -> httpx.Response:
        given = {**_GIVEN, **({} if project is None else {"project": project})}
        params = {name: value for name, value in given.items() if name in self.parameters}
        return await tenants.member.get(self.path, params=params)


def routes(served: Served, names: dict[str, str]) -> Iterator[Route]:
    for path, methods in served.app.openapi()["paths"].items():
        if "get" in methods and not path.endswith(_ENDLESS):
            noun = path.removeprefix("/api/v1/").partition("/")[0]
            named = names.get(noun.removesuffix("s"), "made-up")
            parameters = {each["name"] for each in methods["get"].get("parameters", ())}
            filled = path.format(**names, **_MADE_UP, name=named)
            yield Route(path, filled, frozenset(parameters))


def told(tenants: Tenants, text: str) -> set[str]:
    return {each for each in tenants.marked if each in text}


@pytest.mark.parametrize("project", [OURS, "*", "default", None])
async def test_no_answer_to_a_member_names_anything_of_another_project(
    tenants: Tenants, project: str | None
) -> None:
    wrong: dict[str, object] = {}
    statuses: dict[str, int] = {}

    for route in routes(tenants.served, tenants.ours):
        answer = await route.ask(tenants, project)
        statuses[route.declared] = answer.status_code
        if found := told(tenants, answer.text + str(answer.headers)):
            wrong[route.declared] = found, answer.text

    assert wrong == {}
    if project == OURS:
        refused = {route: status for route, status in statuses.items() if status != 200}
        assert set(refused.values()) <= {400, 403, 404}, refused
        assert sum(status == 200 for status in statuses.values()) > 35


async def test_every_waiting_run_of_ours_can_be_explained_without_theirs(tenants: Tenants) -> None:
    runs = [run for name, run in tenants.ours.items() if name.startswith("run ")]

    answers = [await ask(tenants, f"runs/{run}/why") for run in runs]
    kept = await ask(tenants, f"runs/{tenants.ours['run']}/why")

    assert [answer.status_code for answer in answers] == [200] * len(runs)
    assert not told(tenants, "".join(answer.text for answer in answers))
    reasons = {reason["gate"]: reason for reason in kept.json()["reasons"]}
    assert reasons["reservation"]["message"].startswith(
        "worker shared is kept free for a run of another project until "
    )
    assert kept.json()["order"]["reservation"]["run"] == ""
    assert kept.json()["order"]["position"] >= 1  # of theirs it is told how many go first


async def test_who_has_a_role_in_the_installation_is_told_which_run_it_is(
    tenants: Tenants,
) -> None:
    path = f"runs/{tenants.ours['run']}/why"

    told = (await tenants.served.get(path, Role.VIEWER, params={"project": OURS})).json()

    assert told["order"]["reservation"]["run"] == tenants.theirs["run large that waits"]


@pytest.mark.parametrize("project", [OURS, "*"])
async def test_no_list_finds_theirs_by_filter(tenants: Tenants, project: str) -> None:
    theirs = tenants.theirs
    filters = [
        ("runs", {"cart": theirs["cart"]}),
        ("runs", {"where": f"job:{theirs['job']}"}),
        ("runs", {"where": "job:*"}),
        ("jobs", {"name": f"{MARK}*"}),
        ("events", {"cart": theirs["cart"]}),
        ("events", {"tail": "1000"}),
        ("forecast", {"job": theirs["job"]}),
        ("forecast", {"measure": f"{MARK}-gpu"}),
        ("carts", {"where": "name:*"}),
    ]

    for path, params in filters:
        answer = await ask(tenants, path, **params, project=project)
        asked = set(params.values()) | {MARK}  # what was asked for may be repeated
        assert not told(tenants, answer.text) - asked, (path, params, answer.text)
        if answer.status_code == 200:
            assert MARK not in answer.text, (path, params)


async def test_their_things_are_as_if_they_were_not_there(tenants: Tenants) -> None:
    """Whatever is asked for by their names and ids gets the answer of something made up."""
    nothing = {
        **{what: name.replace(MARK, "xw3k") for what, name in tenants.theirs.items()},
        "run": "r_0000000000000000000000000",
        "cart": "c_0000000000000000000000000",
    }

    for real, made_up in zip(
        routes(tenants.served, tenants.theirs), routes(tenants.served, nothing), strict=True
    ):
        if "{" not in real.declared:
            continue
        foreign, absent = await real.ask(tenants, OURS), await made_up.ask(tenants, OURS)
        assert foreign.status_code == absent.status_code == 404, (real, foreign.text)
        assert alike(foreign, tenants.theirs) == alike(absent, nothing), real


def alike(answer: httpx.Response, names: dict[str, str]) -> dict[str, Any]:
    """An answer without the names that it repeats, and without what differs from call to call."""
    text = answer.text
    for name in sorted(names.values(), key=len, reverse=True):
        text = text.replace(name, "NAME")
    return {k: v for k, v in httpx.Response(200, text=text).json().items() if k != "trace_id"}


async def test_their_project_is_as_if_it_were_not_there(tenants: Tenants) -> None:
    for route in routes(tenants.served, tenants.ours):
        there, absent = [await route.ask(tenants, project) for project in (THEIRS, "made-up")]
        assert there.status_code == absent.status_code, route
        if there.status_code == 404:
            assert alike(there, {"": THEIRS}) == alike(absent, {"": "made-up"}), route


@pytest.mark.parametrize("project", [OURS, "*"])
async def test_a_stream_of_events_tells_only_ours(tenants: Tenants, project: str) -> None:
    headers = {"authorization": f"Bearer {tenants.secret}"}
    heard: list[dict[str, Any]] = []

    async with streaming(
        tenants.served, "events/stream", headers, after=0, project=project
    ) as stream:
        await stream.started()
        marker = await tenants.member.post(
            f"/api/v1/jobs/{tenants.ours['job']}/runs", params={"project": OURS}, json={}
        )
        async with asyncio.timeout(10):
            while not heard or marker.json()["id"] not in heard[-1]["data"]["data"]["ids"]:
                heard.append(await stream.event())

    assert stream.status == 200
    assert {event["data"]["data"]["project"] for event in heard} == {OURS}
    assert not told(tenants, str(heard))
    assert len(heard) > 10


async def test_events_of_the_installation_are_for_those_with_a_role_there(
    tenants: Tenants,
) -> None:
    def projects(answer: httpx.Response) -> set[str]:
        return {event["data"]["project"] for event in answer.json()["items"]}

    params = {"limit": "1000"}
    everything = await tenants.served.get("events", Role.VIEWER, params={**params, "project": "*"})
    one = await tenants.served.get("events", Role.VIEWER, params={**params, "project": THEIRS})
    ours = await ask(tenants, "events", project="*", **params)

    assert projects(everything) == {"", OURS, THEIRS}
    assert projects(one) == {THEIRS}
    assert projects(ours) == {OURS}


async def test_a_file_that_is_wrong_gets_no_hint_of_theirs(tenants: Tenants) -> None:
    close = MARK[:-1]  # near to a name of theirs, but none of them
    wrong = [
        job("one", pool=f"{close}-pool"),
        job("two", share=f"{close}-share"),
        job("three", resources={f"{close}-gpu": 1}),
        job("four", needs={f"{close}-label": "x"}),
        job("five", share=THEIRS.replace(MARK, close)),
        job("six", after=[f"{close}-tidy"], schedule="every 1h"),
    ]

    for each in wrong:
        for path, params in (("jobs:validate", {}), ("jobs:apply", {"plan": "true"})):
            answer = await tenants.member.post(
                f"/api/v1/{path}",
                content=job_file(each),
                headers=YAML,
                params={**params, "project": OURS},
            )
            assert not told(tenants, answer.text), (path, each, answer.text)


async def test_to_name_their_project_as_a_share_is_as_to_name_nothing(tenants: Tenants) -> None:
    def refused(share: str) -> Any:
        return tenants.member.post(
            "/api/v1/jobs:apply",
            content=job_file(job(share=share)),
            headers=YAML,
            params={"project": OURS, "plan": "true"},
        )

    theirs, nothing = await refused(THEIRS), await refused("made-up")

    assert theirs.status_code == nothing.status_code == 422
    assert alike(theirs, {"": THEIRS}) == alike(nothing, {"": "made-up"})


async def test_a_simulation_calls_theirs_other_projects(tenants: Tenants) -> None:
    async def simulated(**body: object) -> httpx.Response:
        return await tenants.member.post(
            "/api/v1/simulations", json={"for": "2h", **body}, params={"project": OURS}
        )

    answer, hidden, nothing = [
        await simulated(),
        await simulated(add_workers={HIDDEN_POOL: 1}),
        await simulated(add_workers={"made-up": 1}),
    ]

    assert answer.status_code == 200, answer.text
    assert not told(tenants, answer.text)
    assert "(other projects)" in {each["name"] for each in answer.json()["before"]["jobs"]}
    assert alike(hidden, {"": HIDDEN_POOL}) == alike(nothing, {"": "made-up"})


async def test_workers_of_pools_that_are_ours_are_seen_by_what_jobs_need_of_them(
    tenants: Tenants,
) -> None:
    hello = Hello(worker="w1", pool="default", slots=1, labels={"site": "fra"}, functions=("f",))
    store = tenants.served.engine.store
    await store.add_token(
        NewToken("t_w1", "w1", Role.VIEWER, "digest of w1", "worker", "x", timedelta(days=1))
    )
    await store.register(hello, timedelta(seconds=30), "server-1", "t_w1")

    seen = {each["worker"]: each for each in (await ask(tenants, "workers")).json()["items"]}
    admin = await tenants.served.client()
    whole = {each["worker"]: each for each in (await admin.get("/api/v1/workers")).json()["items"]}

    assert seen.keys() == {"w1", "shared"}
    assert (seen["w1"]["labels"], seen["w1"]["functions"]) == ({"site": "fra"}, ["f"])
    assert seen["shared"]["trouble"] == "it holds something that no server takes"
    hidden = ("server", "credential", "credential_expires_at")
    assert [seen["w1"][name] for name in hidden] == ["", None, None]
    assert [whole["w1"][name] for name in hidden[:2]] == ["server-1", "t_w1"]
    assert MARK in whole["shared"]["trouble"]


async def test_pools_that_the_policy_does_not_allow_are_not_seen(tenants: Tenants) -> None:
    await tenants.served.worker("elsewhere", pool="gpu")
    before = await pools_and_workers(tenants)
    admin = await tenants.served.client()
    edit = {"policy": {"pools": ["default"]}}
    answer = await admin.patch(f"/api/v1/projects/{OURS}", json=edit)
    assert answer.status_code == 200, answer.text

    after = await pools_and_workers(tenants)

    assert before == ({"default", "gpu"}, {"shared", "elsewhere"})
    assert after == ({"default"}, {"shared"})
    assert (await ask(tenants, "pools/gpu")).status_code == 404


async def pools_and_workers(tenants: Tenants) -> tuple[set[str], set[str]]:
    pools = (await ask(tenants, "pools")).json()["items"]
    workers = (await ask(tenants, "workers")).json()["items"]
    return {each["name"] for each in pools}, {each["worker"] for each in workers}


async def test_a_cart_for_each_worker_leaves_theirs_out(tenants: Tenants) -> None:
    cart = {"name": "sweep", "job": "tidy", "items_from": {"workers": {}}}

    answer = await tenants.member.post(
        "/api/v1/carts", json=cart, params={"project": OURS, "plan": "true"}
    )

    assert not told(tenants, answer.text)
    assert answer.status_code in (200, 400, 422), answer.text


async def ask(tenants: Tenants, path: str, **params: str) -> httpx.Response:
    return await tenants.member.get(f"/api/v1/{path}", params={"project": OURS, **params})


async def test_a_stream_of_all_projects_ends_when_a_role_in_one_is_taken_or_given(
    tenants: Tenants, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It shows what was allowed when it began: whoever may see more or less by now asks anew."""
    monkeypatch.setattr(events, "_RECHECK_SECONDS", 0.0)
    monkeypatch.setattr(tenants.served.app.state.tokens, "_trust_for", 0.0)
    headers = {"authorization": f"Bearer {tenants.served.secrets[Role.VIEWER]}"}

    async with streaming(tenants.served, "events/stream", headers, project="*") as stream:
        await stream.started()
        change_role(tmp_path / "rota.db", "viewer", OURS)
        tenants.served.engine.queue.announce(EVENTS)
        ended = await stream.ended()

    assert ended


def change_role(database: Path, principal: str, project: str) -> None:
    """Let somebody with a role everywhere have it in one project only."""
    with sqlite3.connect(database) as connection:
        connection.execute("UPDATE binding SET scope = ? WHERE principal = ?", (project, principal))
    connection.close()
