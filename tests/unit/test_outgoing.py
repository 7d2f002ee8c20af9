"""Requests to addresses that a project names, against real servers on loopback."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import AsyncIterator
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest

from rota.domain.addresses import parse_target
from rota.domain.errors import Denied
from rota.outgoing import (
    NoAnswer,
    NotSent,
    Outgoing,
    RedirectRefused,
    Request,
    Response,
    resolve,
)
from testkit.certificates import make_certificate
from testkit.http_service import BREAKS, HANGS, HttpService, Reply, http_service, reply

pytestmark = pytest.mark.anyio

HERE = [ip_network("127.0.0.0/8"), ip_network("::1/128")]
LARGEST = 1_000
CREDENTIALS = {"Authorization": "Bearer 1", "X-Key": "2", "Accept": "text/plain"}


@pytest.fixture
async def service() -> AsyncIterator[HttpService]:
    async with http_service() as service:
        yield service


@pytest.fixture
async def outgoing() -> AsyncIterator[Outgoing]:
    outgoing = Outgoing(HERE)
    yield outgoing
    await outgoing.close()


async def ask(
    outgoing: Outgoing, url: str, method: str = "GET", body: bytes = b"", seconds: float = 10
) -> Response:
    request = Request(method, parse_target(url), CREDENTIALS, body)
    return await outgoing.send(request, seconds, LARGEST)


async def test_an_answer_is_read(service: HttpService, outgoing: Outgoing) -> None:
    service.on("POST", "/work", reply({"id": 7}, 202, Location="/work/7"))

    answer = await ask(outgoing, f"{service.url}/work?a=b", "POST", b"body")

    assert (answer.status, answer.body) == (202, b'{"id": 7}')
    assert answer.header("location") == "/work/7"
    [asked] = service.asked
    assert (asked.path, asked.body) == ("/work?a=b", b"body")
    assert asked.headers["host"] == f"127.0.0.1:{service.port}"
    assert asked.headers["accept-encoding"] == "identity"
    assert asked.headers["user-agent"].startswith("rota/")


async def test_headers_may_have_letters_beyond_ascii(
    service: HttpService, outgoing: Outgoing
) -> None:
    service.on("GET", "/", Reply())

    await outgoing.send(Request("GET", parse_target(service.url), {"X-Who": "José"}), 10, LARGEST)

    assert service.asked[0].headers["x-who"] == "José"


async def test_a_private_address_is_not_reached(service: HttpService) -> None:
    outgoing = Outgoing()
    for host in ("127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]"):
        with pytest.raises(Denied) as refused:
            await ask(outgoing, f"http://{host}:{service.port}/")
        assert refused.value.code == "address_refused"

    assert service.asked == []


async def test_variables_of_the_environment_do_not_count(
    service: HttpService, outgoing: Outgoing, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9/")
    service.on("GET", "/", Reply())

    assert (await ask(outgoing, service.url)).status == 200


class TestRedirects:
    async def test_they_are_followed(self, service: HttpService, outgoing: Outgoing) -> None:
        service.on("GET", "/a", Reply(302, headers={"Location": "b"}))
        service.on("GET", "/b", Reply(body=b"here"))

        answer = await ask(outgoing, f"{service.url}/a")

        assert answer.body == b"here"
        assert answer.target.path == "/b"
        assert service.asked[1].headers["authorization"] == "Bearer 1"

    async def test_each_is_looked_up_anew(self, service: HttpService) -> None:
        """An address that may be reached does not open the way to one that may not."""
        outgoing = Outgoing([ip_network("127.0.0.1/32")])
        inner = HttpService()
        await inner.open("127.0.0.2")
        service.on("GET", "/", Reply(302, headers={"Location": f"http://127.0.0.2:{inner.port}/"}))

        with pytest.raises(RedirectRefused, match=r"127\.0\.0\.2 must not be reached") as refused:
            await ask(outgoing, service.url)

        assert (inner.asked, refused.value.code) == ([], "address_refused")
        await inner.close()

    async def test_another_origin_is_told_no_credentials(
        self, service: HttpService, outgoing: Outgoing
    ) -> None:
        async with http_service() as other:
            service.on("GET", "/", Reply(307, headers={"Location": f"{other.url}/x"}))
            other.on("GET", "/x", Reply())
            await ask(outgoing, service.url)

            [asked] = other.asked
            assert "authorization" not in asked.headers
            assert "x-key" not in asked.headers
            assert asked.headers["accept"] == "text/plain"

    async def test_another_origin_is_not_sent_the_body(
        self, service: HttpService, outgoing: Outgoing
    ) -> None:
        async with http_service() as other:
            service.on("POST", "/", Reply(307, headers={"Location": f"{other.url}/x"}))

            with pytest.raises(Denied, match="wants what was sent to it sent to"):
                await ask(outgoing, f"{service.url}/", "POST", b"secret")

            assert other.asked == []

    @pytest.mark.parametrize(
        ("status", "method", "becomes"),
        [
            (301, "POST", "GET"),
            (302, "POST", "GET"),
            (303, "POST", "GET"),
            (303, "DELETE", "GET"),
            (302, "DELETE", "DELETE"),
            (307, "POST", "POST"),
            (308, "PUT", "PUT"),
        ],
    )
    async def test_what_is_sent_again(
        self, service: HttpService, outgoing: Outgoing, status: int, method: str, becomes: str
    ) -> None:
        service.on(method, "/", Reply(status, headers={"Location": "/x"}))
        service.on(becomes, "/x", Reply())

        await ask(outgoing, f"{service.url}/", method, b"body")

        assert service.asked[1].method == becomes
        assert service.asked[1].body == (b"" if becomes == "GET" else b"body")

    async def test_there_are_not_too_many(self, service: HttpService, outgoing: Outgoing) -> None:
        service.on("GET", "/", Reply(302, headers={"Location": "/"}))

        with pytest.raises(Denied, match="more than 5 redirects"):
            await ask(outgoing, service.url)

        assert len(service.asked) == 6


class TestFailures:
    async def test_nobody_listens(self, service: HttpService, outgoing: Outgoing) -> None:
        await service.close()

        with pytest.raises(NotSent, match="cannot be reached"):
            await ask(outgoing, service.url)

    async def test_no_such_name(self, outgoing: Outgoing) -> None:
        with pytest.raises(NotSent, match=r"nowhere\.invalid has no address"):
            await ask(outgoing, "http://nowhere.invalid/")

    async def test_it_breaks_off(self, service: HttpService, outgoing: Outgoing) -> None:
        service.on("GET", "/", BREAKS)

        with pytest.raises(NoAnswer):
            await ask(outgoing, service.url)

    async def test_it_breaks_off_within_the_body(
        self, service: HttpService, outgoing: Outgoing
    ) -> None:
        service.on("GET", "/", Reply(body=b"half", lacks=4))

        with pytest.raises(NoAnswer):
            await ask(outgoing, service.url)

    async def test_it_hangs(self, service: HttpService, outgoing: Outgoing) -> None:
        service.on("GET", "/", HANGS)

        with pytest.raises(NoAnswer, match=r"gave no answer in 0\.2 s"):
            await ask(outgoing, service.url, seconds=0.2)

    async def test_it_drips(self, service: HttpService, outgoing: Outgoing) -> None:
        """The time is for all of the answer, not for each piece."""
        service.on("GET", "/", Reply(body=b"x" * 100, pieces=100, pause=0.05))

        with pytest.raises(NoAnswer):
            await ask(outgoing, service.url, seconds=0.5)

    async def test_a_huge_body_is_cut(self, service: HttpService, outgoing: Outgoing) -> None:
        service.on("GET", "/", Reply(body=b"x" * 5_000_000))

        answer = await ask(outgoing, service.url)

        assert answer.is_cut
        assert len(answer.body) == LARGEST


class TestTls:
    async def test_the_certificate_must_be_of_the_name(self, tmp_path: Path) -> None:
        made = make_certificate(tmp_path, names="DNS:localhost")
        server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        server.load_cert_chain(made.certificate, made.key)
        trusting = Outgoing(HERE, ssl.create_default_context(cafile=str(made.certificate)))
        async with http_service(server) as service:
            service.on("GET", "/", Reply(body=b"safe"))

            answer = await ask(trusting, f"https://localhost:{service.port}/")
            with pytest.raises(NotSent):  # the address is the same, the name is not
                await ask(trusting, f"https://127.0.0.1:{service.port}/")
            with pytest.raises(NotSent):
                await ask(Outgoing(HERE), f"https://localhost:{service.port}/")

        assert answer.body == b"safe"
        assert len(service.asked) == 1
        await trusting.close()


async def test_names_are_looked_up_for_others_too() -> None:
    assert "127.0.0.1" in map(str, await resolve("localhost", 80, HERE))
    with pytest.raises(Denied):
        await resolve("localhost", 80)


async def test_names_that_are_found_late_keep_no_others_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop, look_up = asyncio.get_running_loop(), socket.getaddrinfo
    has_begun, is_over = asyncio.Event(), threading.Event()

    def slow_for_some(host: str, *rest: Any, **options: Any) -> Any:
        if host.startswith("slow"):
            loop.call_soon_threadsafe(has_begun.set)
            is_over.wait(9)
        return look_up("127.0.0.1", *rest, **options)

    monkeypatch.setattr(socket, "getaddrinfo", slow_for_some)
    waiting = [asyncio.create_task(resolve(f"slow-{n}.example", 80, HERE)) for n in range(100)]
    await has_begun.wait()

    async with asyncio.timeout(5):
        assert await resolve("quick.example", 80, HERE)
    is_over.set()

    assert all(await asyncio.gather(*waiting))


async def test_many_at_once(service: HttpService, outgoing: Outgoing) -> None:
    service.on("GET", "/", Reply(body=b"x", pause=0.0))

    answers = await asyncio.gather(*(ask(outgoing, service.url) for _ in range(150)))

    assert {answer.status for answer in answers} == {200}
