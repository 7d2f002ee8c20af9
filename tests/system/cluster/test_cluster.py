"""Three servers, four workers, PostgreSQL, NATS and an S3 server, all real processes."""

from __future__ import annotations

import json
from datetime import datetime, timedelta

import pytest

from rota.sdk.answers import LedgerEntry
from rota.sdk.client import Client
from testkit.checker import check
from testkit.cluster import Cluster
from testkit.evidence import Evidence
from testkit.load import Load
from testkit.waiting import eventually
from tests.system.jobs import apply, job, log_of, settle

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

SECOND = timedelta(seconds=1)
QUIET = timedelta(minutes=1)  # for the cluster to come to rest on a busy machine
LONG_OUTPUT = 100_000  # bytes: more than rides in the report of an end


def answered(client: Client, name: str) -> list[LedgerEntry]:
    """The due times that have passed, by time."""
    entries = client.each(Client.get_ledger(name, limit=1000))
    return sorted((entry for entry in entries if entry.run), key=lambda entry: entry.first)


def seconds_from(first: datetime, count: int) -> list[datetime]:
    return [first + n * SECOND for n in range(count)]


def stop_ticking(client: Client, name: str) -> list[LedgerEntry]:
    """Switch a job off; what became of its due times once all its runs have ended."""
    client.disable_job(name)  # a pause would hold a run that is queued just then
    eventually(
        lambda: not client.list_runs(job=name, active=True).items,
        within=QUIET,
        otherwise="runs were left behind",
    )
    return answered(client, name)


class TestAnyServer:
    def test_what_one_was_told_all_know(self, cluster: Cluster) -> None:
        for number in range(3):
            told, asked, read = (cluster.client((number + n) % 3) for n in range(3))
            apply(told, job(f"hello-{number}", f"head -c {LONG_OUTPUT} /dev/zero | tr '\\0' a"))

            run = settle(read, asked.trigger(f"hello-{number}"))

            assert run.state == "COMPLETED"
            assert log_of(told, run.id) == "a" * LONG_OUTPUT

    def test_status_is_the_same_everywhere(self, cluster: Cluster) -> None:
        for number in range(3):
            status = cluster.client(number).get_cluster()

            # Another test may have restarted a server: its former life is listed as gone.
            alive = [server for server in status.servers if server.state == "alive"]
            assert sorted(server.name for server in alive) == ["server-1", "server-2", "server-3"]
            assert status.shards_owned == status.shards
            assert all(server.shards for server in alive)
        shown = cluster.command("server", "status", server=2)
        assert "256 of 256 have an owner" in shown.stdout

    def test_workers_serve_whichever_server_answers(self, cluster: Cluster) -> None:
        workers = cluster.client().list_workers().items

        servers = {server.id for server in cluster.client().get_cluster().servers}
        assert {worker.worker for worker in workers} == {f"worker-{n}" for n in range(1, 5)}
        assert {worker.server for worker in workers} <= servers

    def test_doctor_finds_all_of_it_in_order(self, cluster: Cluster) -> None:
        found = cluster.command("doctor", "--json")

        verdicts = {each["subject"]: each for each in json.loads(found.stdout)}
        assert found.returncode == 0
        for subject, word in {"store": "PostgreSQL", "queue": "JetStream", "blobs": "s3"}.items():
            assert verdicts[subject]["verdict"] == "ok"
            assert word in verdicts[subject]["message"]


class TestSchedules:
    def test_each_due_time_has_one_run_whoever_fires_it(
        self, cluster: Cluster, evidence: Evidence
    ) -> None:
        names = [f"once-{n}" for n in range(12)]  # enough for every server to have some
        client = cluster.client()
        apply(client, *(job(name, evidence.script(), schedule="every 1s") for name in names))
        eventually(lambda: len(evidence.ended()) >= 4 * len(names), within=QUIET)

        ledgers = {name: stop_ticking(client, name) for name in names}

        for entries in ledgers.values():
            assert [each.first for each in entries] == seconds_from(entries[0].first, len(entries))
        runs = {str(entry.run) for entries in ledgers.values() for entry in entries}
        assert check(evidence.marks(), required=runs) == []


class TestDraining:
    def test_drained_worker_finishes_what_it_holds_and_gets_nothing_new(
        self, cluster: Cluster
    ) -> None:
        client = cluster.client()
        apply(client, job("pinned", "true", labels={}))
        drained = cluster.command("worker", "drain", "worker-1", "--wait")
        others = {settle(client, client.trigger("pinned")).attempts[-1].worker for _ in range(12)}
        resumed = cluster.command("worker", "drain", "worker-1", "--off")

        assert (drained.returncode, resumed.returncode) == (0, 0)
        assert "holds nothing" in drained.stderr
        assert "worker-1" not in others
        eventually(
            lambda: settle(client, client.trigger("pinned")).attempts[-1].worker == "worker-1",
            within=QUIET,
        )

    def test_unknown_worker_is_told(self, cluster: Cluster) -> None:
        refused = cluster.command("worker", "drain", "nobody")

        assert refused.returncode == 3
        assert "nobody" in refused.stderr


class TestPlannedRestart:
    def test_no_due_time_is_missed_or_doubled_and_no_attempt_notices(
        self, cluster: Cluster, evidence: Evidence
    ) -> None:
        client = cluster.client()
        work = evidence.script(evidence.beats(5))
        apply(client, job("ticking", work, schedule="every 1s"), job("asked", work))
        eventually(lambda: evidence.ended(), within=QUIET)

        with Load([cluster.client(n) for n in range(3)], "asked") as load:
            for server in cluster.servers:
                server.restart()
                cluster.wait_until_shared()

        entries = stop_ticking(client, "ticking")
        eventually(lambda: not client.list_runs(active=True).items, within=QUIET)
        assert [entry.first for entry in entries] == seconds_from(entries[0].first, len(entries))
        assert {entry.state for entry in entries} == {"COMPLETED"}
        runs = [*load.submitted, *(str(entry.run) for entry in entries)]
        assert check(evidence.marks(), required=runs) == []
        assert {attempt for _, attempt in evidence.started()} == {1}


class TestLostServer:
    def test_its_schedules_fire_again_after_its_lease(
        self, cluster: Cluster, evidence: Evidence
    ) -> None:
        client = cluster.client()
        names = [f"kept-{n}" for n in range(12)]
        apply(client, *(job(name, evidence.script(), schedule="every 1s") for name in names))
        eventually(lambda: len(evidence.ended()) >= len(names), within=QUIET)

        cluster.servers[2].kill()
        cluster.wait_until_shared()
        known = len(evidence.ended())
        eventually(lambda: len(evidence.ended()) >= known + 2 * len(names), within=QUIET)
        cluster.servers[2].start()

        for name in names:
            entries = stop_ticking(client, name)
            assert [entry.first for entry in entries] == seconds_from(
                entries[0].first, len(entries)
            )
