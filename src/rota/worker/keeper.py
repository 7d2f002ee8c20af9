"""Connection to the keeper, which ends containers when this worker cannot."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import socket
from datetime import timedelta

from rota.domain.errors import Unavailable

_MAX_MESSAGE = 1 << 16
_PATIENCE = timedelta(seconds=10)  # it only writes down what it is told


class KeeperConnection:
    """Implements `rota.ports.executor.Keeper`."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self._connection = connection
        self._loop = asyncio.get_running_loop()
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[tuple[str, int | None]]] = {}
        self._loop.add_reader(connection.fileno(), self._receive)

    async def keep(self, engine: str, name: str) -> None:
        await self._ask({"do": "keep", "engine": engine, "name": name})

    async def started(self, name: str, pid: int) -> None:
        await self._ask({"do": "started", "name": name, "pid": pid})

    async def network(self, name: str) -> int:
        descriptor = await self._ask({"do": "network", "name": name})
        assert descriptor is not None, "the keeper answers with it, or with an error"
        return descriptor

    async def release(self, name: str) -> None:
        await self._ask({"do": "release", "name": name})

    def close(self) -> None:
        self._loop.remove_reader(self._connection.fileno())
        self._connection.close()
        self._fail("this worker is closing")

    async def _ask(self, request: dict[str, object]) -> int | None:
        """Return when it is done, with what descriptor came; `Unavailable` if it is not."""
        number = next(self._numbers)
        descriptor: int | None = None
        answer = self._answers[number] = self._loop.create_future()
        try:
            self._connection.send(json.dumps({"id": number, **request}).encode())
            async with asyncio.timeout(_PATIENCE.total_seconds()):
                error, descriptor = await answer
        except (OSError, TimeoutError) as failure:
            error = str(failure) or "it does not answer"
        finally:
            self._answers.pop(number, None)
        if error:
            raise Unavailable(
                f"the keeper of this worker cannot note the container {request['name']}: {error}",
                code="keeper_unavailable",
                hint="a worker whose keeper is dead ends, and is started again",
            )
        return descriptor

    def _receive(self) -> None:
        while True:
            try:
                answer, descriptors, _, _ = socket.recv_fds(self._connection, _MAX_MESSAGE, 1)
            except BlockingIOError:
                return
            except OSError:
                answer, descriptors = b"", []
            if not answer:
                self._loop.remove_reader(self._connection.fileno())
                self._fail("it is gone")
                return
            fields = json.loads(answer)
            future = self._answers.get(fields["id"])
            if future is not None and not future.done():
                future.set_result((fields["error"], next(iter(descriptors), None)))
            else:  # whoever asked has left
                for descriptor in descriptors:
                    os.close(descriptor)

    def _fail(self, reason: str) -> None:
        for future in self._answers.values():
            if not future.done():
                future.set_result((reason, None))
