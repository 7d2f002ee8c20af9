"""A real gateway over a real store on loopback, with a worker that does as it is told."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import uvicorn

from rota.blobs.files import open_files
from rota.domain.access import Role
from rota.domain.ids import SessionId, micros
from rota.domain.jobfile import read_file
from rota.domain.output import OutputRecorder, Stream
from rota.operations import definitions, workers
from rota.operations.engine import Engine
from rota.operations.tokens import create_token
from rota.ports.work import Hello, Offer, Outcome, Start, StepOutcome, Work
from rota.queue.local import LocalIdleWorkers
from rota.server.gateway.app import create_app
from rota.server.gateway.parameters import GatewaySettings
from testkit.builders import reported
from testkit.new_stores import local_queue, open_new_sqlite

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
    engine: Engine
    _loop: asyncio.AbstractEventLoop
    _sessions: list[SessionId] = field(default_factory=list)

    @property
    def session(self) -> SessionId:
        """Of the worker that claimed last."""
        return self._sessions[-1]

    def do(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run something on the server's own event loop."""
        return _on(self._loop, coroutine)

    def define(self, text: str) -> None:
        file = read_file(text, name="test")
        self.do(definitions.apply(self.engine, file, actor="test"))

    def claim(self, offers: tuple[Offer, ...] = ()) -> Work:
        """Let a worker take the one run that is queued, and start it."""
        return self.do(self._claim(offers))

    def register(self, worker: str, *, offers: tuple[Offer, ...] = (), trouble: str = "") -> None:
        """Let a worker register, and say what it cannot do."""
        self.do(self._register(Hello(worker, "default", 1, offers=offers), trouble))

    async def _register(self, hello: Hello, trouble: str) -> None:
        session, _ = await workers.register(self.engine, hello, _LEASE)
        await self.engine.store.renew(session.id, stopping=False, trouble=trouble)

    def finish(
        self,
        work: Work,
        result: str = "COMPLETED",
        *,
        steps: Sequence[StepOutcome] = (),
        printed: Sequence[Printed] = (),
        **told: Any,
    ) -> None:
        """Report an end; `told` are further fields of its outcome."""
        self.do(self._finish(work, result, tuple(steps), printed, told))

    async def _claim(self, offers: tuple[Offer, ...]) -> Work:
        hello = Hello("worker-1", "default", 100, resources={"cpu": 4_000}, offers=offers)
        session, _ = await workers.register(self.engine, hello, _LEASE)
        self._sessions.append(session.id)
        [work] = (await self.engine.store.claim(session.id, 1)).batch.works()
        now = micros(await self.engine.store.now())
        await self.engine.store.start(session.id, [Start(work.run, work.number, now)])
        return work

    async def _finish(
        self,
        work: Work,
        result: str,
        steps: tuple[StepOutcome, ...],
        printed: Sequence[Printed],
        told: dict[str, Any],
    ) -> None:
        recorder = OutputRecorder(_NO_LIMIT)
        for part in printed:
            recorder.feed(1_000, Stream.STDOUT, part.step, part.text)
        recorder.close(1_000)
        now = micros(await self.engine.store.now())
        outcome = Outcome(
            run=work.run,
            number=work.attempt,
            result=result,
            started_at=now,
            ended_at=now,
            exit_code=0 if result == "COMPLETED" else 1,
            steps=steps,
            output=recorder.inline() or b"",
            output_bytes=recorder.totals.bytes,
            output_lines=recorder.totals.lines,
            **told,
        )
        session = self._sessions[-1]
        await workers.finish(self.engine, session, reported(outcome))


@dataclass
class Web:
    """A web server that outlives tests: to start and stop one takes longer than most of them."""

    url: str
    loop: asyncio.AbstractEventLoop
    app: Any = None  # of the test that goes on
    _open: set[asyncio.Task[Any]] = field(default_factory=set)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        task.add_done_callback(self._open.discard)
        await self.app(scope, receive, send)

    async def come_to_rest(self) -> None:
        """Whoever asked has gone, so requests that are open end by themselves."""
        if self._open:
            _, left = await asyncio.wait(self._open, timeout=_PATIENCE_SECONDS)
            assert not left, "requests are still open"


@contextmanager
def running_web() -> Iterator[Web]:
    """Listen until the end of the block."""
    loop = asyncio.new_event_loop()
    listener = socket.create_server(("127.0.0.1", 0))
    web = Web(f"http://127.0.0.1:{listener.getsockname()[1]}", loop)
    uvicorn_server = uvicorn.Server(uvicorn.Config(web, log_config=None, lifespan="off"))
    thread = threading.Thread(
        target=lambda: loop.run_until_complete(uvicorn_server.serve([listener]))
    )
    thread.start()
    try:
        yield web
    finally:
        uvicorn_server.should_exit = True
        thread.join(_PATIENCE_SECONDS)
        loop.close()


@contextmanager
def running_server(folder: Path, web: Web) -> Iterator[Server]:
    """Serve a store of its own until the end of the block."""
    stack = AsyncExitStack()
    server = _on(web.loop, _open(folder, web, stack))
    try:
        yield server
    finally:
        _on(web.loop, stack.aclose())


async def _open(folder: Path, web: Web, stack: AsyncExitStack) -> Server:
    store = await open_new_sqlite(folder / "rota.db")
    stack.push_async_callback(store.close)
    blobs = await stack.enter_async_context(await open_files(folder / "blobs"))
    engine = Engine(store, local_queue(store), blobs, LocalIdleWorkers())
    tokens = {role: await create_token(store, name=role, role=role, actor="test") for role in Role}
    secrets = {role: secret for role, (_, secret) in tokens.items()}
    web.app = create_app(engine, GatewaySettings(base_url=web.url))
    stack.push_async_callback(web.app.state.parsing.close)
    stack.push_async_callback(web.come_to_rest)
    return Server(web.url, secrets, engine, web.loop)


def _on(loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, T]) -> T:
    return asyncio.run_coroutine_threadsafe(coroutine, loop).result(_PATIENCE_SECONDS)
