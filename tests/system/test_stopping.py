"""Stopping: within the grace, with nothing left behind, and nothing lost."""

from __future__ import annotations

import signal
from functools import partial

import pytest

from testkit.checker import check
from testkit.evidence import Evidence
from testkit.processes import RotaUp
from testkit.waiting import boottime, eventually
from tests.system.conftest import Up
from tests.system.jobs import apply, job, settle

GRACE = 10.0  # seconds, unless a test asks for less
FIRST_IS_ENDLESS = "[ $ROTA_ATTEMPT -gt 1 ] || while :; do note beat; sleep 0.05; done"
STUBBORN = f"trap '' TERM; {FIRST_IS_ENDLESS}"


def start_run(rota: RotaUp, evidence: Evidence, script: str, **fields: object) -> str:
    """A run that has begun."""
    apply(rota.client, job("stopped", evidence.script(script), **fields))
    run = rota.client.trigger("stopped")
    eventually(lambda: len(evidence.marks()) >= 2)
    return run.id


def is_stopping(rota: RotaUp) -> bool:
    return "stopping" in {worker.state for worker in rota.client.list_workers()}


def has_started(evidence: Evidence, attempts: int) -> bool:
    return len(evidence.started()) == attempts


class TestRequests:
    @pytest.mark.parametrize("request_to_stop", [signal.SIGTERM, signal.SIGINT])
    def test_interrupted_run_is_tried_again_after_the_next_start(
        self, up: Up, evidence: Evidence, request_to_stop: signal.Signals
    ) -> None:
        rota = up(stop_grace="500ms")
        run = start_run(rota, evidence, FIRST_IS_ENDLESS)

        assert rota.stop(request_to_stop) == 0

        assert not (rota.home / "client.json").exists()
        rota.start()
        ended = settle(rota.client, rota.client.get_run(run))
        assert (ended.state, ended.attempt) == ("COMPLETED", 2)
        assert (ended.losses, ended.failures) == (0, 0)
        assert check(evidence.marks(), [run]) == []

    def test_run_may_finish_within_the_grace(self, rota: RotaUp, evidence: Evidence) -> None:
        run = start_run(rota, evidence, evidence.beats(10))

        assert rota.stop() == 0

        assert evidence.ended() == [(run, 1)]
        rota.start()
        assert rota.client.get_run(run).state == "COMPLETED"

    def test_run_that_does_not_stop_is_killed(self, up: Up, evidence: Evidence) -> None:
        rota = up(stop_grace="500ms")
        run = start_run(rota, evidence, STUBBORN, grace="500ms")
        asked_at = boottime()

        assert rota.stop() == 0

        assert boottime() - asked_at < 10
        rota.start()
        assert settle(rota.client, rota.client.get_run(run)).attempt == 2
        assert check(evidence.marks(), [run]) == []

    def test_nothing_new_starts_while_it_stops(self, rota: RotaUp, evidence: Evidence) -> None:
        apply(rota.client, job("fast", evidence.script(), schedule="every 100ms"))
        run = start_run(rota, evidence, evidence.beats(10))

        rota.process.send_signal(signal.SIGTERM)
        eventually(partial(is_stopping, rota))
        asked_at = boottime()
        rota.wait()

        late = [mark for mark in evidence.marks() if mark.run != run and mark.at > asked_at + 0.2]
        assert late == []

    def test_second_request_does_not_wait(self, rota: RotaUp, evidence: Evidence) -> None:
        run = start_run(rota, evidence, FIRST_IS_ENDLESS)
        asked_at = boottime()

        rota.process.send_signal(signal.SIGINT)
        eventually(partial(is_stopping, rota))
        assert rota.stop(signal.SIGINT) == 0

        assert boottime() - asked_at < GRACE
        rota.start()
        assert settle(rota.client, rota.client.get_run(run)).attempt == 2

    def test_kill_in_the_middle_of_a_stop_loses_nothing(
        self, rota: RotaUp, evidence: Evidence
    ) -> None:
        run = start_run(rota, evidence, FIRST_IS_ENDLESS)
        rota.process.send_signal(signal.SIGTERM)
        killed_at = boottime() + 1
        eventually(lambda: boottime() > killed_at)

        rota.kill()

        rota.start()
        ended = settle(rota.client, rota.client.get_run(run))
        assert (ended.state, ended.attempt) == ("COMPLETED", 2)
        assert check(evidence.marks(), [run]) == []


class TestWorkers:
    def test_worker_beside_the_server_stops_on_its_own(self, rota: RotaUp) -> None:
        worker = rota.start_worker("beside")

        worker.terminate()

        assert worker.wait(20) == 0
        assert [each.worker for each in rota.client.list_workers()] != []
        assert "beside" not in {each.worker for each in rota.client.list_workers()}

    def test_second_worker_of_the_same_name_is_refused(self, rota: RotaUp) -> None:
        rota.start_worker("twin")

        done = rota.command("worker", "--name", "twin")

        assert done.returncode == 5
        assert "twin already runs" in done.stderr
        assert "--name" in done.stderr


class TestRollingRestarts:
    def test_planned_stops_never_quarantine_a_run(self, up: Up, evidence: Evidence) -> None:
        rota = up(stop_grace="100ms")
        script = "[ $ROTA_ATTEMPT -gt 2 ] || while :; do note beat; sleep 0.05; done"
        run = start_run(rota, evidence, script, max_losses=1)

        for attempts in (2, 3):
            rota.stop()
            rota.start()
            eventually(partial(has_started, evidence, attempts))

        ended = settle(rota.client, rota.client.get_run(run))
        assert (ended.state, ended.attempt, ended.losses) == ("COMPLETED", 3, 0)
        assert check(evidence.marks(), [run]) == []
