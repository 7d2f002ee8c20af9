"""The job type `shell`: steps, one process tree after another."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from rota.adapters.executors.commands import command_of
from rota.adapters.executors.environment import given_inputs, inherited, told_by_rota
from rota.adapters.executors.pipes import Pipe
from rota.domain.output import Stream
from rota.domain.retry import backoff
from rota.domain.run import AttemptResult
from rota.domain.spec import Step, StepCondition
from rota.ports.clock import Clock
from rota.ports.executor import Assignment, Desk, Exit, OutputSink, Process, Spawner
from rota.ports.work import Fence, Outcome, StepOutcome

_PROGRESS_INTERVAL = timedelta(seconds=1)
_MAX_OUTPUTS = 1024 * 1024


@dataclass(slots=True)
class _Attempt:
    """An attempt while it is executed."""

    assignment: Assignment
    folder: Path
    env: dict[str, str]
    sink: OutputSink
    started_at: int
    deadline: float | None  # monotonic; None: no timeout
    process: Process | None = None
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    result: AttemptResult = AttemptResult.COMPLETED
    failure: Exit | None = None
    message: str = ""
    steps: list[StepOutcome] = field(default_factory=list)
    cpu_seconds: float = 0.0
    max_memory: int = 0
    progress: str = ""  # the last line passed on

    @property
    def fence(self) -> Fence:
        return self.assignment.work.fence

    @property
    def is_well(self) -> bool:
        return self.result is AttemptResult.COMPLETED


class ShellExecutor:
    """Implements `rota.ports.executor.Executor`."""

    def __init__(self, desk: Desk, spawner: Spawner, clock: Clock, work_root: Path) -> None:
        self._desk = desk
        self._spawner = spawner
        self._clock = clock
        self._root = work_root
        self._base_env = inherited()
        self._attempts: dict[Fence, _Attempt] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        shutil.rmtree(work_root, ignore_errors=True)
        work_root.mkdir(parents=True, mode=0o700)
        self._progress = asyncio.get_running_loop().create_task(self._watch_progress())

    def start(self, assignments: Sequence[Assignment]) -> None:
        for assignment in assignments:
            task = asyncio.get_running_loop().create_task(self._run(assignment))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def cancel(self, fences: Sequence[Fence]) -> None:
        for fence in fences:
            attempt = self._attempts.get(fence)
            if attempt is not None:
                attempt.stop.set()

    async def close(self) -> None:
        self._progress.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _run(self, assignment: Assignment) -> None:
        try:
            attempt = self._prepare(assignment)
        except OSError as error:
            self._desk.ended([self._not_started(assignment, error)])
            return
        self._attempts[attempt.fence] = attempt
        try:
            await self._run_steps(attempt)
        finally:
            del self._attempts[attempt.fence]
        outcome = self._outcome(attempt)
        self._clean(attempt)
        self._desk.ended([outcome])

    def _prepare(self, assignment: Assignment) -> _Attempt:
        work, spec = assignment.work, assignment.spec
        folder = self._root / f"{work.run}.{work.attempt}"
        folder.mkdir(mode=0o700)
        timeout = spec.timeout.total_seconds() if spec.timeout else None
        return _Attempt(
            assignment=assignment,
            folder=folder,
            env={
                **self._base_env,
                **spec.env,
                **given_inputs(work.inputs),
                **told_by_rota(assignment, _output_file(folder), _progress_file(folder)),
            },
            sink=self._desk.output(work.fence),
            started_at=self._desk.store_micros(),
            deadline=None if timeout is None else time.monotonic() + timeout,
        )

    def _not_started(self, assignment: Assignment, error: OSError) -> Outcome:
        now = self._desk.store_micros()
        return Outcome(
            run=assignment.work.run,
            attempt=assignment.work.attempt,
            result=AttemptResult.FAILED,
            started_at=now,
            ended_at=now,
            message=f"the work folder could not be made: {error.strerror}",
        )

    async def _run_steps(self, attempt: _Attempt) -> None:
        for number, step in enumerate(attempt.assignment.spec.steps):
            if not _is_wanted(step, attempt):
                attempt.steps.append(StepOutcome(step.name, "skipped"))
                continue
            await self._run_step(attempt, number, step)

    async def _run_step(self, attempt: _Attempt, number: int, step: Step) -> None:
        """One step with its own retries; a bad end is noted on the attempt."""
        began = time.monotonic()
        limit = _limit(attempt, step)
        tries = 0
        while True:
            tries += 1
            exit, result = await self._try(attempt, number, step, limit)
            if result != AttemptResult.FAILED or tries >= step.retry.attempts:
                break
            if not await _pause(attempt, backoff(step.retry, tries - 1, 0.0).total_seconds()):
                result = AttemptResult.CANCELLED
                break
        attempt.steps.append(
            StepOutcome(
                step.name,
                result.lower(),
                exit.status,
                exit.signal,
                round(time.monotonic() - began, 3),
                tries,
            )
        )
        is_excused = step.continue_on_error and result is AttemptResult.FAILED
        if result is not AttemptResult.COMPLETED and not is_excused and attempt.is_well:
            attempt.result, attempt.failure = result, exit
            attempt.message = f"step {step.name}: {_words(exit, result, limit)}"

    async def _try(
        self, attempt: _Attempt, number: int, step: Step, limit: float | None
    ) -> tuple[Exit, AttemptResult]:
        streams = [Pipe(attempt.sink, stream, number) for stream in (Stream.STDOUT, Stream.STDERR)]
        cwd = attempt.assignment.spec.path or str(attempt.folder)
        script = attempt.folder.with_name(f"{attempt.folder.name}.step{number}")
        process = self._spawner.spawn(
            command_of(step, script),
            env={**attempt.env, **step.env},
            cwd=cwd,
            stdout=streams[0].writer,
            stderr=streams[1].writer,
        )
        exit, result = await self._supervise(attempt, process, limit)
        for stream in streams:
            await stream.close()
        if exit.error:
            attempt.sink.feed(Stream.ROTA, number, f"{exit.error}\n".encode())
        attempt.cpu_seconds += exit.cpu_seconds
        attempt.max_memory = max(attempt.max_memory, exit.max_memory_bytes)
        return exit, result

    async def _supervise(
        self, attempt: _Attempt, process: Process, limit: float | None
    ) -> tuple[Exit, AttemptResult]:
        """Wait for the end, or bring it about when time is up or somebody cancels."""
        result = AttemptResult.CANCELLED
        if not (attempt.stop.is_set() and attempt.is_well):
            stop = None if attempt.stop.is_set() else asyncio.ensure_future(attempt.stop.wait())
            waits = {process.ended} if stop is None else {process.ended, stop}
            timeout = None if limit is None else max(limit - time.monotonic(), 0)
            await asyncio.wait(waits, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            if stop is not None:
                stop.cancel()
            if process.ended.done():
                exit = process.ended.result()
                is_good = exit.status == 0
                return exit, AttemptResult.COMPLETED if is_good else AttemptResult.FAILED
            if not attempt.stop.is_set() or stop is None:
                result = AttemptResult.TIMED_OUT
        return await self._terminate(attempt, process), result

    async def _terminate(self, attempt: _Attempt, process: Process) -> Exit:
        """TERM, the job's grace, KILL: of the whole tree."""
        process.signal(signal.SIGTERM)
        grace = attempt.assignment.spec.grace.total_seconds()
        await asyncio.wait({process.ended}, timeout=grace)
        if not process.ended.done():
            process.kill()
        return await process.ended

    async def _watch_progress(self) -> None:
        """Pass on what jobs write to $ROTA_PROGRESS."""
        while True:
            await self._clock.sleep(_PROGRESS_INTERVAL)
            for attempt in self._attempts.values():
                with suppress(OSError, ValueError, KeyError, TypeError):
                    text = _progress_file(attempt.folder).read_text("utf-8").strip()
                    line = text.rsplit("\n", 1)[-1]
                    if line and line != attempt.progress:
                        attempt.progress = line
                        self._desk.progressed(attempt.fence, *_progress(line))

    def _outcome(self, attempt: _Attempt) -> Outcome:
        failure = attempt.failure
        outputs, complaint = _read_outputs(attempt.folder)
        if complaint:
            attempt.sink.feed(Stream.ROTA, len(attempt.steps), f"{complaint}\n".encode())
        work = attempt.assignment.work
        return Outcome(
            run=work.run,
            attempt=work.attempt,
            result=attempt.result,
            started_at=attempt.started_at,
            ended_at=self._desk.store_micros(),
            exit_code=0 if attempt.is_well else failure.status if failure else None,
            signal=failure.signal if failure else None,
            message=attempt.message,
            outputs=outputs,
            steps=tuple(attempt.steps),
            cpu_seconds=round(attempt.cpu_seconds, 6),
            max_memory_bytes=attempt.max_memory,
        )

    def _clean(self, attempt: _Attempt) -> None:
        """Remove the work folder and what lies beside it."""
        folder = attempt.folder
        try:
            folder.rmdir()  # nearly always empty: cheaper than a walk
        except OSError:
            shutil.rmtree(folder, ignore_errors=True)
        for path in (_output_file(folder), _progress_file(folder)):
            path.unlink(missing_ok=True)
        if any(not _is_inline(step) for step in attempt.assignment.spec.steps):
            for path in folder.parent.glob(f"{folder.name}.step*"):
                path.unlink(missing_ok=True)


def _is_inline(step: Step) -> bool:
    return isinstance(step.run, tuple) or (not step.interpreter and step.shell in ("sh", "bash"))


def _is_wanted(step: Step, attempt: _Attempt) -> bool:
    match step.condition:
        case StepCondition.ALWAYS:
            return True
        case StepCondition.SUCCESS:
            return attempt.is_well
        case StepCondition.FAILURE:
            return attempt.result is AttemptResult.FAILED


def _limit(attempt: _Attempt, step: Step) -> float | None:
    """When a step must be over: its own timeout, the attempt's, or the grace after a bad end."""
    now = time.monotonic()
    limits = [] if step.timeout is None else [now + step.timeout.total_seconds()]
    if attempt.result in (AttemptResult.TIMED_OUT, AttemptResult.CANCELLED):
        limits.append(now + attempt.assignment.spec.grace.total_seconds())
    elif attempt.deadline is not None:
        limits.append(attempt.deadline)
    return min(limits, default=None)


async def _pause(attempt: _Attempt, seconds: float) -> bool:
    """Wait between tries of a step; False if somebody cancelled meanwhile."""
    if attempt.stop.is_set():
        return False
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await attempt.stop.wait()
            return False
    return True


def _words(exit: Exit, result: AttemptResult, limit: float | None) -> str:
    if exit.error:
        return exit.error
    if result is AttemptResult.TIMED_OUT:
        return "timed out"
    if result is AttemptResult.CANCELLED:
        return "cancelled"
    if exit.signal is not None:
        return f"killed by signal {exit.signal} ({_signal_name(exit.signal)})"
    return f"exit {exit.status}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"


def _output_file(folder: Path) -> Path:
    return folder.with_name(folder.name + ".output")


def _progress_file(folder: Path) -> Path:
    return folder.with_name(folder.name + ".progress")


def _read_outputs(folder: Path) -> tuple[Any, str]:
    """What the job wrote to $ROTA_OUTPUT, and a complaint if that is not usable."""
    path = _output_file(folder)
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_OUTPUTS + 1)
    except FileNotFoundError:
        return None, ""
    except OSError as error:
        return None, f"$ROTA_OUTPUT could not be read: {os.strerror(error.errno or 0)}"
    if len(data) > _MAX_OUTPUTS:
        return None, "$ROTA_OUTPUT is over 1 MiB and was not kept"
    try:
        return json.loads(data), ""
    except ValueError as error:
        return None, f"$ROTA_OUTPUT is not JSON and was not kept: {error}"


def _progress(line: str) -> tuple[float, float | None, str]:
    """`done[/total] [message]`, or a JSON object with these names."""
    if line.startswith("{"):
        value = json.loads(line)
        return float(value["done"]), value.get("total"), str(value.get("message", ""))
    numbers, _, message = line.partition(" ")
    done, _, total = numbers.partition("/")
    return float(done), float(total) if total else None, message
