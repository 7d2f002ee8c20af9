"""What differs between providers, and what happens while time passes, with a certified one."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from rota.domain.key_ring import KeyRing, new_key
from rota.operations.engine import Logins
from rota.runtime import config
from rota.runtime.backends import open_provider
from rota.server.gateway.app import create_app
from rota.server.gateway.parameters import GatewaySettings
from testkit.servers import oidc
from testkit.servers.oidc import AUTH0, ENTRA, GOOGLE, KEYCLOAK, Imitation, OidcServer, log_in
from tests.unit.server.gateway.served import Served, serving_gateway

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

SITE = "http://127.0.0.1:1"
QUARTER = 15 * 60 * 1_000_000


@dataclass
class Site:
    served: Served
    provider: OidcServer
    folder: Path

    async def browser(self) -> httpx.AsyncClient:
        browser = await self.served.browser()
        browser.base_url = httpx.URL(SITE)
        return browser

    async def log_in(self, user: str) -> tuple[httpx.AsyncClient, httpx.Response]:
        browser = await self.browser()
        begun = await browser.get("/auth/login")
        assert begun.status_code == 303, begun.text
        back = await asyncio.to_thread(self._walk, begun.headers["location"], user)
        return browser, await browser.get(back)

    def _walk(self, address: str, user: str) -> str:
        with httpx.Client() as person:
            return log_in(person, address, user, until=f"{SITE}/auth/callback")

    async def may_administer(self, browser: httpx.AsyncClient, **headers: str) -> bool:
        answer = await browser.get("/api/v1/principals", headers=headers)
        return answer.status_code == 200

    def let_pass(self, micros: int) -> None:
        """Make sessions look as if the provider was asked so much earlier."""
        with closing(sqlite3.connect(self.folder / "rota.db")) as store:
            store.execute("UPDATE login_session SET refreshed_at = refreshed_at - ?", (micros,))
            store.commit()
        self.served.app.state.tokens.forget()


@asynccontextmanager
async def site_of(
    folder: Path, imitates: Imitation | None = None, **settings: str
) -> AsyncIterator[Site]:
    async with AsyncExitStack() as stack:
        provider = stack.enter_context(OidcServer(folder / "provider", SITE, imitates=imitates))
        environ: Mapping[str, str] = {"ROTA_HOME": str(folder), **provider.environ(), **settings}
        loaded = config.load(environ=environ)
        served = await stack.enter_async_context(
            serving_gateway(
                folder,
                GatewaySettings(base_url=SITE, issuer=provider.issuer),
                logins=Logins(await stack.enter_async_context(open_provider(loaded))),
                key_ring=KeyRing([new_key()]),
            )
        )
        groups = frozenset(loaded.oidc_admin_groups)
        await served.engine.store.bind_admin_groups(provider.issuer, groups)
        yield Site(served, provider, folder)


@pytest.mark.parametrize(
    ("imitation", "user", "handle"),
    [
        (AUTH0, "auth0|5f7", "ann"),
        (KEYCLOAK, "3f0c", "ann"),
        (ENTRA, "AAAA", "ann"),
        (GOOGLE, "1175", "ann"),
    ],
    ids=["Auth0", "Keycloak", "Entra", "Google"],
)
async def test_people_of_every_provider_log_in_with_their_roles(
    tmp_path: Path, imitation: Imitation, user: str, handle: str
) -> None:
    async with site_of(tmp_path, imitation) as site:
        browser, back = await site.log_in(user)

        assert back.status_code == 303, back.text
        assert (await browser.get("/api/v1/whoami")).json()["name"] == handle
        assert await site.may_administer(browser)


@pytest.mark.parametrize("imitation", [AUTH0, KEYCLOAK], ids=["Auth0", "Keycloak"])
async def test_access_tokens_that_are_called_jwt_are_taken_by_their_rules(
    tmp_path: Path, imitation: Imitation
) -> None:
    async with site_of(tmp_path, imitation) as site:
        [user] = imitation.users
        token = await asyncio.to_thread(site.provider.access_token, user)
        program = await site.browser()

        assert await site.may_administer(program, authorization=f"Bearer {token}")
        id_token = site.provider.sign(
            site.provider.claims(sub=user, aud=oidc.CLIENT, nonce="n"), typ="JWT"
        )
        assert not await site.may_administer(program, authorization=f"Bearer {id_token}")


async def test_entra_leaves_out_groups_that_are_too_many_and_the_reason_is_told(
    tmp_path: Path,
) -> None:
    async with site_of(tmp_path, ENTRA) as site:
        _, back = await site.log_in("BBBB")

        assert back.status_code == 403
        assert "too many" in back.text


async def test_an_address_of_google_that_is_not_verified_and_not_hosted_gives_no_role(
    tmp_path: Path,
) -> None:
    async with site_of(tmp_path, GOOGLE) as site:
        browser, back = await site.log_in("1176")

        assert back.status_code == 303
        assert not await site.may_administer(browser)


async def test_google_has_no_logout_and_that_is_said(tmp_path: Path) -> None:
    async with site_of(tmp_path, GOOGLE) as site:
        browser, _ = await site.log_in("1175")

        ended = await browser.post("/api/v1/logout", headers={"X-Rota-Request": "1"})

        assert "rota-logout-address" not in ended.headers
        assert "log out there, too" in (await browser.get("/logged-out")).text


async def test_a_session_is_refreshed_with_a_token_that_rotates(tmp_path: Path) -> None:
    async with site_of(tmp_path) as site:
        browser, _ = await site.log_in("ann")
        for _ in range(3):
            site.let_pass(QUARTER + 1_000_000)
            assert await site.may_administer(browser)

        await asyncio.to_thread(site.provider.change_user, "ann", groups=["dev"])
        site.let_pass(QUARTER + 1_000_000)

        assert not await site.may_administer(browser)
        assert (await browser.get("/api/v1/whoami")).status_code == 200


async def test_two_servers_that_refresh_at_once_do_not_look_like_thieves(tmp_path: Path) -> None:
    async with site_of(tmp_path) as site:
        browser, _ = await site.log_in("ann")
        app = create_app(
            site.served.engine, GatewaySettings(base_url=SITE, issuer=site.provider.issuer)
        )
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url=SITE) as there:
            there.cookies = browser.cookies
            for _ in range(3):
                site.let_pass(QUARTER + 1_000_000)
                app.state.tokens.forget()
                answers = await asyncio.gather(
                    *(each.get("/api/v1/whoami") for each in (browser, there) * 4)
                )
                assert {each.status_code for each in answers} == {200}


async def test_a_stolen_refresh_token_ends_the_session(tmp_path: Path) -> None:
    """The provider takes a token that is used twice for theft, and dismisses both users of it."""
    async with site_of(tmp_path) as site:
        browser, _ = await site.log_in("ann")
        site.let_pass(QUARTER + 1_000_000)
        with closing(sqlite3.connect(site.folder / "rota.db")) as store:
            [(stolen,)] = store.execute("SELECT refresh_token FROM login_session").fetchall()
        assert await site.may_administer(browser)
        with closing(sqlite3.connect(site.folder / "rota.db")) as store:
            store.execute("UPDATE login_session SET refresh_token = ?", (stolen,))
            store.commit()
        site.let_pass(QUARTER + 1_000_000)

        assert (await browser.get("/api/v1/whoami")).status_code == 401


async def test_a_provider_that_was_restarted_with_other_keys_is_believed_again(
    tmp_path: Path,
) -> None:
    async with site_of(tmp_path) as site:
        browser, _ = await site.log_in("ann")
        old = site.provider.sign(site.provider.claims())
        program = await site.browser()
        assert await site.may_administer(program, authorization=f"Bearer {old}")

        await asyncio.to_thread(site.provider.rotate_keys)
        new = site.provider.sign(site.provider.claims())

        assert await site.may_administer(program, authorization=f"Bearer {new}")
        site.served.app.state.tokens.forget()
        assert not await site.may_administer(program, authorization=f"Bearer {old}")
        site.let_pass(QUARTER + 1_000_000)
        assert await site.may_administer(browser)
