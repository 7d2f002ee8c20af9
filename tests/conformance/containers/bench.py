"""An executor of containers by itself: what it is told, and what it reports."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from rota.clock import SystemClock
from rota.domain.output import Stream
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
from rota.ports.executor import Completions, JobBatch
from rota.ports.work import Fence, Outcome, StepOutcome, Work, WorkBatch
from rota.walls.container import MountRoot, security_options
from rota.walls.engine import PATIENCE, EnginePatience
from rota.walls.engine import Engine as EngineClient
from rota.walls.hold import write_programs
from rota.walls.images import Images, Login
from rota.walls.leftovers import Journal, Sweeper, labels_of
from testkit.servers.engines import BASE, Engine

PATIENCE_SECONDS = 50
NEVER = PullPolicy.NEVER


_sessions = itertools.count(1)


class Sink:
    """Implements `rota.ports.executor.OutputSink`."""

    is_full = False

    def __init__(self) -> None:
        self.fed: list[tuple[Stream, int, bytes]] = []
        self.was_fed = asyncio.Event()

    def feed(self, stream: Stream, step: int, data: bytes) -> None:
        self.fed.append((stream, step, data))
        self.was_fed.set()

    async def drained(self) -> None: ...

    def text(self, *streams: Stream) -> str:
        """Return all that came on these streams; on none of them: on all."""
        wanted = streams or tuple(Stream)
        return b"".join(data for stream, _, data in self.fed if stream in wanted).decode()

    async def shows(self, text: str) -> None:
        """Wait until this was printed."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while text not in self.text():
                self.was_fed.clear()
                await self.was_fed.wait()


class Reports:
    """Implements `rota.ports.executor.AttemptReports`."""

    def __init__(self) -> None:
        self.sinks: dict[Fence, Sink] = {}
        self.outcomes: dict[Fence, asyncio.Future[Outcome]] = {}
        self.progress: list[tuple[float, float | None, str]] = []
        self._has_progressed = asyncio.Event()

    async def shows_progress(self) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            await self._has_progressed.wait()

    def store_micros(self) -> int:
        return 1

    def output(self, fence: Fence) -> Sink:
        return self.sinks.setdefault(fence, Sink())

    def progressed(self, fence: Fence, done: float, total: float | None, message: str) -> None:
        self.progress.append((done, total, message))
        self._has_progressed.set()

    def stepped(self, fence: Fence, number: int, step: StepOutcome) -> StepOutcome:
        return step

    def completed(self, completions: Completions) -> None:
        raise AssertionError("a container has more to tell")

    def ended(self, outcomes: Sequence[Outcome]) -> None:
        for outcome in outcomes:
            self.outcomes[outcome.fence].set_result(outcome)


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

    async def outcome(self) -> Outcome:
        async with asyncio.timeout(PATIENCE_SECONDS):
            return await self.bench.reports.outcomes[self.fence]

    def is_over(self) -> bool:
        return self.bench.reports.outcomes[self.fence].done()

    def cancel(self) -> None:
        self.bench.executor.cancel([self.fence])


class Bench:
    """An executor on an engine, with a work folder."""

    def __init__(
        self,
        engine: Engine,
        folder: Path,
        *,
        logins: Sequence[Login] = (),
        roots: Sequence[MountRoot] = (),
        patience: EnginePatience = PATIENCE,
    ) -> None:
        self.engine = engine
        self.client = EngineClient(str(engine.socket), patience)
        self.reports = Reports()
        self.clock = SystemClock()
        self.folder = folder
        self.work_root = folder / "work"
        self.work_root.mkdir()
        self.work_root.chmod(0o700)
        write_programs(folder / "programs")
        self.labels = labels_of("w1", folder)
        self.sweeper = Sweeper(Journal(folder / "journal"), self.clock)
        self.keeper = KeptNotes(engine)
        self.may_start = True
        ground = ContainerGround(
            engine=self.client,
            images=Images(self.client, {login.name: login for login in logins}),
            sweeper=self.sweeper,
            keeper=self.keeper,
            labels=self.labels,
            work_root=self.work_root,
            programs=folder / "programs",
            security=security_options(folder / "programs", is_podman=engine.kind == "podman"),
            roots=tuple(roots),
        )
        self.executor = ContainerExecutor(
            self.reports, self.clock, ground, may_start=lambda: self.may_start
        )
        self.executor.session = f"s{next(_sessions)}"
        self._numbers = itertools.count(1)

    async def close(self) -> None:
        await self.executor.close()
        self.sweeper.journal.close()

    def start(self, spec: JobSpec, inputs: dict[str, Any] | None = None) -> Run:
        run = Run(self, Fence(f"r_{next(self._numbers)}", 1))
        work = Work(run.fence.run, run.fence.number, "j_1", 1, 0, inputs=inputs)
        self.reports.outcomes[run.fence] = asyncio.get_running_loop().create_future()
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
