from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from rota.domain.access import Role
from rota.domain.credentials import digest
from rota.domain.errors import Denied, Unavailable
from rota.operations.credentials import Credentials
from rota.operations.tokens import authenticate_worker, create_login_link_secret
from rota.operations.wrong_secrets import WrongSecrets, network_of
from rota.ports.records import NewToken
from rota.ports.work import JoinWish
from rota.server.gateway.parameters import GatewaySettings
from testkit.identity import disable
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


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("tokens", {"role": "viewer"}),
        ("worker_tokens", {}),
        ("join_tokens", {}),
    ],
)
async def test_tokens_are_listed_in_parts(
    served: Served, path: str, body: dict[str, object]
) -> None:
    for number in range(5):
        named = {} if path == "join_tokens" else {"name": f"n{number}"}
        assert (await served.post(path, json=body | named)).status_code == 201
    every = (await served.get(path, params={"limit": "1000"})).json()

    ids, cursor = [], None
    while True:
        params = {"limit": "2"} | ({"cursor": cursor} if cursor else {})
        part = (await served.get(path, params=params)).json()
        assert len(part["items"]) <= 2
        ids += [each["id"] for each in part["items"]]
        if (cursor := part["next_cursor"]) is None:
            break

    assert every["next_cursor"] is None
    assert ids == [each["id"] for each in every["items"]]
    assert len(ids) >= 5


class TestJoinTokens:
    async def test_new_one_is_for_one_worker_within_an_hour_unless_it_is_said(
        self, served: Served
    ) -> None:
        made = (await served.post("join_tokens", json={})).json()
        body = {"pool": "fra", "uses": 7, "expires_in": "1d"}
        other = (await served.post("join_tokens", json=body)).json()

        listed = await served.get("join_tokens")
        shown = {each["id"]: each for each in listed.json()["items"]}
        assert made["secret"].startswith("rotaj_")
        assert made["secret"] not in listed.text
        facts = [(shown[it["id"]]["pool"], shown[it["id"]]["uses_left"]) for it in (made, other)]
        assert facts == [(None, 1), ("fra", 7)]

    @pytest.mark.parametrize(
        "body",
        [
            {"uses": 0},
            {"uses": 10_001},
            {"expires_in": "31d"},
            {"expires_in": "0s"},
            {"pool": "a b"},
        ],
    )
    async def test_a_wrong_one_is_not_made(self, served: Served, body: dict[str, object]) -> None:
        answer = await served.post("join_tokens", json=body)

        assert answer.status_code in (400, 422)
        assert (await served.get("join_tokens")).json()["items"] == []

    async def test_it_opens_nothing_by_itself(self, served: Served) -> None:
        made = (await served.post("join_tokens", json={})).json()

        caller = await served.browser({"Authorization": f"Bearer {made['secret']}"})

        assert (await caller.get("/api/v1/whoami")).status_code == 401

    async def test_revoked_one_is_worthless(self, served: Served) -> None:
        made = (await served.post("join_tokens", json={})).json()

        assert (await served.delete(f"join_tokens/{made['id']}")).status_code == 204

        with pytest.raises(Denied):
            await Credentials(served.engine).join(made["secret"], JoinWish("w1", "default"))

    async def test_a_worker_is_revoked_by_its_name(self, served: Served) -> None:
        made = (await served.post("join_tokens", json={})).json()
        desk = Credentials(served.engine)
        credential = await desk.join(made["secret"], JoinWish("w1", "default"))

        first = await served.post("workers/w1/revoke")
        second = await served.post("workers/w1/revoke")

        assert (first.status_code, second.status_code) == (200, 404)
        with pytest.raises(Denied):
            await desk.authenticate(credential.token)


class TestScopes:
    """Tokens for a project, for the installation, and for some verbs only."""

    async def make(self, served: Served, secret: str | None = None, **body: Any) -> httpx.Response:
        """Ask for a token, with this secret or as an installation admin."""
        client = await served.browser(
            {"Authorization": f"Bearer {secret or served.secrets[Role.ADMIN]}"}
        )
        params = {"project": body.pop("project", "default")}
        asked = {"name": "ci", "role": "admin", **body}
        return await client.post("/api/v1/tokens", params=params, json=asked)

    async def secret(self, served: Served, **body: Any) -> str:
        made = await self.make(served, **body)
        assert made.status_code == 201, made.text
        return str(made.json()["secret"])

    async def whoami(self, served: Served, secret: str) -> dict[str, Any]:
        client = await served.browser({"Authorization": f"Bearer {secret}"})
        return dict((await client.get("/api/v1/whoami")).json())

    async def test_a_token_is_for_one_project_unless_it_is_for_the_installation(
        self, served: Served
    ) -> None:
        one = await self.whoami(served, await self.secret(served, name="one", project="other"))
        every = await self.whoami(
            served, await self.secret(served, name="every", installation=True)
        )

        assert (one["name"], one["kind"], one["roles"], one["project"]) == (
            "one",
            "service",
            {"other": "admin"},
            "other",
        )
        assert (every["roles"], every["project"], every["verbs"]) == ({"*": "admin"}, None, None)

    async def test_a_token_says_what_it_is_narrowed_to_and_until_when(self, served: Served) -> None:
        made = await self.make(served, role="operator", verbs=["trigger", "read"], expires_in="1d")

        shown = await self.whoami(served, made.json()["secret"])
        [listed] = [
            each
            for each in (await served.get("tokens")).json()["items"]
            if each["id"] == made.json()["id"]
        ]

        assert shown["verbs"] == listed["verbs"] == made.json()["verbs"] == ["read", "trigger"]
        assert shown["expires_at"] == listed["expires_at"] is not None
        assert made.json()["secret"].startswith(listed["shown"])
        assert len(listed["shown"]) < 20
        assert listed["last_used_at"] is not None

    @pytest.mark.parametrize(
        "wanted",
        [
            {"project": "default"},
            {"installation": True},
            {"project": "other", "installation": True},
        ],
    )
    async def test_an_admin_of_a_project_makes_tokens_for_no_other(
        self, served: Served, wanted: dict[str, Any]
    ) -> None:
        secret = await self.secret(served, name="boss", project="other")

        refused = await self.make(served, secret, name="more", **wanted)

        assert refused.json()["code"] in {"project_not_found", "forbidden"}
        assert (await self.make(served, secret, name="own", project="other")).status_code == 201

    @pytest.mark.parametrize("role", [Role.VIEWER, Role.OPERATOR, Role.EDITOR])
    async def test_whoever_is_no_admin_makes_none_at_all(self, served: Served, role: Role) -> None:
        secret = await self.secret(served, name="lesser", project="other", role=role)

        refused = await self.make(served, secret, name="x", project="other", role="viewer")

        assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")

    async def test_a_narrowed_admin_makes_none(self, served: Served) -> None:
        secret = await self.secret(served, name="narrow", project="other", verbs=["read", "apply"])

        refused = await self.make(served, secret, name="x", project="other", role="viewer")

        assert refused.status_code == 403

    async def test_an_admin_of_a_project_sees_and_ends_its_tokens_only(
        self, served: Served
    ) -> None:
        secret = await self.secret(served, name="boss", project="other")
        foreign = (await self.make(served, name="foreign")).json()
        own = (await self.make(served, name="own", project="other")).json()
        client = await served.browser({"Authorization": f"Bearer {secret}"})

        listed = (await client.get("/api/v1/tokens")).json()["items"]
        refused = await client.delete(f"/api/v1/tokens/{foreign['id']}")
        unknown = await client.delete("/api/v1/tokens/t_nothing")
        ended = await client.delete(f"/api/v1/tokens/{own['id']}")

        assert {each["name"] for each in listed} == {"boss", "own"}
        assert refused.status_code == unknown.status_code == 404
        assert refused.json()["code"] == unknown.json()["code"] == "token_not_found"
        assert ended.status_code == 204

    async def test_a_name_of_another_project_is_taken(self, served: Served) -> None:
        await self.secret(served, name="ci", project="default")
        secret = await self.secret(served, name="boss", project="other")

        refused = await self.make(served, secret, name="ci", project="other", role="viewer")

        assert (refused.status_code, refused.json()["code"]) == (409, "name_taken")

    async def test_a_second_token_of_a_name_rotates_the_first(self, served: Served) -> None:
        first = (await self.make(served, role="viewer")).json()

        second = await self.secret(served, role="editor")
        await served.delete(f"tokens/{first['id']}")

        assert (await self.whoami(served, second))["roles"] == {"default": "editor"}

    async def test_a_session_has_the_rights_of_the_token_that_opened_it(
        self, served: Served
    ) -> None:
        secret = await self.secret(
            served, project="other", role="operator", verbs=["read", "trigger"]
        )
        browser = await served.browser()

        opened = await browser.post("/api/v1/login", json={"secret": secret})

        mine = (await browser.get("/api/v1/whoami")).json()
        assert mine["roles"] == opened.json()["roles"] == {"other": "operator"}
        assert (mine["project"], mine["verbs"]) == ("other", ["read", "trigger"])
        assert (await browser.get("/api/v1/jobs")).json()["code"] == "project_not_found"
        assert (await browser.get("/api/v1/jobs", params={"project": "other"})).status_code == 200

    async def test_whoever_is_disabled_is_sent_away_with_all_sessions(self, served: Served) -> None:
        secret = await self.secret(served)
        browser = await served.browser()
        await browser.post("/api/v1/login", json={"secret": secret})

        await disable(served.engine.store, "ci")
        served.app.state.tokens.forget()

        caller = await served.browser({"Authorization": f"Bearer {secret}"})
        assert (await caller.get("/api/v1/whoami")).status_code == 401
        assert (await browser.get("/api/v1/whoami")).status_code == 401


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
    assert "SameSite=lax" in cookie
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


async def test_a_login_link_lives_ten_minutes(served: Served) -> None:
    secret = await create_login_link_secret(served.engine.store, actor="up")
    found = await served.engine.store.token_by_digest(digest(secret))

    assert found is not None
    assert found.token.expires_at == found.token.created_at + timedelta(minutes=10)


async def test_a_login_link_is_no_token(served: Served) -> None:
    secret = await create_login_link_secret(served.engine.store, actor="up")
    caller = await served.browser({"Authorization": f"Bearer {secret}"})

    assert (await caller.get("/api/v1/jobs")).status_code == 401


async def test_a_new_login_link_ends_older_ones(served: Served) -> None:
    old = await create_login_link_secret(served.engine.store, actor="up")
    new = await create_login_link_secret(served.engine.store, actor="up")
    browser = await served.browser()

    assert (await browser.get("/login", params={"token": old})).status_code == 401
    assert (await browser.get("/login", params={"token": new})).status_code == 303


@pytest.mark.parametrize("role", [Role.VIEWER, Role.ADMIN])
async def test_the_address_of_a_login_takes_no_token(served: Served, role: Role) -> None:
    browser = await served.browser()

    answer = await browser.get("/login", params={"token": served.secrets[role]})

    assert answer.status_code == 401
    assert "set-cookie" not in answer.headers


async def test_a_session_is_taken_from_the_cookie_only(served: Served) -> None:
    browser, _ = await login(served, served.secrets[Role.ADMIN])
    session = browser.cookies["rota_session"]
    caller = await served.browser({"Authorization": f"Bearer {session}"})

    assert (await browser.get("/api/v1/whoami")).status_code == 200
    assert (await caller.get("/api/v1/whoami")).status_code == 401


async def test_a_token_is_not_taken_from_the_cookie(served: Served) -> None:
    secret = served.secrets[Role.ADMIN]
    assert (await served.get("whoami", Role.ADMIN)).status_code == 200  # trusted by now
    browser = await served.browser({"Cookie": f"rota_session={secret}"})

    assert (await browser.get("/api/v1/whoami")).status_code == 401


async def test_tokens_from_before_there_were_kinds_stay_valid(served: Served) -> None:
    secret = "rota_" + "aB-_" * 8
    token = NewToken("t_old", "old", Role.OPERATOR, digest(secret), "api", "somebody", None)
    await served.engine.store.add_token(token)
    caller = await served.browser({"Authorization": f"Bearer {secret}"})

    assert (await caller.get("/api/v1/whoami")).json()["role"] == "operator"


@pytest.fixture
async def impatient(tmp_path: Path, anyio_backend: str) -> AsyncIterator[Served]:
    settings = GatewaySettings(wrong_logins=3, wrong_secrets=3)
    async with serving_gateway(tmp_path, settings) as served:
        yield served


async def test_an_address_that_guesses_has_to_wait(impatient: Served) -> None:
    for _ in range(3):
        _, answer = await login(impatient, "guess")
        assert (answer.status_code, answer.json()["code"]) == (401, "bad_credentials")

    _, wrong = await login(impatient, "another guess")
    link = await (await impatient.browser()).get("/login", params={"token": "guess"})

    assert (wrong.status_code, wrong.json()["code"]) == (429, "too_many_logins")
    assert 1 <= int(wrong.headers["retry-after"]) <= 60
    assert link.status_code == 429
    assert (await impatient.get("whoami")).status_code == 200


async def test_no_guess_of_others_locks_out_the_right_link(impatient: Served) -> None:
    secret = await create_login_link_secret(impatient.engine.store, actor="up")
    for _ in range(20):  # as a foreign page does, in the victim's own browser
        await (await impatient.browser()).get("/login", params={"token": "x"})

    answer = await (await impatient.browser()).get("/login", params={"token": secret})

    assert answer.status_code == 303


async def test_wrong_tokens_of_requests_are_counted_and_right_ones_pass(impatient: Served) -> None:
    guesser = await impatient.browser({"Authorization": "Bearer rotat_guess"})

    codes = [(await guesser.get("/api/v1/jobs")).status_code for _ in range(5)]

    assert codes == [401, 401, 401, 429, 429]
    assert (await impatient.get("jobs", Role.VIEWER)).status_code == 200


@pytest.mark.parametrize(
    "name", ["system", "Scheduler", "provider", "me", "rota up", "rota token create", "local"]
)
async def test_no_program_is_called_like_rota_itself(served: Served, name: str) -> None:
    refused = await served.post("tokens", json={"name": name, "role": "viewer"})

    assert (refused.status_code, refused.json()["code"]) == (422, "name_reserved")


@pytest.mark.parametrize("name", ["viewer ", "two  words"])
async def test_no_program_is_called_like_another_but_for_a_space(served: Served, name: str) -> None:
    refused = await served.post("tokens", json={"name": name, "role": "viewer"})

    assert refused.status_code == 422
    assert "single spaces" in refused.json()["hint"]


class TestWrongSecrets:
    def test_they_are_forgotten_after_a_while(self) -> None:
        now = 0.0
        wrong = WrongSecrets(2, timedelta(seconds=60), lambda: now)
        wrong.note("a", "rotat_1")
        now = 30.0
        wrong.note("a", "rotat_2")

        with pytest.raises(Unavailable) as caught:
            wrong.note("a", "rotat_3")
        assert caught.value.facts["retry_after_seconds"] == 30
        wrong.note("b", "rotat_4")
        now = 90.0
        wrong.note("a", "rotat_5")

    def test_many_addresses_do_not_help_with_one_secret(self) -> None:
        wrong = WrongSecrets(2, timedelta(seconds=60), lambda: 0.0)
        wrong.note("a", "rotat_abcdefgh1")
        wrong.note("b", "rotat_abcdefgh2")

        with pytest.raises(Unavailable):
            wrong.note("c", "rotat_abcdefgh3")

    def test_all_addresses_of_a_network_of_ipv6_are_one(self) -> None:
        wrong = WrongSecrets(2, timedelta(seconds=60), lambda: 0.0)
        wrong.note("2001:db8:1:2::1", "rotat_aaaaaaaa")
        wrong.note("2001:db8:1:2:ffff::7", "rotat_bbbbbbbb")

        with pytest.raises(Unavailable):
            wrong.note("2001:db8:1:2:3:4:5:6", "rotat_cccccccc")
        wrong.note("2001:db8:1:3::1", "rotat_dddddddd")

    @pytest.mark.parametrize(
        ("address", "network"),
        [
            ("192.0.2.1", "192.0.2.1"),
            ("2001:db8::1", "2001:db8::/64"),
            ("fe80::1%eth0", "fe80::/64"),
            ("::ffff:192.0.2.1", "::ffff:192.0.2.1"),
            ("", ""),
            ("testclient", "testclient"),
        ],
    )
    def test_limits_go_by_what_one_subscriber_has(self, address: str, network: str) -> None:
        assert network_of(address) == network


@pytest.mark.parametrize("body", [{}, {"secret": ""}])
async def test_whoever_shows_no_secret_is_told_where_people_log_in(
    served: Served, body: dict[str, object]
) -> None:
    answer = await served.post("login", None, json=body)

    assert answer.status_code == 401
    assert answer.json()["hint"] == "open http://127.0.0.1:7700/login"


@pytest.mark.parametrize("body", [{"secret": "x" * 513}, {"secret": 1}])
async def test_a_wrong_login_body_is_refused(served: Served, body: dict[str, object]) -> None:
    answer = await served.post("login", None, json=body)

    assert answer.status_code == 422
    assert "x" * 100 not in answer.text
