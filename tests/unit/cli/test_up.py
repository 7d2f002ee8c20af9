"""What `rota up` tells to type next."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from rota.cli.up import _next_steps

HERE = "in another shell in this folder"


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The command in a virtual environment that nobody has activated."""
    path = tmp_path / ".venv" / "bin" / "rota"
    path.parent.mkdir(parents=True)
    path.touch(mode=0o755)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(sys, "argv", [".venv/bin/rota", "up"])
    return path


def told(home: str = ".rota", *, has_jobs: bool = False, app: str = "") -> str:
    [line] = _next_steps(Path(home), has_jobs=has_jobs, app=app)
    return line


@pytest.mark.usefixtures("program")
def test_command_that_is_in_no_path_is_told_as_it_was_called() -> None:
    assert told() == f"Next, {HERE}: .venv/bin/rota demo"


def test_command_that_is_in_the_path_is_told_by_its_name(
    program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(program.parent))
    monkeypatch.setattr(sys, "argv", [str(program), "up"])

    assert told() == f"Next, {HERE}: rota demo"
    assert told(has_jobs=True) == f"Next, {HERE}: rota job list   or   rota demo"
    assert told(app="shop:app") == f"Next, {HERE}: rota apply --app shop:app   or   rota demo"


@pytest.mark.usefixtures("program")
def test_data_folder_that_is_elsewhere_is_told_too(tmp_path: Path) -> None:
    home = tmp_path / "my data"

    assert told(str(home)) == f"Next, in another shell: ROTA_HOME='{home}' .venv/bin/rota demo"
