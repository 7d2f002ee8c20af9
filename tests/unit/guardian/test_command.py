from __future__ import annotations

import subprocess
import sys
from datetime import timedelta

import pytest

import rota.guardian
from rota.guardian import guardian_command


def test_public_names_are_declared() -> None:
    assert sorted(rota.guardian.__all__) == ["NamespaceWish", "guardian_command"]


def test_worker_command_comes_last_and_unchanged() -> None:
    command = guardian_command(["rota", "worker", "--", "--name=a b"], parent_fd=7)

    assert command[command.index("--") + 1 :] == ["rota", "worker", "--", "--name=a b"]


def test_options_are_spelled_out() -> None:
    command = guardian_command(
        ["w"], namespace="off", parent_fd=7, stop_grace=timedelta(milliseconds=1500)
    )

    options = " ".join(command[1 : command.index("--")])
    assert options.endswith("--namespace off --parent-fd 7 --stop-grace 1.5")


def test_name_is_passed_where_there_is_one() -> None:
    assert "--name=-w 1" in guardian_command(["w"], name="-w 1")
    assert not any(word.startswith("--name=") for word in guardian_command(["w"]))


def test_guardian_without_a_launcher_gets_no_descriptor() -> None:
    assert "--parent-fd" not in guardian_command(["w"])


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "the worker's command is missing"),
        (["--"], "the worker's command is missing"),
        (["--namespace", "perhaps", "--", "w"], "invalid choice"),
        (["--parent-fd", "999", "--", "w"], "999 is not open"),
    ],
)
def test_wrong_usage_is_explained(arguments: list[str], complaint: str) -> None:
    command = [sys.executable, "-P", "-m", "rota.guardian", *arguments]

    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.returncode == 2
    assert complaint in done.stderr
