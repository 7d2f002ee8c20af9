"""Rota's own executors pass the public suite, with real processes, sandboxes and engines."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest
import uvloop

from rota.clock import SystemClock
from rota.domain.spec import Container, Isolation, JobSpec, JobType, Network, PullPolicy
from rota.executors.container import ContainerExecutor
from rota.executors.python import PythonExecutor
from rota.executors.shell import ShellExecutor
from rota.ports.executor import AttemptReports, Executor
from rota.testing.executors import (
    LEFT_SECONDS,
    STEPS_IN_SHELL,
    Behaviour,
    ExecutorConformance,
)
from rota.walls.enclosing import Equipment, Walls, WallSettings
from rota.walls.probe import Prober
from rota.walls.rooms import Rooms
from rota.worker.guard import Guard
from testkit.processes import cmdline, processes_of
from testkit.servers.engines import BASE, Engine
from tests.conformance.containers.bench import ground_on
from tests.engines import docker, engine_room, podman
from tests.system.guardian.guarded import Guarded

__all__ = ["docker", "engine_room", "podman"]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def guardian(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    guarded = Guarded(tmp_path_factory.mktemp("guardian"), "auto")
    guarded.lease(3600)
    yield guarded
    guarded.close()


class OwnSuite(ExecutorConformance):
    """What all of Rota's executors have: a guardian, and uvloop as in a worker."""

    guardian: Guarded

    @pytest.fixture(autouse=True)
    def _of_guardian(self, guardian: Guarded) -> None:
        self.guardian = guardian

    def new_loop(self) -> uvloop.Loop:
        return uvloop.new_event_loop()

    def spec(self, behaviour: Behaviour) -> JobSpec:
        return JobSpec("conformance", steps=STEPS_IN_SHELL[behaviour])

    def leftovers(self) -> Sequence[object]:
        return [pid for pid in processes_of(LEFT_SECONDS) if b"sleep" in cmdline(pid)]

    @contextmanager
    def guard(self) -> Iterator[Guard]:
        guard = Guard(*self.guardian.connection())
        try:
            yield guard
        finally:
            guard.close()


class TestProcess(OwnSuite):
    @asynccontextmanager
    async def executor(self, reports: AttemptReports, folder: Path) -> AsyncIterator[Executor]:
        with self.guard() as guard:
            yield ShellExecutor(reports, guard, SystemClock(), folder / "work")


@contextmanager
def passable_folder() -> Iterator[Path]:
    """A folder that other users can pass through, as they cannot through pytest's."""
    folder = Path(tempfile.mkdtemp(prefix="rota-rooms-", dir="/var/tmp"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


class TestSandbox(OwnSuite):
    many = 20
    equipment: ClassVar[Equipment | None] = None  # tried once
    ground: Path

    @asynccontextmanager
    async def executor(self, reports: AttemptReports, folder: Path) -> AsyncIterator[Executor]:
        with self.guard() as guard, passable_folder() as ground:
            self.ground = ground
            rooms = Rooms(ground / "rooms", WallSettings().uids, may_mount=False)
            walls = Walls(WallSettings(), guard, rooms)
            if self.equipment is None:
                await Prober(walls, guard).probe()
                type(self).equipment = walls.equipment
            walls.equipment = self.equipment or walls.equipment
            yield ShellExecutor(reports, guard, SystemClock(), folder / "work", walls)

    def leftovers(self) -> Sequence[object]:
        return [*super().leftovers(), *(self.ground / "rooms").iterdir()]

    def spec(self, behaviour: Behaviour) -> JobSpec:
        spec = super().spec(behaviour)
        return replace(spec, isolation=Isolation.SANDBOX, network=Network.NONE)


class TestPython(OwnSuite):
    has_exit_codes = False

    @asynccontextmanager
    async def executor(self, reports: AttemptReports, folder: Path) -> AsyncIterator[Executor]:
        with self.guard() as guard:
            executor = PythonExecutor(reports, guard, "tests.conformance.executors.app:app")
            await executor.ready()
            yield executor

    def spec(self, behaviour: Behaviour) -> JobSpec:
        return JobSpec("any", type=JobType.PYTHON, function=f"conformance.{behaviour}")


class ContainerSuite(OwnSuite):
    many = 6
    engine: Engine

    @asynccontextmanager
    async def executor(self, reports: AttemptReports, folder: Path) -> AsyncIterator[Executor]:
        ground = ground_on(self.engine, folder)
        yield ContainerExecutor(reports, SystemClock(), ground, may_start=lambda: True)
        ground.sweeper.journal.close()
        assert self.engine.names(**ground.labels) == []
        assert list(ground.work_root.iterdir()) == []

    def spec(self, behaviour: Behaviour) -> JobSpec:
        return replace(
            super().spec(behaviour),
            type=JobType.CONTAINER,
            isolation=Isolation.CONTAINER,
            container=Container(image=BASE, pull=PullPolicy.NEVER),
            network=Network.NONE,
        )


class TestDocker(ContainerSuite):
    @pytest.fixture(autouse=True)
    def _on_docker(self, docker: Engine) -> None:
        self.engine = docker


@pytest.mark.long
class TestPodman(ContainerSuite):
    @pytest.fixture(autouse=True)
    def _on_podman(self, podman: Engine) -> None:
        self.engine = podman
