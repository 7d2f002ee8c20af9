"""A connection that fails for its TLS, or leads to another program, is told so by both clients."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from rota.sdk.async_transport import AsyncTransport
from rota.sdk.errors import NotRota, Unreachable
from rota.sdk.exchange import Request
from rota.sdk.server import Server
from rota.sdk.transport import Transport
from testkit.certificates import Certificate, make_certificate

pytestmark = pytest.mark.anyio

ASK = Request("GET", "/", {}, None, is_repeatable=True)
Ask = Callable[[Server], Awaitable[object]]


async def ask(server: Server) -> object:
    return await asyncio.to_thread(Transport(server, 5).exchange, ASK)


async def ask_async(server: Server) -> object:
    transport = AsyncTransport(server, 5)
    try:
        return await transport.exchange(ASK)
    finally:
        await transport.close()


@pytest.fixture(params=[ask, ask_async])
def asking(request: pytest.FixtureRequest) -> Ask:
    chosen: Ask = request.param
    return chosen


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return make_certificate(tmp_path_factory.mktemp("certificate"))


@asynccontextmanager
async def listening(certificate: Certificate | None = None) -> AsyncIterator[int]:
    """Hangs up on whoever comes in; the port."""
    context = None
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate.certificate, certificate.key)

    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0, ssl=context)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def failure(asking: Ask, url: str, authorities: Path | None = None) -> Unreachable:
    trusted = str(authorities) if authorities else None
    with pytest.raises(Unreachable) as refused:
        await asking(Server(url, authorities=trusted))
    return refused.value


async def test_certificate_of_an_unknown_authority(asking: Ask, certificate: Certificate) -> None:
    async with listening(certificate) as port:
        error = await failure(asking, f"https://localhost:{port}")

    assert error.message.startswith(f"the certificate of https://localhost:{port} is not trusted")
    assert "ROTA_TLS_CA" in error.hint


async def test_certificate_for_another_name(asking: Ask, tmp_path: Path) -> None:
    other = make_certificate(tmp_path, names="DNS:elsewhere")
    async with listening(other) as port:
        error = await failure(asking, f"https://127.0.0.1:{port}", other.certificate)

    assert "is for another name" in error.message
    assert "name that its certificate has" in error.hint


async def test_plain_request_to_a_server_with_a_certificate(
    asking: Ask, certificate: Certificate
) -> None:
    async with listening(certificate) as port:
        error = await failure(asking, f"http://127.0.0.1:{port}")

    assert "begins with https://" in error.hint


@pytest.mark.parametrize("greeting", [b"SSH-2.0-OpenSSH_9.6\r\n\r\n", b"+PONG\r\n\r\n"])
async def test_port_of_a_program_that_does_not_speak_http(asking: Ask, greeting: bytes) -> None:
    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(greeting)
        await reader.read(1)
        writer.close()

    async with await asyncio.start_server(greet, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        with pytest.raises(NotRota) as refused:
            await asking(Server(url))

    sent = greeting.decode().strip()
    assert refused.value.message == f'{url} does not speak HTTP: it sent "{sent}"'
    assert "ROTA_URL" in refused.value.hint


async def test_secure_request_to_a_server_without_a_certificate(asking: Ask) -> None:
    async with listening() as port:
        error = await failure(asking, f"https://127.0.0.1:{port}")

    assert error.message == f"https://127.0.0.1:{port} does not speak TLS"
    assert f"ROTA_URL=http://127.0.0.1:{port}" in error.hint
