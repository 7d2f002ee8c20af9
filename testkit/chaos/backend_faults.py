"""Faults of the backends: PostgreSQL, NATS, the object store, networks, wall clocks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

import httpx

from rota.sdk.client import Client
from testkit.chaos.client import AWAY, AnyServer
from testkit.chaos.faults import Fault
from testkit.nodes import ServerNode
from testkit.proxy import Proxy
from testkit.servers.nats import NatsServer
from testkit.servers.postgres import PostgresServer
from testkit.servers.s3 import S3Server
from testkit.wall_clock import WallClock

STORE, QUEUE, BLOBS = "PostgreSQL", "NATS", "object store"
HOUR = timedelta(hours=1)
_LOOK_SECONDS = 1.0
_READ = 5  # of the latest runs, to find one whose output is stored
_CONNECTIONS = "SELECT pid FROM pg_stat_activity WHERE datname = 'rota'"
_TERMINATE = """
    SELECT pid, pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'rota'
"""


class CrashedStore(Fault):
    """PostgreSQL crashes, recovers, and serves again."""

    kind = "PostgreSQL crashed"

    def __init__(self, postgres: PostgresServer, servers: Sequence[ServerNode]) -> None:
        super().__init__(STORE)
        self._postgres = postgres
        self._servers = servers

    def inject(self) -> str:
        self._postgres.stop("immediate")
        return ""

    def is_felt(self) -> bool:
        return any(not _is_ready(server) for server in self._servers)

    def heal(self) -> None:
        self._postgres.start()


class TerminatedConnections(Fault):
    """PostgreSQL closes every connection, until servers open new ones."""

    kind = "connections to PostgreSQL terminated"
    least = timedelta(0)

    def __init__(self, postgres: PostgresServer) -> None:
        super().__init__(STORE)
        self._postgres = postgres
        self._ended: frozenset[int] = frozenset()

    def inject(self) -> str:
        self._ended = self._ask(_TERMINATE)
        return f"{len(self._ended)} connections"

    def is_felt(self) -> bool:
        return bool(self._ended) and bool(self._ask(_CONNECTIONS) - self._ended)

    def _ask(self, statement: str) -> frozenset[int]:
        return frozenset(row["pid"] for row in asyncio.run(self._postgres.execute(statement)))


class _QueueFault(Fault):
    """Fault that servers log."""

    def __init__(self, nodes: Sequence[NatsServer], servers: Sequence[ServerNode]) -> None:
        super().__init__(QUEUE)
        self._nodes = nodes
        self._servers = servers
        self._noted = self._notes()

    def is_felt(self) -> bool:
        return self._notes() > self._noted

    def _notes(self) -> int:
        """Count how often servers logged that their queue is away."""
        return sum(server.printed().count("queue.away") for server in self._servers)


class KilledQueue(_QueueFault):
    """All NATS nodes die; with `wipes`, with all that they had stored."""

    def __init__(
        self, nodes: Sequence[NatsServer], servers: Sequence[ServerNode], *, wipes: bool
    ) -> None:
        super().__init__(nodes, servers)
        self.kind = "NATS wiped" if wipes else "NATS killed"
        self._wipes = wipes

    def inject(self) -> str:
        for node in self._nodes:
            node.kill()
            if self._wipes:
                node.wipe()
        return f"{len(self._nodes)} nodes"

    def heal(self) -> None:
        for node in self._nodes:
            node.start(wait=False)


class RollingQueue(_QueueFault):
    """Each NATS node dies in turn, and the next one only after it is back."""

    kind = "NATS nodes killed in turn"

    def inject(self) -> str:
        for node in self._nodes:
            node.kill()
            node.start()
        return f"{len(self._nodes)} nodes"


class KilledObjectStore(Fault):
    """The object store is gone until it is started again; large output cannot be delivered."""

    kind = "object store killed"

    def __init__(self, s3: S3Server, observer: AnyServer, job: str) -> None:
        super().__init__(BLOBS)
        self._s3 = s3
        self._observer = observer
        self._job = job

    def inject(self) -> str:
        self._s3.kill()
        return ""

    def is_felt(self) -> bool:
        try:
            page = self._observer.send(Client.list_runs(job=self._job, limit=5))
            runs = [self._observer.send(Client.get_run(run.id)) for run in page]
        except AWAY:
            return False
        return any(it.output.state == "pending" for run in runs for it in run.attempts)

    def heal(self) -> None:
        self._s3.start()


def unused() -> None:
    """Do nothing: for links that nodes use all the time by themselves."""


class BrokenLink(Fault):
    """A node and its peers cannot reach one another: refused at once, or hanging.

    It is felt when a connection fails. `use` has the node try where it might have no reason.
    """

    least = timedelta(seconds=3)

    def __init__(
        self,
        ends: tuple[str, ...],
        proxies: Sequence[Proxy],
        name: str,
        how: Callable[[Proxy], None],
        use: Callable[[], None] = unused,
    ) -> None:
        super().__init__(*ends)
        self.kind = name
        self._proxies = proxies
        self._break = how
        self._use = use
        self._disturbed = 0

    def inject(self) -> str:
        self._disturbed = self._count()
        for proxy in self._proxies:
            self._break(proxy)
        return ""

    def is_felt(self) -> bool:
        if self._count() == self._disturbed:
            self._use()
        return self._count() > self._disturbed

    def heal(self) -> None:
        for proxy in self._proxies:
            proxy.heal()

    def _count(self) -> int:
        return sum(proxy.disturbed for proxy in self._proxies)


def read_stored_output(observer: AnyServer, server: str, job: str) -> None:
    """Read output through this very server, if there is any; the result does not matter."""
    others = observer.besides(server)
    with suppress(*AWAY):
        for run in others.send(Client.list_runs(job=job, limit=_READ)):
            attempts = others.send(Client.get_run(run.id)).attempts
            if attempts and attempts[-1].output.state == "stored":
                observer.at(server).send(Client.raw_log(run.id))
                return


class WrongWallClock(Fault):
    """The wall clock of a server jumps by an hour, and back again later."""

    kind = "wall clock an hour off"

    def __init__(self, node: ServerNode, clocks: Sequence[WallClock], offset: timedelta) -> None:
        super().__init__(node.name)
        self._node = node
        self._clocks = clocks
        self._offset = offset

    def inject(self) -> str:
        for clock in self._clocks:
            clock.set(self._offset)
        return f"by {self._offset.total_seconds():+.0f} s"

    def is_felt(self) -> bool:
        try:
            answer = httpx.get(f"{self._node.url}/livez", timeout=_LOOK_SECONDS, trust_env=False)
        except httpx.TransportError:
            return False
        told = parsedate_to_datetime(answer.headers["date"])
        return abs(told - datetime.now(UTC)) > HOUR / 2  # noqa: TID251 - the true wall clock

    def heal(self) -> None:
        for clock in self._clocks:
            clock.set(timedelta(0))


def _is_ready(server: ServerNode) -> bool:
    try:
        url = f"{server.url}/readyz"
        return httpx.get(url, timeout=_LOOK_SECONDS, trust_env=False).is_success
    except httpx.TransportError:
        return False
