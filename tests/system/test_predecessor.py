"""Whether anything is left of a worker's earlier life."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rota.adapters.clock import SystemClock
from rota.runtime import predecessor
from rota.testing.processes import children_of
from rota.testing.waiting import eventually

NOTER = """
import sys, time
from pathlib import Path
from rota.runtime import predecessor
predecessor.leave_note(Path(sys.argv[1]))
time.sleep(100)
"""


def is_gone(folder: Path) -> bool:
    return asyncio.run(predecessor.is_gone(folder, SystemClock()))


def note_in(folder: Path) -> dict[str, object]:
    note: dict[str, object] = json.loads((folder / "namespace.json").read_text())
    return note


@pytest.fixture
def earlier(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A worker's earlier life, in a namespace of its own, that has left its note."""
    command = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
    process = subprocess.Popen([*command, sys.executable, "-c", NOTER, str(tmp_path)])
    try:
        eventually(lambda: (tmp_path / "namespace.json").exists() or process.poll() is not None)
        if process.poll() is not None:
            pytest.skip("this machine permits no pid namespace")
        yield process
    finally:
        process.kill()
        process.wait()


def test_worker_without_an_earlier_life_has_nothing_to_wait_for(tmp_path: Path) -> None:
    assert is_gone(tmp_path)


def test_living_process_is_found(earlier: subprocess.Popen[bytes], tmp_path: Path) -> None:
    assert not is_gone(tmp_path)


def test_end_of_the_namespace_is_noticed(earlier: subprocess.Popen[bytes], tmp_path: Path) -> None:
    [first] = children_of(earlier.pid)
    subprocess.run(["kill", f"-{signal.SIGKILL}", str(first)], check=True)

    assert is_gone(tmp_path)


def test_later_namespace_of_the_same_number_is_told_apart(
    earlier: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    note = note_in(tmp_path)
    note["began"] = 1

    (tmp_path / "namespace.json").write_text(json.dumps(note))

    assert is_gone(tmp_path)


def test_damaged_note_proves_nothing(tmp_path: Path) -> None:
    (tmp_path / "namespace.json").write_text("{")

    assert not is_gone(tmp_path)
