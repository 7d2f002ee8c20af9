"""Whether anything is left of a worker's earlier life."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rota.clock import SystemClock
from rota.runtime import worker
from testkit.processes import children_of
from testkit.waiting import eventually

SESSION = "w_earlier"
UNSHARE = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
NOTER = """
import sys, time
from pathlib import Path
from rota.runtime import worker
worker.leave_note(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
time.sleep(100)
"""


def ended_session(folder: Path) -> str:
    return asyncio.run(worker.ended_session(folder, SystemClock()))


def change_note(folder: Path, **fields: Any) -> None:
    path = folder / "namespace.json"
    note: dict[str, Any] = json.loads(path.read_text())
    path.write_text(json.dumps({**note, **fields}))


def end(earlier: subprocess.Popen[bytes]) -> None:
    [first] = children_of(earlier.pid)
    subprocess.run(["kill", f"-{signal.SIGKILL}", str(first)], check=True)


@pytest.fixture(scope="module")
def namespaces() -> None:
    """Skip only where the kernel refuses `unshare` itself."""
    tried = subprocess.run([*UNSHARE, "true"], capture_output=True, text=True)
    if tried.returncode:
        pytest.skip(f"this machine permits no pid namespace: {tried.stderr.strip()}")


@pytest.fixture
def earlier(namespaces: None, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A worker's earlier life, in a namespace of its own, that has left its note."""
    arguments = [str(tmp_path), SESSION, worker.vantage()]
    process = subprocess.Popen([*UNSHARE, sys.executable, "-c", NOTER, *arguments])
    try:
        eventually(lambda: (tmp_path / "namespace.json").exists() or process.poll() is not None)
        assert process.poll() is None, "the earlier life ended before it left its note"
        yield process
    finally:
        process.kill()
        process.wait()


def test_worker_without_a_note_claims_nothing(tmp_path: Path) -> None:
    assert ended_session(tmp_path) == ""


def test_living_process_is_found(earlier: subprocess.Popen[bytes], tmp_path: Path) -> None:
    assert ended_session(tmp_path) == ""


def test_end_of_the_namespace_is_noticed(earlier: subprocess.Popen[bytes], tmp_path: Path) -> None:
    end(earlier)

    assert ended_session(tmp_path) == SESSION


@pytest.mark.parametrize("elsewhere", ["another-machine pid:[1]", ""])
def test_note_from_another_machine_or_container_proves_nothing(
    earlier: subprocess.Popen[bytes], tmp_path: Path, elsewhere: str
) -> None:
    end(earlier)

    change_note(tmp_path, launched_from=elsewhere)

    assert ended_session(tmp_path) == ""


def test_later_namespace_of_the_same_number_is_told_apart(
    earlier: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    change_note(tmp_path, began=1)

    assert ended_session(tmp_path) == SESSION


@pytest.mark.parametrize("text", ["{", "{}", "[]"])
def test_damaged_note_proves_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / "namespace.json").write_text(text)

    assert ended_session(tmp_path) == ""
