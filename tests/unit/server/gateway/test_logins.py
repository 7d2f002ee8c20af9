from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from rota.domain.access import Role
from rota.domain.key_ring import KeyRing, new_key
from rota.operations.engine import Logins
from rota.operations.tokens import create_login_link_secret
from rota.ports.projects import PrincipalKind, PrincipalRef
from rota.server.gateway.app import create_app
from rota.server.gateway.parameters import GatewaySettings
from testkit.clock import FakeTicker
from tests.unit.identity.published import ISSUER, RULES, PublishedProvider, key
from tests.unit.server.gateway.served import Served, serving_gateway

pytestmark = pytest.mark.anyio

SITE = "http://rota"
LOGOUT_EVENT = "http://schemas.openid.net/event/backchannel-logout"
GRANT = "urn:ietf:params:oauth:grant-type:device_code"
MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)


@dataclass
class Site:
    """A gateway whose people log in with a provider."""

    served: Served
    published: PublishedProvider
    clock: FakeTicker
    _clients: AsyncExitStack = field(repr=False)

    async def browser(self) -> httpx.AsyncClient:
        return await self.served.browser()

    def advance(self, time: timedelta) -> None:
        """All clocks move on."""
        self.clock.advance(time)
        self.published.clock += time.total_seconds()
        self.published.now = int(self.clock.instant.timestamp())
        self.served.app.state.tokens.forget()

    async def another_server(self) -> httpx.AsyncClient:
        """A browser at another server on the same store."""
        app = create_app(self.served.engine, GatewaySettings(base_url=SITE, issuer=ISSUER))
        transport = httpx.ASGITransport(app=app)
        client = httpx.AsyncClient(transport=transport, base_url=SITE)
        return await self._clients.enter_async_context(client)

    async def change_settings(self, browsers: list[httpx.AsyncClient], logins: Logins) -> None:
        """Start the server anew with another provider; these browsers come to it."""
        self.served.app = create_app(
            replace(self.served.engine, logins=logins), GatewaySettings(base_url=SITE)
        )
        for browser in browsers:
            browser._transport = httpx.ASGITransport(app=self.served.app)

    async def log_in(
        self, browser: httpx.AsyncClient, user: str = "ann", next_path: str = "/"
    ) -> httpx.Response:
        begun = await browser.get("/auth/login", params={"next": next_path})
        assert begun.status_code == 303, begun.text
        back = self.published.log_in(begun.headers["location"], user)
        return await browser.get("/auth/callback", params=back)

    async def logged_in(self, user: str = "ann") -> httpx.AsyncClient:
        browser = await self.browser()
        answer = await self.log_in(browser, user)
        assert answer.status_code == 303, answer.text
        return browser

    async def who(self, browser: httpx.AsyncClient, **kwargs: Any) -> str | None:
        """What the server calls a caller; None: it does not know them."""
        answer = await browser.get("/api/v1/whoami", **kwargs)
        return str(answer.json()["name"]) if answer.status_code == 200 else None


@asynccontextmanager
async def site_of(
    folder: Path,
    published: PublishedProvider,
    settings: GatewaySettings | None = None,
    *,
    has_keys: bool = True,
) -> AsyncIterator[Site]:
    clock = FakeTicker()
    published.now = int(clock.instant.timestamp())
    async with AsyncExitStack() as stack:
        provider = await stack.enter_async_context(published.open())
        served = await stack.enter_async_context(
            serving_gateway(
                folder,
                settings or GatewaySettings(base_url=SITE, issuer=ISSUER),
                logins=Logins(provider),
                clock=clock,
                key_ring=KeyRing([new_key()]) if has_keys else None,
            )
        )
        await served.engine.store.bind_admin_groups(ISSUER, frozenset({"admins"}))
        yield Site(served, published, clock, stack)


@pytest.fixture
def published() -> PublishedProvider:
    provider = PublishedProvider()
    provider.users["bob"] = {"preferred_username": "bob", "groups": ["dev"]}
    return provider


@pytest.fixture
async def site(
    tmp_path: Path, published: PublishedProvider, anyio_backend: str
) -> AsyncIterator[Site]:
    async with site_of(tmp_path, published) as site:
        yield site


class TestLogins:
    async def test_a_person_comes_back_as_themselves_where_they_wanted_to_go(
        self, site: Site
    ) -> None:
        browser = await site.browser()

        back = await site.log_in(browser, next_path="/device?code=BCDF-GHJK")

        assert back.headers["location"] == "/device?code=BCDF-GHJK"
        assert await site.who(browser) == "ann"

    async def test_the_provider_is_told_where_rota_is_by_its_settings_not_by_the_browser(
        self, site: Site
    ) -> None:
        browser = await site.browser()

        begun = await browser.get("/auth/login", headers={"Host": "evil.example"})

        asked = parse_qs(urlsplit(begun.headers["location"]).query)
        assert asked["redirect_uri"] == [f"{SITE}/auth/callback"]

    async def test_groups_are_roles(self, site: Site) -> None:
        dev = PrincipalRef(PrincipalKind.GROUP, ISSUER, "dev", "group-dev", "dev")
        await site.served.engine.store.bind(dev, "default", Role.VIEWER, actor="root")
        bob = await site.logged_in("bob")
        ann = await site.logged_in("ann")
        change = {"X-Rota-Request": "1"}
        body = {"name": "ci", "role": "viewer"}

        may_read = await bob.get("/api/v1/jobs")
        may_not = await bob.post("/api/v1/tokens", headers=change, json=body)
        may = await ann.post("/api/v1/tokens", headers=change, json=body)

        assert [each.status_code for each in (may_read, may_not, may)] == [200, 403, 201]

    async def test_another_server_can_finish_a_login(self, site: Site) -> None:
        here, there = await site.browser(), await site.another_server()
        begun = await here.get("/auth/login")
        there.cookies = here.cookies
        back = site.published.log_in(begun.headers["location"])

        await there.get("/auth/callback", params=back)

        assert await site.who(there) == "ann"

    async def test_a_login_is_for_the_browser_that_began_it(self, site: Site) -> None:
        mine, others = await site.browser(), await site.browser()
        begun = await mine.get("/auth/login")
        await others.get("/auth/login")
        back = site.published.log_in(begun.headers["location"])

        forged = await others.get("/auth/callback", params=back)
        without_cookie = await (await site.browser()).get("/auth/callback", params=back)

        assert (forged.status_code, without_cookie.status_code) == (403, 403)
        assert "not begun in this browser" in forged.text
        assert await site.who(others) is None

    async def test_two_tabs_may_log_in_at_once(self, site: Site) -> None:
        browser = await site.browser()
        begun = [await browser.get("/auth/login") for _ in range(2)]

        answers = [
            await browser.get(
                "/auth/callback", params=site.published.log_in(each.headers["location"])
            )
            for each in begun
        ]

        assert [each.status_code for each in answers] == [303, 303]

    async def test_an_answer_works_once(self, site: Site) -> None:
        browser = await site.browser()
        begun = await browser.get("/auth/login")
        back = site.published.log_in(begun.headers["location"])
        cookies = dict(browser.cookies)
        await browser.get("/auth/callback", params=back)
        replaying = await site.browser()
        replaying.cookies.update(cookies)

        replayed = await replaying.get("/auth/callback", params=back)

        assert replayed.status_code == 403
        assert await site.who(replaying) is None

    @pytest.mark.parametrize(
        "change",
        [
            {"iss": "https://evil.example"},
            {"error": "access_denied", "error_description": "<b>no</b>"},
            {"code": ""},
            {"code": "guessed"},
            {"state": "guessed"},
        ],
        ids=str,
    )
    async def test_a_wrong_answer_opens_no_session(
        self, site: Site, change: dict[str, str]
    ) -> None:
        browser = await site.browser()
        begun = await browser.get("/auth/login")
        back = site.published.log_in(begun.headers["location"]) | change

        answer = await browser.get("/auth/callback", params=back)

        assert answer.status_code == 403
        assert "<b>no" not in answer.text
        assert await site.who(browser) is None

    async def test_a_provider_that_names_itself_must_do_so(self, site: Site) -> None:
        site.published.document["authorization_response_iss_parameter_supported"] = True
        browser = await site.browser()

        silent = await site.log_in(browser)
        begun = await browser.get("/auth/login")
        back = site.published.log_in(begun.headers["location"])
        named = await browser.get("/auth/callback", params=back | {"iss": ISSUER})

        assert (silent.status_code, named.status_code) == (403, 303)

    async def test_an_id_token_of_another_login_is_refused(self, site: Site) -> None:
        browser = await site.browser()
        begun = await browser.get("/auth/login")
        back = site.published.log_in(begun.headers["location"], nonce="of another login")

        answer = await browser.get("/auth/callback", params=back)

        assert answer.status_code == 403
        assert "belongs to another login" in answer.text

    @pytest.mark.parametrize(
        "target", ["//evil.example", "https://evil.example", "/\\evil.example"]
    )
    async def test_nobody_is_led_elsewhere(self, site: Site, target: str) -> None:
        back = await site.log_in(await site.browser(), next_path=target)

        assert back.headers["location"] == "/"

    async def test_what_a_provider_adds_to_its_answer_does_no_harm(self, site: Site) -> None:
        browser = await site.browser()
        begun = await browser.get("/auth/login")
        back = site.published.log_in(begun.headers["location"])

        answer = await browser.get(
            "/auth/callback", params=back | {"session_state": "x", "hd": "y"}
        )

        assert answer.status_code == 303

    async def test_each_login_has_a_session_of_its_own(self, site: Site) -> None:
        browser = await site.browser()
        await site.log_in(browser)
        first = browser.cookies["rota_session"]

        await site.log_in(browser)

        assert browser.cookies["rota_session"] != first

    async def test_the_cookie_is_kept_from_scripts_other_sites_and_the_clear(
        self, tmp_path: Path, published: PublishedProvider
    ) -> None:
        settings = GatewaySettings(
            base_url="https://rota", public_url="https://rota", secure_cookies=True, issuer=ISSUER
        )
        async with site_of(tmp_path, published, settings) as site:
            browser = await site.browser()
            browser.base_url = httpx.URL("https://rota")

            back = await site.log_in(browser)

        [cookie] = [it for it in back.headers.get_list("set-cookie") if "rota_session" in it]
        words = {word.strip().lower() for word in cookie.split(";")}
        assert cookie.startswith("__Host-rota_session=rotas_")
        assert {"httponly", "secure", "samesite=lax", "path=/", "max-age=43200"} <= words

    async def test_too_many_logins_of_one_address_have_to_wait(self, site: Site) -> None:
        browser = await site.browser()

        answers = [(await browser.get("/auth/login")).status_code for _ in range(61)]

        assert answers == [303] * 60 + [429]

    async def test_a_provider_that_is_away_is_told_with_a_way_on(self, site: Site) -> None:
        site.published.is_away = True

        answer = await (await site.browser()).get("/auth/login")

        assert answer.status_code == 503
        assert "try again" in answer.text.lower()

    async def test_groups_that_the_provider_left_out_refuse_the_login(self, site: Site) -> None:
        site.published.users["ann"] = {"_claim_names": {"groups": "src1"}}

        answer = await site.log_in(await site.browser())

        assert answer.status_code == 403
        assert "too many" in answer.text
        assert "roles" in answer.text


class TestSessions:
    async def test_a_session_ends_after_two_idle_hours_and_after_twelve_in_all(
        self, site: Site
    ) -> None:
        idle, busy = await site.logged_in(), await site.logged_in()
        known = []
        for _ in range(13):
            known.append(await site.who(busy))
            site.advance(HOUR)

        assert known == ["ann"] * 12 + [None]
        assert await site.who(idle) is None

    async def test_a_session_is_no_bearer_token_and_a_bearer_token_no_cookie(
        self, site: Site
    ) -> None:
        secret = (await site.logged_in()).cookies["rota_session"]
        browser = await site.browser()

        assert await site.who(browser, headers={"Authorization": f"Bearer {secret}"}) is None
        browser.cookies.set("rota_session", site.served.secrets[Role.ADMIN])
        assert await site.who(browser) is None

    async def test_rights_that_the_provider_takes_count_at_the_next_refresh(
        self, site: Site
    ) -> None:
        ann = await site.logged_in()
        site.published.users["ann"]["groups"] = []
        site.advance(15 * MINUTE)
        before = await ann.get("/api/v1/tokens?project=*")
        site.advance(MINUTE)

        after = await ann.get("/api/v1/tokens?project=*")

        assert (before.status_code, after.status_code) == (200, 403)

    async def test_somebody_whom_the_provider_dismissed_is_out_at_the_next_refresh(
        self, site: Site
    ) -> None:
        ann = await site.logged_in()
        site.published.refresh_tokens.clear()
        site.advance(16 * MINUTE)

        assert await site.who(ann) is None

    async def test_a_provider_that_speaks_of_somebody_else_ends_the_session(
        self, site: Site
    ) -> None:
        ann = await site.logged_in()
        await site.logged_in("bob")
        tokens = site.published.refresh_tokens
        tokens.update(dict.fromkeys(tokens, "bob"))
        site.advance(16 * MINUTE)

        assert await site.who(ann) is None

    async def test_while_the_provider_is_away_sessions_live_to_their_end(self, site: Site) -> None:
        ann = await site.logged_in()
        site.published.is_away = True
        known = []
        for _ in range(13):
            known.append(await site.who(ann))
            site.advance(HOUR)

        assert known == ["ann"] * 12 + [None]

    async def test_a_provider_that_is_back_is_asked_again(self, site: Site) -> None:
        ann = await site.logged_in()
        site.advance(16 * MINUTE)
        site.published.is_away = True
        assert await site.who(ann) == "ann"
        site.published.is_away = False
        site.published.users["ann"]["groups"] = []

        site.advance(2 * MINUTE)

        assert (await ann.get("/api/v1/tokens?project=*")).status_code == 403

    async def test_a_refused_client_ends_nobody_s_session(self, site: Site) -> None:
        ann = await site.logged_in()
        site.published.refusal = (401, {"error": "invalid_client"})
        site.advance(16 * MINUTE)

        assert await site.who(ann) == "ann"

    async def test_two_servers_refresh_a_session_once(self, site: Site) -> None:
        ann, there = await site.logged_in(), await site.another_server()
        there.cookies = ann.cookies
        site.advance(16 * MINUTE)
        site.published.asked.clear()

        known = await asyncio.gather(*(site.who(each) for each in (ann, there) * 5))

        assert known == ["ann"] * 10
        assert site.published.asked.count("/token") == 1

    async def test_tokens_of_the_provider_are_not_readable_in_the_store(
        self, site: Site, tmp_path: Path
    ) -> None:
        await site.logged_in()
        [refresh_token] = site.published.refresh_tokens
        stored = stored_bytes(tmp_path)

        assert refresh_token.encode() not in stored
        assert b"eyJ" not in stored

    async def test_without_a_key_ring_no_token_of_the_provider_is_kept(
        self, tmp_path: Path, published: PublishedProvider
    ) -> None:
        async with site_of(tmp_path, published, has_keys=False) as site:
            ann = await site.logged_in()
            published.refresh_tokens.clear()
            published.asked.clear()
            site.advance(HOUR)

            assert await site.who(ann) == "ann"
            assert "/token" not in published.asked

    async def test_a_disabled_person_is_out_at_once(self, site: Site) -> None:
        ann = await site.logged_in()
        store = site.served.engine.store
        await store.bind(
            PrincipalRef(PrincipalKind.GROUP, ISSUER, "x", "group-x", ""),
            "*",
            Role.ADMIN,
            actor="r",
        )
        await store.disable_principal("ann", disabled=True, actor="root")
        site.served.app.state.tokens.forget()

        assert await site.who(ann) is None
        again = await site.log_in(await site.browser())
        assert again.status_code == 403
        assert "disabled" in again.text


class TestLinks:
    """Sessions that a login link or a token opens."""

    async def test_a_session_of_a_link_ends_when_it_is_idle_unless_it_is_used(
        self, site: Site
    ) -> None:
        browser = await by_link(site)
        for _ in range(3):
            site.advance(HOUR)
            assert await site.who(browser) == "up"

        site.advance(2 * HOUR)

        assert await site.who(browser) is None

    async def test_a_session_of_a_token_ends_with_its_lifetime_however_much_it_is_used(
        self, site: Site
    ) -> None:
        browser = await site.browser()
        secret = site.served.secrets[Role.VIEWER]
        opened = await browser.post("/api/v1/login", json={"secret": secret})
        for _ in range(11):
            site.advance(HOUR)
            assert await site.who(browser) == "viewer"

        site.advance(HOUR)

        assert await site.who(browser) is None
        assert "Max-Age=43200" in opened.headers["set-cookie"]

    async def test_a_terminal_that_such_a_session_lets_in_lasts_as_long_as_any(
        self, site: Site
    ) -> None:
        terminal = await site.browser()
        secret = await let_in(site, terminal, await by_link(site))
        headers = {"Authorization": f"Bearer {secret}"}
        for _ in range(3):
            site.advance(11 * HOUR)
            assert await site.who(terminal, headers=headers) == "up"

        site.advance(12 * HOUR)

        assert await site.who(terminal, headers=headers) is None


class TestLogouts:
    async def test_a_logout_ends_the_session_here_and_leads_to_the_provider(
        self, site: Site
    ) -> None:
        ann = await site.logged_in()
        secret = ann.cookies["rota_session"]
        form = form_of((await ann.get("/")).text)

        page = await ann.post("/logout", data=form)

        [target] = re.findall(r'http-equiv="refresh" content="0; url=([^"]+)"', page.text)
        asked = parse_qs(urlsplit(target.replace("&amp;", "&")).query)
        assert target.startswith(f"{ISSUER}/logout?")
        assert asked["post_logout_redirect_uri"] == [f"{SITE}/logged-out"]
        assert asked["id_token_hint"][0].count(".") == 2
        ann.cookies.set("rota_session", secret)
        assert await site.who(ann) is None

    async def test_a_provider_without_a_logout_is_left_with_a_word(self, site: Site) -> None:
        site.published.document["end_session_endpoint"] = None
        ann = await site.logged_in()

        page = await ann.post("/logout", data=form_of((await ann.get("/")).text))

        assert "http-equiv" not in page.text
        assert "log out there, too" in page.text

    async def test_the_api_ends_a_session_and_names_the_provider_s_logout(self, site: Site) -> None:
        ann = await site.logged_in()

        ended = await ann.post("/api/v1/logout", headers={"X-Rota-Request": "1"})

        assert ended.status_code == 204
        assert ended.headers["rota-logout-address"].startswith(f"{ISSUER}/logout?")
        assert await site.who(ann) is None

    async def test_a_form_of_another_site_ends_nothing(self, site: Site) -> None:
        ann = await site.logged_in()
        form = form_of((await ann.get("/")).text)

        answers = [
            await ann.post("/logout"),
            await ann.post("/logout", data={"form": "guessed"}),
            await ann.post("/logout", data=form, headers={"Sec-Fetch-Site": "cross-site"}),
        ]

        assert [each.status_code for each in answers] == [403, 403, 403]
        assert await site.who(ann) == "ann"

    async def test_a_form_of_another_site_takes_no_cookie_away(self, site: Site) -> None:
        # SameSite=Lax: the browser sends a form of another site without the cookie, and would
        # do as the answer says.
        answer = await (await site.browser()).post("/logout")

        assert answer.status_code == 200
        assert "set-cookie" not in answer.headers

    async def test_a_session_that_has_ended_takes_its_cookie_with_it(self, site: Site) -> None:
        browser = await site.browser()
        browser.cookies.set("rota_session", "rotas_over")

        answer = await browser.post("/logout")

        assert 'rota_session=""' in answer.headers["set-cookie"]

    async def test_the_provider_ends_a_session_by_its_back_channel(self, site: Site) -> None:
        ann, bob = await site.logged_in("ann"), await site.logged_in("bob")
        claims = site.published.claims(
            "ann", aud="rota", jti="j", sid="unknown", events={LOGOUT_EVENT: {}}
        )
        token = site.published.sign(claims, typ="logout+jwt")
        provider = await site.browser()

        by_sid = await provider.post("/auth/backchannel", data={"logout_token": token})
        known = await site.who(ann)
        claims.pop("sid")
        token = site.published.sign(claims, typ="logout+jwt")
        by_sub = await provider.post("/auth/backchannel", data={"logout_token": token})

        assert (by_sid.status_code, known, by_sub.status_code) == (200, "ann", 200)
        assert await site.who(ann) is None
        assert await site.who(bob) == "bob"

    async def test_nobody_else_ends_a_session_by_it(self, site: Site) -> None:
        ann = await site.logged_in()
        good = site.published.claims("ann", aud="rota", jti="j", events={LOGOUT_EVENT: {}})
        forged = [
            site.published.sign(good, by=key("evil"), kid="k1", typ="logout+jwt"),
            site.published.sign(good | {"aud": "other"}, typ="logout+jwt"),
            site.published.access_token(),
            "",
            "x" * 9_000,
        ]
        provider = await site.browser()

        answers = [
            await provider.post("/auth/backchannel", data={"logout_token": token})
            for token in forged
        ]

        assert [each.status_code for each in answers] == [400] * 5
        assert await site.who(ann) == "ann"


class TestFormerProviders:
    """Sessions of people whom a provider knows that is in the settings no longer."""

    @pytest.mark.parametrize("is_replaced", [True, False], ids=["by another", "by none"])
    async def test_no_other_provider_is_asked_about_them_and_they_last_as_if_theirs_were_away(
        self, site: Site, is_replaced: bool
    ) -> None:
        terminal, ann = await site.browser(), await site.logged_in()
        headers = {"Authorization": f"Bearer {await let_in(site, terminal)}"}
        other = PublishedProvider(rules=replace(RULES, issuer="http://localhost:5000"))
        other.refresh_tokens = dict.fromkeys(site.published.refresh_tokens, "ann")
        site.published.asked.clear()
        known = []
        async with other.open() as provider:
            logins = Logins(provider if is_replaced else None)
            await site.change_settings([ann, terminal], logins)
            for _ in range(13):
                called = [await site.who(ann), await site.who(terminal, headers=headers)]
                known.append(called)
                site.advance(HOUR)

        assert known == [["ann", "ann"]] * 12 + [[None, None]]
        assert other.asked == site.published.asked == []

    async def test_no_other_provider_is_told_of_them_at_their_logout(self, site: Site) -> None:
        ann = await site.logged_in()
        other = PublishedProvider(rules=replace(RULES, issuer="http://localhost:5000"))
        async with other.open() as provider:
            await site.change_settings([ann], Logins(provider))
            ended = await ann.post("/api/v1/logout", headers={"X-Rota-Request": "1"})

        assert ended.status_code == 204
        assert "rota-logout-address" not in ended.headers
        assert await site.who(ann) is None
        assert other.asked == []


class TestAccessTokens:
    async def test_an_access_token_has_the_rights_of_its_user(self, site: Site) -> None:
        browser = await site.logged_in()
        headers = {"Authorization": f"Bearer {site.published.access_token()}"}

        program = await site.browser()

        assert await site.who(program, headers=headers) == await site.who(browser) == "ann"
        made = await program.post(
            "/api/v1/tokens", headers=headers, json={"name": "ci", "role": "viewer"}
        )
        assert made.status_code == 201

    async def test_a_user_need_not_have_logged_in_before(self, site: Site) -> None:
        headers = {"Authorization": f"Bearer {site.published.access_token('bob')}"}

        assert await site.who(await site.browser(), headers=headers) == "bob"

    async def test_tokens_that_are_forged_foreign_or_over_are_refused(self, site: Site) -> None:
        provider, now = site.published, site.published.now
        tokens = {
            "expired": provider.access_token(exp=now - 61),
            "not yet valid": provider.access_token(nbf=now + 61),
            "another audience": provider.access_token(aud="https://other.example"),
            "another issuer": provider.access_token(iss="https://evil.example"),
            "with a slash": provider.access_token(iss=f"{ISSUER}/"),
            "an ID token": provider.sign(provider.claims(aud="rota", nonce="n")),
            "plain": provider.access_token(typ="JWT"),
            "a logout token": provider.access_token(typ="logout+jwt"),
            "of another key": provider.sign(provider.claims(), by=key("evil"), kid="k1"),
            "unsigned": "eyJhbGciOiJub25lIn0.e30.",
            "two parts": "eyJhbGciOiJSUzI1NiJ9.e30",
            "large": provider.access_token(padding="x" * 9_000),
            "huge": f"{'a' * 500_000}.{'b' * 500_000}.c",
        }
        program = await site.browser()
        good = {"Authorization": f"Bearer {provider.access_token()}"}
        assert await site.who(program, headers=good) == "ann"

        known = {
            what: await site.who(program, headers={"Authorization": f"Bearer {token}"})
            for what, token in tokens.items()
        }

        assert known == dict.fromkeys(tokens)

    async def test_a_disabled_user_is_refused_although_the_token_lives(self, site: Site) -> None:
        headers = {"Authorization": f"Bearer {site.published.access_token('bob')}"}
        program = await site.browser()
        await site.who(program, headers=headers)
        await site.served.engine.store.disable_principal("bob", disabled=True, actor="root")
        site.served.app.state.tokens.forget()

        assert await site.who(program, headers=headers) is None

    async def test_an_access_token_is_no_cookie(self, site: Site) -> None:
        browser = await site.browser()
        browser.cookies.set("rota_session", site.published.access_token())

        assert await site.who(browser) is None

    async def test_without_keys_of_the_provider_the_answer_is_503(self, site: Site) -> None:
        site.published.is_away = True
        headers = {"Authorization": f"Bearer {site.published.access_token()}"}

        answer = await (await site.browser()).get("/api/v1/whoami", headers=headers)

        assert answer.status_code == 503


class TestTerminals:
    async def test_a_person_lets_a_terminal_in(self, site: Site) -> None:
        terminal, ann = await site.browser(), await site.logged_in()
        asked = (await terminal.post("/auth/device", data={"host": "<i>laptop</i>"})).json()

        consent = await ann.get(asked["verification_uri_complete"])
        done = await ann.post("/device", data=form_of(consent.text) | {"answer": "yes"})
        granted = (await poll(terminal, asked)).json()

        assert re.fullmatch(
            "[BCDFGHJKLMNPQRSTVWXZ]{4}-[BCDFGHJKLMNPQRSTVWXZ]{4}", asked["user_code"]
        )
        assert asked["user_code"] in consent.text
        assert "<i>" not in consent.text
        assert "127.0.0.1" in consent.text
        assert done.status_code == 200
        assert granted["access_token"].startswith("rotac_")
        headers = {"Authorization": f"Bearer {granted['access_token']}"}
        assert await site.who(terminal, headers=headers) == "ann"

    async def test_a_terminal_s_session_is_no_cookie_and_ends_by_a_logout(self, site: Site) -> None:
        terminal = await site.browser()
        token = await let_in(site, terminal)
        headers = {"Authorization": f"Bearer {token}"}
        other = await site.browser()
        other.cookies.set("rota_session", token)

        assert await site.who(other) is None
        assert (await terminal.post("/api/v1/logout", headers=headers)).status_code == 204
        assert await site.who(terminal, headers=headers) is None

    async def test_a_terminal_lasts_twelve_hours_after_its_latest_use(self, site: Site) -> None:
        terminal = await site.browser()
        headers = {"Authorization": f"Bearer {await let_in(site, terminal)}"}
        for _ in range(3):
            site.advance(11 * HOUR)
            assert await site.who(terminal, headers=headers) == "ann"

        site.advance(12 * HOUR)

        assert await site.who(terminal, headers=headers) is None

    async def test_rights_that_the_provider_takes_count_at_the_next_refresh_there_too(
        self, site: Site
    ) -> None:
        terminal = await site.browser()
        headers = {"Authorization": f"Bearer {await let_in(site, terminal)}"}
        site.published.users["ann"]["groups"] = []
        site.advance(15 * MINUTE)
        before = await terminal.get("/api/v1/tokens?project=*", headers=headers)
        site.advance(MINUTE)

        after = await terminal.get("/api/v1/tokens?project=*", headers=headers)

        assert (before.status_code, after.status_code) == (200, 403)

    async def test_somebody_whom_the_provider_dismissed_is_out_there_too(self, site: Site) -> None:
        terminal, other = await site.browser(), await site.browser()
        headers = [
            {"Authorization": f"Bearer {await let_in(site, each)}"} for each in (terminal, other)
        ]
        site.published.refresh_tokens.clear()
        site.advance(16 * MINUTE)

        known = [
            await site.who(each, headers=headers[at]) for at, each in enumerate((terminal, other))
        ]

        assert known == [None, None]

    async def test_without_a_way_to_ask_the_provider_a_terminal_lasts_as_long_as_a_browser(
        self, tmp_path: Path, published: PublishedProvider
    ) -> None:
        async with site_of(tmp_path, published, has_keys=False) as site:
            terminal = await site.browser()
            headers = {"Authorization": f"Bearer {await let_in(site, terminal)}"}
            known = []
            for _ in range(4):
                known.append(await site.who(terminal, headers=headers))
                site.advance(5 * HOUR)

        assert known == ["ann"] * 3 + [None]

    async def test_a_stranger_is_asked_to_log_in_and_led_back(self, site: Site) -> None:
        answer = await (await site.browser()).get("/device?code=BCDF-GHJK")

        assert answer.status_code == 303
        assert answer.headers["location"] == ("/auth/login?next=%2Fdevice%3Fcode%3DBCDF-GHJK")

    async def test_a_form_of_another_site_lets_nobody_in(self, site: Site) -> None:
        terminal, ann = await site.browser(), await site.logged_in()
        asked = (await terminal.post("/auth/device")).json()

        answer = await ann.post("/device", data={"code": asked["user_code"], "answer": "yes"})

        assert answer.status_code == 403
        assert (await poll(terminal, asked)).json() == {"error": "authorization_pending"}

    async def test_a_refused_terminal_gets_nothing(self, site: Site) -> None:
        terminal, ann = await site.browser(), await site.logged_in()
        asked = (await terminal.post("/auth/device")).json()
        consent = await ann.get(f"/device?code={asked['user_code']}")

        await ann.post("/device", data=form_of(consent.text) | {"answer": "no"})

        answer = await poll(terminal, asked)
        assert (answer.status_code, answer.json()) == (400, {"error": "access_denied"})

    async def test_codes_cannot_be_tried_out(self, site: Site) -> None:
        ann = await site.logged_in()

        answers = [
            (await ann.get(f"/device?code=BCDFGHJ{last}")).status_code for last in "BCDFGHJKLMN"
        ]

        assert answers == [404] * 10 + [429]

    async def test_the_right_code_does_not_help_who_has_tried_too_many(self, site: Site) -> None:
        ann, bob = await site.logged_in(), await site.logged_in("bob")
        asked = (await ann.post("/auth/device")).json()
        for last in "BCDFGHJKLM":
            await ann.get(f"/device?code=BCDFGHJ{last}")
        form = form_of((await bob.get(f"/device?code={asked['user_code']}")).text)

        found = await ann.get(f"/device?code={asked['user_code']}")
        let_in = await bob.post("/device", data=form | {"answer": "yes"})

        assert (found.status_code, let_in.status_code) == (429, 200)

    async def test_nobody_begins_more_logins_from_more_addresses_of_one_network(
        self, site: Site
    ) -> None:
        strangers = [
            await site.served.browser(peer=f"2001:db8::{number:x}") for number in range(61)
        ]

        answers = [(await each.post("/auth/device")).status_code for each in strangers]

        assert answers == [200] * 60 + [429]

    async def test_a_page_of_another_site_uses_up_nobody_s_logins(self, site: Site) -> None:
        browser = await site.browser()

        told = set()
        for _ in range(61):
            image = await browser.get("/auth/login", headers={"Sec-Fetch-Dest": "image"})
            fetched = await browser.post("/auth/device", headers={"Sec-Fetch-Dest": "empty"})
            told |= {image.status_code, fetched.status_code}

        assert told == {403}
        assert "rota_login" not in browser.cookies
        window = {"Sec-Fetch-Dest": "document", "Sec-Fetch-Site": "cross-site"}
        assert (await browser.get("/auth/login", headers=window)).status_code == 303
        assert (await browser.post("/auth/device")).status_code == 200

    async def test_a_terminal_that_polls_too_often_is_slowed_down(self, site: Site) -> None:
        terminal = await site.browser()
        asked = (await terminal.post("/auth/device")).json()

        told = [(await poll(terminal, asked)).json()["error"] for _ in range(2)]

        assert told == ["authorization_pending", "slow_down"]
        assert asked["interval"] == 5

    async def test_another_grant_is_not_for_terminals(self, site: Site) -> None:
        answer = await (await site.browser()).post(
            "/auth/device/token", data={"grant_type": "password"}
        )

        assert answer.json() == {"error": "unsupported_grant_type"}


class TestPages:
    async def test_a_stranger_is_told_what_this_is_and_how_to_log_in(self, site: Site) -> None:
        browser = await site.browser()

        for path in ("/", "/login"):
            page = await browser.get(path)
            assert page.status_code == 200
            assert 'href="/auth/login?next=%2F"' in page.text

    async def test_a_link_that_is_over_names_the_command_for_another(self, served: Served) -> None:
        page = await (await served.browser()).get("/login", params={"token": "rotal_old"})

        assert page.status_code == 401
        assert "<code>rota login-link</code>" in page.text
        assert "`" not in page.text

    async def test_without_a_provider_the_link_is_named(self, served: Served) -> None:
        page = await served.get("/", None)

        assert "rota login-link" in page.text
        assert (await served.get("/auth/login", None)).status_code == 403

    async def test_a_person_is_greeted_by_name_and_escaped(self, site: Site) -> None:
        site.published.users["ann"]["preferred_username"] = "<script>alert(1)</script>"
        ann = await site.logged_in()

        page = await ann.get("/")

        assert "<script" not in page.text
        assert "Log out" in page.text

    async def test_pages_run_nothing_and_load_only_their_style(self, site: Site) -> None:
        ann = await site.logged_in()
        for path in ("/", "/login", "/logged-out", "/device", "/device?code=BCDFGHJK"):
            page = await ann.get(path)
            assert Loads.of(page.text) <= {"link", "form"}, path
            assert "form-action 'self'" in page.headers["content-security-policy"]
            assert "style-src 'self'" in page.headers["content-security-policy"]
            assert "unsafe" not in page.headers["content-security-policy"]
        style = await ann.get("/style.css")
        assert style.headers["content-type"].startswith("text/css")
        assert "url(" not in style.text
        assert "@import" not in style.text

    async def test_under_a_prefix_all_links_have_it(
        self, tmp_path: Path, published: PublishedProvider
    ) -> None:
        site_url = "https://example.org/rota"
        settings = GatewaySettings(base_url=site_url, public_url=site_url, issuer=ISSUER)
        async with site_of(tmp_path, published, settings) as site:
            page = await (await site.browser()).get("/")

        links = re.findall(r'(?:href|action)="([^"]+)"', page.text)
        assert links
        assert all(link.startswith("/rota/") for link in links)


def stored_bytes(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.glob("rota.db*"))


async def poll(terminal: httpx.AsyncClient, asked: dict[str, Any]) -> httpx.Response:
    form = {"grant_type": GRANT, "device_code": asked["device_code"]}
    return await terminal.post("/auth/device/token", data=form)


async def by_link(site: Site) -> httpx.AsyncClient:
    """A browser that has followed a login link."""
    secret = await create_login_link_secret(site.served.engine.store, actor="up")
    browser = await site.browser()
    answer = await browser.get("/login", params={"token": secret})
    assert answer.status_code == 303, answer.text
    return browser


async def let_in(
    site: Site, terminal: httpx.AsyncClient, browser: httpx.AsyncClient | None = None
) -> str:
    """The token of a terminal that somebody has let in: Ann, unless it is another's browser."""
    browser = browser or await site.logged_in()
    asked = (await terminal.post("/auth/device")).json()
    consent = await browser.get(f"/device?code={asked['user_code']}")
    await browser.post("/device", data=form_of(consent.text) | {"answer": "yes"})
    return str((await poll(terminal, asked)).json()["access_token"])


def form_of(text: str) -> dict[str, str]:
    """The hidden fields of a page's form."""
    found = re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', text)
    assert found, text
    return dict(found)


class Loads(HTMLParser):
    """What a page would fetch, run or send."""

    def __init__(self) -> None:
        super().__init__()
        self.found: set[str] = set()

    @classmethod
    def of(cls, text: str) -> set[str]:
        parser = cls()
        parser.feed(text)
        return parser.found

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in {"script", "link", "img", "iframe", "style", "form"}:
            self.found.add(tag)
        self.found |= {name for name, _ in attrs if name.startswith("on") or name == "src"}
