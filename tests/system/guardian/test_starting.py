"""What the guardian starts, and what it says about it."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rota.guardian import NamespaceWish
from tests.system.guardian.guarded import Guarded, boottime

Guard = Callable[..., Guarded]


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

        assert before < ended["at"] < boottime()
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
        assert own == seen

    def test_nothing_is_spawned_before_the_first_lease(self, guard: Guard) -> None:
        guarded = guard()

        guarded.spawn("a", "true")

        assert guarded.heard("refused", "a")["errno"] == errno.ESTALE

    def test_key_of_a_living_tree_is_refused(self, guarded: Guarded) -> None:
        guarded.spawn("a", "sleep", "100")

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
