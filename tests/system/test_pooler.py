"""Servers that reach PostgreSQL only through a pooler, with fewer connections than they ask for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest

from rota.domain.ids import ServerId
from rota.domain.shards import assignment
from rota.runtime import machine
from rota.runtime.settings import Settings
from rota.sdk.client import Client
from testkit.checker import check
from testkit.evidence import Evidence
from testkit.load import Load
from testkit.nodes import ServerNode, WorkerNode
from testkit.servers.pgbouncer import PgBouncer
from testkit.servers.ports import free_ports
from testkit.servers.postgres import PostgresServer
from testkit.waiting import eventually
from tests.pooler import pooler_before
from tests.system.jobs import apply, job, runs_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

SECOND = timedelta(seconds=1)
PATIENCE = timedelta(seconds=60)
CONNECTIONS = 3  # where each of two servers would use 16
LEASE = "30s"  # of servers, too: as long as a starved machine needs for a restart
ENOUGH = 5  # runs that end before the pooler goes, and again after


@dataclass(frozen=True, slots=True)
class Site:
    """Two servers and two workers, and the pooler that the servers have in common."""

    clients: Sequence[Client]
    pooler: PgBouncer

    def holders(self) -> set[tuple[str, ...]]:
        """Who holds which lease; one that is lost is another's from then on."""
        client = self.clients[0]
        servers = {("server", each.id) for each in client.list_servers(all=True)}
        workers = {("worker", each.id) for each in client.list_workers(all=True)}
        shards = client.list_shards()
        return servers | workers | {(str(s.number), str(s.owner), str(s.epoch)) for s in shards}

    def is_at_rest(self) -> bool:
        """Whether each shard is where it belongs."""
        client = self.clients[0]
        wanted = assignment([ServerId(each.id) for each in client.list_servers()])
        return wanted == {each.number: each.owner for each in client.list_shards()}

    def ended(self, name: str) -> int:
        return len(runs_of(self.clients[1], name, "COMPLETED"))

    def goes_on(self, *names: str) -> None:
        """Wait until some more runs of each have ended."""
        enough = {name: self.ended(name) + ENOUGH for name in names}
        eventually(
            lambda: all(self.ended(name) >= count for name, count in enough.items()), PATIENCE
        )


@pytest.fixture
def site(postgres: PostgresServer, tmp_path: Path) -> Iterator[Site]:
    with ExitStack() as until:
        pooler = until.enter_context(pooler_before(postgres, CONNECTIONS))
        store = pooler.address("rota")
        _, token = machine.create(Settings(store=store), "tests", "admin")
        blobs = f"file://{tmp_path / 'blobs'}"
        told = {"store": store, "blobs": blobs, "lease": LEASE, "server_lease": LEASE}
        servers = [_server(f"server-{n}", tmp_path, told) for n in (1, 2)]
        for server in servers:
            until.callback(server.close)
            server.launch()
        for server in servers:
            server.wait_until_ready()
        clients = [until.enter_context(Client(server.url, token)) for server in servers]
        for name, server in zip(("worker-1", "worker-2"), servers, strict=True):
            _, secret = machine.create_for_worker(Settings(store=store), name, pool=None)
            settings = {"server": server.grpc, "worker_token": secret}
            worker = WorkerNode(name, tmp_path / name, clients[0], **settings)
            until.callback(worker.close)
            worker.start()
        site = Site(clients, pooler)
        eventually(site.is_at_rest, PATIENCE)
        yield site


def _server(name: str, folder: Path, settings: dict[str, str]) -> ServerNode:
    rest, grpc = free_ports(2)
    return ServerNode(name, folder / name, (rest, grpc), **settings)


def test_a_pooler_that_restarts_costs_no_lease_and_nothing_runs_twice(
    site: Site, evidence: Evidence
) -> None:
    client = site.clients[0]
    apply(
        client,
        job("ticking", evidence.script(), schedule="every 1s", overlap="allow"),
        job("asked", evidence.script(), overlap="allow"),
    )
    with Load(site.clients, "asked") as load:
        site.goes_on("ticking", "asked")
        before = site.holders()
        failures = load.failures
        site.pooler.kill()
        eventually(lambda: load.failures > failures, PATIENCE)
        site.pooler.start()
        site.goes_on("ticking", "asked")
    client.disable_job("ticking")
    eventually(lambda: not client.list_runs(active=True).items, PATIENCE)

    assert site.holders() == before
    due = sorted(entry.first for entry in client.each(Client.get_ledger("ticking", limit=1000)))
    assert due == [due[0] + n * SECOND for n in range(len(due))]
    runs = runs_of(client)
    assert {run.state for run in runs} == {"COMPLETED"}
    assert sorted(run for run, _ in evidence.started()) == sorted(run.id for run in runs)
    assert {run.id for run in runs if run.job == "asked"} == set(load.submitted)
    assert check(evidence.marks(), [run.id for run in runs]) == []
