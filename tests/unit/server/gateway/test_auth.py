"""Who may do what, walked over the routes themselves: a new route cannot be forgotten."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from typing import Any, cast

import httpx
import pytest
from anyio.lowlevel import checkpoint
from fastapi.routing import APIRoute
from starlette.routing import Mount

from rota.domain.access import Role, TokenTerms, Verb
from rota.domain.errors import Denied, NotFound
from rota.operations.engine import Engine
from rota.operations.tokens import create_token
from rota.ports.queue import CALLERS
from rota.ports.store import Store
from rota.server.gateway.app import api_routers
from rota.server.gateway.auth import (
    APPLIES,
    CANCELS,
    EDITS,
    MANAGES,
    OPEN,
    READS,
    RESOLVES,
    TRIGGERS,
    UPLOADS,
    Need,
    TrustedTokens,
    Where,
    check_needs,
    need_of,
)
from rota.server.gateway.parameters import Router
from rota.server.gateway.routing import StrictRoute
from rota.store.store import SqlStore
from rota.store.transactions import tell_nobody
from testkit.identity import disable, end_project, unbind
from tests.unit.server.gateway.served import Served

pytestmark = pytest.mark.anyio

ROUTES = [
    route for router in api_routers() for route in router.routes if isinstance(route, APIRoute)
]
CALLS = [(method, route) for route in ROUTES for method in sorted(route.methods or ())]
GUARDED = [(method, route) for method, route in CALLS if (method, route.path) not in OPEN]
NOWHERE = Need(where=Where.NOWHERE)
OWNS = Need(Role.ADMIN, None, Where.INSTALLATION)
SOMEWHERE = Need(Role.VIEWER, Verb.READ, Where.SOMEWHERE)
NEEDS = {  # all others are read by viewers of the project
    "POST /api/v1/jobs:apply": APPLIES,
    "DELETE /api/v1/jobs/{job}": EDITS,
    "POST /api/v1/jobs/{job}:enable": EDITS,
    "POST /api/v1/jobs/{job}:disable": EDITS,
    "POST /api/v1/submit_job": APPLIES,
    "PUT /api/v1/uploads/{digest}": UPLOADS,
    "GET /api/v1/uploads/{digest}": UPLOADS,
    "PUT /api/v1/calendars/{calendar}": EDITS,
    "DELETE /api/v1/calendars/{calendar}": EDITS,
    "PUT /api/v1/limits/{name}": EDITS,
    "DELETE /api/v1/limits/{name}": EDITS,
    "PUT /api/v1/resources/{name}": EDITS,
    "DELETE /api/v1/resources/{name}": EDITS,
    "POST /api/v1/jobs/{job}:pause": CANCELS,
    "POST /api/v1/jobs/{job}:resume": TRIGGERS,
    "POST /api/v1/jobs/{job}:skip": CANCELS,
    "POST /api/v1/jobs/{job}:backfill": TRIGGERS,
    "POST /api/v1/jobs/{job}/runs": TRIGGERS,
    "POST /api/v1/jobs/{job}/runs:batch": TRIGGERS,
    "POST /api/v1/jobs/{job}/runs:plan": TRIGGERS,
    "POST /api/v1/runs/{run}:cancel": CANCELS,
    "POST /api/v1/runs/{run}:retry": TRIGGERS,
    "POST /api/v1/runs/{run}:resolve": RESOLVES,
    "PATCH /api/v1/runs/{run}": RESOLVES,
    "POST /api/v1/runs/{run}:hold": CANCELS,
    "POST /api/v1/runs/{run}:release": TRIGGERS,
    "POST /api/v1/runs/{run}:reprioritise": TRIGGERS,
    "POST /api/v1/carts": TRIGGERS,
    "PATCH /api/v1/carts/{cart}": TRIGGERS,
    "POST /api/v1/carts/{cart}:pause": CANCELS,
    "POST /api/v1/carts/{cart}:resume": TRIGGERS,
    "POST /api/v1/carts/{cart}:cancel": CANCELS,
    "POST /api/v1/carts/{cart}:approve": TRIGGERS,
    "POST /api/v1/carts/{cart}:retry": TRIGGERS,
    "POST /api/v1/carts/{cart}:rollback": TRIGGERS,
    "DELETE /api/v1/cart-templates/{template}": EDITS,
    "POST /api/v1/workers/{worker}/drain": Need(Role.OPERATOR, None, Where.INSTALLATION),
    "POST /api/v1/workers/{worker}/resume": Need(Role.OPERATOR, None, Where.INSTALLATION),
    "POST /api/v1/workers/{worker}/revoke": OWNS,
    "PUT /api/v1/quota": Need(Role.ADMIN, None, Where.INSTALLATION),
    "DELETE /api/v1/quota": Need(Role.ADMIN, None, Where.INSTALLATION),
    "PUT /api/v1/shares/{share}": Need(Role.ADMIN, None, Where.INSTALLATION),
    "GET /api/v1/worker_tokens": Need(Role.ADMIN, None, Where.INSTALLATION),
    "POST /api/v1/worker_tokens": Need(Role.ADMIN, None, Where.INSTALLATION),
    "DELETE /api/v1/worker_tokens/{token_id}": Need(Role.ADMIN, None, Where.INSTALLATION),
    "GET /api/v1/join_tokens": OWNS,
    "POST /api/v1/join_tokens": OWNS,
    "DELETE /api/v1/join_tokens/{token_id}": OWNS,
    "GET /api/v1/tokens": MANAGES,
    "POST /api/v1/tokens": MANAGES,
    "DELETE /api/v1/tokens/{token_id}": MANAGES,
    "GET /api/v1/workers": SOMEWHERE,
    "GET /api/v1/job-types": SOMEWHERE,
    "GET /api/v1/job-types/{name}": SOMEWHERE,
    "GET /api/v1/cluster": SOMEWHERE,
    "GET /api/v1/servers": Need(Role.VIEWER, Verb.READ, Where.INSTALLATION),
    "GET /api/v1/shards": Need(Role.VIEWER, Verb.READ, Where.INSTALLATION),
    "GET /api/v1/shares": SOMEWHERE,
    "GET /api/v1/schema": NOWHERE,
    "GET /api/v1/openapi.json": NOWHERE,
    "GET /api/v1/docs": NOWHERE,
    "GET /runs/{run}": NOWHERE,
    "GET /carts/{cart}": NOWHERE,
    "POST /api/v1/jobs:validate": SOMEWHERE,
    "POST /api/v1/logout": NOWHERE,
    "GET /api/v1/whoami": NOWHERE,
    "GET /metrics": Need(Role.VIEWER, Verb.METRICS, Where.INSTALLATION),
    "GET /api/v1/projects": Need(verb=Verb.READ, where=Where.NOWHERE),
    "POST /api/v1/projects": OWNS,
    "PATCH /api/v1/projects/{name}": OWNS,
    "DELETE /api/v1/projects/{name}": OWNS,
    "GET /api/v1/pools": SOMEWHERE,
    "GET /api/v1/pools/{name}": SOMEWHERE,
    "PUT /api/v1/pools/{name}": OWNS,
    "GET /api/v1/defaults": SOMEWHERE,
    "PATCH /api/v1/defaults": OWNS,
    "GET /api/v1/projects/{name}/roles": MANAGES,
    "PUT /api/v1/projects/{name}/roles/{principal}": MANAGES,
    "DELETE /api/v1/projects/{name}/roles/{principal}": MANAGES,
    "GET /api/v1/roles": OWNS,
    "PUT /api/v1/roles/{principal}": OWNS,
    "DELETE /api/v1/roles/{principal}": OWNS,
    "GET /api/v1/principals": OWNS,
    "POST /api/v1/principals/{handle}:disable": OWNS,
    "POST /api/v1/principals/{handle}:enable": OWNS,
    "GET /api/v1/advice": OWNS,
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
    others = ("principal", "handle", "digest", "path")
    path = route.path_format.format(**dict.fromkeys((*names, *others), "nothing"))
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


def test_every_route_needs_what_it_shall() -> None:
    needed = {name_of(call): need_of(*call) for call in GUARDED}

    assert needed == {name: NEEDS.get(name, READS) for name in needed}
    assert NEEDS.keys() <= needed.keys()


def test_an_app_with_a_route_that_declares_nothing_does_not_start() -> None:
    router = Router("gaps", prefix="/api/v1")

    @router.get("/gaps")
    async def forgotten() -> None: ...

    with pytest.raises(LookupError, match=r"GET /api/v1/gaps does not declare"):
        check_needs(router.routes)


def test_an_app_with_a_route_that_cannot_declare_anything_does_not_start() -> None:
    with pytest.raises(LookupError, match="no route that can declare"):
        check_needs([Mount("/static", routes=[])])


def test_everything_that_changes_something_needs_more_than_a_viewer() -> None:
    changes = {name_of(call) for call in GUARDED if call[0] != "GET"}

    assert changes - HARMLESS_POSTS <= NEEDS.keys()


def test_only_these_are_open() -> None:
    open_calls = {name_of(call) for call in CALLS} - {name_of(call) for call in GUARDED}

    assert open_calls == {
        *("GET /livez", "GET /readyz", "GET /style.css"),
        *("GET /", "GET /login", "GET /logged-out", "POST /logout"),
        *("GET /auth/login", "GET /auth/callback", "POST /auth/backchannel"),
        *("GET /device", "POST /device", "POST /auth/device", "POST /auth/device/token"),
        "POST /api/v1/login",
    }


def test_every_route_refuses_unknown_parameters() -> None:
    lenient = [route.path for route in ROUTES if not isinstance(route, StrictRoute)]

    assert lenient == ["/auth/callback"]  # providers add what they like


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

    answer = await client.get(f"http://rota{path}")

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


async def test_a_program_that_calls_again_is_looked_up_once_a_minute(served: Served) -> None:
    now = [0.0]  # monotonic
    looks = CountedLooks(served.engine.store)
    engine = replace(served.engine, store=cast("Store", looks))
    tokens = TrustedTokens(engine, timedelta(seconds=1), lambda: now[0])
    secrets = [served.secrets[role] for role in (Role.VIEWER, Role.OPERATOR)]
    for now[0] in (0.0, 1.0):  # at the first look nobody knows since when rights are as they are
        for secret in secrets:
            await tokens.caller(secret)
    assert (looks.looks, looks.changes_seen) == (4, 1)

    for now[0] in (2.5, 4.0, 60.0):
        for secret in secrets:
            await tokens.caller(secret)
    assert (looks.looks, looks.changes_seen) == (4, 4)

    now[0] = 61.0
    for secret in secrets:
        await tokens.caller(secret)
    assert (looks.looks, looks.changes_seen) == (6, 4)


@pytest.mark.parametrize("way", ["revoked", "disabled", "unbound"])
async def test_what_no_server_was_told_of_ends_a_program_after_a_moment(
    served: Served, way: str
) -> None:
    now = [0.0]  # monotonic
    tokens = TrustedTokens(served.engine, timedelta(seconds=1), lambda: now[0])
    store = served.engine.store
    secret = served.secrets[Role.VIEWER]
    for now[0] in (0.0, 1.0):
        await tokens.caller(secret)
    now[0] = 2.0
    caller = await tokens.caller(secret)

    match way:
        case "revoked":
            await store.revoke_token(caller.token_id, actor="another server")
        case "disabled":
            await disable(store, caller.name)
        case _:
            await unbind(store, caller.name)

    assert await tokens.caller(secret) == caller
    now[0] = 3.0
    if way == "unbound":
        assert (await tokens.caller(secret)).rights.projects() == ()
    else:
        with pytest.raises(Denied):
            await tokens.caller(secret)


async def test_a_token_that_ends_soon_is_looked_up_after_a_moment(served: Served) -> None:
    now = [0.0]  # monotonic
    looks = CountedLooks(served.engine.store)
    engine = replace(served.engine, store=cast("Store", looks))
    tokens = TrustedTokens(engine, timedelta(seconds=1), lambda: now[0])
    terms = TokenTerms(lifetime=timedelta(seconds=10))
    _, soon = await create_token(
        served.engine.store, name="soon", role=Role.VIEWER, actor="admin", terms=terms
    )
    for now[0] in (0.0, 2.0, 4.0, 11.0, 13.0):  # for the store no time passes
        await tokens.caller(soon)

    assert looks.looks == 3  # the first two, as above, and the last


class CountedLooks:
    """A store that counts how often it is asked for a token."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.looks = 0
        self.changes_seen = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def token_by_digest(self, digest: str) -> Any:
        self.looks += 1
        return await self._store.token_by_digest(digest)

    async def rights_changes(self) -> int:
        self.changes_seen += 1
        return await self._store.rights_changes()


def counted(served: Served) -> tuple[CountedLooks, TrustedTokens]:
    store = CountedLooks(served.engine.store)
    engine = replace(served.engine, store=cast("Store", store))
    return store, TrustedTokens(engine, timedelta(seconds=1), lambda: 0.0)


@pytest.mark.parametrize("wrong", ["nonsense", "rotat_" + "x" * 38, "rota_" + "x" * 31])
async def test_what_cannot_be_a_token_is_refused_without_asking_the_store(
    served: Served, wrong: str
) -> None:
    store, tokens = counted(served)

    with pytest.raises(Denied):
        await tokens.caller(wrong)

    assert store.looks == 0


async def test_many_secrets_displace_only_those_not_shown_for_longest(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rota.server.gateway.auth._MAX_TRUSTED", 2)
    store, tokens = counted(served)
    viewer, operator, admin = (
        served.secrets[role] for role in (Role.VIEWER, Role.OPERATOR, Role.ADMIN)
    )
    for secret in (viewer, operator, viewer, admin):
        await tokens.caller(secret)
    assert store.looks == 3

    await tokens.caller(viewer)
    assert store.looks == 3
    await tokens.caller(operator)
    assert store.looks == 4


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


class AttentiveTokens(TrustedTokens):
    """Tokens that another server on the same store trusts, for as long as the test lasts."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine, timedelta(hours=1), lambda: 0.0)
        self._has_forgotten = asyncio.Event()

    def forget(self) -> None:
        super().forget()
        self._has_forgotten.set()

    async def forgot(self) -> None:
        async with asyncio.timeout(10):
            await self._has_forgotten.wait()


class TestOtherServers:
    """A server trusts for a moment; what another one changes, it learns at once."""

    @pytest.fixture
    async def tokens(self, served: Served) -> AsyncIterator[AttentiveTokens]:
        store = served.engine.store
        assert isinstance(store, SqlStore)
        trusted = AttentiveTokens(replace(served.engine, store=store.shared_with(tell_nobody)))
        async with asyncio.TaskGroup() as group:
            listening = group.create_task(trusted.run())
            while not served.engine.queue.watched(CALLERS):
                await checkpoint()
            yield trusted
            listening.cancel()

    @pytest.mark.parametrize("way", ["revoked", "disabled", "unbound"])
    async def test_rights_that_were_taken_elsewhere_are_gone(
        self, served: Served, tokens: AttentiveTokens, way: str
    ) -> None:
        secret = served.secrets[Role.VIEWER]
        caller = await tokens.caller(secret)
        caller.require(Role.VIEWER, "other", Verb.READ)

        if way == "revoked":
            await served.delete(f"tokens/{caller.token_id}")
        elif way == "disabled":
            await disable(served.engine.store, caller.name)
        else:
            await unbind(served.engine.store, caller.name)
        await tokens.forgot()

        with pytest.raises(NotFound if way == "unbound" else Denied):
            (await tokens.caller(secret)).require(Role.VIEWER, "other", Verb.READ)

    async def test_a_project_that_was_deleted_elsewhere_is_gone(
        self, served: Served, tokens: AttentiveTokens
    ) -> None:
        caller = await tokens.caller(served.secrets[Role.VIEWER])
        await tokens.require_project(caller, "other")

        await end_project(served.engine.store, "other")
        await tokens.forgot()

        with pytest.raises(NotFound):
            await tokens.require_project(caller, "other")
