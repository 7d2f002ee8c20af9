"""A bench for executors: what a worker gives them, and notes of all that they do.

The conformance suite in `executors` works with it; it needs no pytest.
"""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar

import msgspec

from rota.clock import SystemClock
from rota.domain.output import Stream
from rota.domain.run import AttemptResult
from rota.domain.spec import JobSpec
from rota.ports.executor import Completions, Executor, JobBatch
from rota.ports.work import Fence, Outcome, StepOutcome, Work, WorkBatch

T = TypeVar("T")

_A_WHILE = timedelta(milliseconds=20)


class Sink:
    """Implements `rota.ports.executor.OutputSink`: keeps all that an attempt prints.

    With a `capacity` it is full once it has that many bytes, until it is `opened`.
    """

    def __init__(self, note: Callable[[str], None], capacity: int | None = None) -> None:
        self.fed: list[tuple[Stream, int, bytes]] = []
        self.size = 0
        self.is_over = False  # nothing may come any more
        self.capacity = capacity
        self._note = note
        self._has_room = asyncio.Event()

    @property
    def is_full(self) -> bool:
        return self.capacity is not None and self.size >= self.capacity

    def feed(self, stream: Stream, step: int, data: bytes) -> None:
        self.fed.append((stream, step, data))
        self.size += len(data)
        self._note("printed after its end" if self.is_over else "")

    async def drained(self) -> None:
        if self.is_full:
            await self._has_room.wait()

    def open(self) -> None:
        """Take whatever comes from now on."""
        self.capacity = None
        self._has_room.set()

    def text(self, *streams: Stream) -> str:
        """Return what came on these streams; without any: on all of them."""
        wanted = streams or tuple(Stream)
        data = b"".join(data for stream, _, data in self.fed if stream in wanted)
        return data.decode(errors="replace")


class Reports:
    """Implements `AttemptReports` and `RemoteWork` of `rota.ports.executor`.

    It notes what must not be reported.
    """

    def __init__(self) -> None:
        self.sinks: dict[Fence, Sink] = {}
        self.outcomes: dict[Fence, Outcome] = {}
        self.progress: dict[Fence, list[tuple[float, float | None, str]]] = {}
        self.steps: dict[Fence, list[tuple[int, StepOutcome]]] = {}
        self.faults: list[str] = []  # what an executor must not do
        self.handles: dict[Fence, list[str]] = {}  # that were kept, in their order
        self.takes_handles = True  # False: attempts are another worker's by now
        self.lost: set[Fence] = set()  # attempts whose work another one goes on with
        self._may_acknowledge = asyncio.Event()
        self._may_acknowledge.set()
        self.started: set[Fence] = set()  # attempts that may be reported
        self._changed = asyncio.Event()
        self._clock = SystemClock()

    async def until(self, claim: Callable[[], T]) -> T:
        """Return the first true answer of a claim, asked after each report."""
        while not (answer := claim()):
            self._changed.clear()
            await self._changed.wait()
        return answer

    def expect(self, fence: Fence, capacity: int | None = None) -> None:
        """Note that an attempt is about to be started."""
        self.started.add(fence)
        self.sinks[fence] = Sink(lambda words: self._heard(fence, words), capacity)

    def store_micros(self) -> int:
        return int(self._clock.monotonic() * 1e6)

    def output(self, fence: Fence) -> Sink:
        if fence not in self.sinks:
            self.expect(fence)
            self.started.discard(fence)
        return self.sinks[fence]

    def progressed(self, fence: Fence, done: float, total: float | None, message: str) -> None:
        self.progress.setdefault(fence, []).append((done, total, message))
        self._heard(fence, "told its progress after its end" if fence in self.outcomes else "")

    def stepped(self, fence: Fence, number: int, step: StepOutcome) -> StepOutcome:
        self.steps.setdefault(fence, []).append((number, step))
        self._heard(fence, "told a step after its end" if fence in self.outcomes else "")
        return step

    async def keep_handle(self, fence: Fence, handle: str) -> bool:
        """Implement `RemoteWork`."""
        self.handles.setdefault(fence, []).append(handle)
        self._heard(fence, "kept a handle after its end" if fence in self.outcomes else "")
        await self._may_acknowledge.wait()
        return self.takes_handles

    def goes_on_elsewhere(self, fence: Fence) -> bool:
        """Implement `RemoteWork`."""
        return fence in self.lost

    def acknowledge(self, *, now: bool) -> None:
        """Acknowledge handles from now on, or let them wait."""
        (self._may_acknowledge.set if now else self._may_acknowledge.clear)()

    def completed(self, completions: Completions) -> None:
        columns = completions.started_at, completions.ended_at, completions.cpu_micros
        if any(len(column) != len(completions) for column in columns):
            self.faults.append("columns of completions differ in length")
            return
        for at, (fence, started_at, ended_at, cpu) in enumerate(
            zip(completions.fences, *columns, strict=True)
        ):
            text = completions.outputs.get(at)
            outputs = None if text is None else msgspec.json.decode(text)
            self._end(
                Outcome(
                    fence.run,
                    fence.number,
                    AttemptResult.COMPLETED,
                    started_at,
                    ended_at,
                    outputs=outputs,
                    cpu_seconds=cpu / 1e6,
                )
            )

    def ended(self, outcomes: Sequence[Outcome]) -> None:
        for outcome in outcomes:
            self._end(outcome)

    def _end(self, outcome: Outcome) -> None:
        fence = outcome.fence
        words = f"ended again, as {outcome.result}" if fence in self.outcomes else ""
        if outcome.output or outcome.output_bytes or outcome.output_lines or outcome.truncated:
            words = "filled fields of output, which are the worker's"
        self.outcomes.setdefault(fence, outcome)
        self.output(fence).is_over = True
        self._heard(fence, words)

    def _heard(self, fence: Fence, fault: str) -> None:
        if fence not in self.started:
            fault = "was reported, but never started"
        if fault:
            self.faults.append(f"{fence.run}/{fence.number} {fault}")
        self._changed.set()


@dataclass(frozen=True)
class Attempt:
    """An attempt that was started."""

    bench: Bench
    fence: Fence

    @property
    def sink(self) -> Sink:
        return self.bench.reports.sinks[self.fence]

    @property
    def is_over(self) -> bool:
        return self.fence in self.bench.reports.outcomes

    def printed(self, *streams: Stream) -> str:
        """Return what came on these streams; without any: on standard output and error."""
        return self.sink.text(*(streams or (Stream.STDOUT, Stream.STDERR)))

    def shows(self, text: str) -> None:
        """Wait until this was printed."""
        self.bench.until(lambda: text in self.printed(), f"{text!r} is printed")

    def outcome(self, result: AttemptResult | None = None) -> Outcome:
        """Wait for the end; it must be this one."""
        self.bench.until(lambda: self.is_over, "an attempt ends")
        outcome = self.bench.reports.outcomes[self.fence]
        if result is not None:
            expect(outcome.result, result, f"the result ({outcome.message})")
        return outcome

    def cancel(self) -> None:
        self.bench.cancel(self)


class Subject(Protocol):
    """Description of an executor for a bench: `ExecutorConformance` says what it means."""

    patience: ClassVar[float]

    def new_loop(self) -> asyncio.AbstractEventLoop: ...

    def executor(self, reports: Reports, folder: Path) -> AbstractAsyncContextManager[Executor]: ...

    def leftovers(self) -> Sequence[object]: ...


class Bench:
    """An executor in the hands of a test. Its event loop runs while the test waits."""

    def __init__(self, subject: Subject, folder: Path) -> None:
        self._subject = subject
        self._folder = folder
        self._clock = SystemClock()
        self._runner = asyncio.Runner(loop_factory=subject.new_loop)
        self._stack = AsyncExitStack()
        self._runs = 0
        self._is_open = True
        self._is_shut = False
        self._runner.get_loop().set_exception_handler(self._note_error)
        self._before = _descriptors(), _children()  # with those of the loop: some keep a pair
        self.reports = self._do(_made(Reports))
        self._executor = self._do(self._opened())
        self._tasks = self._do(_made(_tasks))
        self._files = _files(folder)

    async def _opened(self) -> Executor:
        opened = self._subject.executor(self.reports, self._folder)
        return await self._stack.enter_async_context(opened)

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(work)

    def start(
        self,
        specs: Sequence[JobSpec],
        deadline: timedelta | None = None,
        capacity: int | None = None,
        *,
        and_cancel: bool = False,
    ) -> list[Attempt]:
        """Start attempts by one call, those of one name as one batch.

        The deadline counts from now; the capacity is that of their outputs. Those that are
        cancelled are so before the loop goes on.
        """
        attempts: dict[int, Attempt] = {}
        batches = []
        named = {spec.name: spec for spec in specs}
        for version, spec in enumerate(named.values(), start=1):
            places = [at for at, each in enumerate(specs) if each.name == spec.name]
            works = [self._work(version, deadline) for _ in places]
            fences = [work.fence for work in works]
            batches.append(JobBatch(spec, WorkBatch.of(works), fences))
            attempts |= {at: Attempt(self, fence) for at, fence in zip(places, fences, strict=True)}
        for attempt in attempts.values():
            self.reports.expect(attempt.fence, capacity)
        fences = [attempt.fence for attempt in attempts.values()]

        def start() -> None:
            self._executor.start(batches)
            if and_cancel:
                self._executor.cancel(fences)

        self.call(start)
        return [attempts[at] for at in range(len(specs))]

    def start_next(self, spec: JobSpec, before: Attempt) -> Attempt:
        """Start the next attempt at a run, with the handle that the one before has kept."""
        kept = self.reports.handles.get(before.fence, [])
        now = self.reports.store_micros()
        handle = kept[-1] if kept else None
        fence = before.fence
        work = Work(fence.run, fence.number + 1, "j_1", 1, now, handle=handle or None)
        self.reports.expect(work.fence)
        batch = JobBatch(spec, WorkBatch.of([work]), [work.fence])
        self.call(lambda: self._executor.start([batch]))
        return Attempt(self, work.fence)

    def lose(self, attempt: Attempt) -> None:
        """Stop an attempt as a worker does that has lost it: another one goes on."""
        self.reports.lost.add(attempt.fence)
        self.cancel(attempt)

    def _work(self, version: int, deadline: timedelta | None) -> Work:
        self._runs += 1
        now = self.reports.store_micros()
        by = None if deadline is None else now + int(deadline.total_seconds() * 1e6)
        return Work(f"r_{self._runs}", 1, "j_1", version, now, deadline_at=by)

    def cancel(self, *attempts: Attempt) -> None:
        self.call(lambda: self._executor.cancel([each.fence for each in attempts]))

    def cancel_unknown(self) -> None:
        self.call(lambda: self._executor.cancel([Fence("r_unknown", 1)]))

    def call(self, action: Callable[[], None]) -> None:
        """Call the executor in its loop, which goes on after that only when the test waits."""

        async def called() -> None:
            action()

        self._do(called())

    def until(self, claim: Callable[[], object], what: str) -> None:
        """Let the loop run until something was reported."""
        try:
            self._do(asyncio.wait_for(self.reports.until(claim), self._subject.patience))
        except TimeoutError:
            raise AssertionError(f"not within {self._subject.patience} s: {what}") from None

    def pass_time(self, duration: timedelta) -> None:
        self._do(self._clock.sleep(duration))

    def close(self, *attempts: Attempt) -> None:
        """Close the executor, once, after it was told to cancel these in the same turn."""
        if not self._is_open:
            return
        self._is_open = False

        async def close() -> None:
            self._executor.cancel([each.fence for each in attempts])
            await self._executor.close()

        try:
            self._do(asyncio.wait_for(close(), self._subject.patience))
        except TimeoutError:
            raise AssertionError(f"not closed within {self._subject.patience} s") from None

    def finish(self) -> None:
        """End whatever still runs; claim that nothing is left and nothing was done wrongly."""
        try:
            if self._is_open:
                self._end_all()
            self.close()
            self._claim_gone(lambda: self._do(_made(_tasks)) - self._tasks, "tasks")
            self._claim_gone(lambda: _files(self._folder) - self._files, "files")
            self._claim_gone(self._subject.leftovers, "leftovers")
        finally:
            self._shut()
        descriptors, children = self._before
        self._claim_gone(lambda: _descriptors() - descriptors, "open descriptors")
        self._claim_gone(lambda: _children() - children, "child processes")
        if self.reports.faults:
            raise AssertionError("; ".join(self.reports.faults))

    def _end_all(self) -> None:
        running = [fence for fence in self.reports.started if fence not in self.reports.outcomes]
        if running:
            for sink in self.reports.sinks.values():
                sink.open()
            self.call(lambda: self._executor.cancel(running))
            self.until(lambda: self.reports.outcomes.keys() >= set(running), "all have ended")

    def _shut(self) -> None:
        self._is_shut = True
        with suppress(RuntimeError):  # a task that ends another one's loop
            self._do(self._stack.aclose())
        self._runner.close()
        gc.collect()

    def _claim_gone(self, look: Callable[[], object], what: str) -> None:
        """Wait for what goes by itself: folders are removed by threads."""
        give_up = self._clock.monotonic() + self._subject.patience
        while left := look():
            if self._clock.monotonic() > give_up:
                raise AssertionError(f"left behind: {what}: {left!r}")
            if self._is_shut:
                threading.Event().wait(_A_WHILE.total_seconds())
            else:
                self.pass_time(_A_WHILE)

    def _note_error(self, _: asyncio.AbstractEventLoop, context: Mapping[str, Any]) -> None:
        self.reports.faults.append(f"error in the loop: {context.get('exception', context)!r}")


def expect(actual: object, expected: object, what: str) -> None:
    """Claim something in words: assertions of a library are not explained by pytest."""
    if actual != expected:
        raise AssertionError(f"{what}: {actual!r}, where {expected!r} is right")


async def _made(make: Callable[[], T]) -> T:
    """Make something in the loop."""
    return make()


def _tasks() -> set[asyncio.Task[Any]]:
    return asyncio.all_tasks() - {asyncio.current_task()}


def _files(folder: Path) -> set[str]:
    return {f"{top}/{name}" for top, _, names in os.walk(folder) for name in names}


def _descriptors() -> set[str]:
    """Return what this process has open, by number and target."""
    found = set()
    for path in Path("/proc/self/fd").glob("*"):
        with suppress(OSError):
            found.add(f"{path.name} {path.readlink()}")
    return found


def _children() -> set[str]:
    found: set[str] = set()
    for path in Path("/proc/self/task").glob("*/children"):
        with suppress(OSError):
            found |= set(path.read_text().split())
    return found
