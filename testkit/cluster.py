"""A whole cluster on loopback: PostgreSQL, NATS, an S3 server, and any number of Rota's own
servers and workers, all real processes.

    with Cluster(folder, servers=3, workers=4) as cluster:
        cluster.client(0).apply(…)
        cluster.servers[1].kill()
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rota.runtime import machine
from rota.runtime.settings import Settings
from rota.sdk.client import Client
from testkit.nodes import Node, ServerNode, WorkerNode
from testkit.processes import run_rota
from testkit.servers.nats import NatsCluster
from testkit.servers.ports import free_ports
from testkit.servers.postgres import PostgresServer
from testkit.servers.s3 import S3Server
from testkit.waiting import eventually


@dataclass(frozen=True, slots=True)
class Size:
    """Numbers of servers, workers and backends."""

    servers: int = 3
    workers: int = 4
    slots: int = 4  # of each worker
    nats: int = 3


_SMALL = Size()


class Cluster:
    """Cluster in one folder, which the unprivileged user of PostgreSQL must be able to enter.

    `settings` are those of all servers and workers, as `ROTA_*` without the prefix.
    """

    def __init__(
        self, folder: Path, size: Size = _SMALL, settings: Mapping[str, str] | None = None
    ) -> None:
        self._folder = folder
        self._size = size
        self._settings = dict(settings or {})
        self._running = ExitStack()
        self._clients: dict[str, Client] = {}
        self.postgres = PostgresServer(folder / "postgres")
        self.nats = NatsCluster(folder / "nats", size.nats)
        self.s3 = S3Server(folder / "s3")
        self.servers: list[ServerNode] = []
        self.workers: list[WorkerNode] = []
        self.token = ""  # of an admin

    def __enter__(self) -> Self:
        with ExitStack() as starting:
            self._start_backends(starting)
            starting.callback(self._end_nodes)
            self._start_servers()
            self._start_workers()
            self._running = starting.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._running.close()

    @property
    def nodes(self) -> Iterator[Node]:
        yield from self.servers
        yield from self.workers

    @property
    def engine(self) -> dict[str, str]:
        """Return the addresses of store, queue and blobs, as settings of a server."""
        return {
            "store": self.postgres.address("rota"),
            "queue": self.nats.address,
            "blobs": self.s3.address,
        }

    def client(self, server: int = 0) -> Client:
        """Return an admin's client of one of the servers."""
        url = self.servers[server].url
        if url not in self._clients:
            self._clients[url] = Client(url, self.token)
        return self._clients[url]

    def command(self, *words: str, server: int = 0) -> Any:
        """Run `rota` against one of the servers."""
        node = self.servers[server]
        told = {"ROTA_URL": node.url, "ROTA_TOKEN": self.token}
        return run_rota(*words, environ=node.environ | told)

    def add_server(self, **settings: str) -> ServerNode:
        """Add a server, not started yet."""
        name = f"server-{len(self.servers) + 1}"
        rest, grpc = free_ports(2)
        told = self.engine | self._settings | settings
        node = ServerNode(name, self._folder / name, (rest, grpc), **told)
        node.environ |= self.s3.environ()
        self.servers.append(node)
        return node

    def add_worker(self, **settings: str) -> WorkerNode:
        """Add a worker with a token of its own, not started yet."""
        name = f"worker-{len(self.workers) + 1}"
        _, secret = machine.create_for_worker(self._offline(), name, pool=None)
        told = {
            "server": ",".join(server.grpc for server in self.servers),
            "worker_token": secret,
            "slots": str(self._size.slots),
        }
        told |= self._settings | settings
        node = WorkerNode(name, self._folder / name, self.client(), **told)
        self.workers.append(node)
        return node

    def wait_until_shared(self) -> None:
        """Wait until every shard has an owner, and all live servers have some."""
        live = sum(server.is_running for server in self.servers)

        def is_shared() -> bool:
            status = self.client(self._first_live()).get_cluster()
            owners = [server for server in status.servers if server.shards]
            return status.shards_owned == status.shards and len(owners) == live

        eventually(is_shared, otherwise="the servers did not share the shards")

    def _first_live(self) -> int:
        return next(n for n, server in enumerate(self.servers) if server.is_running)

    def _start_backends(self, until: ExitStack) -> None:
        """Start all backends at once: each takes seconds, mostly of waiting."""
        parts: list[AbstractContextManager[Any]] = [self.postgres, self.nats, self.s3]
        with ThreadPoolExecutor(len(parts)) as threads:
            starts = [threads.submit(part.__enter__) for part in parts]
        for part, start in zip(parts, starts, strict=True):
            if start.exception() is None:
                until.push(part.__exit__)
        for start in starts:
            start.result()

    def _start_servers(self) -> None:
        asyncio.run(self.postgres.execute("CREATE DATABASE rota"))
        _, self.token = machine.create(self._offline(), "cluster", "admin")
        for _ in range(self._size.servers):
            self.add_server().launch()
        for server in self.servers:
            server.wait_until_ready()

    def _start_workers(self) -> None:
        for _ in range(self._size.workers):
            self.add_worker().launch()
        for worker in self.workers:
            worker.wait_until_ready()

    def _offline(self) -> Settings:
        return Settings(store=self.postgres.address("rota"))

    def _end_nodes(self) -> None:
        for client in self._clients.values():
            client.close()
        for node in (*self.workers, *self.servers):
            node.close()
