"""A real gateway over a real store on loopback, with a worker that does as it is told."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import uvicorn

from rota.adapters.blobs.files import open_files
from rota.adapters.queue.local import LocalQueue
from rota.adapters.store.sqlite.opening import open_sqlite
from rota.domain.ids import SessionId, micros
from rota.domain.jobfile import read_file
from rota.domain.output import OutputRecorder, Stream
from rota.gateway.app import create_app
from rota.gateway.settings import GatewaySettings
from rota.operations import definitions, serving
from rota.operations.backends import Backends
from rota.operations.tokens import create_token
from rota.ports.records import Role
from rota.ports.work import Hello, Outcome, Start, StepOutcome, Work

T = TypeVar("T")

_LEASE = timedelta(seconds=30)
_PATIENCE_SECONDS = 20
_NO_LIMIT = 1 << 40


@dataclass(frozen=True)
class Printed:
    """What a step of an attempt wrote to its standard output."""

    text: bytes
    step: int = 0


@dataclass
class Server:
    url: str
    secrets: dict[Role, str]
    backends: Backends
    _loop: asyncio.AbstractEventLoop
    _sessions: list[SessionId] = field(default_factory=list)

    def do(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run something on the server's own event loop."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(_PATIENCE_SECONDS)

    def define(self, text: str) -> None:
        file = read_file(text, name="test")
        self.do(definitions.apply(self.backends, file, actor="test"))

    def claim(self) -> Work:
        """Let a worker take the one run that is queued, and start it."""
        return self.do(self._claim())

    def finish(
        self,
        work: Work,
        result: str = "COMPLETED",
        *,
        steps: Sequence[StepOutcome] = (),
        printed: Sequence[Printed] = (),
    ) -> None:
        self.do(self._finish(work, result, tuple(steps), printed))

    async def _claim(self) -> Work:
        hello = Hello(worker="worker-1", pool="default", slots=100, resources={"cpu": 4_000})
        session, _ = await serving.register(self.backends, hello, _LEASE)
        self._sessions.append(session.id)
        [work] = await serving.claim(self.backends, session.id, 1)
        now = micros(await self.backends.store.now())
        await serving.start(self.backends, session.id, [Start(work.run, work.attempt, now)])
        return work

    async def _finish(
        self,
        work: Work,
        result: str,
        steps: tuple[StepOutcome, ...],
        printed: Sequence[Printed],
    ) -> None:
        recorder = OutputRecorder(_NO_LIMIT)
        for part in printed:
            recorder.feed(1_000, Stream.STDOUT, part.step, part.text)
        recorder.close(1_000)
        now = micros(await self.backends.store.now())
        outcome = Outcome(
            run=work.run,
            attempt=work.attempt,
            result=result,
            started_at=now,
            ended_at=now,
            exit_code=0 if result == "COMPLETED" else 1,
            steps=steps,
            output=recorder.inline() or b"",
            output_bytes=recorder.totals.bytes,
            output_lines=recorder.totals.lines,
        )
        session = self._sessions[-1]
        await serving.finish(self.backends, session, [outcome])


@contextmanager
def running_server(folder: Path) -> Iterator[Server]:
    """Serve until the end of the block; nothing is left running."""
    started: list[Server] = []
    ready = threading.Event()
    ending = asyncio.Event()

    async def serve() -> None:
        store = await open_sqlite(folder / "rota.db")
        async with await open_files(folder / "blobs") as blobs:
            backends = Backends(store, LocalQueue(), blobs)
            secrets = {
                role: (await create_token(store, name=role, role=role, actor="test"))[1]
                for role in Role
            }
            listener = socket.create_server(("127.0.0.1", 0))
            url = f"http://127.0.0.1:{listener.getsockname()[1]}"
            app = create_app(backends, GatewaySettings(base_url=url))
            web = uvicorn.Server(uvicorn.Config(app, log_config=None, lifespan="off"))
            web.config.timeout_graceful_shutdown = 1
            serving_task = asyncio.create_task(web.serve([listener]))
            started.append(Server(url, secrets, backends, asyncio.get_running_loop()))
            ready.set()
            await ending.wait()
            web.should_exit = True
            await serving_task
        await store.close()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    assert ready.wait(_PATIENCE_SECONDS)
    [server] = started
    try:
        yield server
    finally:
        server._loop.call_soon_threadsafe(ending.set)
        thread.join(_PATIENCE_SECONDS)
