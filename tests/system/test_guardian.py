"""The guardian with real processes: what it starts, what it reports, and that nothing survives."""

from __future__ import annotations

import errno
import functools
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.system.guarded import MARK_VARIABLE, Guarded, boottime, eventually

from rota.guardian import NamespaceWish, guardian_command
from rota.guardian.exits import ExitCode

Guard = Callable[..., Guarded]

# Each leaves processes behind that escape simpler ways of finding them.
DAEMONS = {
    "background": "sleep 100 &",
    "deaf to TERM": "sh -c 'trap \"\" TERM; while :; do sleep 1; done' &",
    "own session": "setsid sleep 100 &",
    "twice forked": "(setsid sh -c 'trap \"\" TERM; sleep 100 & sleep 100' &)",
    "without environment": "(env -i setsid sh -c 'sleep 100 & : MARK; sleep 100' &)",
    "with family": "(setsid sh -c '(sleep 100 & (setsid sleep 100 &) & wait)' &)",
}
ALL_DAEMONS = "\n".join(DAEMONS.values())

NOTER = """
trap 'echo TERM >> notes' TERM
echo ready >> notes
while :; do sleep 0.01; done
"""


def written(file: Path) -> str:
    return file.read_text() if file.exists() else ""


@functools.cache
def is_permitted(wish: NamespaceWish) -> bool:
    return subprocess.run(guardian_command(["true"], namespace=wish), check=False).returncode == 0


@pytest.fixture(params=["require", "off"])
def wish(request: pytest.FixtureRequest) -> NamespaceWish:
    wish: NamespaceWish = request.param
    if not is_permitted(wish):
        pytest.skip("this machine permits no pid namespace")
    return wish


@pytest.fixture
def guard(wish: NamespaceWish, tmp_path: Path) -> Iterator[Guard]:
    opened: list[Guarded] = []

    def open_one(**options: Any) -> Guarded:
        opened.append(Guarded(tmp_path, wish, **options))
        return opened[-1]

    yield open_one
    for guarded in opened:
        guarded.close()


@pytest.fixture
def guarded(guard: Guard) -> Guarded:
    guarded = guard()
    guarded.lease()
    return guarded


def start_daemons(guarded: Guarded) -> None:
    script = ALL_DAEMONS.replace("MARK", guarded.mark)
    guarded.spawn("daemons", "sh", "-c", f"{script}\nsleep 100")
    eventually(lambda: len(guarded.living()) >= 12, "the daemons did not start")


class TestStarting:
    def test_exit_status_is_reported(self, guarded: Guarded) -> None:
        ended = guarded.run("a", "sh", "-c", "exit 3")

        assert (ended["status"], ended["signal"], ended["strays"]) == (3, None, 0)

    def test_death_by_a_signal_is_reported(self, guarded: Guarded) -> None:
        ended = guarded.run("a", "sh", "-c", "kill -9 $$")

        assert (ended["status"], ended["signal"]) == (None, 9)

    def test_times_and_usage_are_reported(self, guarded: Guarded) -> None:
        before = boottime()
        ended = guarded.run("a", sys.executable, "-c", "sum(range(300_000)); 'x' * 64_000_000")

        assert before < guarded.heard("started", "a")["at"] < ended["at"] < boottime()
        assert 0 < ended["cpu"] < 10
        assert ended["max_rss"] > 64_000_000

    @pytest.mark.parametrize(
        ("argv", "cwd", "number"),
        [
            (["no-such-program"], "/", errno.ENOENT),
            (["/no/such/program"], "/", errno.ENOENT),
            (["/etc/passwd"], "/", errno.EACCES),
            (["true"], "/no/such/folder", errno.ENOENT),
            (["true"], "/etc/passwd", errno.ENOTDIR),
            (["true"], "/" + "long" * 500_000, errno.ENAMETOOLONG),
            (["true", "zero\0byte"], "/", errno.EINVAL),
            (["true", "\ud800"], "/", errno.EINVAL),
        ],
    )
    def test_what_cannot_be_executed_is_refused_with_the_reason(
        self, guarded: Guarded, argv: list[str], cwd: str, number: int
    ) -> None:
        guarded.spawn("a", *argv, cwd=cwd)

        refused = guarded.heard("refused", "a")
        assert refused["errno"] == number
        assert refused["error"]

    def test_program_is_found_on_the_path_of_the_job(
        self, guarded: Guarded, tmp_path: Path
    ) -> None:
        tool = tmp_path / "only-here"
        tool.write_text("#!/bin/sh\nexit 7\n")
        tool.chmod(0o755)

        ended = guarded.run("a", "only-here", env={"PATH": str(tmp_path)})

        assert ended["status"] == 7

    def test_output_goes_to_the_passed_descriptors(self, guarded: Guarded) -> None:
        output = guarded.output_of("a", "sh", "-c", "echo good; echo bad >&2")

        assert output == ("good\n", "bad\n")

    def test_job_inherits_standard_descriptors_only(self, guarded: Guarded) -> None:
        program = "import os; print(*os.listdir('/proc/self/fd')); print(os.readlink('/dev/fd/0'))"

        output, _ = guarded.output_of("a", sys.executable, "-c", program)

        listed, stdin = output.splitlines()
        assert sorted(listed.split()) == ["0", "1", "2", "3"]  # 3 lists the others
        assert stdin == os.devnull

    def test_job_starts_with_a_clean_slate(self, guarded: Guarded, tmp_path: Path) -> None:
        script = "pwd; echo $WORD; ulimit -c; sed -n 's/^Sig[BC].*:.//p' /proc/self/status"

        output, _ = guarded.output_of(
            "a", "sh", "-c", script, env={"WORD": "grüße"}, cwd=str(tmp_path)
        )

        cwd, word, core_limit, *masks = output.splitlines()
        assert (cwd, word, core_limit) == (str(tmp_path), "grüße", "0")
        assert {int(mask, 16) for mask in masks} == {0}

    def test_proc_shows_the_pids_that_processes_see(self, guarded: Guarded) -> None:
        output, _ = guarded.output_of("a", "sh", "-c", "echo $$; sh -c 'ps -o pid= -p $PPID'")

        own, seen = output.split()
        assert own == seen == str(guarded.heard("started", "a")["pid"])

    def test_nothing_is_spawned_before_the_first_lease(self, guard: Guard) -> None:
        guarded = guard()

        guarded.spawn("a", "true")

        assert guarded.heard("refused", "a")["errno"] == errno.ESTALE

    def test_key_of_a_living_tree_is_refused(self, guarded: Guarded) -> None:
        guarded.spawn("a", "sleep", "100")
        guarded.heard("started", "a")

        guarded.spawn("a", "true")

        assert guarded.heard("refused", "a")["errno"] == errno.EEXIST

    def test_key_can_be_used_again_after_its_end(self, guarded: Guarded) -> None:
        assert guarded.run("a", "true")["status"] == 0
        assert guarded.run("a", "false")["status"] == 1

    def test_large_batch_is_taken_whole(self, guarded: Guarded) -> None:
        keys = [str(number) for number in range(100)]
        env = {"LARGE": "x" * 2_000}
        with Path(os.devnull).open("w") as null:
            guarded.send(
                *(guarded.spawn_request(key, "true", env=env) for key in keys),
                fds=[null.fileno()] * 2 * len(keys),
            )

        assert [guarded.heard("ended", key)["status"] for key in keys] == [0] * len(keys)

    def test_many_attempts_leave_no_descriptor_behind(self, guarded: Guarded) -> None:
        descriptors = Path(f"/proc/{guarded.inner_pid}/fd")
        before = len(list(descriptors.iterdir()))

        for _ in range(50):
            guarded.run("good", "true")
            guarded.spawn("bad", "no-such-program")
            guarded.heard("refused", "bad")

        assert len(list(descriptors.iterdir())) == before


class TestMessages:
    def test_hello_tells_how_firmly_processes_are_held(
        self, guarded: Guarded, wish: NamespaceWish
    ) -> None:
        guarded.send({"do": "hello"})

        required = "namespace" if os.geteuid() == 0 else "user-namespace"
        assert guarded.heard("hello")["mode"] == (required if wish == "require" else "subreaper")

    @pytest.mark.parametrize(
        "datagram",
        [b"nonsense", b"{}", b"[1]", b'[{"do": "dance"}]', b'[{"do": "lease", "deadline": NaN}]'],
    )
    def test_nonsense_is_answered_with_an_error(self, guarded: Guarded, datagram: bytes) -> None:
        guarded.send_raw(datagram)

        assert guarded.heard("error")["error"]
        assert guarded.run("a", "true")["status"] == 0

    def test_bad_spawn_is_refused_and_its_neighbour_keeps_its_descriptors(
        self, guarded: Guarded
    ) -> None:
        read, write = os.pipe()
        bad = {**guarded.spawn_request("bad", "true"), "argv": []}
        with Path(os.devnull).open("w") as null:
            fds = [null.fileno(), null.fileno(), write, null.fileno()]
            guarded.send(bad, guarded.spawn_request("good", "echo", "here"), fds=fds)
        os.close(write)

        assert guarded.heard("refused", "bad")["errno"] == errno.EINVAL
        with os.fdopen(read) as output:
            assert output.read() == "here\n"

    def test_spawn_without_descriptors_is_refused(self, guarded: Guarded) -> None:
        guarded.send(guarded.spawn_request("a", "true"))

        assert guarded.heard("refused", "a")["errno"] == errno.EINVAL

    def test_signals_for_a_tree_that_is_gone_change_nothing(self, guarded: Guarded) -> None:
        guarded.send({"do": "signal", "key": "gone", "signal": 15}, {"do": "kill", "key": "gone"})

        assert guarded.run("a", "true")["status"] == 0


class TestTrees:
    @pytest.mark.parametrize("daemon", DAEMONS.values(), ids=DAEMONS)
    def test_end_is_told_when_the_whole_tree_is_gone(self, guarded: Guarded, daemon: str) -> None:
        guarded.spawn("other", "sleep", "100", env={MARK_VARIABLE: ""})

        ended = guarded.run("a", "sh", "-c", daemon.replace("MARK", guarded.mark) + "\nexit 4")

        assert guarded.living() == []
        assert ended["status"] == 4
        assert ended["strays"] >= 1

    def test_other_trees_are_left_alone(self, guarded: Guarded) -> None:
        guarded.spawn("other", "sh", "-c", "(setsid sleep 100 &); sleep 100")
        eventually(lambda: len(guarded.living()) == 3, "the other tree did not start")

        guarded.run("a", "sh", "-c", "(setsid sleep 100 &)")

        assert len(guarded.living()) == 3

    def test_stray_that_hides_its_origin_goes_with_its_last_suspect(
        self, guarded: Guarded, tmp_path: Path
    ) -> None:
        hidden = f"env -i setsid sh -c 'ulimit -c 1; touch hidden; sleep 100; : {guarded.mark}'"
        guarded.spawn("suspect", "sleep", "100", env={MARK_VARIABLE: ""})
        script = f"({hidden} &)\nuntil [ -e hidden ]; do :; done"
        guarded.run("a", "sh", "-c", script, cwd=str(tmp_path))
        assert guarded.living()

        guarded.send({"do": "kill", "key": "suspect"})
        guarded.heard("ended", "suspect")

        assert guarded.living() == []

    def test_process_that_always_forks_and_exits_cannot_run_away(self, guarded: Guarded) -> None:
        program = "import os\nwhile True:\n    if os.fork():\n        os._exit(0)"

        ended = guarded.run("a", sys.executable, "-c", program)

        assert ended["status"] == 0
        assert guarded.living() == []

    def test_kill_ends_a_tree_that_ignores_requests(self, guarded: Guarded) -> None:
        start_daemons(guarded)

        guarded.send({"do": "kill", "key": "daemons"})

        assert guarded.heard("ended", "daemons")["signal"] == signal.SIGKILL
        assert guarded.living() == []

    def test_signal_reaches_every_process_of_the_tree(
        self, guarded: Guarded, tmp_path: Path
    ) -> None:
        notes = tmp_path / "notes"
        noter = tmp_path / "noter"
        noter.write_text(NOTER)
        script = f"sh {noter} & setsid sh {noter} & (setsid sh {noter} &); exec sh {noter}"
        guarded.spawn("a", "sh", "-c", script, cwd=str(tmp_path))
        eventually(lambda: written(notes) == "ready\n" * 4, "the tree did not start")

        guarded.send({"do": "signal", "key": "a", "signal": signal.SIGTERM})

        eventually(lambda: written(notes).count("TERM") == 4, "not all of them got it")

    def test_what_the_worker_left_behind_is_left_alone(self, guarded: Guarded) -> None:
        guarded.start_from_worker(f"(setsid sh -c 'sleep 100; : {guarded.mark}' &)")
        eventually(guarded.living, "the worker's process did not start")

        ended = guarded.run("a", "true")

        assert ended["strays"] == 0
        assert guarded.living()


class TestLease:
    def test_stopped_worker_and_its_jobs_are_dead_at_the_deadline(self, guarded: Guarded) -> None:
        start_daemons(guarded)
        os.kill(guarded.worker_pid, signal.SIGSTOP)

        deadline = guarded.lease(0.3)

        assert guarded.exit_code() == ExitCode.LEASE_ENDED
        assert deadline <= boottime() < deadline + 1
        assert guarded.living() == []

    def test_nothing_dies_before_the_deadline(self, guarded: Guarded) -> None:
        guarded.spawn("a", "sleep", "100")
        guarded.heard("started", "a")
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
        start_daemons(guarded)

        os.kill(getattr(guarded, f"{victim}_pid"), signal.SIGKILL)

        eventually(lambda: not guarded.living(), "a job survived")

    def test_no_process_survives_the_death_of_the_launcher(self, guard: Guard) -> None:
        guarded = guard(launcher=["sh", "-c", '"$@" & wait', "launcher"])
        guarded.lease()
        start_daemons(guarded)

        guarded.process.kill()

        eventually(lambda: not guarded.living(), "a job survived")

    def test_closed_pipe_of_the_launcher_ends_all(self, guarded: Guarded) -> None:
        start_daemons(guarded)

        guarded.cut_lifeline()

        assert guarded.exit_code() == ExitCode.LAUNCHER_GONE
        assert guarded.living() == []

    def test_worker_can_end_a_guardian_that_does_not_answer(self, guarded: Guarded) -> None:
        start_daemons(guarded)
        os.kill(guarded.inner_pid, signal.SIGSTOP)

        os.write(guarded.kill_switch, b"!")

        assert guarded.exit_code() == ExitCode.GUARDIAN_DIED
        assert guarded.living() == []

    @pytest.mark.parametrize(("status", "code"), [(0, ExitCode.CLEAN), (3, ExitCode.WORKER_DIED)])
    def test_end_of_the_worker_ends_all(
        self, guarded: Guarded, status: int, code: ExitCode
    ) -> None:
        start_daemons(guarded)

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
        start_daemons(guarded)

        guarded.process.terminate()

        assert guarded.worker_got_term()
        assert guarded.exit_code() == ExitCode.CLEAN
        assert guarded.living() == []


class TestCommand:
    def test_worker_that_cannot_be_executed_is_explained(self) -> None:
        command = guardian_command(["no-such-worker"])

        done = subprocess.run(command, capture_output=True, text=True, check=False)

        assert done.returncode == ExitCode.CANNOT_START
        assert "cannot execute 'no-such-worker'" in done.stderr
