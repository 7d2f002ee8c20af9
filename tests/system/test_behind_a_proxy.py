"""Rota behind nginx as the page says, with TLS: addresses of clients, links, and prefixes."""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from testkit.certificates import make_certificate
from testkit.processes import RotaUp, run_rota
from testkit.servers.nginx import HttpsNginx, find_nginx
from testkit.servers.ports import free_ports
from tests.system.jobs import apply, job
from tests.unit.docs.pages import ROOT, blocks

PAGE = ROOT / "docs" / "howto" / "behind-a-proxy.md"
AT_ROOT, PREFIX_REMOVED, PREFIX_LEFT = (
    block.text for block in blocks("nginx", PAGE) if "proxy_pass" in block.text
)
WRONG_LOGINS = 10  # in a minute: then an address has to wait
PROXY, CLIENT, OTHER = "127.0.0.1", "127.0.0.2", "127.0.0.3"


@dataclass
class Site:
    """A server behind nginx, which is on loopback as well."""

    rota: RotaUp
    url: str  # of the public
    authority: Path

    def client(self, address: str = CLIENT, **options: object) -> httpx.Client:
        """Somebody who comes from this address through nginx."""
        trust = ssl.create_default_context(cafile=str(self.authority))
        transport = httpx.HTTPTransport(verify=trust, local_address=address)
        return httpx.Client(transport=transport, base_url=self.url, **options)  # type: ignore[arg-type]

    def directly(self) -> httpx.Client:
        """Somebody on the machine of the server, who goes around nginx."""
        return httpx.Client(base_url=self.rota.client.server.url, trust_env=False)

    def command(self, *words: str) -> str:
        ended = self.rota.command(*words)
        assert ended.returncode == 0, ended.stderr
        return ended.stdout.strip()

    def link(self) -> str:
        """A new login link: in a file, because standard output is no terminal."""
        return Path(self.command("login-link")).read_text().strip()


Start = Callable[..., Site]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    if find_nginx() is None and "CI" not in os.environ:
        pytest.skip("needs nginx")
    with ExitStack() as stack:

        def begin(locations: str, prefix: str = "", **settings: str) -> Site:
            certificate = make_certificate(tmp_path)
            [port] = free_ports(1)
            nginx = HttpsNginx(tmp_path / "nginx", f"127.0.0.1:{port}", locations, certificate)
            url = f"https://localhost:{nginx.port}{prefix}"
            told = {"listen": f"127.0.0.1:{port}", "public_url": url, "trusted_proxies": PROXY}
            rota = RotaUp(tmp_path / "home", (), None, **(told | settings))
            stack.callback(rota.close)
            rota.start()
            stack.enter_context(nginx)
            return Site(rota, url, certificate.certificate)

        yield begin


def guess(client: httpx.Client, number: int, **headers: str) -> int:
    """Try a wrong secret, which begins as no other one does."""
    body = {"secret": f"rotat_{number:08}"}
    return client.post("/api/v1/login", json=body, headers=headers).status_code


class TestAddresses:
    def test_a_client_cannot_change_its_address_through_the_documented_nginx(
        self, start: Start
    ) -> None:
        site = start(AT_ROOT)

        with site.client(CLIENT) as client:
            answers = [
                guess(
                    client,
                    number,
                    **{
                        "X-Forwarded-For": f"198.51.100.{number}",
                        "Forwarded": f"for=198.51.100.{number}",
                        "X-Real-IP": f"198.51.100.{number}",
                    },
                )
                for number in range(WRONG_LOGINS + 1)
            ]

        assert answers == [401] * WRONG_LOGINS + [429]

    def test_wrong_logins_of_one_client_do_not_lock_out_another(self, start: Start) -> None:
        site = start(AT_ROOT)
        with site.client(CLIENT) as client:
            answers = {guess(client, number) for number in range(WRONG_LOGINS + 5)}

        with site.client(OTHER) as other:
            wrong, link = guess(other, 99), other.get(site.link())

        assert answers == {401, 429}
        assert wrong == 401
        assert link.status_code == 303

    def test_from_loopback_without_trusted_proxies_the_header_is_ignored(
        self, start: Start
    ) -> None:
        site = start(AT_ROOT, trusted_proxies="")

        with site.directly() as client:
            answers = [
                guess(client, number, **{"X-Forwarded-For": f"198.51.100.{number}"})
                for number in range(WRONG_LOGINS + 1)
            ]

        assert answers == [401] * WRONG_LOGINS + [429]

    def test_the_log_names_the_client(self, start: Start) -> None:
        site = start(AT_ROOT, log_level="debug")

        with site.client(CLIENT) as client:
            client.get("/nowhere", headers={"X-Forwarded-For": "198.51.100.1"})

        lines = [line for line in site.rota.printed().splitlines() if '"status": 401' in line]
        assert lines
        assert f'"address": "{CLIENT}"' in lines[-1]


@pytest.mark.parametrize(
    ("locations", "prefix"),
    [(AT_ROOT, ""), (PREFIX_REMOVED, "/rota"), (PREFIX_LEFT, "/rota")],
    ids=["root", "prefix-removed", "prefix-left"],
)
def test_everything_is_found_below_the_public_address(
    start: Start, locations: str, prefix: str
) -> None:
    site = start(locations, prefix)
    apply(site.rota.client, job("tidy", "true"))
    link = site.link()

    with site.client() as browser:
        logged_in = browser.get(link)
        landed = browser.get(httpx.URL(site.url).join(logged_in.headers["location"]))
        document = browser.get(f"{site.url}/api/v1/openapi.json").json()
        events = browser.get(f"{site.url}/api/v1/events").json()["items"]
    token = site.rota.client.server.token
    remote = {"ROTA_URL": site.url, "ROTA_TOKEN": token or "", "ROTA_TLS_CA": str(site.authority)}
    triggered = run_rota("trigger", "tidy", "--watch", environ=_elsewhere(site) | remote)

    assert link.startswith(f"{site.url}/login?token=rotal_")
    assert logged_in.headers["location"] == f"{prefix}/"
    assert logged_in.headers["set-cookie"].startswith("__Host-rota_session=")
    assert "Secure" in logged_in.headers["set-cookie"]
    assert landed.status_code == 200
    assert f'href="{prefix}/api/v1/docs"' in landed.text
    assert document["servers"] == [{"url": site.url}]
    assert {event["source"] for event in events} == {site.url}
    assert triggered.returncode == 0, triggered.stderr
    assert f"{site.url}/runs/r_" in triggered.stdout + triggered.stderr
    here = site.rota.command("trigger", "tidy")
    assert f"{site.url}/runs/r_" in here.stdout + here.stderr, "the server knows better"
    assert site.url in site.rota.printed().splitlines()[0]


def _elsewhere(site: Site) -> dict[str, str]:
    folder = site.authority.parent / "elsewhere"
    folder.mkdir()
    return {"PATH": os.environ["PATH"], "HOME": str(folder), "LANG": "C.UTF-8"}
