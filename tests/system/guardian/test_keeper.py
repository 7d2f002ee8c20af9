"""Whatever is killed or stopped: the keeper ends what nobody else does, containers included."""

from __future__ import annotations

import http.server
import os
import signal
import socketserver
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from rota.guardian.options import ExitCode
from tests.system.guardian.guarded import (
    DAEMONS,
    Guarded,
    boottime,
    children_of,
    eventually,
    marked,
    state_of,
)

Guard = Callable[..., Guarded]

OUTER_IS_KILLED = -signal.SIGKILL


def send(guarded: Guarded, number: signal.Signals, *names: str) -> None:
    for name in names:
        with suppress(ProcessLookupError):  # one died with another
            os.kill(getattr(guarded, f"{name}_pid"), number)


def is_over(guarded: Guarded) -> bool:
    return not guarded.living() and state_of(guarded.keeper_pid) in ("", "Z")


def lives_of(name: str) -> list[Path]:
    """The control groups that guardians of this name have, of all hierarchies."""
    return [
        Path(folder, each)
        for folder, below, _ in os.walk("/sys/fs/cgroup")
        for each in below
        if each.startswith(f"rota-{name}.")
    ]


class TestStopped:
    @pytest.mark.parametrize(
        ("names", "code"),
        [
            (["worker"], ExitCode.LEASE_ENDED),
            (["inner"], ExitCode.LEASE_ENDED),
            (["outer"], OUTER_IS_KILLED),
            (["keeper"], ExitCode.LEASE_ENDED),
            (["worker", "keeper"], ExitCode.LEASE_ENDED),
            (["worker", "inner"], ExitCode.LEASE_ENDED),
            (["worker", "outer"], OUTER_IS_KILLED),
            (["worker", "outer", "inner"], OUTER_IS_KILLED),
        ],
        ids=lambda each: "+".join(each) if isinstance(each, list) else "",
    )
    def test_all_are_dead_at_the_deadline(
        self, guarded: Guarded, names: list[str], code: int
    ) -> None:
        guarded.start_daemons()
        deadline = guarded.lease(0.6)
        guarded.send({"do": "hello"})
        guarded.heard("hello")  # it knows of the deadline

        send(guarded, signal.SIGSTOP, *names)

        eventually(lambda: not guarded.living(), "a job outlived its lease")
        assert deadline <= boottime() < deadline + 1
        assert guarded.exit_code() == code
        eventually(lambda: is_over(guarded), "the keeper stayed")

    def test_nothing_dies_before_the_deadline(self, guarded: Guarded) -> None:
        guarded.spawn("a", "sleep", "100")
        eventually(guarded.living, "the job is not there")
        deadline = guarded.lease(0.5)
        guarded.send({"do": "hello"})
        guarded.heard("hello")
        send(guarded, signal.SIGSTOP, "outer", "inner", "worker")

        eventually(lambda: not guarded.living(), "the job outlived its lease")

        assert boottime() >= deadline

    def test_inner_process_alone_keeps_the_deadline(self, guarded: Guarded) -> None:
        guarded.start_daemons()
        send(guarded, signal.SIGSTOP, "outer")  # so that it does not see the keeper die
        send(guarded, signal.SIGKILL, "keeper")

        deadline = guarded.lease(0.4)

        eventually(lambda: not guarded.living(), "a job outlived its lease")
        assert deadline <= boottime() < deadline + 1

    def test_keeper_alone_costs_nothing(self, guarded: Guarded) -> None:
        send(guarded, signal.SIGSTOP, "keeper")

        eventually(lambda: state_of(guarded.keeper_pid) == "S", "nobody continued it")
        assert guarded.run("a", "true")["status"] == 0
        assert guarded.ask_keeper("release", "nothing") == ""

    def test_renewal_moves_its_deadline_as_well(self, guarded: Guarded) -> None:
        first = guarded.lease(0.3)
        guarded.lease(60)
        guarded.spawn("a", "sleep", "100")
        eventually(guarded.living, "the job is not there")

        send(guarded, signal.SIGSTOP, "inner")
        eventually(lambda: boottime() > first + 0.5, "time stands still")
        send(guarded, signal.SIGCONT, "inner")

        guarded.send({"do": "hello"})
        guarded.heard("hello")
        assert len(guarded.living()) == 1


class TestKilled:
    def test_killed_keeper_ends_everything(self, guarded: Guarded) -> None:
        guarded.start_daemons()

        send(guarded, signal.SIGKILL, "keeper")

        assert guarded.exit_code() == ExitCode.GUARDIAN_DIED
        assert guarded.living() == []

    @pytest.mark.parametrize(
        ("stopped", "killed"),
        [
            ([], ["outer", "inner"]),
            ([], ["inner", "outer"]),
            (["inner"], ["outer"]),
            (["inner", "worker"], ["outer"]),
            (["worker"], ["outer", "inner"]),
        ],
        ids=lambda names: "+".join(names),
    )
    def test_nothing_survives_both_guardians(
        self, guarded: Guarded, stopped: list[str], killed: list[str]
    ) -> None:
        guarded.start_daemons()
        send(guarded, signal.SIGSTOP, *stopped)

        send(guarded, signal.SIGKILL, *killed)

        eventually(lambda: is_over(guarded), "a job survived")

    def test_outer_that_is_stopped_when_the_inner_is_killed_is_replaced_at_the_deadline(
        self, guarded: Guarded
    ) -> None:
        guarded.start_daemons()
        deadline = guarded.lease(0.6)
        guarded.send({"do": "hello"})
        guarded.heard("hello")
        send(guarded, signal.SIGSTOP, "outer")

        send(guarded, signal.SIGKILL, "inner")

        eventually(lambda: not guarded.living(), "a job outlived its lease")
        assert boottime() < deadline + 1
        assert guarded.exit_code() == OUTER_IS_KILLED

    def test_clean_end_leaves_neither_keeper_nor_groups(self, guard: Guard) -> None:
        guarded = guard(name="clean")
        guarded.lease()
        guarded.run("a", "true", confine={"limits": {}})

        guarded.end_worker(0)

        assert guarded.exit_code() == ExitCode.CLEAN
        assert state_of(guarded.keeper_pid) == ""
        assert lives_of("clean") == []

    def test_killed_outer_leaves_no_groups(self, guard: Guard) -> None:
        guarded = guard(name="orphans")
        guarded.lease()
        guarded.start_daemons()

        send(guarded, signal.SIGKILL, "outer")

        eventually(lambda: is_over(guarded), "a job survived")
        assert lives_of("orphans") == []


class TestSweeping:
    @pytest.fixture
    def name(self) -> str:
        return f"swept-{os.urandom(4).hex()}"

    @pytest.mark.parametrize("daemon", [*DAEMONS], ids=lambda name: name.replace(" ", "-"))
    def test_what_is_left_when_all_are_killed_is_gone_before_the_next_worker_starts(
        self, guard: Guard, name: str, daemon: str, tmp_path: Path
    ) -> None:
        first = guard(name=name)
        first.lease()
        if daemon == "without environment" and not lives_of(name):
            pytest.skip("without control groups the marker is all there is to find it by")
        script = DAEMONS[daemon].replace("MARK", first.mark)
        first.spawn("a", "sh", "-c", f"{script}\nsleep 100", cwd=str(tmp_path))
        eventually((tmp_path / "up").exists, "the daemon did not start")

        everybody = ("outer", "keeper", "inner", "worker")
        send(first, signal.SIGSTOP, *everybody)  # so that none sees the other die
        send(first, signal.SIGKILL, *everybody)
        second = guard(name=name)

        assert first.living() == []
        assert len({path.name for path in lives_of(name)}) <= 1
        second.end_worker(0)
        assert second.exit_code() == ExitCode.CLEAN
        assert lives_of(name) == []

    def test_others_are_left_alone(self, guard: Guard, name: str) -> None:
        neighbour = guard(name=f"{name}-2")
        neighbour.lease()
        neighbour.spawn("a", "sleep", "100", confine={"tag": "x"})
        neighbour.spawn("b", "sleep", "100")
        eventually(lambda: len(neighbour.living()) == 2, "the jobs are not there")

        guard(name=name)

        assert len(neighbour.living()) == 2


class Engine(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    """Answers on a Unix socket what a test wants; notes what was asked for."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self.asked: list[str] = []
        self.answers: list[int] = []  # given first; then 204, then 404
        self.hangs = threading.Event()
        self.is_released = threading.Event()
        super().__init__(self.path, _Answer)

    def answer(self, target: str) -> int:
        self.asked.append(target)
        if self.hangs.is_set():
            self.is_released.wait()
        if self.answers:
            return self.answers.pop(0)
        return 204 if self.asked.count(target) == 1 else 404


class _Answer(http.server.BaseHTTPRequestHandler):
    server: Engine

    def do_DELETE(self) -> None:
        status = self.server.answer(self.path)
        with suppress(OSError):
            self.send_response(status)
            self.end_headers()

    def log_message(self, *_: object) -> None: ...

    def address_string(self) -> str:
        return "the keeper"


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    with Engine(tmp_path / "engine") as engine:
        thread = threading.Thread(target=engine.serve_forever, args=(0.01,))
        thread.start()
        yield engine
        engine.is_released.set()
        engine.shutdown()
        thread.join()


@contextmanager
def container_process(mark: str) -> Iterator[int]:
    """A process that no guardian knows: the first of a pid namespace of its own."""
    command = ["unshare", "--pid", "--fork", "sh", "-c", f"sleep 100 & sleep 100; : {mark}"]
    monitor = subprocess.Popen(
        [*command] if os.geteuid() == 0 else [*command[:1], "-r", *command[1:]]
    )
    eventually(lambda: len(marked(mark)) >= 2, "the container did not start")
    [first] = children_of(monitor.pid)
    try:
        yield first
    finally:
        with suppress(ProcessLookupError):
            os.kill(first, signal.SIGKILL)
        monitor.wait()


def removal_of(name: str) -> str:
    return f"/containers/{name}?force=1&v=1"


class TestContainers:
    def keep(self, guarded: Guarded, engine: Engine, name: str) -> None:
        assert guarded.ask_keeper("keep", name, engine=engine.path) == ""

    @pytest.mark.parametrize(
        "stopped",
        [["worker"], ["inner"], ["outer"], ["worker", "outer", "inner"]],
        ids=lambda names: "+".join(names),
    )
    def test_they_end_with_the_lease(
        self, guarded: Guarded, engine: Engine, stopped: list[str]
    ) -> None:
        deadline = guarded.lease(0.8)
        mark = f"{guarded.mark}-container"
        self.keep(guarded, engine, "one")
        with container_process(mark) as pid:
            assert guarded.ask_keeper("started", "one", pid=pid) == ""
            self.keep(guarded, engine, "two")
            send(guarded, signal.SIGSTOP, *stopped)

            eventually(lambda: state_of(pid) in ("", "Z"), "the container outlived its lease")
            assert deadline <= boottime() < deadline + 1
        eventually(lambda: is_over(guarded), "the keeper stayed")
        assert {removal_of("one"), removal_of("two")} <= set(engine.asked)

    @pytest.mark.parametrize("killed", ["worker", "inner", "outer", "keeper"])
    def test_they_end_when_one_is_killed(
        self, guarded: Guarded, engine: Engine, killed: str
    ) -> None:
        self.keep(guarded, engine, "one")
        with container_process(f"{guarded.mark}-container") as pid:
            assert guarded.ask_keeper("started", "one", pid=pid) == ""

            send(guarded, signal.SIGKILL, killed)

            eventually(lambda: state_of(pid) in ("", "Z"), "the container survived")
        eventually(lambda: is_over(guarded), "the keeper stayed")
        eventually(lambda: engine.asked, "the engine was not asked")

    def test_engine_that_hangs_saves_no_container_and_delays_nobody(
        self, guarded: Guarded, engine: Engine
    ) -> None:
        engine.hangs.set()
        self.keep(guarded, engine, "one")
        with container_process(f"{guarded.mark}-container") as pid:
            assert guarded.ask_keeper("started", "one", pid=pid) == ""
            began = boottime()

            guarded.end_worker(0)

            assert guarded.exit_code() == ExitCode.CLEAN
            assert state_of(pid) in ("", "Z")
            assert boottime() < began + 5
        eventually(lambda: state_of(guarded.keeper_pid) == "S", "it does not wait for the engine")
        engine.is_released.set()
        eventually(lambda: is_over(guarded), "the keeper stayed")

    def test_engine_is_asked_until_it_says_that_they_are_gone(
        self, guarded: Guarded, engine: Engine
    ) -> None:
        engine.answers = [500, 409, 204]
        self.keep(guarded, engine, "one")

        guarded.end_worker(0)

        assert guarded.exit_code() == ExitCode.CLEAN
        assert engine.asked == [removal_of("one")] * 3

    def test_unknown_ones_are_asked_for_twice(self, guarded: Guarded, engine: Engine) -> None:
        """A request to create it may still be on its way when the worker is killed."""
        engine.answers = [404, 204]
        self.keep(guarded, engine, "one")

        guarded.end_worker(0)

        assert guarded.exit_code() == ExitCode.CLEAN
        assert engine.asked == [removal_of("one")] * 2

    def test_released_ones_are_forgotten(self, guarded: Guarded, engine: Engine) -> None:
        self.keep(guarded, engine, "one")
        self.keep(guarded, engine, "two")
        assert guarded.ask_keeper("release", "one") == ""

        guarded.end_worker(0)

        assert guarded.exit_code() == ExitCode.CLEAN
        assert engine.asked == [removal_of("two")]

    def test_process_that_is_no_containers_first_is_never_killed(
        self, guarded: Guarded, engine: Engine
    ) -> None:
        with subprocess.Popen(["sleep", "100"]) as bystander:
            self.keep(guarded, engine, "one")
            assert guarded.ask_keeper("started", "one", pid=bystander.pid) == ""

            guarded.end_worker(0)

            assert guarded.exit_code() == ExitCode.CLEAN
            assert bystander.poll() is None
            bystander.kill()

    def test_older_container_is_never_killed(self, guarded: Guarded, engine: Engine) -> None:
        with container_process(f"{guarded.mark}-container") as pid:
            began = boottime()
            eventually(lambda: boottime() > began + 0.1, "time stands still")
            self.keep(guarded, engine, "one")
            assert guarded.ask_keeper("started", "one", pid=pid) == ""

            guarded.end_worker(0)

            assert guarded.exit_code() == ExitCode.CLEAN
            assert state_of(pid) == "S"

    def test_only_what_is_noted_can_have_a_pid(self, guarded: Guarded) -> None:
        assert "no container" in guarded.ask_keeper("started", "one", pid=1)

    def test_many_are_ended_at_the_same_time(self, guarded: Guarded, engine: Engine) -> None:
        names = [f"rota-{number}" for number in range(100)]
        for name in names:
            self.keep(guarded, engine, name)
        began = boottime()

        guarded.end_worker(0)

        assert guarded.exit_code() == ExitCode.CLEAN
        assert set(engine.asked) == {removal_of(name) for name in names}
        assert boottime() < began + 3
