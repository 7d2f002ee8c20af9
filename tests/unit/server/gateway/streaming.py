"""A caller of an endless answer: reads it piece by piece and leaves when it has seen enough."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from rota.domain.access import Role
from tests.unit.server.gateway.served import Served

_PATIENCE = 10.0


@dataclass
class Stream:
    status: int = 0
    _pieces: asyncio.Queue[bytes] = field(default_factory=asyncio.Queue)
    _started: asyncio.Event = field(default_factory=asyncio.Event)
    _ended: asyncio.Event = field(default_factory=asyncio.Event)
    _rest: bytes = b""

    async def send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self._started.set()
        else:
            self._pieces.put_nowait(message.get("body", b""))
            if not message.get("more_body", False):
                self._ended.set()

    async def started(self) -> None:
        async with asyncio.timeout(_PATIENCE):
            await self._started.wait()

    async def ended(self) -> bool:
        """Whether the server ends the answer by itself, soon."""
        async with asyncio.timeout(_PATIENCE):
            return await self._ended.wait()

    async def event(self) -> dict[str, Any]:
        """The next event, with its data read; comments are passed over."""
        async with asyncio.timeout(_PATIENCE):
            while True:
                while b"\n\n" not in self._rest:
                    self._rest += await self._pieces.get()
                block, _, self._rest = self._rest.partition(b"\n\n")
                fields = dict(line.split(": ", 1) for line in block.decode().splitlines())
                if "data" in fields:
                    return {**fields, "data": json.loads(fields["data"])}


@asynccontextmanager
async def streaming(
    served: Served, path: str, headers: dict[str, str] | None = None, **params: object
) -> AsyncIterator[Stream]:
    """The answer to a GET while it is being sent; it is cut when the block ends."""
    stream = Stream()
    left = asyncio.Event()
    given = {"authorization": f"Bearer {served.secrets[Role.VIEWER]}", **(headers or {})}
    query = "&".join(f"{name}={quote(str(value))}" for name, value in params.items())

    async def receive() -> dict[str, Any]:
        await left.wait()
        return {"type": "http.disconnect"}

    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "method": "GET",
        "path": f"/api/v1/{path}",
        "query_string": query.encode(),
        "headers": [(name.lower().encode(), text.encode()) for name, text in given.items()],
        "client": ("127.0.0.1", 1),
    }
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(served.app(scope, receive, stream.send))
        try:
            yield stream
        finally:
            left.set()
