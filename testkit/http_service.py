"""Another system, as jobs of type `http` meet it: a real server that behaves as a test says."""

from __future__ import annotations

import asyncio
import json
import ssl
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer, or what comes instead of one."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    breaks: bool = False  # the connection ends without an answer
    hangs: bool = False  # no answer ever comes
    pause: float = 0.0  # seconds between the pieces of the body
    pieces: int = 1
    lacks: int = 0  # bytes that are promised and never come


def reply(document: Any, status: int = 200, **headers: str) -> Reply:
    """Return an answer with JSON; in names of headers `_` stands for `-`."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Reply(status, json.dumps(document).encode(), named)


HANGS, BREAKS = Reply(hangs=True), Reply(breaks=True)


@dataclass(frozen=True, slots=True)
class Asked:
    """A request as it came."""

    method: str
    path: str  # with the query
    headers: Mapping[str, str]  # by name in lower case
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class HttpService:
    """A server on loopback. What it was not told to answer is a 404."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.port = 0
        self._replies: dict[tuple[str, str], list[Reply]] = {}
        self._server: asyncio.Server | None = None
        self._conversations: set[asyncio.Task[None]] = set()
        self._came = asyncio.Condition()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def on(self, method: str, path: str, *replies: Reply) -> None:
        """Answer so, one after another; the last one is repeated."""
        self._replies[method, path] = list(replies)

    def of(self, method: str) -> list[Asked]:
        return [each for each in self.asked if each.method == method]

    async def wait_for(self, count: int, method: str | None = None) -> None:
        """Wait until so many requests have come."""
        async with self._came:
            await self._came.wait_for(
                lambda: len(self.asked if method is None else self.of(method)) >= count
            )

    async def open(self, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None) -> None:
        """Listen, at the same port as before if there was one."""
        self._server = await asyncio.start_server(self._serve, host, self.port, ssl=tls)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Be gone, with all connections."""
        if self._server is not None:
            self._server.close()
        for task in list(self._conversations):
            task.cancel()
        await asyncio.gather(*self._conversations, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._conversations.add(task)
        try:
            with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
                asked = await _read(reader)
                self.asked.append(asked)
                async with self._came:
                    self._came.notify_all()
                await _answer(writer, asked, self._reply_to(asked))
        finally:
            self._conversations.discard(task)
            writer.close()

    def _reply_to(self, asked: Asked) -> Reply:
        path = asked.path.partition("?")[0]
        known = self._replies.get((asked.method, path), [Reply(404, b"what?")])
        return known.pop(0) if len(known) > 1 else known[0]


async def _read(reader: asyncio.StreamReader) -> Asked:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    method, path, _ = head[0].split(" ")
    headers = {}
    for line in head[1:]:
        name, colon, value = line.partition(":")
        if colon:
            headers[name.lower()] = value.strip()
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Asked(method, path, headers, body)


async def _answer(writer: asyncio.StreamWriter, asked: Asked, said: Reply) -> None:
    if said.hangs:
        await asyncio.Event().wait()
    if said.breaks:
        writer.transport.abort()
        return
    headers = {"Content-Length": str(len(said.body) + said.lacks), **said.headers}
    lines = [f"HTTP/1.1 {said.status} Said", *(f"{k}: {v}" for k, v in headers.items())]
    writer.write("\r\n".join([*lines, "", ""]).encode("latin-1"))
    if asked.method == "HEAD":
        return
    size = -(-len(said.body) // said.pieces)
    for first in range(0, len(said.body), max(size, 1)):
        if said.pause and first:
            await asyncio.sleep(said.pause)  # noqa: TID251 (a slow server)
        writer.write(said.body[first : first + size])
        await writer.drain()


@asynccontextmanager
async def http_service(tls: ssl.SSLContext | None = None) -> AsyncIterator[HttpService]:
    service = HttpService()
    await service.open(tls=tls)
    try:
        yield service
    finally:
        await service.close()


@contextmanager
def serving() -> Iterator[HttpService]:
    """A service that answers in a thread of its own."""
    loop, service = asyncio.new_event_loop(), HttpService()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    asyncio.run_coroutine_threadsafe(service.open(), loop).result(10)
    try:
        yield service
    finally:
        asyncio.run_coroutine_threadsafe(service.close(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()
