"""Cluster whose connections can be broken one by one: each has a proxy of its own."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Self

from testkit.cluster import Cluster, Size
from testkit.nodes import ServerNode, WorkerNode
from testkit.proxy import Proxy
from testkit.wall_clock import WallClock, faketime_library


class Link(StrEnum):
    """Peer of a node."""

    SERVERS = "servers"
    STORE = "store"
    QUEUE = "queue"
    BLOBS = "blobs"


class ProxiedCluster(Cluster):
    """Cluster with proxies; `links` has those of each node.

    Where libfaketime is installed, `clocks` has the wall clocks of the last server and worker.
    """

    def __init__(self, folder: Path, size: Size, settings: Mapping[str, str]) -> None:
        super().__init__(folder, size, settings)
        self._proxies = ExitStack()
        self._clock_folder = folder
        self.links: dict[tuple[str, Link], list[Proxy]] = {}
        self.clocks: dict[str, WallClock] = {}

    def __enter__(self) -> Self:
        with ExitStack() as starting:
            starting.callback(self._proxies.close)
            super().__enter__()
            starting.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        super().__exit__(kind, error, trace)
        self._proxies.close()

    def add_server(self, **settings: str) -> ServerNode:
        store = self._proxy(self.postgres.port)
        queue = [self._proxy(node.port) for node in self.nats.nodes]
        blobs = self._proxy(self.s3.port)
        told = {
            "store": self.postgres.address("rota", store.port),
            "queue": "nats://" + ",".join(f"127.0.0.1:{proxy.port}" for proxy in queue),
        }
        node = super().add_server(**(told | settings))
        node.environ |= self.s3.environ(blobs.port)
        self.links |= {
            (node.name, Link.STORE): [store],
            (node.name, Link.QUEUE): queue,
            (node.name, Link.BLOBS): [blobs],
        }
        if len(self.servers) == self._size.servers:
            self._give_clock(node)
        return node

    def add_worker(self, **settings: str) -> WorkerNode:
        ports = [int(server.grpc.rpartition(":")[2]) for server in self.servers]
        proxies = [self._proxy(port) for port in ports]
        told = {"server": ",".join(f"127.0.0.1:{proxy.port}" for proxy in proxies)}
        node = super().add_worker(**(told | settings))
        self.links[node.name, Link.SERVERS] = proxies
        if len(self.workers) == self._size.workers:
            self._give_clock(node)
        return node

    def _proxy(self, port: int) -> Proxy:
        return self._proxies.enter_context(Proxy(port))

    def _give_clock(self, node: ServerNode | WorkerNode) -> None:
        library = faketime_library()
        if library is not None:
            clock = WallClock(self._clock_folder / f"{node.name}.clock", library)
            node.environ |= clock.environ
            self.clocks[node.name] = clock
