from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from shutil import rmtree

import pytest

from rota.clock import SystemClock
from rota.domain.run import AttemptResult
from rota.domain.spec import JobSpec, Retry, Step, StepCondition
from rota.executors.shell import ShellExecutor
from rota.ports.executor import Completions, Confinement, Exit, JobBatch
from rota.ports.work import Fence, Outcome, Work, WorkBatch
from tests.unit.executors.test_pipes import Sink

pytestmark = pytest.mark.anyio

GOOD = Exit(0, None)
BAD = Exit(1, None)
FENCE = Fence("r_1", 1)
LONG = timedelta(hours=1)


class Process:
    """Implements `rota.ports.executor.Process`: it ends when a test says so, or by KILL."""

    def __init__(self, argv: Sequence[str], stderr: int) -> None:
        self.argv = argv
        self._stderr = stderr
        self.ended: asyncio.Future[Exit] = asyncio.get_running_loop().create_future()
        self.signals: list[int] = []
        self.was_signalled = asyncio.Event()

    def signal(self, number: int) -> None:
        self.signals.append(number)
        self.was_signalled.set()

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self.end(Exit(None, signal.SIGKILL))

    def complain(self, text: str) -> None:
        os.write(self._stderr, text.encode())

    def end(self, ending: Exit) -> None:
        os.close(self._stderr)
        self.ended.set_result(ending)


class Spawner:
    """Implements `rota.ports.executor.Spawner` with processes that a test holds."""

    def __init__(self) -> None:
        self._spawned: asyncio.Queue[Process] = asyncio.Queue()
        self._all: list[Process] = []

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
        os.close(stdout)
        process = Process(argv, stderr)
        self._spawned.put_nowait(process)
        self._all.append(process)
        return process

    def kill_all(self) -> None:
        for process in self._all:
            if not process.ended.done():
                process.kill()

    async def next(self) -> Process:
        async with asyncio.timeout(20):
            return await self._spawned.get()


class Reports:
    """Implements `rota.ports.executor.AttemptReports`; keeps the one outcome."""

    def __init__(self) -> None:
        self._outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self.sink = Sink()

    def store_micros(self) -> int:
        return 1

    def output(self, fence: Fence) -> Sink:
        return self.sink

    def progressed(self, fence: Fence, done: float, total: float | None, message: str) -> None: ...

    def completed(self, completions: Completions) -> None:
        raise AssertionError("a command has more to tell")

    def ended(self, outcomes: Sequence[Outcome]) -> None:
        [outcome] = outcomes
        self._outcome.set_result(outcome)

    async def outcome(self) -> Outcome:
        async with asyncio.timeout(20):
            return await self._outcome


class Scene:
    """An executor with one attempt at a time."""

    def __init__(self, folder: Path) -> None:
        self.reports = Reports()
        self.spawner = Spawner()
        self.executor = ShellExecutor(self.reports, self.spawner, SystemClock(), folder / "work")

    async def start(self, *steps: Step, grace: timedelta = LONG) -> Process:
        """Start an attempt, and return the process of its first step."""
        spec = JobSpec("tidy", steps=steps, grace=grace)
        batch = WorkBatch.of([Work(FENCE.run, FENCE.number, "j_1", 1, 0)])
        self.executor.start([JobBatch(spec, batch, [FENCE])])
        return await self.spawner.next()

    def cancel(self) -> None:
        self.executor.cancel([FENCE])


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    scene = Scene(tmp_path)
    yield scene
    scene.spawner.kill_all()
    await scene.executor.close()


async def a_few_turns() -> None:
    """Let the event loop do whatever it has to do by now."""
    loop = asyncio.get_running_loop()
    for _ in range(10):
        turned = loop.create_future()
        loop.call_soon(turned.set_result, None)
        await turned


class TestStopping:
    async def test_cancel_asks_the_process_to_end_and_kills_it_after_the_grace(
        self, scene: Scene
    ) -> None:
        process = await scene.start(Step("a", "x"), grace=timedelta(milliseconds=20))

        scene.cancel()

        outcome = await scene.reports.outcome()
        assert process.signals == [signal.SIGTERM, signal.SIGKILL]
        assert (outcome.result, outcome.signal) == (AttemptResult.CANCELLED, signal.SIGKILL)

    async def test_process_that_obeys_is_not_killed(self, scene: Scene) -> None:
        process = await scene.start(Step("a", "x"))
        scene.cancel()
        await process.was_signalled.wait()

        process.end(GOOD)

        assert (await scene.reports.outcome()).result == AttemptResult.CANCELLED
        assert process.signals == [signal.SIGTERM]

    async def test_timeout_ends_the_process_the_same_way(self, scene: Scene) -> None:
        step = Step("a", "x", timeout=timedelta(milliseconds=20))
        process = await scene.start(step, grace=timedelta(0))

        outcome = await scene.reports.outcome()

        assert process.signals == [signal.SIGTERM, signal.SIGKILL]
        assert outcome.result == AttemptResult.TIMED_OUT

    async def test_another_cancel_within_the_grace_changes_nothing(self, scene: Scene) -> None:
        clock = asyncio.get_running_loop().time
        grace = timedelta(seconds=1)
        process = await scene.start(Step("a", "x"), grace=grace)
        scene.cancel()
        await process.was_signalled.wait()
        began = clock()
        asyncio.get_running_loop().call_later(0.7, scene.cancel)

        outcome = await scene.reports.outcome()

        assert clock() - began < 1.6
        assert process.signals == [signal.SIGTERM, signal.SIGKILL]
        assert outcome.result == AttemptResult.CANCELLED

    async def test_cancel_within_the_grace_of_a_timeout_changes_nothing(self, scene: Scene) -> None:
        process = await scene.start(Step("a", "x", timeout=timedelta(0)))
        await process.was_signalled.wait()

        scene.cancel()
        await a_few_turns()

        assert process.signals == [signal.SIGTERM]
        process.end(BAD)
        assert (await scene.reports.outcome()).result == AttemptResult.TIMED_OUT

    async def test_process_that_ended_before_the_cancel_has_its_own_result(
        self, scene: Scene
    ) -> None:
        process = await scene.start(Step("a", "x"))

        process.end(GOOD)
        scene.cancel()

        assert (await scene.reports.outcome()).result == AttemptResult.COMPLETED
        assert process.signals == []

    async def test_step_after_a_cancel_is_not_cancelled_again(self, scene: Scene) -> None:
        steps = Step("a", "x"), Step("b", "y", condition=StepCondition.ALWAYS)
        process = await scene.start(*steps)
        scene.cancel()
        await process.was_signalled.wait()
        process.end(BAD)
        tidying = await scene.spawner.next()

        scene.cancel()
        await a_few_turns()

        assert tidying.signals == []
        tidying.end(GOOD)
        outcome = await scene.reports.outcome()
        assert [step.result for step in outcome.steps] == ["cancelled", "completed"]


class TestUsage:
    async def test_each_step_has_the_sum_of_its_tries_and_the_most_memory(
        self, scene: Scene
    ) -> None:
        retry = Retry(attempts=2, delay=timedelta(0))
        process = await scene.start(Step("a", "x", retry=retry), Step("b", "y"))
        process.end(Exit(1, None, cpu_seconds=0.25, max_memory_bytes=2000))
        (await scene.spawner.next()).end(Exit(0, None, cpu_seconds=0.5, max_memory_bytes=1000))
        (await scene.spawner.next()).end(Exit(0, None, cpu_seconds=1.0, max_memory_bytes=500))

        outcome = await scene.reports.outcome()

        used = [(step.tries, step.cpu_seconds, step.max_memory_bytes) for step in outcome.steps]
        assert used == [(2, 0.75, 2000), (1, 1.0, 500)]
        assert (outcome.cpu_seconds, outcome.max_memory_bytes) == (1.75, 2000)
        assert [step.cause for step in outcome.steps] == ["", ""]


class TestCommands:
    async def test_default_shell_is_not_looked_for_but_named_as_ever(self, scene: Scene) -> None:
        process = await scene.start(Step("a", "echo $0"))

        assert process.argv == ("/bin/sh", "-ec", "echo $0", "sh")
        process.end(GOOD)
        await scene.reports.outcome()

    async def test_failure_to_start_is_not_mixed_with_words_of_an_earlier_step(
        self, scene: Scene, tmp_path: Path
    ) -> None:
        first = Step("a", "x", continue_on_error=True)
        process = await scene.start(first, Step("b", "y", shell="python"))
        process.complain("no water\n")
        rmtree(tmp_path)  # nowhere to write the script to

        process.end(BAD)

        outcome = await scene.reports.outcome()
        assert outcome.message == "step b: the step could not be started: No such file or directory"
