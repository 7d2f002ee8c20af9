"""Whoever asks for a thing of another project makes the store do what a thing never made would.

Time is not measured: where statements, their rows and their number are the same, and the store's
steps but for a row that an index names, an answer comes as soon. The routes tell what can be asked.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute

from rota.domain.access import Role
from rota.server.gateway.auth import Where, needs_of
from tests.unit.server.gateway.recorded import Recorded, follow, recording
from tests.unit.server.gateway.served import job, serving_gateway
from tests.unit.server.gateway.tenants import (
    MARK,
    OURS,
    THEIRS,
    Tenants,
    as_member,
    settle,
)
from tests.unit.server.gateway.test_access import BODIES, CALLS
from tests.unit.server.gateway.test_tenants import alike

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.timeout(180)]

MANY = 300  # runs of their job, and items of their cart: who reads these is seen
STEPS = 100  # of SQLite: some rows that indexes name are looked at, and are not the asker's
NAMED = ("job", "run", "cart", "template", "calendar", "token_id", "name")  # in paths
ASKED = ("job", "cart", "backfill")  # in queries
OF_NAMED = "/api/v1/projects/{name}"
WAYS = ("id", "name", "beginning")


@dataclass
class Neighbours:
    """Somebody with all rights in one project, and what there is in another one."""

    tenants: Tenants
    admin: httpx.AsyncClient  # of our project
    theirs: dict[str, str]
    recorded: Recorded

    def named(self, way: str) -> dict[str, str]:
        """Their things, as paths and queries name them."""
        of_theirs = dict(self.theirs)
        if way == "id":
            of_theirs |= {"job": of_theirs["job id"], "cart": of_theirs["cart id"]}
        elif way == "beginning":
            of_theirs |= {"run": of_theirs["run"][:16], "cart": of_theirs["cart id"][:8]}
        return of_theirs


@pytest.fixture
async def neighbours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, anyio_backend: str
) -> AsyncIterator[Neighbours]:
    with recording(monkeypatch) as recorded:
        async with serving_gateway(tmp_path) as served:
            tenants = await settle(served, tmp_path / "rota.db")
            theirs = await crowded(tenants)
            admin, _ = await as_member(served, "boss", OURS, Role.ADMIN)
            served.app.state.tokens._trust_for = 1e9
            assert (await admin.get("/api/v1/whoami")).status_code == 200
            follow(served.engine.store, recorded, monkeypatch)
            yield Neighbours(tenants, admin, theirs, recorded)


async def crowded(tenants: Tenants) -> dict[str, str]:
    """Let them have much of what can be asked for; returns what it is called."""
    them, theirs = await tenants.served.client(), dict(tenants.theirs)
    params = {"project": THEIRS}

    async def post(path: str, **body: Any) -> dict[str, Any]:
        answer = await them.post(f"/api/v1/{path}", params=params, json=body)
        assert answer.status_code in (200, 201, 202), answer.text
        return dict(answer.json())

    await post(f"jobs/{theirs['job']}/runs:batch", inputs=[{}] * MANY)
    items = [{"key": f"item-{number}"} for number in range(MANY)]
    cart = await post("carts", name=f"{MARK}-large", job=theirs["job"], items=items)
    backfill = await post(f"jobs/{MARK}-often:backfill", **{"from": "1h"})
    token = await post("tokens", name=f"{MARK}-token", role="viewer")
    return theirs | {
        "cart": f"{MARK}-large",
        "cart id": cart["id"],
        "backfill": backfill["id"],
        "token_id": token["id"],
        "path": f"{MARK}-file",
    }


def never(named: Mapping[str, str]) -> dict[str, str]:
    """The same, of what was never made."""
    return {what: _never(name) for what, name in named.items()}


def _never(name: str) -> str:
    if MARK in name:
        return name.replace(MARK, "xw3k")
    kind, separator, rest = name.partition("_")
    fresh = "z" if kind != "t" else "f"
    return f"{kind}_{fresh * len(rest)}" if separator else name


@dataclass(frozen=True, slots=True)
class Ask:
    """A call about a thing."""

    method: str
    route: APIRoute
    query: str = ""  # the parameter that names it; "": the path does

    def __str__(self) -> str:
        return f"{self.method} {self.route.path}{self.query and f'?{self.query}='}"

    def path(self, named: Mapping[str, str]) -> str:
        noun = self.route.path.removeprefix("/api/v1/").partition("/")[0].removesuffix("s")
        own = named["project"] if self.route.path.startswith(OF_NAMED) else named.get(noun, "")
        return self.route.path_format.format_map({**named, "name": own, "principal": "somebody"})

    def params(self, named: Mapping[str, str]) -> dict[str, str]:
        given = {"q": "x", "expression": "every 5m"}
        known = {name: given[name] for name in given.keys() & set(_queried(self.route.dependant))}
        asked = {self.query: named[self.query]} if self.query else {}
        return known | asked | {"project": OURS}


def asks() -> Iterator[Ask]:
    """Everything that can be asked about a thing of the project of the request."""
    for method, route in CALLS:
        if not any(need.where is Where.PROJECT for need in needs_of(route)):
            continue
        if any(f"{{{name}}}" in route.path_format for name in NAMED):
            yield Ask(method, route)
        else:
            for name in sorted(set(_queried(route.dependant)) & {*ASKED}):
                yield Ask(method, route, name)


def _queried(dependant: Dependant) -> Iterator[str]:
    for parameter in dependant.query_params:
        yield parameter.alias
    for inner in dependant.dependencies:
        yield from _queried(inner)


@pytest.mark.parametrize("way", WAYS)
async def test_what_is_theirs_costs_what_was_never_made_costs(
    neighbours: Neighbours, way: str
) -> None:
    theirs = neighbours.named(way)
    wrong: dict[str, object] = {}
    seen = 0

    for ask in asks():
        found = [await cost(neighbours, ask, named) for named in (theirs, never(theirs))]
        (status, work, steps), (absent, absent_work, absent_steps) = found
        if status != absent or work != absent_work or abs(steps - absent_steps) > STEPS:
            wrong[str(ask)] = found
        seen += status == httpx.codes.NOT_FOUND

    assert wrong == {}
    assert seen > 50


async def cost(
    neighbours: Neighbours, ask: Ask, named: Mapping[str, str]
) -> tuple[int, object, int]:
    """How a call is answered, what it has the store do, and in how many steps at the least.

    Now and then a store has something to do beside it: a refused call can be made again.
    """
    recorded = neighbours.recorded

    async def once() -> tuple[int, object, int]:
        recorded.clear()
        async with asyncio.timeout(20):  # a stream that should be refused would never end
            answer = await neighbours.admin.request(
                ask.method,
                ask.path(named),
                params=ask.params(named),
                json=BODIES.get(ask.route.path_format),
                headers={"If-Match": '"1"'},
            )
        work = (recorded.round_trips, tuple(recorded.statements))
        return answer.status_code, work, recorded.counts.steps

    return min([await once() for _ in range(3)], key=itemgetter(2))


async def test_a_filter_by_a_cart_of_theirs_costs_what_one_that_was_never_made_costs(
    neighbours: Neighbours,
) -> None:
    theirs = neighbours.named("id")
    [runs] = [Ask(method, route) for method, route in CALLS if (method, route.path) == RUNS]

    found = []
    for named in (theirs, never(theirs)):
        neighbours.recorded.clear()
        answer = await neighbours.admin.get(
            runs.route.path, params={"project": OURS, "where": f"cart:{named['cart']}"}
        )
        found.append((answer.status_code, [*neighbours.recorded.statements]))

    assert found[0] == found[1]
    assert found[0][0] == httpx.codes.NOT_FOUND


RUNS = ("GET", "/api/v1/runs")
_ITEM = {"key": "a"}
# Calls whose body names something, by what it is called in `named`.
BODIES_THAT_NAME: Mapping[str, tuple[str, Any]] = {
    "a cart of a job": ("carts", {"name": "c", "job": "{job}", "items": [_ITEM]}),
    "an item of a job": ("carts", {"name": "c", "items": [_ITEM | {"job": "{job}"}]}),
    "a simulation without a job": ("simulations", {"for": "1h", "without": ["{job}"]}),
    "a simulation with a job moved": ("simulations", {"for": "1h", "move": {"{job}": "every 1h"}}),
    "a job after another": (
        "jobs:apply",
        {"jobs": [job("mine", after=["{job}"], schedule="every 1h")]},
    ),
    "a job on a calendar": (
        "jobs:apply",
        {"jobs": [job("mine", calendars=["{calendar}"], schedule="every 1h")]},
    ),
    "a job with a limit": ("jobs:apply", {"jobs": [job("mine", rate_limits=["{limit}"])]}),
    "a cart template of a job": (
        "jobs:apply",
        {"carts": [{"name": "t", "job": "{job}", "items": [_ITEM]}]},
    ),
}


@pytest.mark.parametrize("what", BODIES_THAT_NAME)
@pytest.mark.parametrize("way", WAYS[:2])
async def test_a_body_that_names_theirs_is_answered_as_one_that_names_nothing(
    neighbours: Neighbours, what: str, way: str
) -> None:
    path, body = BODIES_THAT_NAME[what]
    named = neighbours.named(way)

    found = []
    for names in (named, never(named)):
        text = json.dumps(body)
        for name, value in names.items():
            text = text.replace(f"{{{name}}}", value)
        neighbours.recorded.clear()
        answer = await neighbours.admin.post(
            f"/api/v1/{path}",
            params={"project": OURS, "plan": "true"}
            if path != "simulations"
            else {"project": OURS},
            content=text,
            headers={"Content-Type": "application/json"},
        )
        work = [*neighbours.recorded.statements]
        found.append((answer.status_code, alike(answer, names), work))

    assert found[0] == found[1]
    assert found[0][0] in (404, 409, 422), found[0]


@pytest.mark.parametrize("length", [2, 6, 12])
async def test_a_beginning_that_many_ids_have_is_not_looked_for(
    neighbours: Neighbours, length: int
) -> None:
    """To read the ids of all projects that begin so would tell how many there are."""
    recorded, run = neighbours.recorded, neighbours.theirs["run"]
    recorded.clear()

    answer = await neighbours.admin.get(f"/api/v1/runs/{run[:length]}", params={"project": OURS})

    assert (answer.status_code, answer.json()["code"]) == (404, "run_not_found")
    assert "select_runs_by_prefix" not in recorded.names
