"""An object store that is away, broken or not ours: said clearly, and soon."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from rota.blobs.objects import ObjectBlobs, open_objects
from rota.domain.errors import NotFound, Unavailable
from testkit.proxy import Proxy
from testkit.servers.s3 import S3Server

pytestmark = pytest.mark.anyio

PATIENCE = timedelta(seconds=2)
BIG = bytes(range(256)) * 2_000


async def opened(s3: S3Server, address: str = "", **environ: str) -> ObjectBlobs:
    place = address or f"{s3.address}/{uuid.uuid4()}"
    return await open_objects(place, {**s3.environ(), **environ}, patience=PATIENCE)


@pytest.fixture
async def proxy(s3: S3Server) -> AsyncIterator[Proxy]:
    async with Proxy(s3.port) as proxy:
        yield proxy


@pytest.fixture
async def blobs(s3: S3Server, proxy: Proxy) -> ObjectBlobs:
    """Reached through the proxy."""
    return await opened(s3, **s3.environ(proxy.port))


async def _list(blobs: ObjectBlobs) -> None:
    async for _ in blobs.list("a"):
        pass


CALLS: dict[str, Callable[[ObjectBlobs], Awaitable[object]]] = {
    "put": lambda blobs: blobs.put("a/b", b"text"),
    "get": lambda blobs: blobs.get("a/b"),
    "list": _list,
    "delete": lambda blobs: blobs.delete("a"),
}
each_call = pytest.mark.parametrize("call", CALLS)


async def complaint(call: str, blobs: ObjectBlobs) -> Unavailable:
    with pytest.raises(Unavailable) as caught:
        async with asyncio.timeout(PATIENCE.total_seconds() + 1):
            await CALLS[call](blobs)
    return caught.value


@each_call
async def test_unknown_keys_are_told_as_such(s3: S3Server, call: str) -> None:
    blobs = await opened(s3, AWS_SECRET_ACCESS_KEY="wrong")

    error = await complaint(call, blobs)

    assert error.code == "blobs_denied"
    assert "AWS_SECRET_ACCESS_KEY" in error.hint
    assert "wrong" not in str(error)


async def test_a_missing_bucket_is_no_missing_blob(s3: S3Server) -> None:
    blobs = await opened(s3, "s3://no-such-bucket")

    error = await complaint("get", blobs)

    assert error.code == "no_bucket"
    assert "no-such-bucket" in error.message


@each_call
async def test_a_store_that_refuses_connections_is_unavailable(
    blobs: ObjectBlobs, proxy: Proxy, call: str
) -> None:
    proxy.cut()

    error = await complaint(call, blobs)

    assert error.code == "blobs_unreachable"
    assert proxy.disturbed > 0


@each_call
async def test_a_store_that_hangs_is_given_up_in_time(
    blobs: ObjectBlobs, proxy: Proxy, call: str
) -> None:
    proxy.hang()

    error = await complaint(call, blobs)

    assert "no answer within 2 s" in error.message


@asynccontextmanager
async def answering(status: bytes) -> AsyncIterator[int]:
    """A server that answers every request like this, on the port that it yields."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 %b\r\nContent-Length: 0\r\nConnection: close\r\n\r\n" % status)
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]


@each_call
async def test_a_store_with_trouble_of_its_own_is_unavailable(s3: S3Server, call: str) -> None:
    async with answering(b"503 Slow Down") as port:
        error = await complaint(call, await opened(s3, **s3.environ(port)))

    assert "503" in error.message


async def test_a_store_that_knows_no_address_yet_is_unavailable_to_writes(s3: S3Server) -> None:
    async with answering(b"404 Not Found") as port:
        error = await complaint("put", await opened(s3, **s3.environ(port)))

    assert error.code == "blobs_unreachable"


async def test_a_blob_cut_off_on_its_way_back_is_never_given_in_part(
    blobs: ObjectBlobs, proxy: Proxy
) -> None:
    await blobs.put("a/b", BIG)
    proxy.cut_after(100_000)

    await complaint("get", blobs)
    proxy.heal()

    assert await blobs.get("a/b") == BIG


async def test_a_put_cut_off_on_its_way_can_be_repeated(blobs: ObjectBlobs, proxy: Proxy) -> None:
    proxy.cut_after(100_000)
    with pytest.raises(Unavailable):
        await blobs.put("a/b", BIG)
    proxy.heal()
    with pytest.raises(NotFound):
        await blobs.get("a/b")

    await blobs.put("a/b", BIG)

    assert await blobs.get("a/b") == BIG


async def test_a_put_whose_answer_was_lost_can_be_repeated(
    blobs: ObjectBlobs, proxy: Proxy
) -> None:
    proxy.cut_after(len(BIG) + 1)  # the request passes, its answer does not
    with pytest.raises(Unavailable):
        await blobs.put("a/b", BIG)
    proxy.heal()

    await blobs.put("a/b", BIG)

    assert await blobs.get("a/b") == BIG


async def test_servers_with_different_prefixes_do_not_see_one_another(s3: S3Server) -> None:
    ours, theirs = await opened(s3), await opened(s3)
    await ours.put("a/b", b"text")

    assert [key async for key in theirs.list("a")] == []
    assert await theirs.delete("a") == 0
    assert await ours.get("a/b") == b"text"
