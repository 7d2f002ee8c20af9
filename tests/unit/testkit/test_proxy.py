from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from testkit.proxy import Proxy

pytestmark = pytest.mark.anyio


@pytest.fixture
async def proxy() -> AsyncIterator[Proxy]:
    """In front of a server that says everything back."""
    connections: set[asyncio.StreamWriter] = set()

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.add(writer)
        try:
            while data := await reader.read(1024):
                writer.write(data)
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    async with Proxy(server.sockets[0].getsockname()[1]) as proxy:
        yield proxy
    for writer in connections:
        writer.close()
    server.close()
    await server.wait_closed()


class Peer:
    """A client of the proxy."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def of(cls, proxy: Proxy) -> Peer:
        return cls(*await asyncio.open_connection("127.0.0.1", proxy.port))

    def close(self) -> None:
        self._writer.close()

    def say(self, text: bytes) -> None:
        self._writer.write(text)

    async def hear(self, count: int) -> bytes:
        return await asyncio.wait_for(self._reader.readexactly(count), 10)

    async def hears_nothing(self) -> bool:
        try:
            await asyncio.wait_for(self._reader.readexactly(1), 0.05)
        except TimeoutError:
            return True
        return False


BROKEN = (ConnectionError, asyncio.IncompleteReadError)


async def test_everything_passes_both_ways(proxy: Proxy) -> None:
    peer = await Peer.of(proxy)

    peer.say(b"hello" * 50_000)

    assert await peer.hear(250_000) == b"hello" * 50_000
    assert proxy.disturbed == 0
    peer.close()


async def test_a_cut_ends_open_connections_and_new_ones(proxy: Proxy) -> None:
    peer = await Peer.of(proxy)
    peer.say(b"hello")
    await peer.hear(5)

    proxy.cut()

    with pytest.raises(BROKEN):
        await peer.hear(1)
    late = await Peer.of(proxy)
    with pytest.raises(BROKEN):
        await late.hear(1)
    peer.close()
    late.close()


async def test_a_cut_disturbs_only_who_tries_something_afterwards(proxy: Proxy) -> None:
    peer = await Peer.of(proxy)
    peer.say(b"hello")
    await peer.hear(5)

    proxy.cut()
    with pytest.raises(BROKEN):
        await peer.hear(1)
    assert proxy.disturbed == 0

    late = await Peer.of(proxy)
    with pytest.raises(BROKEN):
        await late.hear(1)
    assert proxy.disturbed == 1
    peer.close()
    late.close()


async def test_a_healed_proxy_serves_again(proxy: Proxy) -> None:
    proxy.cut()
    proxy.heal()

    peer = await Peer.of(proxy)
    peer.say(b"hello")

    assert await peer.hear(5) == b"hello"
    peer.close()


async def test_what_hung_goes_on_where_it_stopped(proxy: Proxy) -> None:
    peer = await Peer.of(proxy)
    proxy.hang()

    peer.say(b"hello")
    assert await peer.hears_nothing()
    proxy.heal()

    assert await peer.hear(5) == b"hello"
    assert proxy.disturbed == 1
    peer.close()


async def test_the_cut_comes_after_so_many_bytes(proxy: Proxy) -> None:
    peer = await Peer.of(proxy)
    proxy.cut_after(12)

    peer.say(b"hello")
    assert await peer.hear(5) == b"hello"
    peer.say(b"again")

    with pytest.raises(BROKEN):
        await peer.hear(5)
    peer.close()


async def test_delayed_bytes_arrive_late_and_whole(proxy: Proxy) -> None:
    peer = await Peer.of(proxy)
    proxy.delay(timedelta(milliseconds=200))
    began = asyncio.get_running_loop().time()

    peer.say(b"hello")

    assert await peer.hear(5) == b"hello"
    assert asyncio.get_running_loop().time() - began >= 0.4
    peer.close()


async def test_a_server_that_is_away_is_seen_through_the_proxy() -> None:
    with Proxy(1) as proxy:
        peer = await Peer.of(proxy)
        with pytest.raises(BROKEN):
            await peer.hear(1)
        peer.close()


async def test_each_connection_is_cut_after_what_its_client_sent(proxy: Proxy) -> None:
    proxy.cut_each_after(10)
    first = await Peer.of(proxy)
    first.say(b"12345")
    assert await first.hear(5) == b"12345"

    first.say(b"678901")
    second = await Peer.of(proxy)
    second.say(b"hello")

    assert await second.hear(5) == b"hello"
    with pytest.raises(BROKEN):
        await first.hear(1)
    assert proxy.cuts == 1
    first.close()
    second.close()
