from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rota.runtime.config import Settings
from rota.runtime.doctor import Finding, Verdict, run


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    home = tmp_path / "home"
    home.mkdir()
    return Settings(home=home)


@pytest.fixture
def listening() -> Iterator[str]:
    """The address of somebody who listens, on no port that any setting names."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


def server(settings: Settings) -> Finding:
    """What was found out about the server."""
    [finding] = [each for each in run(settings) if each.subject == "server"]
    return finding


def leave_note(settings: Settings, **note: object) -> None:
    (settings.home / "client.json").write_text(json.dumps(note))


def ended_process() -> int:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    return process.pid


def test_server_is_looked_for_where_its_note_says(settings: Settings, listening: str) -> None:
    leave_note(settings, url=listening, pid=os.getpid())

    found = server(settings)

    assert found.verdict is Verdict.OK
    assert f"answers on {listening} (pid {os.getpid()})" in found.message


def test_no_note_means_no_server(settings: Settings) -> None:
    assert server(settings).message == "none runs on this data folder"


def test_note_of_a_killed_server_is_told(settings: Settings, listening: str) -> None:
    leave_note(settings, url=listening, pid=ended_process())

    found = server(settings)

    assert found.verdict is Verdict.WARNING
    assert "was killed" in found.message
    assert "rota up" in found.advice


def test_server_that_lives_but_does_not_answer_is_told(settings: Settings) -> None:
    leave_note(settings, url="http://127.0.0.1:1", pid=os.getpid())

    found = server(settings)

    assert found.verdict is Verdict.WARNING
    assert "http://127.0.0.1:1" in found.message


@pytest.mark.parametrize("text", ["", "[]", '{"url": "http://127.0.0.1:1"}'])
def test_note_that_makes_no_sense_is_told(settings: Settings, text: str) -> None:
    (settings.home / "client.json").write_text(text)

    found = server(settings)

    assert found.verdict is Verdict.WARNING
    assert "client.json" in found.message
