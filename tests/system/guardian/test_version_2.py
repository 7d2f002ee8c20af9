"""Control groups of version 2 alone: who may use them, and what happens to the group around."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.system.guardian.guarded import Guarded, eventually

Guard = Callable[..., Guarded]

ROOT = Path("/sys/fs/cgroup")
CONTROLLERS = {"cpu", "memory", "pids"}

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0
    or not (ROOT / "cgroup.controllers").exists()
    or not set((ROOT / "cgroup.controllers").read_text().split()) >= CONTROLLERS,
    reason="this machine does not have all controllers in version 2, or we are not root",
)


@pytest.fixture
def unit() -> Iterator[Path]:
    """A group as a service manager makes it, with all controllers."""
    for controller in CONTROLLERS:
        (ROOT / "cgroup.subtree_control").write_text(f"+{controller}")
    unit = ROOT / f"unit-{os.urandom(4).hex()}"
    unit.mkdir()
    yield unit
    eventually(lambda: "populated 0" in (unit / "cgroup.events").read_text(), "processes are left")
    for folder, _, _ in os.walk(unit, topdown=False):
        Path(folder).rmdir()


def launcher_in(unit: Path, *before: str) -> list[str]:
    """Starts the guardian in the group, with a launcher above it as in real life."""
    script = f'echo 0 > {unit}/cgroup.procs; "$@" & trap "kill $!" TERM; wait; wait'
    return ["sh", "-c", script, "launcher", *before]


@contextmanager
def stranger_in(unit: Path) -> Iterator[int]:
    """A process in the group that neither started the guardian nor was started by its launcher."""
    script = f"echo 0 > {unit}/cgroup.procs; echo $$; exec sleep 100 >&-"
    command = ["setsid", "--fork", "sh", "-c", script]
    told = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    pid = int(told.stdout)
    try:
        yield pid
    finally:
        os.kill(pid, signal.SIGKILL)


def offers(guarded: Guarded) -> dict[str, str]:
    guarded.send({"do": "limits"})
    told: dict[str, str] = guarded.heard("limits")["offers"]
    return told


def run_limited(guarded: Guarded) -> str:
    guarded.lease()
    limits = {"memory": 1 << 30, "cpu": 900, "processes": 50}
    output, _ = guarded.output_of("a", "cat", "/proc/self/cgroup", confine={"limits": limits})
    guarded.heard("ended", "a")
    return output


class TestOwnGroup:
    def test_processes_of_the_launcher_make_room_and_all_limits_are_offered(
        self, unit: Path, guard: Guard
    ) -> None:
        guarded = guard(launcher=launcher_in(unit), name="roomy")

        assert set(offers(guarded).values()) == {""}
        assert (unit / "cgroup.procs").read_text() == ""
        assert str(guarded.outer_pid) in (unit / "rota-main" / "cgroup.procs").read_text().split()
        assert f"/{unit.name}/{guarded.life}/job-" in run_limited(guarded)

    def test_next_guardian_of_the_same_launcher_uses_the_same_place(
        self, unit: Path, guard: Guard
    ) -> None:
        guard(launcher=launcher_in(unit), name="one")

        second = guard(launcher=launcher_in(unit / "rota-main"), name="two")

        assert set(offers(second).values()) == {""}
        assert f"/{unit.name}/{second.life}/job-" in run_limited(second)

    def test_group_with_strangers_is_left_alone_and_the_reason_told(
        self, unit: Path, guard: Guard
    ) -> None:
        with stranger_in(unit) as stranger:
            guarded = guard(launcher=["setsid", *launcher_in(unit)], name="shy")

            reasons = offers(guarded)

            assert "Delegate=yes" in reasons["memory"]
            assert str(stranger) in (unit / "cgroup.procs").read_text().split()

    def test_group_that_is_delegated_makes_room_even_for_strangers(
        self, unit: Path, guard: Guard
    ) -> None:
        os.setxattr(unit, "trusted.delegate", b"1")  # as systemd does for Delegate=yes
        with stranger_in(unit):
            guarded = guard(launcher=launcher_in(unit), name="bold")

            assert set(offers(guarded).values()) == {""}

    def test_limits_of_the_group_around_hold_as_well(self, unit: Path, guard: Guard) -> None:
        (unit / "memory.max").write_text(str(200 << 20))
        guarded = guard(launcher=launcher_in(unit), name="inner")

        assert f"/{unit.name}/" in run_limited(guarded)

    def test_missing_controller_is_told(self, unit: Path, guard: Guard) -> None:
        below = unit / "below"
        below.mkdir()  # to which the unit hands nothing down
        guarded = guard(launcher=launcher_in(below), name="poor")

        assert all("not given" in offers(guarded)[name] for name in ("cpu", "memory", "processes"))
