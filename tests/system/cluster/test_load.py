"""More than there is room for: a crowd, a foreign transaction, ten thousand jobs due at once."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from rota.domain.ids import SessionId
from rota.sdk.answers import LedgerEntry
from rota.sdk.client import Client
from rota.sdk.exchange import Call
from rota.store.postgres.opening import open_postgres
from testkit.builders import Scene
from testkit.clock import FakeTicker
from testkit.cluster import Cluster, Size
from testkit.evidence import Evidence
from testkit.load import Crowd
from testkit.servers.postgres import PostgresServer, server_folder
from testkit.waiting import eventually
from tests.meter import Meter
from tests.system.jobs import apply, job

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

ROOT = Path(__file__).parents[3]
SECOND = timedelta(seconds=1)
PATIENCE = timedelta(seconds=120)
# Beats come every 4 s, and one of them may take 6 s more: as long as a starved machine needs.
SETTINGS = {"store_pool": "2", "lease": "12s"}
SLOTS = 500
CROWD = 200
CANARIES = 15  # due times that the crowd has to go on for: as many seconds, and more than a lease
IN_TIME = timedelta(seconds=10)  # for a busy machine
OFTEN = 600  # beats that a job lives at most
BURST = 10_000
CHUNK = 1_000  # jobs in a file
FAR_AWAY = "2099-01-01T00:00:00Z"
BACKLOG, MANY, FEW = 25_000, 1_000, 20  # runs that wait, and how many a claim gives
SAMPLE = 50  # claims
BETWEEN_CLAIMS = timedelta(milliseconds=10)


@pytest.fixture(scope="module")
def loaded() -> Iterator[Cluster]:
    """Three servers with little room for the API; all workers are connected to the first."""
    with tempfile.TemporaryDirectory(prefix="rota-load-") as folder:
        Path(folder).chmod(0o755)  # PostgreSQL runs as another user
        with Cluster(Path(folder), Size(workers=0), SETTINGS) as cluster:
            _launch_worker(cluster)
            _launch_worker(cluster)
            for worker in cluster.workers:
                worker.wait_until_ready()
            cluster.wait_until_shared()
            yield cluster


def _launch_worker(cluster: Cluster) -> None:
    worker = cluster.add_worker(
        server=cluster.servers[0].grpc,
        slots=str(SLOTS),
        app="tests.system.functions.served_app:app",
    )
    worker.environ["PYTHONPATH"] = str(ROOT)
    worker.launch()


@dataclass(frozen=True, slots=True)
class Leases:
    """What changes when somebody was taken for dead."""

    servers: frozenset[str]
    sessions: frozenset[str]
    shards: frozenset[tuple[int, str | None, int]]  # number, owner, epoch


def leases_of(client: Client) -> Leases:
    return Leases(
        frozenset(server.id for server in client.list_servers(all=True)),
        frozenset(worker.id for worker in client.list_workers(all=True)),
        frozenset((each.number, each.owner, each.epoch) for each in client.list_shards()),
    )


def rows_of(cluster: Cluster, statement: str) -> list[Any]:
    return asyncio.run(cluster.postgres.execute(statement, "rota"))


def deadlocks(cluster: Cluster) -> int:
    [row] = rows_of(cluster, "SELECT deadlocks FROM pg_stat_database WHERE datname = 'rota'")
    return int(row["deadlocks"])


def ended_canaries(client: Client) -> list[LedgerEntry]:
    entries = client.each(Client.get_ledger("canary", limit=1000))
    return [entry for entry in entries if entry.run and entry.state == "COMPLETED"]


def ask(number: int) -> Call[Any]:
    """Every other request submits a run."""
    reads = (Client.list_runs(limit=20), Client.list_jobs(), Client.get_cluster())
    return Client.trigger("asked") if number % 2 else reads[number // 2 % len(reads)]


def function_job(name: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "type": "python", "function": "served.nothing", **fields}


class TestCrowd:
    def test_leases_are_renewed_and_schedules_fire_while_people_wait(
        self, loaded: Cluster, evidence: Evidence, tmp_path: Path
    ) -> None:
        client = loaded.client(1)  # nobody else asks this one
        over = tmp_path / "over"
        lasting = f"for _ in $(seq {OFTEN}); do [ -e {over} ] && break; note beat; sleep 0.2; done"
        apply(
            client,
            job("lasting", evidence.script(lasting), overlap="allow"),
            function_job("asked", overlap="allow"),
            job("canary", evidence.script(), schedule="every 1s", overlap="allow"),
        )
        runs = [client.trigger("lasting").id for _ in range(4)]
        eventually(lambda: len(evidence.started()) >= len(runs), PATIENCE)
        before = leases_of(client)

        url = loaded.servers[0].url
        with Crowd(CROWD, lambda: Client(url, loaded.token), ask) as crowd:
            seen = len(ended_canaries(client))
            eventually(lambda: len(ended_canaries(client)) >= seen + CANARIES, PATIENCE)
        over.touch()
        client.disable_job("canary")

        assert set(crowd.answers) <= {200, 201, 202, 503}, crowd.answers
        assert crowd.answers.total() > crowd.answers[503]
        assert leases_of(client) == before
        eventually(lambda: not client.list_runs(active=True).items, PATIENCE)
        assert {client.get_run(run).state for run in runs} == {"COMPLETED"}
        assert {attempt for _, attempt in evidence.started()} == {1}
        check_canaries(client)


def check_canaries(client: Client) -> None:
    """One run for every second, soon after it."""
    due = sorted(entry.first for entry in ended_canaries(client))
    assert due == [due[0] + n * SECOND for n in range(len(due))]
    for run in client.each(Client.list_runs(job="canary", limit=1000)):
        assert run.first_started_at is not None
        assert run.due_at is not None
        assert run.first_started_at - run.due_at <= IN_TIME


def make_due(cluster: Cluster) -> None:
    """All of the burst, within one second, and soon."""
    rows_of(
        cluster,
        "UPDATE schedule SET next_at = (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
        " + 3000000 + (random() * 1000000)::bigint"
        " WHERE job_id IN (SELECT id FROM job WHERE name LIKE 'burst-%')",
    )


def states_of_burst(cluster: Cluster) -> dict[str, int]:
    rows = rows_of(
        cluster,
        "SELECT state, count(*) AS count FROM run WHERE job LIKE 'burst-%' GROUP BY state",
    )
    return {row["state"]: row["count"] for row in rows}


def attempts_in_vain(cluster: Cluster) -> list[dict[str, Any]]:
    """Those of the burst that were followed by another one, and what had become of them."""
    rows = rows_of(
        cluster,
        "SELECT run.job, attempt.worker, attempt.result, attempt.message"
        " FROM attempt JOIN run ON run.id = attempt.run_id"
        " WHERE run.job LIKE 'burst-%' AND attempt.number < run.attempt",
    )
    return list(map(dict, rows))


class TestBurst:
    def test_ten_thousand_due_in_one_second_run_once_each_and_nobody_is_lost(
        self, loaded: Cluster
    ) -> None:
        client = loaded.client(1)
        for first in range(0, BURST, CHUNK):
            numbers = range(first, first + CHUNK)
            apply(client, *(function_job(f"burst-{n}", schedule=FAR_AWAY) for n in numbers))
        before, deadlocks_before = leases_of(client), deadlocks(loaded)

        make_due(loaded)
        eventually(lambda: states_of_burst(loaded) == {"COMPLETED": BURST}, PATIENCE)

        [once] = rows_of(
            loaded,
            "SELECT count(DISTINCT job) AS jobs, max(attempt) AS attempts FROM run"
            " WHERE job LIKE 'burst-%'",
        )
        assert leases_of(client) == before  # the first of all: a lost lease explains the rest
        assert attempts_in_vain(loaded) == []
        assert dict(once) == {"jobs": BURST, "attempts": 1}
        assert deadlocks(loaded) == deadlocks_before


async def drain(scene: Scene, worker: SessionId, claims: int, slots: int) -> None:
    for _ in range(claims):
        works = await scene.claim(worker, slots)
        assert len(works) == slots
        await scene.finish(worker, works)
        scene.advance(BETWEEN_CLAIMS)


class TestForeignTransaction:
    @pytest.mark.anyio
    async def test_claims_do_not_look_through_what_it_keeps_from_being_removed(self) -> None:
        clock = FakeTicker()
        with server_folder() as folder, PostgresServer(folder / "server") as server:
            database = await server.create()
            meter = Meter(server, database)
            foreign = await asyncpg.connect(server.address(database))

            async def per_claim(claims: int, slots: int) -> float:
                before = await meter.pages()
                store = await open_postgres(server.address(database), clock=clock)
                await drain(Scene(store, clock), worker, claims, slots)
                await store.close()
                return (await meter.pages() - before) / claims

            store = await open_postgres(server.address(database), clock=clock)
            scene = Scene(store, clock)
            job_id = await scene.job()
            worker = await scene.worker(slots=MANY, lease=timedelta(days=1))
            for _ in range(BACKLOG // MANY):
                await scene.trigger(job_id, MANY)
            await store.close()
            await foreign.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1")
            fresh = await per_claim(SAMPLE, FEW)
            await per_claim(BACKLOG // MANY - 2, MANY)
            stale = await per_claim(SAMPLE, FEW)
            await foreign.close()

        assert stale < 1.5 * fresh
