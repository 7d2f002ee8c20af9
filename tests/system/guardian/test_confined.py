"""Processes with less than the guardian has: another user, limits, descriptors, signals inside."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.system.guardian.guarded import (
    ALL_DAEMONS,
    MARK_VARIABLE,
    Guarded,
    Message,
    boottime,
    eventually,
    groups_of,
)

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root may confine so")

SOMEBODY, THEIR_GROUP = 61_234, 61_235
AS_SOMEBODY = {"uid": SOMEBODY, "gid": THEIR_GROUP}
_SPACES = ("net", "user")
MEBIBYTE = 1 << 20
HOG = "block = bytearray(400 * 1024 * 1024)\nfor at in range(0, len(block), 4096): block[at] = 1"
FORK_BOMB = """
import os, time
while True:
    try:
        if os.fork() == 0:
            time.sleep(100)
    except OSError:
        os._exit(7)
"""
SPIN = "import time\nwhile time.process_time() < 0.2: pass"


@pytest.fixture
def open_folder(tmp_path: Path) -> Path:
    """One that any user may write into, although the folders above are for ours alone."""
    folder = Path("/tmp", f"rota-{os.urandom(8).hex()}")
    folder.mkdir(mode=0o777)
    folder.chmod(0o777)
    return folder


@pytest.fixture(autouse=True)
def _remove(open_folder: Path) -> Iterator[None]:
    yield
    shutil.rmtree(open_folder)


@pytest.fixture
def limits(guarded: Guarded) -> Message:
    guarded.send({"do": "limits"})
    offers: Message = guarded.heard("limits")["offers"]
    return offers


def groups_of_trees(guarded: Guarded) -> list[Path]:
    """The control groups of trees that the guardian has made and not removed."""
    return [
        path
        for folder in groups_of(guarded.life)
        for path in folder.iterdir()
        if path.is_dir() and path.name != "worker"
    ]


def confined(guarded: Guarded, *argv: str, **confinement: object) -> Message:
    return guarded.run("a", *argv, confine=confinement)


class TestUser:
    def test_it_has_another_user_no_other_groups_and_no_privilege(self, guarded: Guarded) -> None:
        script = "id -u; id -g; id -G; sed -n 's/^\\(Cap[PE].*\\|NoNew.*\\):.//p' /proc/self/status"

        output, _ = guarded.output_of("a", "sh", "-c", script, confine=AS_SOMEBODY)

        uid, gid, groups, permitted, effective, is_held = output.splitlines()
        assert (uid, gid, groups) == (str(SOMEBODY), str(THEIR_GROUP), str(THEIR_GROUP))
        assert (int(permitted, 16), int(effective, 16), is_held) == (0, 0, "1")

    def test_it_cannot_become_root_again(self, guarded: Guarded) -> None:
        script = "setpriv --reuid 0 id -u || echo no"

        output, _ = guarded.output_of("a", "sh", "-c", script, confine=AS_SOMEBODY)

        assert output == "no\n"

    def test_it_is_in_no_directory_that_its_user_could_not_enter(
        self, guarded: Guarded, open_folder: Path
    ) -> None:
        """From inside it could read what is only protected by the folders above."""
        inner = open_folder / "closed/inner"
        inner.mkdir(parents=True)
        (inner / "secret").write_text("for whoever may come here")
        inner.parent.chmod(0o700)

        guarded.spawn("a", "cat", "secret", cwd=str(inner), confine=AS_SOMEBODY)

        refused = guarded.heard("refused", "a")
        assert refused["errno"] == errno.EACCES
        assert refused["error"].startswith(f"cannot enter the directory '{inner}'")

    def test_it_has_the_supplementary_groups_that_are_named(self, guarded: Guarded) -> None:
        confine = {**AS_SOMEBODY, "groups": [7001, 7002]}

        output, _ = guarded.output_of("a", "id", "-G", confine=confine)

        assert set(output.split()) == {str(THEIR_GROUP), "7001", "7002"}

    def test_without_a_user_it_stays_ours_and_may_gain_privileges(self, guarded: Guarded) -> None:
        script = "id -u; sed -n 's/^NoNew.*:.//p' /proc/self/status"

        output, _ = guarded.output_of("a", "sh", "-c", script, confine={"tag": "plain"})

        assert output.split() == ["0", "0"]

    def test_its_daemons_are_found_and_killed(self, guarded: Guarded, open_folder: Path) -> None:
        script = ALL_DAEMONS.replace("MARK", guarded.mark)
        guarded.spawn(
            "a", "sh", "-c", f"{script}\nsleep 100", cwd=str(open_folder), confine=AS_SOMEBODY
        )
        eventually(lambda: len(guarded.living()) >= 12, "the daemons did not start")

        guarded.send({"do": "kill", "key": "a"})

        assert guarded.heard("ended", "a")["signal"] == signal.SIGKILL
        assert guarded.living() == []

    def test_its_daemons_end_with_it(self, guarded: Guarded, open_folder: Path) -> None:
        guarded.spawn("other", "sleep", "100", env={MARK_VARIABLE: ""})
        script = f"(env -i setsid sh -c 'touch up; sleep 100; : {guarded.mark}' &)"
        script += "\nuntil [ -e up ]; do :; done"

        ended = guarded.run("a", "sh", "-c", script, cwd=str(open_folder), confine=AS_SOMEBODY)

        assert guarded.living() == []
        assert ended["strays"] >= 1

    def test_one_that_hides_all_traits_ends_with_its_group(
        self, guarded: Guarded, open_folder: Path
    ) -> None:
        guarded.spawn("other", "sleep", "100", env={MARK_VARIABLE: ""})
        hidden = f"env -i setsid sh -c 'ulimit -c 0; touch hidden; sleep 100; : {guarded.mark}'"
        script = f"({hidden} &)\nuntil [ -e hidden ]; do :; done"

        guarded.run("a", "sh", "-c", script, cwd=str(open_folder), confine=AS_SOMEBODY)

        assert guarded.living() == []


class TestNetwork:
    """A namespace of somebody's own, as that of a sandbox, gets a device and routes."""

    @pytest.fixture
    def namespaces(self) -> Iterator[tuple[int, int]]:
        command = ["unshare", "--user", "--map-root-user", "--net", "sleep", "100"]
        holder = subprocess.Popen(command)
        own = Path("/proc/self/ns/net").stat().st_ino
        try:
            eventually(
                lambda: (
                    Path(f"/proc/{holder.pid}/ns/net").stat().st_ino != own
                    and bool(Path(f"/proc/{holder.pid}/uid_map").read_text().strip())
                ),
                "there is no namespace",
            )
            yield tuple(os.open(f"/proc/{holder.pid}/ns/{each}", os.O_RDONLY) for each in _SPACES)  # type: ignore[misc]
        finally:
            holder.kill()
            holder.wait()

    def wish(self, **fields: object) -> Message:
        return {
            "network": 3,
            "users": 4,
            "device": "tap0",
            "receivers": ["52550a000202"],
            "unreachable": ["10.0.0.0/8", "192.0.2.1/32"],
            **fields,
        }

    def spawn(self, guarded: Guarded, namespaces: tuple[int, int], wish: Message) -> None:
        output = os.open(os.devnull, os.O_RDWR)
        script = f"test $(id -u) = {SOMEBODY} && sleep 100; : {guarded.mark}"
        confine = {**AS_SOMEBODY, "network": wish}
        request = guarded.spawn_request("a", "sh", "-c", script, confine=confine, fds=[1, 2, 3, 4])
        guarded.send(request, fds=[output, os.dup(output), *namespaces])

    def seen(self, namespaces: tuple[int, int], *command: str) -> str:
        net, users = (f"/proc/{os.getpid()}/fd/{each}" for each in namespaces)
        done = subprocess.run(
            ["nsenter", f"--user={users}", f"--net={net}", *command],
            capture_output=True,
            text=True,
            check=False,  # there is no such table yet,
        )
        return done.stdout

    def test_device_and_routes_are_there_and_its_user_is_another(
        self, guarded: Guarded, namespaces: tuple[int, int]
    ) -> None:
        kept = tuple(map(os.dup, namespaces))
        assert len(kept) == 2

        self.spawn(guarded, namespaces, self.wish())

        eventually(lambda: "tap0" in self.seen(kept, "cat", "/proc/net/dev"), "there is no device")
        eventually(
            lambda: "192.0.2.1" in self.seen(kept, "ip", "route", "show", "table", "local"),
            "what is a single address is not in the table that comes first",
        )
        assert "unreachable 10.0.0.0/8" in self.seen(kept, "ip", "route")
        assert guarded.living() == []  # before its maker has brought up the loopback device
        self.seen(kept, "ip", "link", "set", "lo", "up")
        eventually(lambda: guarded.living(), "it was not executed")
        guarded.send({"do": "kill", "key": "a"})
        assert guarded.heard("ended", "a")["signal"] == signal.SIGKILL
        for each in kept:
            os.close(each)

    def test_what_cannot_be_made_is_told_and_nothing_runs(
        self, guarded: Guarded, namespaces: tuple[int, int]
    ) -> None:
        self.spawn(guarded, namespaces, self.wish(users=None, network=1))

        refused = guarded.heard("refused", "a")
        assert refused["errno"] == errno.EINVAL
        assert refused["error"].startswith("cannot make its network: ")


class TestStarting:
    @pytest.mark.parametrize(
        ("argv", "cwd", "number"),
        [
            (["no-such-program"], "/", errno.ENOENT),
            (["/etc/passwd"], "/", errno.EACCES),
            (["true"], "/no/such/folder", errno.ENOENT),
            (["true", "zero\0byte"], "/", errno.EINVAL),
        ],
    )
    def test_what_cannot_be_executed_is_refused_with_the_reason(
        self, guarded: Guarded, argv: list[str], cwd: str, number: int
    ) -> None:
        guarded.spawn("a", *argv, cwd=cwd, confine={**AS_SOMEBODY, "limits": {"processes": 9}})

        refused = guarded.heard("refused", "a")
        assert refused["errno"] == number
        assert refused["error"]

    def test_program_that_only_root_may_execute_is_refused(
        self, guarded: Guarded, open_folder: Path
    ) -> None:
        tool = open_folder / "tool"
        tool.write_text("#!/bin/sh\n")
        tool.chmod(0o700)

        guarded.spawn("a", str(tool), confine=AS_SOMEBODY)

        refused = guarded.heard("refused", "a")
        assert (refused["errno"], str(tool) in refused["error"]) == (errno.EACCES, True)

    def test_descriptors_have_their_numbers_and_nothing_else_is_inherited(
        self, guarded: Guarded
    ) -> None:
        script = "ls /proc/self/fd; for at in 3 4 9 20; do echo $at >&$at; done"
        pipes = [os.pipe() for _ in range(5)]
        request = guarded.spawn_request(
            "a", "bash", "-c", script, confine=AS_SOMEBODY, fds=[1, 20, 4, 3, 9]
        )
        guarded.send(request, fds=[write for _, write in pipes])

        assert guarded.heard("ended", "a")["status"] == 0
        told = []
        for read, write in pipes:
            os.close(write)
            with os.fdopen(read) as file:
                told.append(file.read())
        listed, *rest = told
        assert set(listed.split()) == {
            "0",
            "1",
            "2",
            "3",
            "4",
            "5",
            "9",
            "20",
        }  # 5 lists the others
        assert rest == ["20\n", "4\n", "3\n", "9\n"]

    def test_it_starts_with_a_clean_slate(self, guarded: Guarded, open_folder: Path) -> None:
        script = "pwd; echo $WORD; ulimit -c; sed -n 's/^Sig[BC].*:.//p' /proc/self/status"

        output, _ = guarded.output_of(
            "a",
            "sh",
            "-c",
            script,
            env={"WORD": "grüße"},
            cwd=str(open_folder),
            confine=AS_SOMEBODY,
        )

        cwd, word, core_limit, *masks = output.splitlines()
        assert (cwd, word, core_limit) == (str(open_folder), "grüße", "0")
        assert {int(mask, 16) for mask in masks} == {0}

    def test_it_leads_a_session_of_its_own(self, guarded: Guarded) -> None:
        output, _ = guarded.output_of("a", "sh", "-c", "ps -o pid=,sid= -p $$", confine=AS_SOMEBODY)

        pid, session = output.split()
        assert pid == session

    def test_many_of_them_leave_no_descriptor_and_no_group(self, guarded: Guarded) -> None:
        descriptors = Path(f"/proc/{guarded.inner_pid}/fd")
        before = len(list(descriptors.iterdir()))
        confine = {**AS_SOMEBODY, "limits": {"processes": 100, "memory": 100 * MEBIBYTE}}

        for _ in range(20):
            guarded.run("good", "true", confine=confine)
            guarded.spawn("bad", "no-such-program", confine=confine)
            guarded.heard("refused", "bad")

        assert len(list(descriptors.iterdir())) == before
        assert groups_of_trees(guarded) == []


@pytest.mark.usefixtures("limits")
class TestLimits:
    @pytest.fixture(autouse=True)
    def _need_them(self, limits: Message) -> None:
        if missing := {name: reason for name, reason in limits.items() if reason}:
            pytest.skip(f"this machine does not limit: {missing}")

    def test_memory_hog_is_killed_and_named_while_its_neighbours_live(
        self, guarded: Guarded
    ) -> None:
        limit = 64 * MEBIBYTE
        guarded.spawn("plain", "sleep", "100")
        guarded.spawn("confined", "sleep", "100", confine={"limits": {"memory": limit}})

        ended = confined(guarded, sys.executable, "-c", HOG, limits={"memory": limit})

        assert (ended["signal"], ended["cause"]) == (signal.SIGKILL, "oom")
        assert limit * 0.9 < ended["max_rss"] <= limit
        assert len(guarded.living()) == 2

    def test_who_stays_within_its_memory_is_left_alone(self, guarded: Guarded) -> None:
        program = "block = b'x' * 40_000_000"

        ended = confined(guarded, sys.executable, "-c", program, limits={"memory": 100 * MEBIBYTE})

        assert (ended["status"], ended["cause"]) == (0, "")
        assert 40_000_000 < ended["max_rss"] < 100 * MEBIBYTE

    def test_fork_bomb_is_held_named_and_gone(self, guarded: Guarded) -> None:
        guarded.spawn("neighbour", "sleep", "100")

        ended = confined(guarded, sys.executable, "-c", FORK_BOMB, limits={"processes": 30})

        assert (ended["status"], ended["cause"]) == (7, "processes")
        assert len(guarded.living()) == 1

    def test_fork_bomb_that_does_not_stop_is_killed(self, guarded: Guarded) -> None:
        program = "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass"
        guarded.spawn("a", sys.executable, "-c", program, confine={"limits": {"processes": 50}})
        eventually(lambda: len(guarded.living()) >= 50, "it did not get all that it may have")

        guarded.send({"do": "kill", "key": "a"})

        assert guarded.heard("ended", "a")["cause"] == "processes"
        assert guarded.living() == []

    def test_processor_time_is_rationed(self, guarded: Guarded) -> None:
        began = boottime()

        ended = confined(guarded, sys.executable, "-c", SPIN, limits={"cpu": 200})

        assert ended["cpu"] >= 0.2
        assert boottime() - began > 3 * ended["cpu"]  # a fifth of a core takes five times as long

    def test_part_of_a_core_can_be_given(self, guarded: Guarded) -> None:
        assert confined(guarded, "true", limits={"cpu": 50})["status"] == 0

    def test_open_files_are_limited(self, guarded: Guarded) -> None:
        confine = {"limits": {"open_files": 77}}

        output, _ = guarded.output_of("a", "sh", "-c", "ulimit -n; ulimit -Hn", confine=confine)

        assert output.split() == ["77", "77"]

    def test_usage_is_that_of_the_whole_group(self, guarded: Guarded) -> None:
        spin = f"{sys.executable} -c 'import time\nwhile time.process_time() < 0.2: pass'"

        ended = confined(
            guarded, "sh", "-c", f"setsid {spin} &\nwait $!", limits={"memory": 1 << 30}
        )

        assert 0.2 <= ended["cpu"] < 2

    def test_groups_are_named_after_the_tag_and_removed(self, guarded: Guarded) -> None:
        confine = {"tag": "run/1 ..", "limits": {"memory": 1 << 30, "cpu": 500, "processes": 9}}
        guarded.spawn("a", "sleep", "100", confine=confine)
        eventually(lambda: len(guarded.living()) == 1, "it did not start")
        names = {path.name.rpartition("-")[0] for path in groups_of_trees(guarded)}

        guarded.send({"do": "kill", "key": "a"})
        guarded.heard("ended", "a")

        assert names == {"run_1___"}
        assert groups_of_trees(guarded) == []


def test_limits_are_offered_or_the_reason_is_told(limits: Message) -> None:
    assert set(limits) == {"cpu", "memory", "processes", "open_files"}
    assert all(isinstance(reason, str) for reason in limits.values())


NOTER = """
trap 'echo TERM >> notes; exit 3' TERM
echo ready >> notes
while :; do sleep 0.01; done
"""


WHOLE_SYSTEM = ("--dev-bind", "/", "/")
SANDBOXES = {
    # A stand-in: a monitor that dies of TERM, and then its tree is killed.
    "unshare": ["sh", "-c", 'unshare --user --pid --fork --kill-child "$@" & wait $!', "monitor"],
    "bwrap": ["bwrap", "--unshare-pid", "--unshare-user", "--die-with-parent", *WHOLE_SYSTEM],
}


class TestSignalsInside:
    """The monitor of a sandbox must not take TERM for an order to kill what it watches."""

    @pytest.fixture(params=["unshare", "bwrap"])
    def sandbox(self, request: pytest.FixtureRequest) -> list[str]:
        if shutil.which(request.param) is None:
            pytest.skip(f"{request.param} is not installed")
        return SANDBOXES[request.param]

    @contextmanager
    def started(self, guarded: Guarded, folder: Path, sandbox: list[str]) -> Iterator[Path]:
        notes = folder / "notes"
        confine = {**AS_SOMEBODY, "signals": "inside"}
        guarded.spawn("a", *sandbox, "sh", "-c", NOTER, cwd=str(folder), confine=confine)
        yield notes

    def test_term_reaches_the_job_and_not_its_monitor(
        self, guarded: Guarded, open_folder: Path, sandbox: list[str]
    ) -> None:
        with self.started(guarded, open_folder, sandbox) as notes:
            eventually(notes.exists, "it did not start")

            guarded.send({"do": "signal", "key": "a", "signal": signal.SIGTERM})

            assert guarded.heard("ended", "a")["status"] == 3
            assert notes.read_text() == "ready\nTERM\n"

    def test_term_waits_for_a_job_that_is_not_there_yet(
        self, guarded: Guarded, open_folder: Path, sandbox: list[str]
    ) -> None:
        with self.started(guarded, open_folder, sandbox):
            guarded.send({"do": "signal", "key": "a", "signal": signal.SIGTERM})

            ended = guarded.heard("ended", "a")
            # It had its trap already, or died of the signal, which a shell tells as 128 more.
            assert ended["status"] in (3, 128 + signal.SIGTERM)

    def test_kill_takes_all(self, guarded: Guarded, open_folder: Path, sandbox: list[str]) -> None:
        with self.started(guarded, open_folder, sandbox) as notes:
            eventually(notes.exists, "it did not start")

            guarded.send({"do": "kill", "key": "a"})

            assert guarded.heard("ended", "a")["signal"] == signal.SIGKILL
            assert guarded.living() == []

    def test_tree_is_signalled_whole_where_nothing_else_is_said(
        self, guarded: Guarded, open_folder: Path
    ) -> None:
        guarded.spawn("a", "sh", "-c", NOTER, cwd=str(open_folder), confine=AS_SOMEBODY)
        eventually((open_folder / "notes").exists, "it did not start")

        guarded.send({"do": "signal", "key": "a", "signal": signal.SIGTERM})

        assert guarded.heard("ended", "a")["status"] == 3
