"""One function host, from its start to its end: a process that runs an app's functions."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from rota.adapters.executors.host_wire import (
    FrameReader,
    Hello,
    News,
    Order,
    Stop,
    Unusable,
    encode,
)
from rota.domain.errors import Invalid, Unavailable
from rota.ports.executor import Exit, Process, Spawner

_START_SECONDS = 60.0  # an app's imports may take their time
_EXIT_SECONDS = 5.0  # between the host's last word and its end
_WORKERS_OWN = "ROTA_GUARDIAN_"  # variables that name descriptors which only the worker has


class HostConnection(asyncio.Protocol):
    """The worker's end of the socket."""

    def __init__(self, hear: Callable[[News], None]) -> None:
        loop = asyncio.get_running_loop()
        self.greeting: asyncio.Future[Hello | Unusable] = loop.create_future()
        self.closed: asyncio.Future[None] = loop.create_future()
        self._hear = hear
        self._reader = FrameReader()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is no subclass

    def data_received(self, data: bytes) -> None:
        for message in self._reader.feed(data):
            if isinstance(message, News):
                self._hear(message)
            else:
                self.greeting.set_result(message)

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self.closed.set_result(None)

    def send(self, order: Order) -> None:
        """What is sent to a host that is gone is lost, as is the host."""
        if self._transport is not None:
            self._transport.write(encode(order))

    def pause_reading(self) -> None:
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if self._transport is not None:
            self._transport.resume_reading()


class FunctionHost:
    """A host that is ready. `ended` comes after all that the host had said."""

    def __init__(self, process: Process, connection: HostConnection, hello: Hello) -> None:
        self.functions = hello.functions
        self.connection = connection
        self._process = process
        self.is_killed = False  # by us
        self.ended = asyncio.ensure_future(self._end())

    @property
    def is_open(self) -> bool:
        """Whether it takes orders."""
        return not self.is_killed and not self.connection.closed.done()

    def kill(self) -> None:
        self.is_killed = True
        self._process.kill()

    async def stop(self) -> None:
        """Let it exit by itself, within reason."""
        self.connection.send(Stop())
        await asyncio.wait({self.ended}, timeout=_EXIT_SECONDS)
        if not self.ended.done():
            self.kill()
        await self.ended

    async def _end(self) -> Exit:
        await self.connection.closed
        await asyncio.wait({self._process.ended}, timeout=_EXIT_SECONDS)
        if not self._process.ended.done():
            self.kill()
        return await self._process.ended


async def start_host(app: str, spawner: Spawner, hear: Callable[[News], None]) -> FunctionHost:
    """A host that has loaded the app; `Invalid` if it cannot, `Unavailable` if it does not."""
    connection = HostConnection(hear)
    folder = Path(tempfile.mkdtemp(prefix="rota-host-"))
    try:
        address = str(folder / "socket")
        loop = asyncio.get_running_loop()
        server = await loop.create_unix_server(lambda: connection, address)
        process = _spawn(app, address, spawner)
        waits: set[asyncio.Future[Any]] = {connection.greeting, process.ended}
        await asyncio.wait(waits, timeout=_START_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        server.close()
    finally:
        shutil.rmtree(folder)
    greeting = connection.greeting.result() if connection.greeting.done() else None
    if isinstance(greeting, Hello):
        return FunctionHost(process, connection, greeting)
    process.kill()
    end = await process.ended
    if greeting is None:
        raise Unavailable(f"the function host of {app} did not start: {end.error or how(end)}")
    raise Invalid(
        f"the app {app} cannot be loaded: {greeting.message}",
        hint="--app takes MODULE:NAME, found from the folder the worker was started in",
    )


def how(end: Exit) -> str:
    """In words: how a host ended."""
    return f"signal {end.signal}" if end.signal is not None else f"exit {end.status}"


def _spawn(app: str, address: str, spawner: Spawner) -> Process:
    """The host lives in the worker's own surroundings: functions are part of the worker."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(_WORKERS_OWN)}
    return spawner.spawn(
        [sys.executable, "-X", "faulthandler", "-m", "rota.sdk.host", app, address],
        env=env,
        cwd=str(Path.cwd()),
        stdout=os.dup(1),
        stderr=os.dup(2),
    )
