"""The host's process, from its start to its first message."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from rota.sdk.host import wire


def start(folder: Path, reference: str) -> tuple[list[wire.Message], str]:
    """Start a host in a folder; return what it tells the worker and prints."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "socket"))
        listener.listen()
        done = subprocess.run(
            [sys.executable, "-m", "rota.sdk.host", reference, str(folder / "socket")],
            capture_output=True,
            text=True,
            check=False,
            cwd=folder,
        )
        connection, _ = listener.accept()
        with connection:
            return list(wire.message_reader().feed(connection.recv(1 << 16))), done.stderr


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("nope:app", 'there is no module "nope"'),
        ("jobs:nope", 'jobs:nope is not an App: jobs.py has no "nope", nor any other App'),
    ],
)
def test_app_that_is_not_there_is_told_without_a_traceback(
    tmp_path: Path, reference: str, message: str
) -> None:
    (tmp_path / "jobs.py").write_text("")

    told, printed = start(tmp_path, reference)

    assert told == [wire.Unusable(message)]
    assert printed == ""


def test_traceback_shows_where_the_code_of_an_app_failed(tmp_path: Path) -> None:
    (tmp_path / "jobs.py").write_text("1 / 0\n")

    told, printed = start(tmp_path, "jobs:app")

    assert told == [wire.Unusable("jobs.py:1: ZeroDivisionError: division by zero")]
    assert "Traceback" in printed
