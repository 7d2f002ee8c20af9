"""A server that takes workers in by gRPC, and the means to talk to it properly or not."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest

from rota.blobs.files import open_files
from rota.contracts import worker_pb2 as pb
from rota.link.grpc_client import ClientTls, GrpcAccess, GrpcLink
from rota.link.grpc_server import WorkersService
from rota.operations.credentials import Credentials, create_join_token
from rota.operations.engine import Engine
from rota.operations.tokens import create_worker_token
from rota.operations.wrong_secrets import WrongSecrets
from rota.queue.local import LocalIdleWorkers
from rota.server.dispatcher.floor import Floor, FloorConfig
from rota.server.gateway.rpc.server import RpcServer, ServerTls, serve
from testkit.new_stores import local_queue, open_new_sqlite

Stream = grpc.aio.StreamStreamCall[Any, pb.FromServer]


@dataclass
class Reception:
    """One server of a cluster."""

    engine: Engine
    floor: Floor
    service: WorkersService
    server: RpcServer
    _stack: AsyncExitStack

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server.port}"

    async def token(self, name: str = "worker", pool: str | None = None) -> str:
        _, secret = await create_worker_token(self.engine.store, name=name, pool=pool, actor="test")
        return secret

    async def join_token(self, uses: int = 1, pool: str | None = None) -> str:
        _, secret = await create_join_token(self.engine.store, uses=uses, pool=pool, actor="test")
        return secret

    async def connect(self, token: str, tls: ClientTls | None = None) -> GrpcLink:
        link = await GrpcLink.open(self.address, GrpcAccess((self.address,), token, tls))
        self._stack.push_async_callback(link.close)
        return link

    async def talk(self, token: str, service: str = "rota.v2.Workers") -> Stream:
        """A stream on which anything can be sent, bytes included."""
        channel = grpc.aio.insecure_channel(
            self.address, options=[("grpc.max_send_message_length", -1)]
        )
        self._stack.push_async_callback(channel.close)
        call = channel.stream_stream(
            f"/{service}/Work",
            request_serializer=_as_bytes,
            response_deserializer=pb.FromServer.FromString,
        )
        return call(metadata=(("authorization", f"Bearer {token}"),))

    async def stop(self) -> None:
        self.service.close()
        await self.server.close()


def _as_bytes(message: pb.FromWorker | bytes) -> bytes:
    return message if isinstance(message, bytes) else message.SerializeToString()


@dataclass
class Cluster:
    """Servers over one store."""

    engine: Engine
    _stack: AsyncExitStack
    wrong: WrongSecrets = field(default_factory=lambda: WrongSecrets(100, timedelta(minutes=1)))

    @property
    def credentials(self) -> Credentials:
        return Credentials(self.engine, wrong=self.wrong)

    async def open(
        self, tls: ServerTls | None = None, config: FloorConfig | None = None
    ) -> Reception:
        floor = Floor(self.engine, config)
        service = WorkersService(floor, self.credentials)
        server = await serve("127.0.0.1:0", [service.add_to], tls)
        opened = Reception(self.engine, floor, service, server, self._stack)
        self._stack.push_async_callback(opened.stop)
        return opened


@pytest.fixture
async def cluster(tmp_path: Path, anyio_backend: str) -> AsyncIterator[Cluster]:
    async with AsyncExitStack() as stack:
        store = await open_new_sqlite(tmp_path / "rota.db")
        stack.push_async_callback(store.close)
        blobs = await stack.enter_async_context(await open_files(tmp_path / "blobs"))
        links = await stack.enter_async_context(AsyncExitStack())
        yield Cluster(Engine(store, local_queue(store), blobs, LocalIdleWorkers()), links)


@pytest.fixture
async def reception(cluster: Cluster) -> Reception:
    return await cluster.open()
