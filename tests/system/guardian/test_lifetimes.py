"""Whatever ends, stops or hangs: no process of a job outlives its lease or its guardian."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from datetime import timedelta

import pytest

from rota.guardian import NamespaceWish, guardian_command
from rota.guardian.options import ExitCode
from tests.system.guardian.guarded import Guarded, boottime, eventually

Guard = Callable[..., Guarded]


class TestLease:
    def test_stopped_worker_and_its_jobs_are_dead_at_the_deadline(self, guarded: Guarded) -> None:
        guarded.start_daemons()
        os.kill(guarded.worker_pid, signal.SIGSTOP)

        deadline = guarded.lease(0.3)

        assert guarded.exit_code() == ExitCode.LEASE_ENDED
        assert deadline <= boottime() < deadline + 1
        assert guarded.living() == []

    def test_nothing_dies_before_the_deadline(self, guarded: Guarded) -> None:
        guarded.spawn("a", "sleep", "100")
        eventually(guarded.living, "the job is not there")  # in an exec it shows no mark
        deadline = guarded.lease(0.3)

        eventually(lambda: not guarded.living(), "the job outlived its lease")

        assert boottime() >= deadline

    def test_renewal_moves_the_deadline(self, guarded: Guarded) -> None:
        first = guarded.lease(0.2)
        guarded.lease(60)
        guarded.spawn("a", "sleep", "100")

        eventually(lambda: boottime() > first + 0.1, "time stands still")

        guarded.send({"do": "hello"})
        guarded.heard("hello")
        assert len(guarded.living()) == 1

    def test_lease_that_is_over_already_ends_all(self, guarded: Guarded) -> None:
        guarded.lease(-1)

        assert guarded.exit_code() == ExitCode.LEASE_ENDED


class TestDeaths:
    """Whoever is killed without warning: nothing of a job survives."""

    @pytest.mark.parametrize("victim", ["outer", "inner", "worker"])
    def test_no_process_survives_the_death_of(self, guarded: Guarded, victim: str) -> None:
        guarded.start_daemons()

        os.kill(getattr(guarded, f"{victim}_pid"), signal.SIGKILL)

        eventually(lambda: not guarded.living(), "a job survived")

    def test_stopped_inner_process_dies_with_the_outer_one(
        self, guarded: Guarded, wish: NamespaceWish
    ) -> None:
        if wish == "off":
            pytest.skip("only the kernel, with a namespace, can do without the inner process")
        guarded.start_daemons()
        os.kill(guarded.inner_pid, signal.SIGSTOP)

        os.kill(guarded.outer_pid, signal.SIGKILL)

        eventually(lambda: not guarded.living(), "a job survived")

    def test_no_process_survives_the_death_of_the_launcher(self, guard: Guard) -> None:
        guarded = guard(launcher=["sh", "-c", '"$@" & wait', "launcher"])
        guarded.lease()
        guarded.start_daemons()

        guarded.process.kill()

        eventually(lambda: not guarded.living(), "a job survived")

    def test_closed_pipe_of_the_launcher_ends_all(self, guarded: Guarded) -> None:
        guarded.start_daemons()

        guarded.cut_lifeline()

        assert guarded.exit_code() == ExitCode.LAUNCHER_GONE
        assert guarded.living() == []

    def test_worker_can_end_a_guardian_that_does_not_answer(self, guarded: Guarded) -> None:
        guarded.start_daemons()
        os.kill(guarded.inner_pid, signal.SIGSTOP)

        os.write(guarded.kill_switch, b"!")

        assert guarded.exit_code() == ExitCode.GUARDIAN_DIED
        assert guarded.living() == []

    @pytest.mark.parametrize(
        ("status", "code"),
        [
            (0, ExitCode.CLEAN),
            (3, ExitCode.WORKER_DIED),
            (ExitCode.WORKER_REFUSED, ExitCode.WORKER_REFUSED),
        ],
    )
    def test_end_of_the_worker_ends_all(
        self, guarded: Guarded, status: int, code: ExitCode
    ) -> None:
        guarded.start_daemons()

        guarded.end_worker(status)

        assert guarded.exit_code() == code
        assert guarded.living() == []


class TestStopping:
    @pytest.mark.parametrize("request_to_stop", [signal.SIGTERM, signal.SIGINT])
    def test_worker_is_asked_to_stop_and_may_finish(
        self, guarded: Guarded, request_to_stop: signal.Signals
    ) -> None:
        guarded.process.send_signal(request_to_stop)

        assert guarded.worker_got_term()
        assert guarded.run("a", "true")["status"] == 0
        guarded.end_worker(0)
        assert guarded.exit_code() == ExitCode.CLEAN

    def test_everything_is_killed_when_the_grace_is_over(self, guard: Guard) -> None:
        guarded = guard(stop_grace=timedelta(seconds=0.2))
        guarded.lease()
        guarded.start_daemons()

        guarded.process.terminate()

        assert guarded.worker_got_term()
        assert guarded.exit_code() == ExitCode.CLEAN
        assert guarded.living() == []

    def test_second_request_does_not_lengthen_the_grace(self, guard: Guard) -> None:
        guarded = guard(stop_grace=timedelta(seconds=1))
        guarded.process.terminate()
        assert guarded.worker_got_term()
        began = boottime()
        eventually(lambda: boottime() > began + 0.8, "time stands still")

        guarded.process.terminate()

        assert guarded.exit_code() == ExitCode.CLEAN
        assert boottime() < began + 1.7


class TestCommand:
    def test_worker_that_cannot_be_executed_is_explained(self) -> None:
        command = guardian_command(["no-such-worker"])

        done = subprocess.run(command, capture_output=True, text=True, check=False)

        assert done.returncode == ExitCode.CANNOT_START
        assert "cannot execute 'no-such-worker'" in done.stderr
