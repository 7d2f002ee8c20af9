"""A server that starts while what it depends on is away."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from rota.runtime import machine
from rota.runtime.settings import Settings
from rota.sdk.client import Client
from testkit.nodes import ServerNode, WorkerNode
from testkit.processes import run_rota
from testkit.proxy import Proxy
from testkit.servers.ports import free_ports
from testkit.servers.postgres import PostgresServer
from testkit.waiting import eventually
from tests.system.jobs import apply, job, log_of, settle

StartServer = Callable[..., ServerNode]

AT_ONCE = timedelta(seconds=8)  # less than the driver waits for who does not answer
UNREACHABLE = 7


@pytest.fixture
def stopped(postgres: PostgresServer) -> Iterator[PostgresServer]:
    """It is away, until the test starts it."""
    postgres.stop()
    yield postgres
    if postgres.pid is None:
        postgres.start()


@pytest.fixture
def proxy(postgres: PostgresServer) -> Iterator[Proxy]:
    with Proxy(postgres.port) as proxy:
        yield proxy


@pytest.fixture
def server(tmp_path: Path) -> Iterator[StartServer]:
    """Makes a server that is not started yet."""
    made: list[ServerNode] = []

    def make(store: str, **settings: str) -> ServerNode:
        rest, grpc = free_ports(2)
        made.append(
            ServerNode("server", tmp_path / "server", (rest, grpc), store=store, **settings)
        )
        return made[-1]

    yield make
    for node in made:
        node.close()


def is_told_away(node: ServerNode) -> bool:
    node.check_running()
    return "store.away" in node.printed()


class TestPostgresIsAway:
    def test_server_serves_soon_after_it_answers(
        self, server: StartServer, stopped: PostgresServer
    ) -> None:
        node = server(stopped.address("rota").replace("rota@", "rota:secret@"))
        node.launch()
        eventually(lambda: is_told_away(node))

        stopped.start()

        node.wait_until_ready()
        printed = node.printed()
        assert printed.count("store.away") == 1
        assert f"127.0.0.1:{stopped.port}/rota" in printed
        assert "keeps trying" in printed
        assert "secret" not in printed

    def test_connections_that_are_reset_are_waited_out(
        self, server: StartServer, postgres: PostgresServer, proxy: Proxy
    ) -> None:
        node = server(postgres.address("rota", proxy.port))
        proxy.cut()
        node.launch()
        eventually(lambda: is_told_away(node))

        proxy.heal()

        node.wait_until_ready()

    @pytest.mark.parametrize("fault", [Proxy.cut, Proxy.hang], ids=["cut", "hang"])
    def test_server_that_waits_ends_at_once_when_told(
        self,
        server: StartServer,
        postgres: PostgresServer,
        proxy: Proxy,
        fault: Callable[[Proxy], None],
    ) -> None:
        node = server(postgres.address("rota", proxy.port))
        fault(proxy)
        node.launch()
        eventually(lambda: proxy.disturbed)

        code = node.stop(within=AT_ONCE)

        assert code == 0
        assert "Traceback" not in node.printed()

    def test_commands_do_not_wait_for_it(
        self, server: StartServer, stopped: PostgresServer
    ) -> None:
        environ = server(stopped.address("rota")).environ

        token = run_rota("token", "create", "--name=me", "--role=admin", environ=environ)
        examined = run_rota("doctor", environ=environ)

        assert token.returncode == UNREACHABLE
        assert f"127.0.0.1:{stopped.port}/rota cannot be used" in token.stderr
        assert examined.returncode != 0


def test_what_time_does_not_mend_ends_the_server(
    server: StartServer, postgres: PostgresServer
) -> None:
    refused = run_rota("server", environ=server(postgres.address("nowhere")).environ)

    assert refused.returncode == UNREACHABLE
    assert "create the database" in refused.stderr
    assert "store.away" not in refused.stderr


def test_server_starts_and_runs_jobs_without_nats_and_object_store(
    server: StartServer, postgres: PostgresServer, tmp_path: Path
) -> None:
    nats, s3 = free_ports(2)
    store = postgres.address("rota")
    node = server(store, queue=f"nats://127.0.0.1:{nats}", blobs="s3://rota-tests")
    node.environ |= {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{s3}",
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "rota",
        "AWS_SECRET_ACCESS_KEY": "secret",
    }
    _, token = machine.create(Settings(store=store), "tests", "admin")
    _, worker_token = machine.create_for_worker(Settings(store=store), "w1", pool=None)

    node.start()

    with Client(node.url, token) as client:
        worker = WorkerNode(
            "w1", tmp_path / "w1", client, server=node.grpc, worker_token=worker_token
        )
        try:
            worker.start()
            apply(client, job("hello", "echo hello"))
            run = settle(client, client.trigger("hello"))
            assert (run.state, log_of(client, run.id)) == ("COMPLETED", "hello\n")
        finally:
            worker.close()
