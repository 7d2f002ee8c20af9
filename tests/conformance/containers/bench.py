"""An executor of containers by itself: what it is told, and what it reports."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

from rota.clock import SystemClock
from rota.domain.spec import (
    Container,
    Isolation,
    JobSpec,
    JobType,
    Network,
    PullPolicy,
    Step,
)
from rota.executors.container import ContainerExecutor, ContainerGround
from rota.ports.executor import JobBatch
from rota.ports.work import Fence, Outcome, Work, WorkBatch
from rota.testing.bench import Reports, Sink
from rota.walls.container import MountRoot, security_options
from rota.walls.engine import PATIENCE, ContainerEngine, EnginePatience
from rota.walls.hold import write_programs
from rota.walls.images import Images, RegistryLogin
from rota.walls.leftovers import Journal, Sweeper, labels_of
from testkit.servers.engines import BASE, Engine

PATIENCE_SECONDS = 50
NEVER = PullPolicy.NEVER
T = TypeVar("T")

_sessions = itertools.count(1)


@dataclass
class KeptNotes:
    """Implements `rota.ports.executor.Keeper`, and checks that it is told in time."""

    engine: Engine
    kept: dict[str, int] = field(default_factory=dict)  # pids

    async def keep(self, engine: str, name: str) -> None:
        assert engine == str(self.engine.socket)
        assert name not in self.engine.names()
        self.kept[name] = 0

    async def started(self, name: str, pid: int) -> None:
        assert name in self.kept
        assert pid > 1
        self.kept[name] = pid

    async def network(self, name: str) -> int:
        return os.open(f"/proc/{self.kept[name]}/ns/net", os.O_RDONLY)

    async def release(self, name: str) -> None:
        assert name not in self.engine.names()
        del self.kept[name]


def ground_on(
    engine: Engine,
    folder: Path,
    *,
    logins: Sequence[RegistryLogin] = (),
    roots: Sequence[MountRoot] = (),
    patience: EnginePatience = PATIENCE,
) -> ContainerGround:
    """Prepare a folder for containers of an engine."""
    client = ContainerEngine(str(engine.socket), patience)
    work_root, programs = folder / "work", folder / "programs"
    work_root.mkdir()
    work_root.chmod(0o700)
    write_programs(programs)
    return ContainerGround(
        engine=client,
        images=Images(client, {login.name: login for login in logins}),
        sweeper=Sweeper(Journal(folder / "journal"), SystemClock()),
        keeper=KeptNotes(engine),
        labels=labels_of("w1", folder),
        work_root=work_root,
        programs=programs,
        security=security_options(programs, is_podman=engine.kind == "podman"),
        roots=tuple(roots),
    )


@dataclass(frozen=True)
class Run:
    """An attempt that was begun."""

    bench: Bench
    fence: Fence

    @property
    def sink(self) -> Sink:
        return self.bench.reports.output(self.fence)

    @property
    def container(self) -> str:
        return f"rota-{self.fence.run}-{self.fence.number}-{self.bench.executor.session}"

    @property
    def folder(self) -> Path:
        """Return the folder that the only attempt works in."""
        [folder] = self.bench.work_root.iterdir()
        return folder / "job"

    async def shows(self, text: str) -> None:
        """Wait until this was printed."""
        await self._until(lambda: text in self.sink.text())

    async def outcome(self) -> Outcome:
        return await self._until(lambda: self.bench.reports.outcomes.get(self.fence))

    async def _until(self, claim: Callable[[], T | None]) -> T:
        async with asyncio.timeout(PATIENCE_SECONDS):
            answer = await self.bench.reports.until(claim)
        assert answer is not None
        return answer

    def is_over(self) -> bool:
        return self.fence in self.bench.reports.outcomes

    def cancel(self) -> None:
        self.bench.executor.cancel([self.fence])


class Bench:
    """An executor on an engine, with a work folder."""

    def __init__(self, engine: Engine, folder: Path, **options: Any) -> None:
        self.engine = engine
        self.folder = folder
        self.reports = Reports()
        self.clock = SystemClock()
        self.may_start = True
        ground = ground_on(engine, folder, **options)
        self.client, self.sweeper, self.labels = ground.engine, ground.sweeper, ground.labels
        self.work_root = ground.work_root
        assert isinstance(ground.keeper, KeptNotes)
        self.keeper = ground.keeper
        self.executor = ContainerExecutor(
            self.reports, self.clock, ground, may_start=lambda: self.may_start
        )
        self.executor.session = f"s{next(_sessions)}"
        self._numbers = itertools.count(1)

    async def close(self) -> None:
        await self.executor.close()
        self.sweeper.journal.close()
        assert self.reports.faults == []

    def start(self, spec: JobSpec, inputs: dict[str, Any] | None = None) -> Run:
        run = Run(self, Fence(f"r_{next(self._numbers)}", 1))
        work = Work(run.fence.run, run.fence.number, "j_1", 1, 0, inputs=inputs)
        self.reports.expect(run.fence)
        self.executor.start([JobBatch(spec, WorkBatch.of([work]), [run.fence])])
        return run

    async def run(self, spec: JobSpec) -> tuple[Outcome, Sink]:
        run = self.start(spec)
        return await run.outcome(), run.sink


def job(*scripts: str | Step, **fields: Any) -> JobSpec:
    """Build a job of steps in a container; fields of the container or of the job."""
    steps = tuple(
        script if isinstance(script, Step) else Step(f"step {number}", script)
        for number, script in enumerate(scripts, start=1)
    )
    own = ("image", "pull", "registry", "mounts", "command", "user")
    inside = {name: fields.pop(name) for name in own if name in fields}
    container = Container(**{"image": BASE, "pull": NEVER, **inside})
    given = {"network": Network.NONE, "grace": timedelta(seconds=10), **fields}
    return JobSpec(
        "tidy",
        type=JobType.CONTAINER,
        isolation=Isolation.CONTAINER,
        container=container,
        steps=steps,
        **given,
    )
