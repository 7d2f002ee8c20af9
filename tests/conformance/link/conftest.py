"""Every adapter of the link port, between a worker and a floor over a real store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest

from rota.blobs.files import open_files
from rota.link.grpc_client import GrpcAccess, GrpcConnector
from rota.link.grpc_server import WorkersService
from rota.link.local import LocalLink, LocalLinkServer
from rota.operations.credentials import Credentials
from rota.operations.engine import Engine
from rota.operations.tokens import create_worker_token
from rota.ports.work import WorkerDesk, WorkerLink
from rota.queue.local import LocalIdleWorkers
from rota.server.dispatcher.floor import Floor, FloorConfig
from rota.server.gateway.rpc.server import serve
from testkit.builders import Scene
from testkit.clock import FakeTicker
from testkit.new_stores import local_queue, open_new_sqlite

Connect = Callable[..., Awaitable[WorkerLink]]  # of the worker of a name, or of `worker`


@dataclass
class Shop:
    """A server with a floor, and a way for workers to reach it."""

    scene: Scene
    floor: Floor
    engine: Engine
    connect: Connect


@asynccontextmanager
async def local(desk: WorkerDesk, folder: Path) -> AsyncIterator[Connect]:
    server = LocalLinkServer(desk, folder / "link.sock")
    await server.open()
    yield lambda *_: LocalLink.connect(folder / "link.sock")
    await server.close()


@asynccontextmanager
async def grpc(desk: WorkerDesk, engine: Engine) -> AsyncIterator[Connect]:
    service = WorkersService(desk, Credentials(engine))
    server = await serve("127.0.0.1:0", [service.add_to])

    async def connect(name: str = "worker") -> WorkerLink:
        _, token = await create_worker_token(engine.store, name=name, pool=None, actor="test")
        return await GrpcConnector(GrpcAccess((f"127.0.0.1:{server.port}",), token)).connect()

    yield connect
    service.close()
    await server.close()


@pytest.fixture(params=["local", "grpc"])
async def shop(
    request: pytest.FixtureRequest, tmp_path: Path, anyio_backend: str
) -> AsyncIterator[Shop]:
    async with AsyncExitStack() as stack:
        clock = FakeTicker()
        store = await open_new_sqlite(tmp_path / "rota.db", clock=clock)
        stack.push_async_callback(store.close)
        blobs = await stack.enter_async_context(await open_files(tmp_path / "blobs"))
        engine = Engine(store, local_queue(store), blobs, LocalIdleWorkers())
        floor = Floor(engine, FloorConfig(lease=timedelta(seconds=30)))
        link = grpc(floor, engine) if request.param == "grpc" else local(floor, tmp_path)
        connect = await stack.enter_async_context(link)
        yield Shop(Scene(store, clock), floor, engine, connect)
