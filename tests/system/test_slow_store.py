"""A store that answers slowly, or not at all for a while, under attempts that go on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest

from rota.runtime import machine
from rota.runtime.settings import Settings
from rota.sdk.client import Client
from testkit.checker import check
from testkit.evidence import Evidence
from testkit.load import Load
from testkit.nodes import ServerNode, WorkerNode
from testkit.proxy import Proxy
from testkit.servers.ports import free_ports
from testkit.servers.postgres import PostgresServer
from testkit.waiting import boottime, eventually
from tests.system.jobs import apply, job

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

LEASE = timedelta(seconds=9)
SLOW = timedelta(milliseconds=15)  # each way, for each piece: a renewal takes many of them
PATIENCE = timedelta(seconds=60)
BEATS = 2 * LEASE // timedelta(milliseconds=100)  # an attempt that needs many renewals
FIRST_IS_ENDLESS = "[ $ROTA_ATTEMPT -gt 1 ] || while :; do note beat; sleep 0.05; done"


@dataclass(frozen=True, slots=True)
class Site:
    """A server whose way to its store leads through a proxy, and a worker."""

    client: Client
    proxy: Proxy

    def start(self, name: str, evidence: Evidence, work: str) -> str:
        """A run of one job, once it goes."""
        apply(self.client, job(name, evidence.script(work)))
        run = self.client.trigger(name).id
        eventually(lambda: any(mark.run == run for mark in evidence.marks()))
        return run


@pytest.fixture
def site(postgres: PostgresServer, tmp_path: Path) -> Iterator[Site]:
    direct = Settings(store=postgres.address("rota"))
    _, token = machine.create(direct, "tests", "admin")
    _, secret = machine.create_for_worker(direct, "w1", pool=None)
    with Proxy(postgres.port) as proxy:
        store, ports = postgres.address("rota", proxy.port), free_ports(2)
        settings = {"store": store, "lease": f"{LEASE.seconds}s"}
        server = ServerNode("server", tmp_path / "server", (ports[0], ports[1]), **settings)
        with Client(server.url, token) as client:
            told = {"server": server.grpc, "worker_token": secret}
            worker = WorkerNode("w1", tmp_path / "w1", client, **told)
            try:
                server.start()
                worker.start()
                yield Site(client, proxy)
            finally:
                worker.close()
                server.close()


def silent_for(evidence: Evidence) -> timedelta:
    return timedelta(seconds=boottime() - evidence.marks()[-1].at)


def test_renewals_that_load_delays_cost_no_attempt(site: Site, evidence: Evidence) -> None:
    apply(site.client, job("asked", "true"))
    run = site.start("long", evidence, evidence.beats(BEATS))

    with Load([site.client], "asked") as load:
        site.proxy.delay(SLOW)
        eventually(evidence.ended, within=PATIENCE)
    site.proxy.heal()

    ended = site.client.wait(run, PATIENCE.total_seconds())
    assert (ended.state, ended.attempt, ended.losses) == ("COMPLETED", 1, 0)
    assert check(evidence.marks(), [run]) == []
    assert load.submitted
    assert site.proxy.disturbed > 0


def test_renewals_that_come_too_late_cost_one_attempt_before_the_next_begins(
    site: Site, evidence: Evidence
) -> None:
    run = site.start("endless", evidence, FIRST_IS_ENDLESS)

    site.proxy.hang()
    eventually(lambda: silent_for(evidence) > LEASE / 2, within=PATIENCE)
    site.proxy.heal()

    ended = site.client.wait(run, PATIENCE.total_seconds())
    assert (ended.state, ended.attempt, ended.losses) == ("COMPLETED", 2, 1)
    assert check(evidence.marks(), [run]) == []
