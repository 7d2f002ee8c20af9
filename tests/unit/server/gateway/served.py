"""A gateway over a real store, callers of every role, and a worker that does as it is told."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
from fastapi import FastAPI

from rota.blobs.files import open_files
from rota.domain.access import Role
from rota.domain.ids import SessionId, micros
from rota.domain.key_ring import KeyRing
from rota.domain.output import OutputRecorder, Stream
from rota.operations import output, workers
from rota.operations.engine import Engine, Logins
from rota.operations.tokens import create_token
from rota.ports.queue import output as output_topic
from rota.ports.work import (
    ChunkMeta,
    Hello,
    Offer,
    Outcome,
    OutputChunk,
    Progress,
    Start,
    StepNote,
    StepOutcome,
    Work,
)
from rota.queue.local import LocalIdleWorkers
from rota.server.gateway.app import create_app
from rota.server.gateway.parameters import GatewaySettings
from rota.store.script import Ticker
from testkit.builders import reported
from testkit.identity import make_project
from testkit.new_stores import local_queue, open_new_sqlite

YAML = {"Content-Type": "application/yaml"}
_LEASE = timedelta(seconds=30)
_NO_LIMIT = 1 << 40


def job(name: str = "tidy", **fields: object) -> dict[str, object]:
    return {"name": name, "steps": [{"run": "true"}], **fields}


def job_file(*jobs: dict[str, object]) -> str:
    return json.dumps({"jobs": list(jobs)})


@dataclass
class Served:
    engine: Engine
    app: FastAPI
    secrets: dict[Role, str]
    _clients: AsyncExitStack
    _by_role: dict[Role | None, httpx.AsyncClient] = field(default_factory=dict)

    async def client(self, role: Role | None = Role.ADMIN) -> httpx.AsyncClient:
        """A caller of that role; None: one that shows no credential."""
        if role not in self._by_role:
            headers = {} if role is None else {"Authorization": f"Bearer {self.secrets[role]}"}
            self._by_role[role] = await self.browser(headers)
        return self._by_role[role]

    async def browser(
        self,
        headers: dict[str, str] | None = None,
        *,
        peer: str = "127.0.0.1",
        base_url: str = "http://rota",
    ) -> httpx.AsyncClient:
        """A caller that keeps its own cookies; `peer` is its address."""
        transport = httpx.ASGITransport(app=self.app, client=(peer, 4711))
        client = httpx.AsyncClient(transport=transport, base_url=base_url, headers=headers)
        return await self._clients.enter_async_context(client)

    async def get(self, path: str, role: Role | None = Role.ADMIN, **kwargs: Any) -> httpx.Response:
        return await (await self.client(role)).get(_url(path), **kwargs)

    async def post(
        self, path: str, role: Role | None = Role.ADMIN, **kwargs: Any
    ) -> httpx.Response:
        return await (await self.client(role)).post(_url(path), **kwargs)

    async def patch(self, path: str, **kwargs: Any) -> httpx.Response:
        return await (await self.client()).patch(_url(path), **kwargs)

    async def delete(self, path: str, **kwargs: Any) -> httpx.Response:
        return await (await self.client()).delete(_url(path), **kwargs)

    async def apply(self, *jobs: dict[str, object], **params: object) -> dict[str, Any]:
        body = job_file(*jobs)
        answer = await self.post("jobs:apply", content=body, headers=YAML, params=params)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    async def trigger(self, name: str = "tidy", **body: object) -> dict[str, Any]:
        answer = await self.post(f"jobs/{name}/runs", json=body)
        assert answer.status_code == 202, answer.text
        return dict(answer.json())

    async def worker(
        self,
        name: str = "worker-1",
        resources: Mapping[str, int] | None = None,
        pool: str = "default",
        offers: tuple[Offer, ...] = (),
    ) -> Worker:
        hello = Hello(name, pool, slots=100, resources=resources or {}, offers=offers)
        session, _ = await workers.register(self.engine, hello, _LEASE)
        return Worker(self.engine, session.id)

    async def run_through(self, name: str = "tidy", printed: bytes = b"") -> str:
        """A run of a job that has completed; returns its id."""
        run = await self.trigger(name)
        worker = await self.worker()
        [work] = await worker.claim()
        await worker.finish(work, printed=printed)
        return str(run["id"])


@dataclass
class Worker:
    engine: Engine
    session: SessionId

    async def claim(self) -> list[Work]:
        """Take all that is queued, and start it."""
        work = list((await self.engine.store.claim(self.session, 100)).batch.works())
        now = micros(await self.engine.store.now())
        starts = [Start(each.run, each.number, now) for each in work]
        await self.engine.store.start(self.session, starts)
        return work

    async def prints(self, work: Work, text: bytes) -> None:
        """Output that is stored as a chunk while the attempt goes on."""
        recorder = _recorded(text)
        for chunk in recorder.take_chunks(force=True):
            meta = ChunkMeta(
                chunk.number,
                chunk.first_line,
                chunk.lines,
                chunk.text_bytes,
                chunk.first_at_ms,
                chunk.last_at_ms,
            )
            chunks = [OutputChunk(work.run, work.attempt, meta, chunk.data)]
            await output.store_chunks(self.engine, self.session, chunks)

    async def tells(self, work: Work, *steps: StepOutcome, at: int = 1) -> None:
        """A note about an attempt, of which followers hear."""
        note = StepNote(work.run, work.number, at, 0, steps)
        await workers.note(self.engine, self.session, [note])
        self.announce(work)

    async def progresses(self, work: Work, done: float) -> None:
        progress = Progress(work.run, work.number, done, 10.0)
        await self.engine.store.record_progress(self.session, [progress])

    def announce(self, work: Work) -> None:
        """Wake whoever follows a run, as the server of its worker does."""
        self.engine.queue.announce(output_topic(work.run))

    async def finish(
        self,
        work: Work,
        result: str = "COMPLETED",
        printed: bytes = b"",
        steps: tuple[StepOutcome, ...] = (),
        **fields: Any,
    ) -> None:
        """End an attempt; fields are those of its outcome."""
        recorder = _recorded(printed)
        now = micros(await self.engine.store.now())
        outcome = Outcome(
            run=work.run,
            number=work.attempt,
            result=result,
            started_at=now,
            ended_at=now,
            exit_code=0 if result == "COMPLETED" else 1,
            output=recorder.inline() or b"",
            output_bytes=len(printed),
            output_lines=recorder.totals.lines,
            steps=steps,
            **fields,
        )
        await workers.finish(self.engine, self.session, reported(outcome))
        self.announce(work)


def _recorded(text: bytes) -> OutputRecorder:
    recorder = OutputRecorder(_NO_LIMIT)
    recorder.feed(1_000, Stream.STDOUT, 1, text)
    recorder.close(1_000)
    return recorder


def _url(path: str) -> str:
    return path if path.startswith("/") else f"/api/v1/{path}"


@asynccontextmanager
async def serving_gateway(
    folder: Path,
    settings: GatewaySettings | None = None,
    *,
    logins: Logins | None = None,
    clock: Ticker | None = None,
    key_ring: KeyRing | None = None,
) -> AsyncIterator[Served]:
    async with AsyncExitStack() as stack:
        store = await open_new_sqlite(folder / "rota.db", clock=clock)
        stack.push_async_callback(store.close)
        blobs = await stack.enter_async_context(await open_files(folder / "blobs"))
        engine = Engine(
            store,
            local_queue(store),
            blobs,
            LocalIdleWorkers(),
            logins=logins or Logins(),
            key_ring=key_ring,
        )
        await make_project(store, "other")
        secrets = {}
        for role in Role:
            _, secrets[role] = await create_token(store, name=role, role=role, actor="test")
        app = create_app(engine, settings or GatewaySettings())
        stack.push_async_callback(app.state.parsing.close)
        clients = await stack.enter_async_context(AsyncExitStack())
        yield Served(engine, app, secrets, clients)
