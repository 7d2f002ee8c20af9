"""A worker's reports and spawner in the hands of a test."""

from __future__ import annotations

import asyncio
import os
import subprocess
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from itertools import count, groupby

from rota.domain.output import Stream
from rota.domain.spec import JobSpec, JobType
from rota.executors.python import PythonExecutor
from rota.ports.executor import Assignment, Completions, Confinement, Exit, JobBatch
from rota.ports.work import ATTEMPT_BITS, Fence, Outcome, Work, WorkBatch
from rota.worker.ends import outcome_at

APP = "served_app:app"
DUE_AT = 1_700_000_000_000_000
PATIENCE_SECONDS = 20.0
AN_HOUR_MICROS = 3_600_000_000

_numbers = count(1)


def assignment(
    function: str,
    inputs: Mapping[str, object] | None = None,
    *,
    timeout: timedelta | None = None,
    grace: timedelta = timedelta(seconds=20),
) -> Assignment:
    spec = JobSpec(
        name=function,
        type=JobType.PYTHON,
        function=f"served.{function}",
        timeout=timeout,
        grace=grace,
    )
    given = dict(inputs) if inputs is not None else None
    number = 3 << ATTEMPT_BITS | 2
    return Assignment(Work(f"r_{next(_numbers)}", number, "j_1", 1, DUE_AT, given), spec)


def batch_of(spec: JobSpec, assignments: Sequence[Assignment]) -> JobBatch:
    works = [each.work for each in assignments]
    return JobBatch(spec, WorkBatch.of(works), [work.fence for work in works])


class Sink:
    """Keeps what was printed; full when told so, until `drained` is awaited and room is made."""

    def __init__(self) -> None:
        self.pieces: list[tuple[Stream, int, bytes]] = []
        self.is_full = False
        self.room = asyncio.Event()
        self.was_asked = asyncio.Event()

    def feed(self, stream: Stream, step: int, data: bytes) -> None:
        self.pieces.append((stream, step, data))

    async def drained(self) -> None:
        self.was_asked.set()
        await self.room.wait()
        self.is_full = False

    def text(self, stream: Stream) -> bytes:
        return b"".join(data for name, _, data in self.pieces if name is stream)


class Reports:
    """Notes what the executor reports; its store's clock is an hour ahead of the machine's."""

    def __init__(self) -> None:
        self.sinks: dict[Fence, Sink] = defaultdict(Sink)
        self.progress: list[tuple[Fence, float, float | None, str]] = []
        self.outcomes: dict[str, Outcome] = {}
        self._news = asyncio.Event()

    def store_micros(self) -> int:
        # Not the loop's time, which uvloop rounds to milliseconds.
        return time.monotonic_ns() // 1000 + AN_HOUR_MICROS

    def output(self, fence: Fence) -> Sink:
        return self.sinks[fence]

    def progressed(self, fence: Fence, done: float, total: float | None, message: str) -> None:
        self.progress.append((fence, done, total, message))
        self._news.set()

    def completed(self, completions: Completions) -> None:
        self.ended([outcome_at(completions, at) for at in range(len(completions))])

    def ended(self, outcomes: Sequence[Outcome]) -> None:
        for outcome in outcomes:
            assert outcome.run not in self.outcomes, "an attempt may end only once"
            self.outcomes[outcome.run] = outcome
        self._news.set()

    async def has_begun(self, *assignments: Assignment) -> None:
        """Waits for functions that begin by reporting progress."""
        wanted = {each.work.fence for each in assignments}
        await self._wait_until(lambda: wanted <= {fence for fence, *_ in self.progress})

    async def ends(self, *assignments: Assignment) -> list[Outcome]:
        wanted = [each.work.run for each in assignments]
        await self._wait_until(lambda: self.outcomes.keys() >= set(wanted))
        return [self.outcomes[run] for run in wanted]

    async def _wait_until(self, claim: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not claim():
                self._news.clear()
                await self._news.wait()


class SpawnedProcess:
    def __init__(self, popen: subprocess.Popen[bytes]) -> None:
        self.popen = popen
        self._loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[Exit] = self._loop.create_future()
        threading.Thread(target=self._reap).start()

    def signal(self, number: int) -> None:
        self.popen.send_signal(number)

    def kill(self) -> None:
        self.popen.kill()

    def _reap(self) -> None:
        code = self.popen.wait()
        end = Exit(code, None) if code >= 0 else Exit(None, -code)
        self._loop.call_soon_threadsafe(self.ended.set_result, end)


class Spawner:
    def __init__(self) -> None:
        self.processes: list[SpawnedProcess] = []

    def spawn(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: str,
        stdout: int,
        stderr: int,
        confinement: Confinement | None = None,
    ) -> SpawnedProcess:
        popen = subprocess.Popen(argv, env=env, cwd=cwd, stdout=stdout, stderr=stderr)
        os.close(stdout)
        os.close(stderr)
        self.processes.append(SpawnedProcess(popen))
        return self.processes[-1]


class Hosting:
    """An executor with its surroundings."""

    def __init__(self, app: str = APP) -> None:
        self.reports = Reports()
        self.spawner = Spawner()
        self.executor = PythonExecutor(self.reports, self.spawner, app)

    def start(self, *assignments: Assignment) -> None:
        """Start attempts, those of one job in a row together."""
        groups = groupby(assignments, key=lambda each: each.spec)
        self.executor.start([batch_of(spec, list(group)) for spec, group in groups])

    async def run(self, *assignments: Assignment) -> list[Outcome]:
        self.start(*assignments)
        return await self.reports.ends(*assignments)

    def text(self, assignment: Assignment, stream: Stream = Stream.STDOUT) -> bytes:
        return self.reports.sinks[assignment.work.fence].text(stream)
