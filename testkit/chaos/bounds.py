"""Recovery times, one fault at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import TypeVar

from rota.sdk.answers import Run
from rota.sdk.client import Client
from testkit.chaos.client import AWAY, AnyServer
from testkit.chaos.network import ProxiedCluster
from testkit.chaos.workload import LASTING, PROBE
from testkit.evidence import Evidence
from testkit.nodes import Node
from testkit.waiting import boottime, eventually

T = TypeVar("T")

SERVER_LEASE = timedelta(seconds=5)
_PATIENCE = timedelta(minutes=1)
_RESTART = timedelta(seconds=40)
_SEEN = 200  # of the latest runs of a canary


@dataclass(frozen=True, slots=True)
class Bound:
    """Promised time in seconds, and the measured one."""

    name: str
    promised: timedelta
    measured: timedelta


class Stopwatch:
    """Measures on a cluster whose canaries, jobs that are due each second, already run."""

    def __init__(
        self,
        cluster: ProxiedCluster,
        evidence: Evidence,
        observer: AnyServer,
        canaries: Sequence[str],
        lease: timedelta,
    ) -> None:
        self._cluster = cluster
        self._evidence = evidence
        self._observer = observer
        self._canaries = canaries
        self._lease = lease

    def measure(self) -> list[Bound]:
        """Measure all of them, one after the other."""
        self._wait_for_canaries(self._now())
        second = timedelta(seconds=1)
        return [
            Bound("dead server: its jobs fire again", SERVER_LEASE + second, self._dead_server()),
            Bound("dead worker: its runs again", self._lease + 2 * second, self._dead_worker()),
            Bound("PostgreSQL crashed: full service", 10 * second, self._crashed_store()),
            Bound("NATS wiped: full service", 10 * second, self._wiped_queue()),
            Bound("each node restarted: latest start", 3 * second, self._restarted_nodes()),
        ]

    def _dead_server(self) -> timedelta:
        """Measure from a server's death until the last of its jobs has fired."""
        server = self._cluster.servers[-1]
        died = self._now()
        server.process.kill()
        server.process.wait()
        fired = self._wait_for_canaries(died)
        server.start()
        self._cluster.wait_until_shared()
        return fired - died

    def _dead_worker(self) -> timedelta:
        """Measure from a worker's death until its run has begun elsewhere."""
        run = self._observer.send(Client.trigger(LASTING)).id
        eventually(lambda: (run, 1) in self._evidence.started(), _PATIENCE)
        name = self._observer.send(Client.get_run(run)).worker
        worker = next(node for node in self._cluster.workers if node.name == name)
        died = boottime()
        worker.process.kill()
        worker.process.wait()
        eventually(lambda: (run, 2) in self._evidence.started(), _PATIENCE)
        again = next(m.at for m in self._evidence.marks() if (m.run, m.attempt) == (run, 2))
        Node.launch(worker)
        return timedelta(seconds=again - died)

    def _crashed_store(self) -> timedelta:
        """Measure from the moment the store answers again."""
        self._cluster.postgres.stop("immediate")
        self._cluster.postgres.start()
        return self._until_served()

    def _wiped_queue(self) -> timedelta:
        """Measure from the moment that all queue nodes are gone with all their data."""
        for node in self._cluster.nats.nodes:
            node.kill()
            node.wipe()
        began = self._now()
        for node in self._cluster.nats.nodes:
            node.start(wait=False)
        return self._until_served(began)

    def _restarted_nodes(self) -> timedelta:
        """Measure how late a canary was at most while every node was restarted in turn."""
        began = self._now()
        for node in self._cluster.nodes:
            node.stop(_RESTART)
            Node.launch(node)
            node.wait_until_ready()
        self._cluster.wait_until_shared()
        self._wait_for_canaries(self._now())
        runs = [run for name in self._canaries for run in self._runs(name)]
        return max(
            timedelta(seconds=run.lateness_seconds or 0.0) for run in runs if run.due_at > began
        )

    def _until_served(self, began: datetime | None = None) -> timedelta:
        """Wait until every server completes a run, every shard has an owner, every canary fires."""
        began = began or self._now()
        for number in range(len(self._cluster.servers)):
            self._until(partial(self._serves, number))
        self._wait_for_canaries(began)
        self._until(self._are_shards_owned)
        return self._now() - began

    def _serves(self, server: int) -> bool:
        client = self._cluster.client(server)
        return client.wait(client.trigger(PROBE).id, _PATIENCE.total_seconds()).is_final

    def _are_shards_owned(self) -> bool:
        status = self._observer.send(Client.get_cluster())
        return status.shards_owned == status.shards

    def _wait_for_canaries(self, since: datetime) -> datetime:
        """Wait until all canaries have fired for a due time after an instant; return when."""
        return max(self._until(partial(self._fired_at, name, since)) for name in self._canaries)

    def _fired_at(self, canary: str, since: datetime) -> datetime | None:
        fired = [run.created_at for run in self._runs(canary) if run.due_at > since]
        return min(fired, default=None)

    def _runs(self, job: str) -> Sequence[Run]:
        return self._observer.send(Client.list_runs(job=job, limit=_SEEN)).items

    def _until(self, ask: Callable[[], T | None]) -> T:
        def answer() -> T | None:
            try:
                return ask()
            except AWAY:
                return None

        found = eventually(answer, _PATIENCE)
        assert found is not None
        return found

    def _now(self) -> datetime:
        return self._observer.next().now()
