"""Source of an attempt, as it is begun where a worker has no sandbox."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from rota.clock import SystemClock
from rota.domain.git import WALLED_FILES
from rota.domain.run import AttemptResult
from rota.domain.spec import JobSpec, RunLimits, Step, Upload
from rota.executors.shell import ShellExecutor
from rota.executors.source import Mirrors, Sources
from rota.ports.executor import Confinement, JobBatch
from rota.ports.work import Fence, Work, WorkBatch
from rota.sources.wish import SourceSettings
from rota.walls.enclosing import Walls, WallSettings
from rota.walls.rooms import Rooms
from tests.unit.executors.test_shell import BAD, FENCE, Process, Reports, Spawner

pytestmark = pytest.mark.anyio

UPLOAD = Upload("sha256:" + "0" * 64, "code.txt")
LIMITS = RunLimits(memory=1 << 26, processes=9)


class Noting(Spawner):
    """Spawner that notes how the processes are confined, and closes what they are given."""

    def __init__(self) -> None:
        super().__init__()
        self.confined: list[RunLimits | None] = []

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
        self.confined.append(None if confinement is None else confinement.limits)
        for descriptor in confinement.descriptors.values() if confinement is not None else ():
            os.close(descriptor)
        return super().spawn(argv, env=env, cwd=cwd, stdout=stdout, stderr=stderr)


class Empty:
    """Implements `rota.ports.executor.Files`: what is fetched is empty."""

    async def fetch(self, fence: Fence, digest: str, into: int, most: int) -> int:
        return 0

    async def keep(
        self, fence: Fence, step: int, path: str, source: int, size: int | None = None
    ) -> str:
        raise AssertionError("nothing is kept here")


async def test_a_source_that_is_fetched_as_a_process_has_the_limits_of_its_job(
    tmp_path: Path,
) -> None:
    reports, spawner, clock, files = Reports(), Noting(), SystemClock(), Empty()
    rooms = Rooms(tmp_path / "rooms", range(70_000, 70_009), may_mount=False, run=tmp_path / "run")
    walls = Walls(WallSettings(), spawner, rooms)
    walls.equipment.lacks[f"capability/{WALLED_FILES}"] = "there is no bubblewrap"
    mirrors = Mirrors(tmp_path, tmp_path, tmp_path, 1, clock)

    async def record(fence: Fence, commit: str) -> None:
        raise AssertionError("there is no git here")

    sources = Sources(SourceSettings(), walls, spawner, clock, mirrors, record, files)
    executor = ShellExecutor(reports, spawner, clock, tmp_path / "work", walls, files, sources)
    spec = JobSpec("tidy", steps=(Step("a", "x"),), upload=UPLOAD, limits=LIMITS)
    batch = WorkBatch.of([Work(FENCE.run, FENCE.number, "j_1", 1, 0)])
    try:
        executor.start([JobBatch(spec, batch, [FENCE])])
        (await spawner.next()).end(BAD)
        outcome = await reports.outcome()
    finally:
        spawner.kill_all()
        await executor.close()
        sources.close()

    assert outcome.result == AttemptResult.FAILED
    assert spawner.confined == [LIMITS]
