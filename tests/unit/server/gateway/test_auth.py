"""Who may do what, walked over the routes themselves: a new route cannot be forgotten."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any, cast

import httpx
import pytest
from fastapi.routing import APIRoute

from rota.domain.errors import Denied
from rota.ports.records import Role
from rota.ports.store import Store
from rota.server.gateway.app import api_routers
from rota.server.gateway.auth import OPEN, TrustedTokens
from rota.server.gateway.openapi import role_of
from rota.server.gateway.routing import StrictRoute
from tests.unit.server.gateway.served import Served

pytestmark = pytest.mark.anyio

ROUTES = [
    route for router in api_routers() for route in router.routes if isinstance(route, APIRoute)
]
CALLS = [(method, route) for route in ROUTES for method in sorted(route.methods or ())]
GUARDED = [(method, route) for method, route in CALLS if (method, route.path) not in OPEN]
ROLES = {
    "POST /api/v1/jobs:apply": Role.EDITOR,
    "DELETE /api/v1/jobs/{job}": Role.EDITOR,
    "POST /api/v1/jobs/{job}:enable": Role.EDITOR,
    "POST /api/v1/jobs/{job}:disable": Role.EDITOR,
    "POST /api/v1/submit_job": Role.EDITOR,
    "PUT /api/v1/calendars/{calendar}": Role.EDITOR,
    "DELETE /api/v1/calendars/{calendar}": Role.EDITOR,
    "PUT /api/v1/limits/{name}": Role.EDITOR,
    "DELETE /api/v1/limits/{name}": Role.EDITOR,
    "PUT /api/v1/resources/{name}": Role.EDITOR,
    "DELETE /api/v1/resources/{name}": Role.EDITOR,
    "POST /api/v1/jobs/{job}:pause": Role.OPERATOR,
    "POST /api/v1/jobs/{job}:resume": Role.OPERATOR,
    "POST /api/v1/jobs/{job}:skip": Role.OPERATOR,
    "POST /api/v1/jobs/{job}:backfill": Role.OPERATOR,
    "POST /api/v1/jobs/{job}/runs": Role.OPERATOR,
    "POST /api/v1/jobs/{job}/runs:batch": Role.OPERATOR,
    "POST /api/v1/jobs/{job}/runs:plan": Role.OPERATOR,
    "POST /api/v1/runs/{run}:cancel": Role.OPERATOR,
    "POST /api/v1/runs/{run}:retry": Role.OPERATOR,
    "POST /api/v1/runs/{run}:resolve": Role.OPERATOR,
    "POST /api/v1/runs/{run}:hold": Role.OPERATOR,
    "POST /api/v1/runs/{run}:release": Role.OPERATOR,
    "POST /api/v1/runs/{run}:reprioritise": Role.OPERATOR,
    "POST /api/v1/carts": Role.OPERATOR,
    "PATCH /api/v1/carts/{cart}": Role.OPERATOR,
    "POST /api/v1/carts/{cart}:pause": Role.OPERATOR,
    "POST /api/v1/carts/{cart}:resume": Role.OPERATOR,
    "POST /api/v1/carts/{cart}:cancel": Role.OPERATOR,
    "POST /api/v1/carts/{cart}:approve": Role.OPERATOR,
    "POST /api/v1/carts/{cart}:retry": Role.OPERATOR,
    "POST /api/v1/carts/{cart}:rollback": Role.OPERATOR,
    "DELETE /api/v1/cart-templates/{template}": Role.EDITOR,
    "POST /api/v1/workers/{worker}/drain": Role.OPERATOR,
    "POST /api/v1/workers/{worker}/resume": Role.OPERATOR,
    "PUT /api/v1/quota": Role.ADMIN,
    "DELETE /api/v1/quota": Role.ADMIN,
    "PUT /api/v1/shares/{share}": Role.ADMIN,
    "GET /api/v1/worker_tokens": Role.ADMIN,
    "POST /api/v1/worker_tokens": Role.ADMIN,
    "DELETE /api/v1/worker_tokens/{token_id}": Role.ADMIN,
    "GET /api/v1/tokens": Role.ADMIN,
    "POST /api/v1/tokens": Role.ADMIN,
    "DELETE /api/v1/tokens/{token_id}": Role.ADMIN,
}
HARMLESS_POSTS = {
    "POST /api/v1/jobs:validate",
    "POST /api/v1/logout",
    "POST /api/v1/simulations",
}


def name_of(call: tuple[str, APIRoute]) -> str:
    method, route = call
    return f"{method} {route.path_format}"


async def asked(client: httpx.AsyncClient, call: tuple[str, APIRoute]) -> httpx.Response:
    """What the call is answered when it names things that do not exist."""
    method, route = call
    names = ("job", "run", "cart", "template", "calendar", "worker", "token_id", "name", "share")
    path = route.path_format.format(**dict.fromkeys(names, "nothing"))
    return await client.request(method, path)


async def test_nobody_unknown_gets_past(served: Served) -> None:
    client = await served.client(None)

    answers = {name_of(call): await asked(client, call) for call in GUARDED}

    assert {name: answer.status_code for name, answer in answers.items()} == dict.fromkeys(
        answers, 401
    )
    assert {answer.headers["www-authenticate"] for answer in answers.values()} == {"Bearer"}
    assert {answer.json()["code"] for answer in answers.values()} == {"unauthenticated"}
    # The token alone would be withheld from a server that only ./rota.toml names.
    assert all(
        "both ROTA_TOKEN and ROTA_URL" in answer.json()["hint"] for answer in answers.values()
    )


def test_every_route_needs_its_role() -> None:
    needed = {name_of(call): role_of(*call) for call in GUARDED}

    assert needed == {name: ROLES.get(name, Role.VIEWER) for name in needed}


@pytest.mark.parametrize("role", list(Role)[:-1])
async def test_whoever_has_not_the_role_is_refused(served: Served, role: Role) -> None:
    client = await served.client(role)
    allowed = set(list(Role)[: list(Role).index(role) + 1])
    finite = [call for call in GUARDED if not call[1].path.endswith("/events/stream")]

    codes = {name_of(call): (await asked(client, call)).status_code for call in finite}

    refused = {name for name, code in codes.items() if code == 403}
    assert refused == {name for name, needed in ROLES.items() if needed not in allowed}
    assert 401 not in codes.values()


def test_everything_that_changes_something_needs_more_than_a_viewer() -> None:
    changes = {name_of(call) for call in GUARDED if call[0] != "GET"}

    assert changes - HARMLESS_POSTS <= ROLES.keys()


def test_only_these_are_open() -> None:
    open_calls = {name_of(call) for call in CALLS} - {name_of(call) for call in GUARDED}

    assert open_calls == {"GET /livez", "GET /readyz", "GET /login", "POST /api/v1/login"}


def test_every_route_refuses_unknown_parameters() -> None:
    assert all(isinstance(route, StrictRoute) for route in ROUTES)


@pytest.mark.parametrize(
    "path",
    [
        "//livez",
        "/livez/",
        "/./livez/../api/v1/jobs",
        "/LIVEZ",
        "/livez;x=1",
        "/api/v1/jobs/livez",
        "/api/v1/jobs;/livez",
        "/api/v1/%2e%2e/livez/x",
        "/api//v1/jobs",
        "/api/v1/login",
        "/metrics/livez",
        "/nothing/here",
    ],
)
async def test_tricks_with_paths_open_nothing(served: Served, path: str) -> None:
    client = await served.client(None)

    answer = await client.get(path)

    assert answer.status_code == 401


async def test_another_method_in_a_header_changes_nothing(served: Served) -> None:
    client = await served.client(None)

    answer = await client.post("/livez", headers={"X-HTTP-Method-Override": "GET"})

    assert answer.status_code == 401


@pytest.mark.parametrize(
    ("header", "detail"),
    [
        ("", "not logged in"),
        ("Bearer", "not logged in"),
        ("Bearer ", "not logged in"),
        ("Basic dXNlcjpwYXNz", "not logged in"),
        ("Bearer nonsense", "this token is not valid (any more)"),
        ("Bearer " + "x" * 100_000, "this token is not valid (any more)"),
        ("Bearer rotaw_whatever", "this is a worker's token"),
    ],
    ids=["empty", "no secret", "blank", "basic", "unknown", "huge", "worker's"],
)
async def test_a_wrong_credential_is_told_by_its_looks_alone(
    served: Served, header: str, detail: str
) -> None:
    client = await served.client(None)

    answer = await client.get("/api/v1/jobs", headers={"Authorization": header})

    assert (answer.status_code, answer.json()["code"]) == (401, "unauthenticated")
    assert answer.json()["detail"] == detail
    assert "ROTA_TOKEN" in answer.json()["hint"]


async def test_a_token_in_the_address_is_not_taken(served: Served) -> None:
    client = await served.client(None)

    answer = await client.get("/api/v1/jobs", params={"token": served.secrets[Role.ADMIN]})

    assert answer.status_code == 401


async def test_a_secret_is_trusted_only_for_a_moment(served: Served) -> None:
    now = 0.0
    tokens = TrustedTokens(served.engine, timedelta(seconds=1), lambda: now)
    secret = served.secrets[Role.VIEWER]
    caller = await tokens.caller(secret)
    await served.engine.store.revoke_token(caller.token_id, actor="another server")

    assert await tokens.caller(secret) == caller
    now = 1.0
    with pytest.raises(Denied):
        await tokens.caller(secret)


class SlowAnswers:
    """A store that looks a token up at once, and takes its time to answer."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.has_looked = asyncio.Event()
        self.answers = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def token_by_digest(self, digest: str) -> Any:
        found = await self._store.token_by_digest(digest)
        self.has_looked.set()
        await self.answers.wait()
        return found


async def test_a_token_that_is_revoked_while_it_is_looked_up_is_not_trusted_after_that(
    served: Served,
) -> None:
    store = SlowAnswers(served.engine.store)
    engine = replace(served.engine, store=cast("Store", store))
    tokens = TrustedTokens(engine, timedelta(seconds=1), lambda: 0.0)
    secret = served.secrets[Role.VIEWER]

    async with asyncio.TaskGroup() as group:
        look = group.create_task(tokens.caller(secret))
        await store.has_looked.wait()
        [token] = [each for each in await store.tokens() if each.role is Role.VIEWER]
        await store.revoke_token(token.id, actor="admin")
        tokens.forget()
        store.answers.set()

    assert look.result().token_id == token.id  # it was valid when the store was asked
    with pytest.raises(Denied):
        await tokens.caller(secret)
