from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from rota.domain.spec import Isolation, JobSpec, Network, RunLimits, Step
from rota.ports.executor import Confinement, Process
from rota.walls.enclosing import Walls, WallSettings, WallUnavailable
from rota.walls.rooms import Rooms
from rota.walls.sandbox import Bind

STEP = Step("a", "true")
LIMITS = RunLimits(memory=1 << 26, disk=1 << 30)


class Spawner:
    """Implements `rota.ports.executor.Spawner`; nothing may be started."""

    def spawn(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: str,
        stdout: int,
        stderr: int,
        confinement: Confinement | None = None,
    ) -> Process:
        raise AssertionError("nothing is to be started")


@pytest.fixture
def walls(tmp_path: Path) -> Walls:
    settings = WallSettings(binds=(Bind(Path("/data")),), run_as=("nobody",))
    rooms = Rooms(tmp_path / "rooms", range(70_000, 70_009), may_mount=False, run=tmp_path / "run")
    return Walls(settings, Spawner(), rooms)


def spec(**fields: object) -> JobSpec:
    return JobSpec("tidy", **fields)  # type: ignore[arg-type]


def boxed(**fields: object) -> JobSpec:
    return spec(isolation=Isolation.SANDBOX, network=Network.NONE, **fields)


class TestNeeds:
    def test_a_plain_process_needs_nothing(self, walls: Walls) -> None:
        assert not walls.needs_room(spec(), STEP)
        assert walls.confinement(spec(), STEP, "tag") is None

    def test_a_step_may_need_more_than_its_job(self, walls: Walls) -> None:
        assert walls.needs_room(spec(), Step("a", "x", isolation=Isolation.SANDBOX))
        assert walls.needs_room(spec(), Step("a", "x", run_as="nobody"))
        assert not walls.needs_room(boxed(), Step("a", "x", isolation=Isolation.PROCESS))

    def test_a_limit_of_disk_needs_no_group(self, walls: Walls) -> None:
        assert walls.confinement(spec(limits=RunLimits(disk=5)), STEP, "tag") is None

    def test_other_limits_do(self, walls: Walls) -> None:
        told = walls.confinement(spec(limits=LIMITS), STEP, "tag")

        assert told == Confinement(limits=RunLimits(memory=1 << 26), tag="tag")


class TestLimits:
    def test_what_is_booked_counts_where_no_limit_is_given(self, walls: Walls) -> None:
        job = spec(resources={"cpu": 500, "memory": 1_000 << 20}, limits=RunLimits(cpu=250))

        assert walls.limits(job, STEP) == RunLimits(cpu=250, memory=1 << 20)

    def test_a_worker_that_cannot_limit_lets_bookings_be(self, walls: Walls) -> None:
        walls.equipment.lacks["limit/memory"] = "no control groups"
        job = spec(resources={"memory": 1_000 << 20})

        assert walls.limits(job, STEP) == RunLimits()

    def test_but_never_what_is_asked_for(self, walls: Walls) -> None:
        walls.equipment.lacks["limit/memory"] = "no control groups"

        with pytest.raises(WallUnavailable, match="no control groups"):
            walls.confinement(spec(limits=LIMITS), STEP, "tag")

    def test_limits_of_a_step_go_before_those_of_its_job(self, walls: Walls) -> None:
        step = Step("a", "x", limits=RunLimits(memory=7))

        assert walls.limits(spec(limits=LIMITS), step) == RunLimits(memory=7, disk=1 << 30)


class TestRefusals:
    @pytest.mark.parametrize("lack", ["wall/sandbox", "network/sandbox/none", "limit/memory"])
    def test_nothing_runs_with_less_than_it_asks_for(self, walls: Walls, lack: str) -> None:
        walls.equipment.lacks[lack] = "it is broken"

        with pytest.raises(WallUnavailable, match="it is broken"):
            walls.enclose(boxed(limits=LIMITS), STEP, walls.rooms.take(), "tag")

    def test_users_that_are_not_on_the_list_are_refused(self, walls: Walls) -> None:
        with pytest.raises(WallUnavailable, match="root is not among the users"):
            walls.enclose(spec(run_as="root"), STEP, walls.rooms.take(), "tag")

    def test_folders_that_are_not_shown_are_refused(self, walls: Walls) -> None:
        for path in ("/database", "/dat", "/"):
            with pytest.raises(WallUnavailable, match="sandbox_binds"):
                walls.enclose(boxed(path=path), STEP, walls.rooms.take(), "tag")
        walls.enclose(boxed(path="/data/inner"), STEP, walls.rooms.take(), "tag")


class TestEnclosed:
    def test_a_sandbox_sees_paths_and_users_of_its_own(self, walls: Walls) -> None:
        room = walls.rooms.take()

        enclosed = walls.enclose(boxed(), STEP, room, "tag")

        assert str(enclosed.output) == "/run/rota/output"
        assert enclosed.variables["HOME"] == "/home/job"
        assert enclosed.hides_scripts
        assert enclosed.write_script(".py", "x") == "/run/script.py"
        if os.geteuid() == 0:
            assert room.job.stat().st_uid == 70_000

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
    def test_another_user_gets_scripts_that_it_can_read_and_not_change(self, walls: Walls) -> None:
        room = walls.rooms.take()

        enclosed = walls.enclose(spec(run_as="nobody"), STEP, room, "tag")

        script = Path(enclosed.write_script(".sh", "echo hi"))
        status = script.stat()
        assert (script.read_text(), status.st_mode & 0o777) == ("echo hi", 0o500)
        assert status.st_uid == room.job.stat().st_uid != 0
        assert script.parent.stat().st_uid == 0
        assert enclosed.variables["USER"] == "nobody"
