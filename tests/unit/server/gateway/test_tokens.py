from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import httpx
import pytest

from rota.domain.errors import Unavailable
from rota.operations.tokens import authenticate_worker, create_login_link_secret
from rota.ports.records import Role
from rota.server.gateway.parameters import GatewaySettings
from rota.server.gateway.tokens import FailedLogins
from tests.unit.server.gateway.served import Served, serving_gateway

pytestmark = pytest.mark.anyio


async def test_a_new_token_shows_its_secret_once(served: Served) -> None:
    body = {"name": "ci", "role": "operator", "expires_in": "90d"}

    made = (await served.post("tokens", json=body)).json()

    caller = await served.browser({"Authorization": f"Bearer {made['secret']}"})
    assert (await caller.get("/api/v1/whoami")).json()["role"] == "operator"
    listed = await served.get("tokens")
    assert made["secret"] not in listed.text
    [shown] = [token for token in listed.json()["items"] if token["id"] == made["id"]]
    assert shown["created_by"] == "admin"
    assert shown["expires_at"] is not None


async def test_no_secret_is_ever_listed_or_kept_readable(served: Served) -> None:
    listed = await served.get("tokens")

    assert not any(secret in listed.text for secret in served.secrets.values())
    assert "digest" not in listed.text


async def test_a_revoked_token_stops_working_at_once(served: Served) -> None:
    made = (await served.post("tokens", json={"name": "ci", "role": "viewer"})).json()
    caller = await served.browser({"Authorization": f"Bearer {made['secret']}"})
    assert (await caller.get("/api/v1/whoami")).status_code == 200

    answer = await served.delete(f"tokens/{made['id']}")

    assert answer.status_code == 204
    assert (await caller.get("/api/v1/whoami")).status_code == 401


async def test_an_unknown_token_cannot_be_revoked(served: Served) -> None:
    assert (await served.delete("tokens/t_nothing")).status_code == 404


@pytest.mark.parametrize(
    "change",
    [
        {"name": ""},
        {"name": "two\nlines"},
        {"name": "<script>"},
        {"role": "owner"},
        {"expires_in": "soon"},
        {"expires_in": 90},
        {"kind": "session"},
    ],
)
async def test_a_wrong_token_is_not_made(served: Served, change: dict[str, object]) -> None:
    answer = await served.post("tokens", json={"name": "ci", "role": "viewer", **change})

    assert answer.status_code == 422
    assert len((await served.get("tokens")).json()["items"]) == len(Role)


class TestWorkerTokens:
    async def test_new_one_shows_its_secret_once_and_lets_that_worker_in(
        self, served: Served
    ) -> None:
        body = {"name": "fra-1", "pool": "fra", "expires_in": "90d"}

        made = (await served.post("worker_tokens", json=body)).json()

        listed = await served.get("worker_tokens")
        identity = await authenticate_worker(served.engine, made["secret"])
        assert (identity.name, identity.pool) == ("fra-1", "fra")
        assert made["secret"] not in listed.text
        [shown] = listed.json()["items"]
        assert (shown["id"], shown["pool"], shown["created_by"]) == (made["id"], "fra", "admin")

    async def test_it_opens_nothing_else(self, served: Served) -> None:
        made = (await served.post("worker_tokens", json={"name": "fra-1"})).json()

        caller = await served.browser({"Authorization": f"Bearer {made['secret']}"})

        assert (await caller.get("/api/v1/whoami")).status_code == 401

    async def test_revoked_one_is_worthless(self, served: Served) -> None:
        made = (await served.post("worker_tokens", json={"name": "fra-1"})).json()

        assert (await served.delete(f"worker_tokens/{made['id']}")).status_code == 204

        [shown] = (await served.get("worker_tokens")).json()["items"]
        assert shown["revoked_at"] is not None

    async def test_only_admins_make_them(self, served: Served) -> None:
        refused = await served.post("worker_tokens", Role.EDITOR, json={"name": "fra-1"})

        assert refused.status_code == 403


MEANT = {"X-Rota-Request": "1"}


async def login(served: Served, secret: str) -> tuple[httpx.AsyncClient, httpx.Response]:
    browser = await served.browser()
    return browser, await browser.post("/api/v1/login", json={"secret": secret})


async def test_a_token_is_traded_for_a_session_cookie(served: Served) -> None:
    browser, answer = await login(served, served.secrets[Role.OPERATOR])

    assert answer.json()["role"] == "operator"
    cookie = answer.headers["set-cookie"]
    assert cookie.startswith("rota_session=")
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert "Path=/" in cookie
    assert (await browser.get("/api/v1/whoami")).json() == answer.json()


async def test_the_cookie_is_secure_behind_tls(tmp_path: Path) -> None:
    async with serving_gateway(tmp_path, GatewaySettings(secure_cookies=True)) as served:
        _, answer = await login(served, served.secrets[Role.VIEWER])

    assert answer.headers["set-cookie"].startswith("__Host-rota_session=")
    assert "Secure" in answer.headers["set-cookie"]
    assert "max-age" in answer.headers["strict-transport-security"]


async def test_the_answer_to_a_login_has_no_secret_in_it(served: Served) -> None:
    browser, answer = await login(served, served.secrets[Role.VIEWER])

    assert browser.cookies["rota_session"] not in answer.text
    assert served.secrets[Role.VIEWER] not in answer.text


async def test_a_change_with_a_cookie_needs_the_header_no_foreign_page_can_send(
    served: Served,
) -> None:
    browser, _ = await login(served, served.secrets[Role.ADMIN])
    body = {"name": "ci", "role": "viewer"}

    forged = await browser.post("/api/v1/tokens", json=body)
    meant = await browser.post("/api/v1/tokens", json=body, headers=MEANT)

    assert (forged.status_code, forged.json()["code"]) == (403, "forged")
    assert meant.status_code == 201


async def test_a_logout_ends_the_session_at_once(served: Served) -> None:
    browser, _ = await login(served, served.secrets[Role.VIEWER])
    session = browser.cookies["rota_session"]

    answer = await browser.post("/api/v1/logout", headers=MEANT)

    assert answer.status_code == 204
    assert "rota_session" not in browser.cookies
    stolen = await served.browser({"Cookie": f"rota_session={session}"})
    assert (await stolen.get("/api/v1/whoami")).status_code == 401


async def test_a_logout_with_a_token_leaves_the_token(served: Served) -> None:
    assert (await served.post("logout", Role.VIEWER)).status_code == 204

    assert (await served.get("whoami", Role.VIEWER)).json()["name"] == "viewer"


async def test_a_login_link_works_once(served: Served) -> None:
    secret = await create_login_link_secret(served.engine.store, actor="up")
    browser = await served.browser()

    first = await browser.get("/login", params={"token": secret})
    second = await (await served.browser()).get("/login", params={"token": secret})

    assert (first.status_code, first.headers["location"]) == (303, "/")
    assert (await browser.get("/")).status_code == 200
    assert (await browser.get("/api/v1/whoami")).json()["role"] == "admin"
    assert second.status_code == 401
    assert "works once" in second.text
    assert "set-cookie" not in second.headers


async def test_a_login_link_is_no_token(served: Served) -> None:
    secret = await create_login_link_secret(served.engine.store, actor="up")
    caller = await served.browser({"Authorization": f"Bearer {secret}"})

    assert (await caller.get("/api/v1/jobs")).status_code == 401


@pytest.fixture
async def impatient(tmp_path: Path, anyio_backend: str) -> AsyncIterator[Served]:
    async with serving_gateway(tmp_path, GatewaySettings(failed_logins=3)) as served:
        yield served


async def test_an_address_that_guesses_has_to_wait(impatient: Served) -> None:
    for _ in range(3):
        _, answer = await login(impatient, "guess")
        assert (answer.status_code, answer.json()["code"]) == (401, "bad_credentials")

    _, right = await login(impatient, impatient.secrets[Role.ADMIN])
    link = await (await impatient.browser()).get("/login", params={"token": "guess"})

    assert (right.status_code, right.json()["code"]) == (429, "too_many_logins")
    assert 1 <= int(right.headers["retry-after"]) <= 60
    assert link.status_code == 429
    assert (await impatient.get("whoami")).status_code == 200


def test_failures_are_forgotten_after_a_while() -> None:
    now = 0.0
    failed = FailedLogins(2, timedelta(seconds=60), lambda: now)
    failed.record("a")
    now = 30.0
    failed.record("a")

    with pytest.raises(Unavailable):
        failed.require_room("a")
    failed.require_room("b")
    now = 60.0
    failed.require_room("a")


@pytest.mark.parametrize("body", [{}, {"secret": ""}, {"secret": "x" * 513}, {"secret": 1}])
async def test_a_wrong_login_body_is_refused(served: Served, body: dict[str, object]) -> None:
    answer = await served.post("login", None, json=body)

    assert answer.status_code == 422
    assert "x" * 100 not in answer.text
