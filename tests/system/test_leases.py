"""Two attempts of a run never execute at once, whatever stops, freezes or dies."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

from rota.domain.run import AttemptResult
from rota.link.local import LocalLink
from rota.ports.work import Fence, Hello, Outcome, Report, ReportAnswer
from rota.runtime.home import worker_socket
from rota.sdk.client import Client
from testkit.checker import check
from testkit.evidence import Evidence
from testkit.processes import RotaUp, children_of
from testkit.waiting import boottime, eventually
from tests.system.conftest import Up
from tests.system.jobs import apply, job, settle

LEASE = timedelta(seconds=3)
FIRST_IS_ENDLESS = "[ $ROTA_ATTEMPT -gt 1 ] || while :; do note beat; sleep 0.05; done"


# Its function ends as soon as there is a file, whether or not its worker can see that.
WAITING_APP = """
import threading
from pathlib import Path

from rota import App

app = App("waiting")


@app.job()
def wait() -> None:
    Path("began").touch()
    while not Path("go").exists():
        threading.Event().wait(0.01)
"""


def start_endless(rota: RotaUp, evidence: Evidence, **fields: object) -> str:
    """A run whose first attempt never ends by itself; returns once it goes."""
    apply(rota.client, job("endless", evidence.script(FIRST_IS_ENDLESS), **fields))
    run = rota.client.trigger("endless")
    eventually(lambda: len(evidence.marks()) > 2)
    return run.id


def freeze(*pids: int) -> None:
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)


def thaw(*pids: int) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):  # a guardian that wakes first ends the others at once
            os.kill(pid, signal.SIGCONT)


def is_alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


class TestStoppedWorker:
    def test_guardian_kills_it_and_its_jobs_before_the_next_attempt(
        self, up: Up, evidence: Evidence
    ) -> None:
        rota = up(lease="3s")
        run = start_endless(rota, evidence)
        worker = rota.worker_pid()

        freeze(worker)
        frozen_at = boottime()

        eventually(lambda: not is_alive(worker))
        assert boottime() - frozen_at < LEASE.total_seconds()
        ended = settle(rota.client, rota.client.get_run(run))
        assert (ended.state, ended.attempt, ended.losses) == ("COMPLETED", 2, 1)
        assert check(evidence.marks(), [run]) == []

    def test_keeper_kills_the_jobs_of_a_worker_whose_guardians_are_stopped_too(
        self, up: Up, evidence: Evidence
    ) -> None:
        rota = up(lease="3s")
        run = start_endless(rota, evidence)
        worker, guardians = rota.worker_pid(), rota.guardian_pids()

        freeze(worker, *guardians)
        frozen_at = boottime()

        eventually(lambda: not is_alive(worker))
        assert boottime() - frozen_at < LEASE.total_seconds()
        ended = settle(rota.client, rota.client.get_run(run))
        assert (ended.state, ended.attempt, ended.losses) == ("COMPLETED", 2, 1)
        assert check(evidence.marks(), [run]) == []

    def test_killed_worker_is_replaced_and_its_run_tried_again_at_once(
        self, up: Up, evidence: Evidence
    ) -> None:
        rota = up(lease="1h")
        run = start_endless(rota, evidence)

        os.kill(rota.worker_pid(), signal.SIGKILL)

        ended = settle(rota.client, rota.client.get_run(run))
        assert (ended.state, ended.attempt) == ("COMPLETED", 2)
        assert check(evidence.marks(), [run]) == []

    def test_killed_guardian_takes_everything_with_it(self, up: Up, evidence: Evidence) -> None:
        rota = up(lease="3s")
        run = start_endless(rota, evidence)

        os.kill(rota.guardian_pids()[0], signal.SIGKILL)

        ended = settle(rota.client, rota.client.get_run(run))
        assert (ended.state, ended.attempt) == ("COMPLETED", 2)
        assert check(evidence.marks(), [run]) == []

    def test_frozen_server_costs_a_loss_but_never_an_overlap(
        self, up: Up, evidence: Evidence
    ) -> None:
        rota = up(lease="3s")
        run = start_endless(rota, evidence)
        worker = rota.worker_pid()

        freeze(rota.process.pid)
        eventually(lambda: not is_alive(worker))
        thaw(rota.process.pid)

        ended = settle(rota.client, rota.client.get_run(run))
        assert (ended.state, ended.attempt) == ("COMPLETED", 2)
        assert check(evidence.marks(), [run]) == []


class TestWorkerWithALeaseOfItsOwn:
    def test_its_runs_survive_a_server_that_is_away_for_longer_than_others_may(
        self, up: Up, evidence: Evidence
    ) -> None:
        rota = up(lease="2s")
        rota.start_worker("patient", "--pool=patient", "--lease=1m")
        run = start_endless(rota, evidence, pool="patient", lease="30s")
        usual = rota.worker_pid()

        freeze(rota.process.pid)
        eventually(lambda: not is_alive(usual))  # its lease was over
        before = len(evidence.marks())
        eventually(lambda: len(evidence.marks()) > before + 2)
        thaw(rota.process.pid)

        eventually(lambda: rota.client.get_run(run).worker == "patient")
        found = rota.client.get_run(run)
        assert (found.is_final, found.attempt, found.losses) == (False, 1, 0)
        rota.client.cancel_run(run)
        assert settle(rota.client, found).state == "CANCELLED"

    def test_a_run_that_needs_a_longer_lease_waits_for_such_a_worker(self, up: Up) -> None:
        rota = up()
        apply(rota.client, job("long", "true", lease="2h"))

        run = rota.client.trigger("long")

        assert "lease of 2h" in rota.command("why", run.id).stdout
        rota.start_worker("patient", "--lease=2h")
        assert settle(rota.client, run).worker == "patient"


class TestHealthyWorker:
    def test_long_run_is_not_rescued_while_its_worker_renews(
        self, up: Up, evidence: Evidence
    ) -> None:
        rota = up(lease="1s")
        beats = evidence.beats(30, every=timedelta(milliseconds=100))
        apply(rota.client, job("long", evidence.script(beats)))

        run = settle(rota.client, rota.client.trigger("long"))

        assert (run.state, run.attempt, run.losses) == ("COMPLETED", 1, 0)
        assert check(evidence.marks(), [run.id]) == []

    def test_short_silence_costs_nothing(self, up: Up, evidence: Evidence) -> None:
        rota = up(lease="10s")
        apply(rota.client, job("long", evidence.script(evidence.beats(20))))
        run = rota.client.trigger("long")
        eventually(evidence.started)
        worker = rota.worker_pid()

        freeze(worker)
        eventually(evidence.ended)
        thaw(worker)

        ended = settle(rota.client, run)
        assert (ended.state, ended.attempt, ended.losses) == ("COMPLETED", 1, 0)

    def test_attempt_survives_a_restart_of_the_server(self, up: Up, evidence: Evidence) -> None:
        rota = up(lease="30s")
        rota.start_worker("steady", "--pool", "elsewhere")
        work = evidence.script("while [ ! -e go ]; do note beat; sleep 0.1; done")
        folder = rota.home.parent
        apply(rota.client, job("steady", work, pool="elsewhere", source={"path": str(folder)}))
        run = rota.client.trigger("steady")
        eventually(evidence.started)

        rota.process.kill()
        rota.wait()
        rota.start()
        (folder / "go").touch()

        ended = settle(rota.client, run)
        assert (ended.state, ended.attempt, ended.losses) == ("COMPLETED", 1, 0)
        assert check(evidence.marks(), [run.id]) == []


class TestLateResults:
    def test_frozen_worker_is_fenced_when_it_comes_back(self, up: Up, evidence: Evidence) -> None:
        rota = up(lease="3s")
        run = start_endless(rota, evidence)
        outer, inner = rota.guardian_pids()
        # The outer process first: it would continue a stopped keeper.
        frozen = [outer, rota.keeper_pid(), inner, *children_of(inner)]
        freeze(*frozen)
        rota.start_worker("other")
        ended = settle(rota.client, rota.client.get_run(run))
        assert (ended.state, ended.attempt, ended.worker) == ("COMPLETED", 2, "other")

        thaw(*frozen)

        eventually(lambda: not any(map(is_alive, frozen)))
        after = rota.client.get_run(run)
        assert (after.state, after.attempt, after.ended_at) == ("COMPLETED", 2, ended.ended_at)
        assert [attempt.result for attempt in after.attempts] == ["LOST", "COMPLETED"]

    def test_result_of_a_frozen_worker_is_refused_and_shown(self, up: Up, tmp_path: Path) -> None:
        (tmp_path / "waiting.py").write_text(WAITING_APP)
        rota = up(lease="3s", app="waiting:app")
        apply(rota.client, {"name": "wait", "type": "python", "function": "waiting.wait"})
        run = rota.client.trigger("wait")
        eventually((tmp_path / "began").exists)
        outer, inner = rota.guardian_pids()
        guardian = (outer, rota.keeper_pid(), inner)
        worker = rota.worker_pid()

        freeze(*guardian, worker)
        (tmp_path / "go").touch()
        rota.start_worker("other")
        ended = settle(rota.client, run)
        assert (ended.state, ended.attempt, ended.worker) == ("COMPLETED", 2, "other")
        thaw(worker)

        eventually(lambda: rota.client.get_run(run.id).late_results)
        after = rota.client.get_run(run.id)
        [late] = after.late_results
        assert (late.attempt, late.result) == (1, "COMPLETED")
        assert "run.late_result" in event_kinds(rota.client, run.id)
        assert (after.attempt, after.ended_at) == (2, ended.ended_at)
        thaw(*guardian)
        eventually(lambda: not is_alive(worker))

    def test_report_of_a_stranger_is_refused_and_leaves_no_trace(
        self, up: Up, evidence: Evidence
    ) -> None:
        rota = up(lease="3s")
        run = start_endless(rota, evidence)
        os.kill(rota.worker_pid(), signal.SIGKILL)
        before = settle(rota.client, rota.client.get_run(run))
        told = Outcome(run, 1, AttemptResult.FAILED, 1, 2, exit_code=9, message="hearsay")

        answer = asyncio.run(report(rota, told))

        assert answer == ReportAnswer(refused=(Fence(run, 1),))
        after = rota.client.get_run(run)
        assert (after.state, after.ended_at) == ("COMPLETED", before.ended_at)
        assert after.attempts == before.attempts
        assert not after.late_results
        assert "run.late_result" not in event_kinds(rota.client, run)


async def report(rota: RotaUp, outcome: Outcome) -> ReportAnswer:
    """As a worker would that has nothing to do with the run."""
    link = await LocalLink.connect(worker_socket(rota.home))
    try:
        await link.register(Hello("stranger", "nowhere", 1))
        return await link.report(Report(outcomes=(outcome,)))
    finally:
        await link.close()


def event_kinds(client: Client, run: str) -> list[str]:
    return [event.type.removeprefix("rota.") for event in client.get_run_events(run)]
