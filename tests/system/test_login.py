"""People log in to a real server with a certified provider, in a real browser."""

from __future__ import annotations

import os
import re
import stat
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc
import httpx
import pytest

from rota.contracts import client_pb2, client_pb2_grpc
from testkit.browser import Browser, find_chromium
from testkit.processes import ROTA, RotaUp, environment, run_rota
from testkit.servers.oidc import CLIENT, OidcServer, log_in, new_key
from testkit.servers.ports import free_ports
from testkit.waiting import PATIENCE, boottime, eventually

pytestmark = pytest.mark.timeout(180)


@dataclass
class Site:
    url: str
    grpc_listen: str
    provider: OidcServer
    rota: RotaUp

    @contextmanager
    def logged_in(self, user: str) -> Iterator[httpx.Client]:
        """A program that walked through the pages as a browser would."""
        until = f"{self.url}/auth/callback"
        with httpx.Client() as browser:
            back = log_in(browser, f"{self.url}/auth/login", user, until)
            assert browser.get(back).status_code == httpx.codes.SEE_OTHER
            yield browser

    def who(self, browser: httpx.Client, **headers: str) -> str | None:
        answer = browser.get(f"{self.url}/api/v1/whoami", headers=headers)
        return str(answer.json()["name"]) if answer.status_code == httpx.codes.OK else None


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("login")
    port, grpc_port = free_ports(2)
    url, grpc_listen = f"http://127.0.0.1:{port}", f"127.0.0.1:{grpc_port}"
    with OidcServer(folder / "provider", url) as provider:
        rota = RotaUp(
            folder / "home",
            environ=provider.environ(),
            listen=f"127.0.0.1:{port}",
            grpc_listen=grpc_listen,
        )
        try:
            rota.start()
            yield Site(url, grpc_listen, provider, rota)
        finally:
            rota.close()


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    if find_chromium() is None and "CI" not in os.environ:
        pytest.skip("no Chromium")
    with Browser(tmp_path / "browser") as browser:
        yield browser


def sign_in(browser: Browser, user: str = "ann") -> None:
    """At the provider: who one is, and that Rota may know."""
    browser.fill("input[name=login]", user)
    browser.fill("input[name=password]", "any")
    browser.click("button[type=submit]")
    browser.eventually_sees("Authorize")
    browser.click("button[type=submit]")


def test_a_person_logs_in_with_consent_and_out_at_both_ends(site: Site, browser: Browser) -> None:
    browser.go(site.url)
    browser.eventually_sees("Rota runs jobs on a schedule")
    browser.click("a.button")
    sign_in(browser)
    browser.eventually_sees("logged in as ann")
    assert browser.address == f"{site.url}/"
    [cookie] = [each for each in browser.cookies if each["name"] == "rota_session"]
    assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Lax")
    assert browser.run("return document.cookie") == ""
    assert browser.run("return document.styleSheets.length") == 1

    browser.click("button.second")
    browser.eventually_sees("Do you want to sign-out")
    browser.click("button[value=yes]")
    browser.eventually_sees("You are logged out of Rota")

    assert browser.address.startswith(f"{site.url}/logged-out")
    with httpx.Client(cookies={"rota_session": cookie["value"]}) as thief:
        assert site.who(thief) is None
    browser.go(f"{site.url}/auth/login")  # the provider has forgotten them, too
    assert browser.has("input[name=login]")


def test_a_terminal_is_let_in_with_a_browser(site: Site, browser: Browser, tmp_path: Path) -> None:
    environ = environment(tmp_path / "elsewhere")
    with subprocess.Popen(
        [str(ROTA), "login", "--url", site.url],
        env=environ,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as terminal:
        assert terminal.stderr is not None
        shown = "".join(terminal.stderr.readline() for _ in range(3))
        [page] = re.findall(r"Open (\S+) and", shown)
        [code] = re.findall(r"[A-Z]{4}-[A-Z]{4}", shown)

        browser.go(page)
        sign_in(browser)
        browser.eventually_sees("Let a terminal in")
        browser.fill("#code", code.lower().replace("-", " "))
        browser.click("button")
        browser.eventually_sees(code)
        browser.eventually_sees("127.0.0.1")
        browser.click("button[value=yes]")
        browser.eventually_sees("Your terminal is logged in")

        assert terminal.wait(PATIENCE.total_seconds()) == 0
        assert "as ann" in terminal.stderr.read()

    kept = tmp_path / ".config" / "rota" / "credentials.json"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    known = run_rota("whoami", "--url", site.url, environ=environ)
    assert "ann" in known.stdout, known.stderr
    assert run_rota("whoami", environ=environ).returncode == 0  # the only server that is known
    ended = run_rota("logout", "--url", site.url, environ=environ)
    assert ended.returncode == 0, ended.stderr
    assert run_rota("whoami", "--url", site.url, environ=environ).returncode == 4


def test_a_session_ends_when_the_person_logs_out_at_the_provider(
    site: Site, browser: Browser
) -> None:
    browser.go(f"{site.url}/auth/login")
    sign_in(browser)
    browser.eventually_sees("logged in as ann")
    [cookie] = [each for each in browser.cookies if each["name"] == "rota_session"]

    browser.go(f"{site.provider.issuer}/session/end?client_id={CLIENT}")
    browser.click("button[value=yes]")

    with httpx.Client(cookies={"rota_session": cookie["value"]}) as program:
        eventually(lambda: site.who(program) is None)


def test_streams_end_with_a_session_that_the_provider_ends(site: Site) -> None:
    provider, event = site.provider, "http://schemas.openid.net/event/backchannel-logout"
    claims = provider.claims(aud=CLIENT, events={event: {}}, groups=None, client_id=None)
    token = provider.sign(claims, typ="logout+jwt")
    stream = f"{site.url}/api/v1/events/stream"
    with site.logged_in("ann") as ann, ann.stream("GET", stream, timeout=30) as events:
        assert events.status_code == httpx.codes.OK
        pieces = events.iter_bytes()
        next(pieces)

        answer = httpx.post(f"{site.url}/auth/backchannel", data={"logout_token": token})
        ended_at = boottime()
        for _ in pieces:
            pass

        assert answer.status_code == httpx.codes.OK
        assert boottime() - ended_at < 10


def test_whoever_refuses_at_the_provider_is_told_how_to_go_on(site: Site, browser: Browser) -> None:
    browser.go(f"{site.url}/auth/login")
    browser.click("a[href$=abort]")

    browser.eventually_sees("Not logged in")
    browser.eventually_sees("did not let you in")


def test_groups_are_roles(site: Site) -> None:
    with site.logged_in("ann") as ann, site.logged_in("bob") as bob:
        assert (site.who(ann), site.who(bob)) == ("ann", "bob")
        admin = ann.get(f"{site.url}/api/v1/principals")
        nobody = bob.get(f"{site.url}/api/v1/principals")
        foreign = bob.get(f"{site.url}/api/v1/jobs")
        granted = site.rota.command("role", "grant", "group:dev", "viewer")
        assert granted.returncode == 0, granted.stderr

        may_look = eventually(
            lambda: bob.get(f"{site.url}/api/v1/jobs").status_code == httpx.codes.OK
        )

    assert (admin.status_code, nobody.status_code, foreign.status_code) == (200, 403, 404)
    assert may_look


def test_access_tokens_of_the_provider_open_rest_and_grpc(site: Site) -> None:
    token = site.provider.access_token("ann")

    with httpx.Client() as program:
        assert site.who(program, authorization=f"Bearer {token}") == "ann"
    assert by_grpc(site, token) is grpc.StatusCode.OK


def test_no_other_token_does(site: Site) -> None:
    provider = site.provider
    good = provider.claims()
    tokens = {
        "expired": provider.sign(provider.claims(exp=good["iat"] - 61)),
        "for others": provider.sign(provider.claims(aud="https://other.example.org")),
        "foreign": provider.sign(provider.claims(iss="https://evil.example.org")),
        "forged": provider.sign(good, key=new_key("evil")),
        "an ID token": provider.sign(provider.claims(aud=CLIENT, nonce="n"), typ="JWT"),
        "unsigned": "eyJhbGciOiJub25lIn0.eyJzdWIiOiJhbm4ifQ.",
    }
    with httpx.Client() as program:
        assert site.who(program, authorization=f"Bearer {provider.sign(good)}") == "ann"
        known = {
            what: site.who(program, authorization=f"Bearer {token}")
            for what, token in tokens.items()
        }
    by_rpc = {what: by_grpc(site, token) for what, token in tokens.items()}

    assert known == dict.fromkeys(tokens)
    assert set(by_rpc.values()) == {grpc.StatusCode.UNAUTHENTICATED}


def by_grpc(site: Site, token: str) -> grpc.StatusCode:
    """How a call ends with this token."""
    with grpc.insecure_channel(site.grpc_listen) as channel:
        stub = client_pb2_grpc.SchedulerStub(channel)
        try:
            stub.GetRunningJobs(
                client_pb2.GetRunningJobsRequest(),
                metadata=[("authorization", f"Bearer {token}")],
                timeout=10,
            )
        except grpc.RpcError as error:
            return error.code()
    return grpc.StatusCode.OK


def test_sessions_outlive_a_provider_that_is_away_and_new_logins_wait(site: Site) -> None:
    with site.logged_in("bob") as bob:
        site.provider.kill()
        try:
            assert site.who(bob) == "bob"
        finally:
            site.provider.start()

    with site.logged_in("bob") as again:
        assert site.who(again) == "bob"
