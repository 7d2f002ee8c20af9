"""A `rota server` on PostgreSQL and its workers, as they are deployed: processes that talk gRPC."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from bench.contest import wait_for
from bench.layers import Layers
from bench.rota_up import FUNCTIONS, ROOT, Home
from bench.stamps import VARIABLE
from rota.runtime import machine
from rota.runtime.settings import Settings
from rota.sdk.client import Client
from testkit.nodes import ServerNode, WorkerNode
from testkit.servers.ports import free_ports
from testkit.servers.postgres import PostgresServer


class RotaCluster:
    """Servers and workers of one database, added one by one."""

    def __init__(self, home: Home, store: str, **settings: str) -> None:
        self._home = home
        self._store = store
        self._settings = settings
        self.servers: list[ServerNode] = []
        self.workers: list[WorkerNode] = []
        _, self.token = machine.create(Settings(store=store), "bench", "admin")

    @property
    def client(self) -> Client:
        return Client(self.servers[0].url, self.token)

    def add_server(self, **settings: str) -> ServerNode:
        """Another server, started and ready."""
        name = f"server-{len(self.servers) + 1}"
        rest, grpc = free_ports(2)
        told = {"store": self._store} | self._settings | settings
        node = ServerNode(name, self._home.folder / name, (rest, grpc), **told)
        self.servers.append(node)
        node.start()
        return node

    def add_worker(self, slots: int, **settings: str) -> WorkerNode:
        """Another worker that serves the bench's functions: started, not waited for."""
        name = f"worker-{len(self.workers) + 1}"
        _, secret = machine.create_for_worker(Settings(store=self._store), name, pool=None)
        told = {
            "server": ",".join(server.grpc for server in self.servers),
            "worker_token": secret,
            "slots": str(slots),
            "app": FUNCTIONS,
        }
        node = WorkerNode(name, self._home.folder / name, self.client, **(told | settings))
        node.environ |= {"PYTHONPATH": str(ROOT), VARIABLE: str(self._home.stamps)}
        self.workers.append(node)
        node.launch()
        return node

    def wait_for(self, condition: Callable[[], bool], seconds: float) -> None:
        """Until it holds; a server or worker that ended meanwhile is an error, with its words."""

        def holds() -> bool:
            for node in (*self.servers, *self.workers):
                node.check_running()
            return condition()

        wait_for(holds, seconds, "all functions")

    def layers(self, postgres: PostgresServer) -> Layers:
        """Whose processor time a run costs."""
        assert postgres.pid is not None
        roots = {
            "server": [node.pid for node in self.servers],
            "worker": [node.pid for node in self.workers],
            "postgres": [postgres.pid],
        }
        return Layers({name: pids for name, pids in roots.items() if pids})

    def stop_workers(self) -> None:
        """In good order: the work of whoever is killed with its guardian is counted as nobody's."""
        for worker in self.workers:
            if worker.is_running:
                worker.stop()

    def close(self) -> None:
        for node in (*self.workers, *self.servers):
            node.close()


@contextmanager
def rota_cluster(home: Home, store: str, **settings: str) -> Iterator[RotaCluster]:
    """One server, to which more servers and workers can be added."""
    with ExitStack() as ending:
        cluster = RotaCluster(home, store, **settings)
        ending.callback(cluster.close)
        ending.callback(cluster.stop_workers)
        cluster.add_server()
        yield cluster
