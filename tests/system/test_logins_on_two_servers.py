"""Two servers on one PostgreSQL, and a certified provider: what one does counts on the other."""

from __future__ import annotations

import asyncio
import re
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from math import inf
from pathlib import Path

import grpc
import httpx
import pytest

from rota.contracts import client_pb2 as pb
from rota.contracts.client_pb2_grpc import SchedulerStub
from rota.domain.key_ring import new_key
from rota.runtime import machine
from rota.runtime.settings import Settings
from rota.sdk.client import Client
from testkit.nodes import ServerNode
from testkit.servers.oidc import CLIENT, Imitation, OidcServer, log_in
from testkit.servers.ports import free_ports
from testkit.servers.postgres import PostgresServer
from testkit.waiting import PATIENCE, boottime, eventually
from tests.system.jobs import apply, job

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

WITHIN_SECONDS = 10.0
PATIENCE_SECONDS = PATIENCE.total_seconds()
LOGOUT_EVENT = "http://schemas.openid.net/event/backchannel-logout"
DEVICE_GRANT = "urn:ietf:params:oauth:grant-type:device_code"
TOKEN_DELAY = timedelta(milliseconds=300)  # so that a refresh is still under way when others come
OLD = timedelta(minutes=16)  # what was refreshed so long ago is refreshed at the next look
PEOPLE = Imitation(
    users={name: {"preferred_username": name, "groups": ["dev"]} for name in ("bob", "cyd", "dan")}
)


@dataclass
class Pair:
    """Two servers; people log in to either."""

    servers: Sequence[ServerNode]
    provider: OidcServer
    postgres: PostgresServer
    admin: Client  # of the first server
    until: ExitStack

    def logged_in(self, user: str, server: int = 1) -> httpx.Client:
        """A browser in which somebody logged in to one of the servers; cookies know no ports."""
        url = self.servers[server].url
        browser = self.until.enter_context(httpx.Client(trust_env=False, timeout=PATIENCE_SECONDS))
        back = log_in(browser, f"{url}/auth/login", user, f"{url}/auth/callback")
        assert browser.get(back).status_code == httpx.codes.SEE_OTHER
        return browser

    def who(self, browser: httpx.Client, server: int) -> str | None:
        """What a server calls whose browser this is; None: it does not know them."""
        answer = browser.get(f"{self.servers[server].url}/api/v1/whoami")
        return str(answer.json()["name"]) if answer.status_code == httpx.codes.OK else None

    def terminal_of(self, browser: httpx.Client) -> str:
        """The secret of a terminal that is let in in a browser."""
        url = self.servers[1].url
        asked = httpx.post(f"{url}/auth/device", data={"host": "laptop"}, trust_env=False).json()
        page = browser.get(asked["verification_uri_complete"]).text
        hidden = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', page))
        assert browser.post(f"{url}/device", data=hidden | {"answer": "yes"}).status_code == 200
        form = {"grant_type": DEVICE_GRANT, "device_code": asked["device_code"]}
        granted = httpx.post(f"{url}/auth/device/token", data=form, trust_env=False).json()
        return str(granted["access_token"])

    def grow_old(self) -> None:
        """Let all sessions be due for a refresh, on both servers, which trust nobody they know."""
        micros = OLD // timedelta(microseconds=1)
        self.execute(
            f"UPDATE login_session SET refreshed_at = refreshed_at - {micros},"
            f" refreshing_until = refreshing_until - {micros}"
        )
        for role in ("operator", "viewer"):  # whatever changes rights empties their caches
            self.admin.grant_role("default", "group:dev", role)

    def execute(self, statement: str) -> list[Mapping[str, object]]:
        return asyncio.run(self.postgres.execute(statement, "rota"))


@pytest.fixture(scope="module")
def pair(postgres: PostgresServer) -> Iterator[Pair]:
    with ExitStack() as until:
        folder = Path(until.enter_context(tempfile.TemporaryDirectory(prefix="rota-pair-")))
        ports = [free_ports(2) for _ in range(2)]
        urls = [f"http://127.0.0.1:{rest}" for rest, _ in ports]
        provider = OidcServer(folder / "provider", *urls, imitates=PEOPLE, token_delay=TOKEN_DELAY)
        until.enter_context(provider)
        store = postgres.address("rota")
        _, token = machine.create(Settings(store=store), "tests", "admin")
        told = {
            "store": store,
            "blobs": f"file://{folder / 'blobs'}",
            "secrets_key": new_key().line(),
        }
        servers = []
        for number, (rest, rpc) in enumerate(ports, 1):
            server = ServerNode(
                f"server-{number}", folder / f"server-{number}", (rest, rpc), **told
            )
            server.environ |= provider.environ()
            until.callback(server.close)
            server.launch()
            servers.append(server)
        for server in servers:
            server.wait_until_ready()
        admin = until.enter_context(Client(urls[0], token))
        admin.grant_role("default", "group:dev", "viewer")
        yield Pair(servers, provider, postgres, admin, until)


# --- streams


@dataclass
class Listener:
    """Somebody with a stream of each kind on the second server."""

    headers: Mapping[str, str]
    bearer: str  # for gRPC, which takes no cookies
    loses: Callable[[], object]  # what makes them lose the right to listen, on the first server
    pieces: dict[str, int] = field(default_factory=dict)  # that came, by the kind of the stream
    ended_at: dict[str, float] = field(default_factory=dict)
    is_over: threading.Event = field(default_factory=threading.Event)  # the test is

    def is_heard(self, kind: str) -> None:
        self.pieces[kind] = self.pieces.get(kind, 0) + 1

    def _hear_all(self, kind: str, pieces: Iterable[object]) -> None:
        for _ in pieces:
            self.is_heard(kind)
            if self.is_over.is_set():
                break

    def read(self, kind: str, url: str) -> None:
        timeout = httpx.Timeout(PATIENCE_SECONDS)
        with httpx.stream(
            "GET", url, headers=self.headers, timeout=timeout, trust_env=False
        ) as answer:
            assert answer.status_code == httpx.codes.OK, answer.read()
            self.is_heard(kind)
            self._hear_all(kind, answer.iter_bytes())
        if not self.is_over.is_set():
            self.ended_at[kind] = boottime()

    def watch(self, kind: str, address: str) -> None:
        metadata = (("authorization", f"Bearer {self.bearer}"),)
        with grpc.insecure_channel(address) as channel:
            watching = SchedulerStub(channel).Watch(
                pb.WatchRequest(), metadata=metadata, timeout=3 * PATIENCE_SECONDS
            )
            with suppress(grpc.RpcError):
                self._hear_all(kind, watching)
        if not self.is_over.is_set():
            assert watching.code() in REFUSALS, watching.details()
            self.ended_at[kind] = boottime()


REFUSALS = {grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.NOT_FOUND}
KINDS = ("events", "log", "Watch")


def listeners(pair: Pair) -> dict[str, Listener]:
    """One for each way to lose the right to listen, by what happens."""
    admin, bob, cyd = pair.admin, pair.logged_in("bob"), pair.logged_in("cyd")
    reader, revoked = (admin.create_token(name, "viewer") for name in ("reader", "revoked"))
    claims = pair.provider.claims(
        sub="bob", aud=CLIENT, events={LOGOUT_EVENT: {}}, groups=None, client_id=None
    )
    logout = {"logout_token": pair.provider.sign(claims, typ="logout+jwt")}
    backchannel = f"{pair.servers[0].url}/auth/backchannel"
    return {
        "role taken": Listener(
            bearer(reader.secret), reader.secret, lambda: admin.revoke_role("default", "reader")
        ),
        "token revoked": Listener(
            bearer(revoked.secret), revoked.secret, lambda: admin.revoke_token(revoked.id)
        ),
        "user disabled": Listener(
            cookie(cyd), pair.provider.access_token("cyd"), lambda: admin.disable_principal("cyd")
        ),
        "logged out at the provider": Listener(
            cookie(bob),
            pair.terminal_of(bob),
            lambda: httpx.post(backchannel, data=logout, trust_env=False).raise_for_status(),
        ),
    }


def bearer(secret: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {secret}"}


def cookie(browser: httpx.Client) -> dict[str, str]:
    return {"Cookie": f"rota_session={browser.cookies['rota_session']}"}


def test_streams_of_another_server_end_within_ten_seconds_after_the_right_to_listen(
    pair: Pair,
) -> None:
    elsewhere = pair.servers[1]
    apply(pair.admin, job("waits", "true", pool="nowhere"))
    run = pair.admin.trigger("waits")  # its log is as silent as one can be
    addresses = {
        "events": f"{elsewhere.url}/api/v1/events/stream",
        "log": f"{elsewhere.url}/api/v1/runs/{run.id}/log/stream",
        "Watch": elsewhere.grpc,
    }
    losers = listeners(pair)
    keeper = pair.admin.create_token("keeper", "viewer")
    keeps = Listener(
        bearer(keeper.secret), keeper.secret, lambda: pair.admin.revoke_token(keeper.id)
    )

    everybody = [*losers.values(), keeps]
    with ThreadPoolExecutor(len(KINDS) * len(everybody)) as threads:
        reading = [
            threads.submit(each.watch if kind == "Watch" else each.read, kind, addresses[kind])
            for each in everybody
            for kind in KINDS
        ]
        try:
            eventually(lambda: all(each.pieces.keys() == {*KINDS} for each in everybody))
            after = ends(losers)
            heard = dict(keeps.pieces)
            eventually(lambda: all(keeps.pieces[kind] > heard[kind] for kind in KINDS))
            has_ended = {*keeps.ended_at}
            keeps.loses()
        finally:
            for each in everybody:
                each.is_over.set()
        for stream in reading:
            stream.result()

    assert len(after) == 12
    assert {case: seconds for case, seconds in after.items() if seconds >= WITHIN_SECONDS} == {}
    assert has_ended == set()


def ends(losers: Mapping[str, Listener]) -> dict[str, float]:
    """Let each lose the right to listen; seconds until each of their streams ended after that."""
    lost_at = {}
    for cause, each in losers.items():
        assert not each.ended_at, f"{cause}: ended before"
        each.loses()
        lost_at[cause] = boottime()
    with suppress(AssertionError):
        eventually(lambda: all(each.ended_at.keys() == {*KINDS} for each in losers.values()))
    return {
        f"{cause}, {kind}": each.ended_at.get(kind, inf) - lost_at[cause]
        for cause, each in losers.items()
        for kind in KINDS
    }


# --- refreshing


def test_two_servers_that_refresh_one_session_at_once_ask_the_provider_once(pair: Pair) -> None:
    browser = pair.logged_in("dan")
    asked = []
    for _ in range(3):
        pair.grow_old()
        before = pair.provider.requests_for("refresh_token")
        known = ask_both(pair, browser, each=6)
        asked.append(pair.provider.requests_for("refresh_token") - before)
        assert known == {"dan"}

    assert asked == [1, 1, 1]
    sealed = pair.execute("SELECT refresh_token FROM login_session WHERE subject = 'dan'")
    assert all(row["refresh_token"] for row in sealed)


def ask_both(pair: Pair, browser: httpx.Client, each: int) -> set[str | None]:
    """What both servers call whose session this is, asked in the same moment."""
    begin = threading.Barrier(2 * each)

    def ask(server: int) -> str | None:
        with httpx.Client(headers=cookie(browser), trust_env=False, timeout=30) as own:
            begin.wait(PATIENCE_SECONDS)
            return pair.who(own, server)

    with ThreadPoolExecutor(2 * each) as threads:
        return set(threads.map(ask, [0, 1] * each))


def test_a_provider_that_is_away_ends_no_session_and_is_asked_again_when_it_is_back(
    pair: Pair,
) -> None:
    browser = pair.logged_in("dan")
    pair.grow_old()
    pair.provider.kill()
    try:
        known = [pair.who(browser, server) for server in (0, 1)]
        refused = [
            httpx.get(f"{server.url}/auth/login", trust_env=False).status_code
            for server in pair.servers
        ]
    finally:
        pair.provider.start()
    pair.grow_old()
    before = pair.provider.requests_for("refresh_token")

    again = [pair.who(browser, server) for server in (0, 1)]

    assert known == again == ["dan", "dan"]
    # What is known of the provider counts for a while: whoever wants to log in is sent there.
    assert {*refused} <= {httpx.codes.SEE_OTHER, httpx.codes.SERVICE_UNAVAILABLE}
    assert pair.provider.requests_for("refresh_token") - before == 1
    assert pair.who(pair.logged_in("dan", server=0), 1) == "dan"


# --- keys


def test_keys_that_the_provider_has_changed_count_on_both_servers_and_end_sessions_on_the_other(
    pair: Pair,
) -> None:
    there = pair.servers[1]
    bob, dan = pair.logged_in("bob", server=0), pair.logged_in("dan", server=0)
    former = pair.provider.access_token("dan")
    assert [_may_call(server, former) for server in pair.servers] == [True, True]

    pair.provider.rotate_keys()
    claims = pair.provider.claims(
        sub="dan", aud=CLIENT, events={LOGOUT_EVENT: {}}, groups=None, client_id=None
    )
    logout = {"logout_token": pair.provider.sign(claims, typ="logout+jwt")}
    ended_at = boottime()
    answer = httpx.post(f"{there.url}/auth/backchannel", data=logout, trust_env=False)

    assert answer.status_code == httpx.codes.OK, answer.text
    eventually(lambda: pair.who(dan, 0) is None)
    assert boottime() - ended_at < WITHIN_SECONDS
    assert pair.who(bob, 0) == "bob"
    latter = pair.provider.access_token("dan")
    assert [_may_call(server, latter) for server in pair.servers] == [True, True]
    eventually(lambda: not any(_may_call(server, former) for server in pair.servers))
    assert pair.who(pair.logged_in("dan", server=0), 1) == "dan"


def _may_call(server: ServerNode, token: str) -> bool:
    answer = httpx.get(f"{server.url}/api/v1/whoami", headers=bearer(token), trust_env=False)
    return answer.status_code == httpx.codes.OK
