"""An attempt ends when its last process has ended, however well that hides."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

from tests.system.guardian.guarded import DAEMONS, MARK_VARIABLE, Guarded, eventually

NOTER = """
trap 'echo TERM >> notes' TERM
echo ready >> notes
while :; do sleep 0.01; done
"""


def written(file: Path) -> str:
    return file.read_text() if file.exists() else ""


class TestTrees:
    @pytest.mark.parametrize("daemon", DAEMONS.values(), ids=DAEMONS)
    def test_end_is_told_when_the_whole_tree_is_gone(
        self, guarded: Guarded, daemon: str, tmp_path: Path
    ) -> None:
        guarded.spawn("other", "sleep", "100", env={MARK_VARIABLE: ""})
        script = daemon.replace("MARK", guarded.mark) + "\nuntil [ -e up ]; do :; done; exit 4"

        ended = guarded.run("a", "sh", "-c", script, cwd=str(tmp_path))

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
        guarded.start_daemons()

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
