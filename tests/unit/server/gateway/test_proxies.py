from __future__ import annotations

from collections.abc import AsyncIterator
from ipaddress import ip_network
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from structlog.testing import capture_logs

from rota.domain.access import Role
from rota.domain.errors import Invalid
from rota.operations.tokens import create_login_link_secret
from rota.server.gateway.parameters import GatewaySettings
from rota.server.gateway.proxies import TrustedProxies
from tests.unit.server.gateway.served import Served, job, serving_gateway

pytestmark = pytest.mark.anyio

PROXY, OTHER_PROXY, CLIENT, INVENTED = "10.0.0.1", "10.0.0.2", "203.0.113.7", "198.51.100.66"
TRUSTED = (ip_network("10.0.0.0/24"), ip_network("2001:db8:1::/48"))
SITE = "https://example.org/rota"


def client_of(*headers: tuple[str, str], peer: str = PROXY) -> str:
    sent = [(name.lower().encode(), value.encode("latin-1")) for name, value in headers]
    return TrustedProxies(TRUSTED).client_of(peer, sent)


def forwarded_for(value: str) -> str:
    return client_of(("X-Forwarded-For", value))


def forwarded(value: str) -> str:
    return client_of(("Forwarded", value))


class TestForwardedFor:
    def test_a_proxy_tells_its_client(self) -> None:
        assert forwarded_for(CLIENT) == CLIENT

    def test_what_the_client_wrote_itself_stands_left_and_is_not_read(self) -> None:
        assert forwarded_for(f"{INVENTED}, {CLIENT}") == CLIENT
        assert forwarded_for(f"{INVENTED}, {OTHER_PROXY}, {CLIENT}") == CLIENT

    def test_proxies_behind_one_another_are_passed(self) -> None:
        assert forwarded_for(f"{INVENTED}, {CLIENT}, {OTHER_PROXY}") == CLIENT

    def test_lines_of_the_header_count_in_their_order(self) -> None:
        lines = [("X-Forwarded-For", INVENTED), ("X-Forwarded-For", CLIENT)]

        assert client_of(*lines) == CLIENT

    @pytest.mark.parametrize("last", ["unknown", "", "1.2.3", "a" * 300, "\xe9"])
    def test_what_is_no_address_is_where_knowledge_ends(self, last: str) -> None:
        assert forwarded_for(f"{CLIENT}, {last}") == PROXY
        assert forwarded_for(f"{CLIENT}, {last}, {OTHER_PROXY}") == OTHER_PROXY

    @pytest.mark.parametrize(
        ("written", "address"),
        [
            ("203.0.113.7:4711", "203.0.113.7"),
            ("2001:db8:9::7", "2001:db8:9::7"),
            ("[2001:db8:9::7]", "2001:db8:9::7"),
            ("[2001:DB8:9:0::7]:4711", "2001:db8:9::7"),
            ("::ffff:203.0.113.7", "203.0.113.7"),
        ],
    )
    def test_addresses_may_have_ports_and_brackets(self, written: str, address: str) -> None:
        assert forwarded_for(written) == address

    def test_only_proxies_in_the_chain_leave_the_farthest(self) -> None:
        assert forwarded_for(f"{OTHER_PROXY}, {PROXY}") == OTHER_PROXY

    def test_without_a_header_the_proxy_is_all_that_is_known(self) -> None:
        assert client_of() == PROXY


class TestForwarded:
    def test_a_proxy_tells_its_client(self) -> None:
        assert forwarded(f"by=10.0.0.1;FOR={CLIENT};proto=https") == CLIENT
        assert forwarded('for="[2001:db8:9::7]:4711"') == "2001:db8:9::7"

    def test_it_is_read_from_the_right(self) -> None:
        assert forwarded(f"for={INVENTED}, for={CLIENT}, for={OTHER_PROXY}") == CLIENT

    def test_a_quote_left_open_swallows_nothing(self) -> None:
        assert forwarded(f'for="{INVENTED}, for={CLIENT}') == CLIENT

    @pytest.mark.parametrize("last", ["for=unknown", "for=_hidden", "proto=https", ""])
    def test_what_names_nobody_is_where_knowledge_ends(self, last: str) -> None:
        assert forwarded(f"for={CLIENT}, {last}") == PROXY


def test_a_header_of_the_clients_own_beside_the_proxys_changes_nothing_for_it() -> None:
    """Which of them the proxy wrote cannot be seen; who sends both is counted as the proxy."""
    ours, own = ("X-Forwarded-For", CLIENT), ("Forwarded", f"for={INVENTED}")

    assert client_of(ours, own) == PROXY
    assert client_of(("X-Forwarded-For", INVENTED), ("Forwarded", f"for={CLIENT}")) == PROXY
    assert client_of(ours, ("Forwarded", f"for={CLIENT}")) == CLIENT


@pytest.mark.parametrize(
    ("peer", "is_trusted"),
    [
        ("10.0.0.200", True),
        ("::ffff:10.0.0.200", True),
        ("2001:db8:1::5", True),
        ("10.0.1.1", False),
        ("127.0.0.1", False),
        ("", False),
        ("testclient", False),
    ],
)
def test_trusted_are_the_named_networks_alone(peer: str, is_trusted: bool) -> None:
    assert TrustedProxies(TRUSTED).trusts(peer) is is_trusted


@pytest.fixture
async def behind(tmp_path: Path, anyio_backend: str) -> AsyncIterator[Served]:
    settings = GatewaySettings(
        base_url=SITE,
        public_url=SITE,
        trusted_proxies=TRUSTED,
        secure_cookies=True,
        wrong_logins=3,
    )
    async with serving_gateway(tmp_path, settings) as served:
        yield served


async def guess(served: Served, number: int, peer: str, **headers: str) -> int:
    caller = await served.browser(headers, peer=peer)
    answer = await caller.post("/api/v1/login", json={"secret": f"rotat_{number:08}"})
    return answer.status_code


class TestAddresses:
    async def test_guesses_of_one_client_do_not_count_against_another(self, behind: Served) -> None:
        own = {"X-Forwarded-For": CLIENT}

        first = [await guess(behind, number, PROXY, **own) for number in range(4)]
        other = await guess(behind, 9, PROXY, **{"X-Forwarded-For": "203.0.113.8"})

        assert first == [401, 401, 401, 429]
        assert other == 401

    async def test_a_client_cannot_change_its_address(self, behind: Served) -> None:
        told = [f"198.51.100.{number}, {CLIENT}" for number in range(4)]

        answers = [
            await guess(behind, number, PROXY, **{"X-Forwarded-For": each})
            for number, each in enumerate(told)
        ]

        assert answers == [401, 401, 401, 429]

    @pytest.mark.parametrize("name", ["X-Forwarded-For", "Forwarded"])
    async def test_whoever_is_no_proxy_is_not_believed(self, behind: Served, name: str) -> None:
        answers = [
            await guess(behind, number, "127.0.0.1", **{name: f"198.51.100.{number}"})
            for number in range(4)
        ]

        assert answers == [401, 401, 401, 429]

    async def test_without_trusted_proxies_nobody_is_believed(self, tmp_path: Path) -> None:
        async with serving_gateway(tmp_path, GatewaySettings(wrong_logins=3)) as served:
            answers = [
                await guess(served, number, "127.0.0.1", **{"X-Forwarded-For": f"1.1.1.{number}"})
                for number in range(4)
            ]

        assert answers == [401, 401, 401, 429]

    async def test_the_log_has_the_address_of_the_client(self, behind: Served) -> None:
        caller = await behind.browser({"X-Forwarded-For": CLIENT}, peer=PROXY)
        with capture_logs() as logged:
            await caller.get("/livez")

        assert [line["address"] for line in logged] == [CLIENT]


@pytest.fixture(params=["/rota", ""], ids=["left", "removed"])
async def through(request: pytest.FixtureRequest, behind: Served) -> httpx.AsyncClient:
    """A caller through a proxy that leaves or removes the prefix of the public address."""
    headers = {"Authorization": f"Bearer {behind.secrets[Role.ADMIN]}"}
    return await behind.browser(headers, peer=PROXY, base_url=f"http://rota{request.param}")


class TestPublicUrl:
    async def test_it_is_in_openapi_events_and_links(
        self, behind: Served, through: httpx.AsyncClient
    ) -> None:
        await behind.apply(job())

        made = await through.post("/api/v1/jobs/tidy/runs", json={})
        events = (await through.get("/api/v1/events")).json()["items"]
        document = (await through.get("/api/v1/openapi.json")).json()

        assert made.json()["url"] == f"{SITE}/runs/{made.json()['id']}"
        assert made.headers["location"] == f"{SITE}/api/v1/runs/{made.json()['id']}"
        assert {urlsplit(event["source"]).path for event in events} == {"/rota"}
        assert document["servers"] == [{"url": SITE}]

    async def test_redirects_and_pages_stay_below_it(
        self, behind: Served, through: httpx.AsyncClient
    ) -> None:
        secret = await create_login_link_secret(behind.engine.store, actor="up")
        browser = await behind.browser(peer=PROXY, base_url=str(through.base_url))

        logged_in = await browser.get("/login", params={"token": secret})
        run = await through.get("/runs/r_1")
        pages = [(await through.get(path)).text for path in ("/", "/api/v1/docs")]

        assert logged_in.headers["location"] == "/rota/"
        assert logged_in.headers["set-cookie"].startswith("__Host-rota_session=")
        assert "Secure" in logged_in.headers["set-cookie"]
        assert run.headers["location"] == "/rota/api/v1/runs/r_1"
        assert all('href="/rota/' in page for page in pages)

    async def test_the_bare_prefix_is_the_front_page(self, behind: Served) -> None:
        headers = {"Authorization": f"Bearer {behind.secrets[Role.VIEWER]}"}
        caller = await behind.browser(headers)

        assert (await caller.get("/rota")).status_code == 200
        assert (await caller.get("/rotary")).status_code == 404

    async def test_a_path_below_it_needs_a_credential_as_any_other(self, behind: Served) -> None:
        stranger = await behind.browser()

        assert (await stranger.get("/rota/api/v1/jobs")).status_code == 401
        assert (await stranger.get("/rota/livez")).status_code == 200

    @pytest.mark.parametrize("prefix", ["/api", "/api/v1", "/login", "/runs", "/livez"])
    async def test_a_prefix_that_rota_has_itself_is_refused_at_the_start(
        self, tmp_path: Path, prefix: str
    ) -> None:
        settings = GatewaySettings(public_url=f"https://example.org{prefix}")

        with pytest.raises(Invalid, match="public_url") as refused:
            async with serving_gateway(tmp_path, settings):
                pass

        assert refused.value.code == "bad_settings"

    async def test_without_it_links_are_paths(self, tmp_path: Path) -> None:
        async with serving_gateway(tmp_path) as served:
            await served.apply(job())
            run = await served.trigger()

        assert run["url"] == f"/runs/{run['id']}"
