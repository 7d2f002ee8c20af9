from __future__ import annotations

import os
import platform
import signal
import subprocess
from pathlib import Path

import pytest

from rota.walls.hold import PROGRAMS, program, why_not_here, write_programs


def test_unknown_machines_are_told() -> None:
    assert why_not_here("x86_64") == why_not_here("aarch64") == ""
    assert why_not_here("vax") == "Rota has no programs for containers on vax"


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_are_small_and_whole(name: str, machine: str) -> None:
    data = program(name, machine)

    assert data.startswith(b"\x7fELF")
    assert len(data) < 250
    size = int.from_bytes(data[64 + 32 : 64 + 40], "little")  # of the segment in the file
    assert size == len(data)


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_programs_that_signal_differ_in_the_signal_only(machine: str) -> None:
    term, kill = program("term", machine), program("kill", machine)

    different = [(a, b) for a, b in zip(term, kill, strict=True) if a != b]

    assert len(different) == 1


# In a pid namespace, where "all processes" are those of the test. `wait` ends when a child does.
_SCENE = """
{folder}/hold & held=$!
sh -c 'trap "echo told; exit" TERM; echo ready; while :; do sleep 0.02; done' > {folder}/said &
until grep -q ready {folder}/said; do sleep 0.02; done
{folder}/{program}; echo "code $?"
wait
cat {folder}/said
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes a pid namespace")
@pytest.mark.skipif(bool(why_not_here()), reason=why_not_here())
@pytest.mark.parametrize(("name", "said"), [("term", "ready\ntold\n"), ("kill", "ready\n")])
def test_all_but_the_first_get_the_signal(tmp_path: Path, name: str, said: str) -> None:
    write_programs(tmp_path, platform.machine())
    script = _SCENE.format(folder=tmp_path, program=name)

    ended = subprocess.run(
        ["unshare", "--pid", "--fork", "--kill-child", "sh", "-c", script],
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )

    assert ended.stdout == f"code 0\n{said}"


@pytest.mark.skipif(bool(why_not_here()), reason=why_not_here())
def test_hold_stays_until_it_is_killed(tmp_path: Path) -> None:
    write_programs(tmp_path)
    process = subprocess.Popen([tmp_path / "hold"])

    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.2)

    process.kill()
    assert process.wait(5) == -signal.SIGKILL
