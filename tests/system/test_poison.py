"""No single job can stop the others."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import timedelta

from rota.sdk.answers import Attempt, Run
from rota.sdk.client import Client
from testkit.checker import check
from testkit.evidence import Evidence
from testkit.processes import RotaUp
from testkit.waiting import eventually
from tests.system.conftest import Up
from tests.system.jobs import apply, job, settle

SECOND = timedelta(seconds=1)
# The guardian's first child is the worker.
KILL_THE_WORKER = "set -- $(cat /proc/$PPID/task/$PPID/children); kill -9 $1; sleep 100"


def completed(client: Client, name: str) -> list[str]:
    call = Client.list_runs(job=name, state="COMPLETED", limit=1000)
    return [run.id for run in client.each(call)]


def is_going(client: Client, run: Run) -> bool:
    return client.get_run(run.id).state == "PROCESSING"


class TestWorkerKiller:
    def test_it_is_quarantined_and_canaries_live_on(self, up: Up, evidence: Evidence) -> None:
        rota = up(lease="3s")
        apply(
            rota.client,
            job("canary", evidence.script(), schedule="every 500ms", overlap="queue_all"),
            job("neighbour", "sleep 2", max_losses=1, overlap="allow"),
            job("killer", KILL_THE_WORKER, max_losses=1),
        )
        eventually(lambda: completed(rota.client, "canary"))
        neighbours = [rota.client.trigger("neighbour") for _ in range(2)]
        eventually(lambda: all(is_going(rota.client, run) for run in neighbours))

        killer = settle(rota.client, rota.client.trigger("killer"))

        assert (killer.state, killer.cause, killer.is_alone) == ("FAILED", "poison", True)
        assert (killer.attempt, killer.losses) == (2, 2)
        assert [attempt.result for attempt in killer.attempts] == ["LOST", "LOST"]
        ended = [settle(rota.client, run) for run in neighbours]
        assert [(run.state, run.losses) for run in ended] == [("COMPLETED", 1)] * 2
        before = len(completed(rota.client, "canary"))
        eventually(lambda: len(completed(rota.client, "canary")) > before + 2)
        assert rota.process.poll() is None
        done, marks = completed(rota.client, "canary"), evidence.marks()
        canaries = {run.id: run for run in rota.client.get_history("canary", limit=1000)}
        lost = [run.id for run in canaries.values() if run.losses]
        assert check(marks, done, optional=canaries, lost=lost) == []
        assert not [run for run in canaries.values() if is_beside(run, killer.attempts[-1])]


def is_beside(run: Run, attempt: Attempt) -> bool:
    """Whether the latest attempt at a run was claimed while that attempt was under way."""
    assert attempt.claimed_at is not None
    assert attempt.ended_at is not None
    at = run.claimed_at
    return at is not None and attempt.claimed_at < at < attempt.ended_at


class TestDamagedRow:
    """A definition that this version cannot read, as a newer one or a bad disk might leave it."""

    def test_others_go_on_without_it(self, rota: RotaUp, evidence: Evidence) -> None:
        apply(
            rota.client,
            job("a-bad-schedule", "true", schedule="every 200ms"),
            job("b-bad-run", "true"),
            job("canary", evidence.script(), schedule="every 500ms"),
            job("good", evidence.script()),
        )
        rota.client.pause_job("a-bad-schedule")
        at = rota.client.now() + 3 * SECOND
        waiting = [rota.client.trigger(name, at=at) for name in ("b-bad-run", "good")]
        rota.client.resume_job("a-bad-schedule")
        rota.kill()
        damage(rota, "a-bad-schedule", "b-bad-run")

        rota.start()

        good = settle(rota.client, waiting[1])
        assert good.state == "COMPLETED"
        bad = settle(rota.client, waiting[0])
        assert (bad.state, "cannot read" in bad.message) == ("FAILED", True)
        before = len(completed(rota.client, "canary"))
        eventually(lambda: len(completed(rota.client, "canary")) > before + 2)
        assert rota.process.poll() is None


def damage(rota: RotaUp, *names: str) -> None:
    statement = """
        UPDATE job_version SET document = '{"type": "from the future"}'
        WHERE job_id = (SELECT id FROM job WHERE name = ?)
    """
    with closing(sqlite3.connect(rota.home / "rota.db")) as database, database:
        for name in names:
            assert database.execute(statement, (name,)).rowcount == 1
