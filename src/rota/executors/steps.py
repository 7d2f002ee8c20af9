"""Steps of an attempt, one after another: conditions, retries, timeouts, cancels and the grace.

Where a step is carried out is for the kinds of `StepExecutor` to say: as processes of this machine,
or in a container.
"""

from __future__ import annotations

import asyncio
import os
import signal
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Protocol

import structlog

from rota.domain.errors import RotaError
from rota.domain.git import fetches, program_beside, why_not_there
from rota.domain.output import Stream
from rota.domain.retry import backoff
from rota.domain.run import AttemptResult
from rota.domain.spec import Artifacts, JobSpec, Step, StepCondition
from rota.executors import artifacts
from rota.executors.work_folder import WorkFolder, parse_progress
from rota.ports.clock import Clock
from rota.ports.executor import (
    Assignment,
    AttemptReports,
    Exit,
    Files,
    JobBatch,
    OutputSink,
    Process,
)
from rota.ports.work import RUNNING, Fence, Outcome, StepOutcome

log = structlog.get_logger()

_KEPT_AT_ONCE = 4  # artifacts of a step
_PROGRESS_INTERVAL = timedelta(seconds=1)
SOURCE_STEP = Step("source", ())  # which executors carry out themselves


@dataclass(slots=True)
class Attempt:
    """State of an attempt while it is executed."""

    assignment: Assignment
    folder: WorkFolder
    env: Mapping[str, str]
    open_sink: Callable[[], OutputSink]
    started_at: int
    deadline: float | None  # monotonic; None: no timeout
    stop: asyncio.Future[None]  # done: the attempt was cancelled
    gone_by: float | None = None  # monotonic: when its grace ends; None: nothing stopped it yet
    result: AttemptResult = AttemptResult.COMPLETED
    failure: Exit | None = None  # of the step that decided the result
    message: str = ""
    complaint: str = ""  # the last line of the latest step, of its standard error if it wrote any
    steps: list[StepOutcome] = field(default_factory=list)
    progress: str = ""  # the last line passed on
    has_source: bool = False  # its first step brings code or files into its folder

    @property
    def fence(self) -> Fence:
        return self.assignment.work.fence

    @property
    def is_well(self) -> bool:
        return self.result is AttemptResult.COMPLETED

    @property
    def is_stopped(self) -> bool:
        return self.result in (AttemptResult.TIMED_OUT, AttemptResult.CANCELLED)

    def stop_clock(self, now: float) -> float:
        """Return the deadline of the grace, which begins with the first stop and is one for all."""
        if self.gone_by is None:
            self.gone_by = now + self.assignment.spec.grace.total_seconds()
        return self.gone_by

    def stopped_as(self) -> AttemptResult:
        """Return why a step is terminated: a cancel, unless one was obeyed before, or a timeout."""
        is_cancelled = self.stop.done() and not self.is_stopped
        return AttemptResult.CANCELLED if is_cancelled else AttemptResult.TIMED_OUT


class RunningStep(Protocol):
    """Step that was begun."""

    @property
    def process(self) -> Process: ...

    async def finish(self) -> None:
        """Pass on the rest of its output, once it has ended."""
        ...

    def last_line(self) -> str:
        """Return the last line that says something: of standard error, if there is one."""
        ...


@dataclass(slots=True)
class _Tries:
    """How often a step was tried, and what all tries took."""

    count: int = 0
    cpu_seconds: float = 0.0
    max_memory_bytes: int = 0

    def add(self, ending: Exit) -> None:
        self.count += 1
        self.cpu_seconds += ending.cpu_seconds
        self.max_memory_bytes = max(self.max_memory_bytes, ending.max_memory_bytes)

    def outcome(self, step: Step, last: Exit, result: AttemptResult, seconds: float) -> StepOutcome:
        return StepOutcome(
            name=step.name,
            result=result.lower(),
            exit_code=last.status,
            signal=last.signal,
            seconds=seconds,
            tries=self.count,
            cpu_seconds=round(self.cpu_seconds, 6),
            max_memory_bytes=self.max_memory_bytes,
            cause=last.cause,
        )


class StepExecutor(ABC):
    """Implements `rota.ports.executor.Executor` but for what its kinds do."""

    def __init__(self, reports: AttemptReports, clock: Clock, files: Files | None = None) -> None:
        self._reports = reports
        self._clock = clock
        self._files = files  # None: nothing is kept or fetched
        self._attempts: dict[Fence, Attempt] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._progress = asyncio.get_running_loop().create_task(self._watch_progress())

    @abstractmethod
    def _take_folder(self, spec: JobSpec, *, has_source: bool) -> WorkFolder:
        """Return an empty folder to work in, or raise `OSError`."""

    @abstractmethod
    def _give_back(self, folder: WorkFolder) -> None:
        """Take a folder back, once everything that worked in it has ended."""

    @abstractmethod
    def _variables(self, assignment: Assignment, folder: WorkFolder) -> Mapping[str, str]:
        """Return the variables that all steps of an attempt have."""

    @abstractmethod
    def _begin(self, attempt: Attempt, number: int, step: Step) -> RunningStep:
        """Begin a step, or raise `OSError` if that is not possible; never waits."""

    def _steps(self, attempt: Attempt) -> Sequence[Step]:
        return attempt.assignment.spec.steps

    def _all_steps(self, attempt: Attempt) -> Sequence[Step]:
        """Return the steps, after the one that is Rota's own."""
        steps = self._steps(attempt)
        return (SOURCE_STEP, *steps) if attempt.has_source else steps

    async def _carry_out(self, attempt: Attempt) -> None:
        """Execute an attempt; what happens is recorded in it."""
        await self._run_steps(attempt)

    def start(self, batches: Sequence[JobBatch]) -> None:
        for assignment in (each for batch in batches for each in batch.assignments()):
            try:
                attempt = self._prepare(assignment)
            except OSError as error:
                message = f"the work folder could not be made: {error.strerror}"
                self._reports.ended([self._failed(assignment, message)])
                continue
            self._attempts[attempt.fence] = attempt  # at once: a cancel may be the next order
            task = asyncio.get_running_loop().create_task(self._run(attempt))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def cancel(self, fences: Sequence[Fence]) -> None:
        for fence in fences:
            attempt = self._attempts.get(fence)
            if attempt is not None and not attempt.stop.done():
                attempt.stop.set_result(None)

    async def close(self) -> None:
        self._progress.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _run(self, attempt: Attempt) -> None:
        try:
            await self._carry_out(attempt)
            outcome = self._outcome(attempt)
        except Exception as error:
            log.error("attempt.broken", run=attempt.fence.run, exc_info=error)
            outcome = self._failed(attempt.assignment, f"internal error: {error!r}")
        finally:
            del self._attempts[attempt.fence]
            self._give_back(attempt.folder)
        self._reports.ended([outcome])

    def _prepare(self, assignment: Assignment) -> Attempt:
        has_source = fetches(assignment.spec)
        folder = self._take_folder(assignment.spec, has_source=has_source)
        now, started_at = self._clock.monotonic(), self._reports.store_micros()
        seconds = assignment.seconds_allowed(started_at)
        return Attempt(
            assignment=assignment,
            folder=folder,
            env=self._variables(assignment, folder),
            open_sink=partial(self._reports.output, assignment.work.fence),
            started_at=started_at,
            deadline=None if seconds is None else now + seconds,
            stop=asyncio.get_running_loop().create_future(),
            has_source=has_source,
        )

    def _failed(self, assignment: Assignment, message: str) -> Outcome:
        """Build the outcome of an attempt that Rota itself could not carry out."""
        now = self._reports.store_micros()
        return Outcome(
            run=assignment.work.run,
            number=assignment.work.number,
            result=AttemptResult.FAILED,
            started_at=now,
            ended_at=now,
            message=message,
        )

    async def _run_steps(self, attempt: Attempt) -> None:
        for number, step in enumerate(self._all_steps(attempt)):
            if attempt.stop.done() and attempt.is_well:
                attempt.result = AttemptResult.CANCELLED
                attempt.message = f"cancelled before {_step_label(step)}"
            if _is_wanted(step, attempt) and self._has_time(attempt):
                await self._run_step(attempt, number, step)
            else:
                self._note(attempt, number, StepOutcome(step.name, "skipped"))

    def _has_time(self, attempt: Attempt) -> bool:
        now = self._clock.monotonic()
        return not attempt.is_stopped or now < attempt.stop_clock(now)

    async def _run_step(self, attempt: Attempt, number: int, step: Step) -> None:
        """Run one step with its own retries; a failure is recorded on the attempt."""
        began, started_at = self._clock.monotonic(), self._reports.store_micros()
        running = StepOutcome(step.name, RUNNING, started_at=started_at)
        self._reports.stepped(attempt.fence, number, running)
        limit = self._limit(attempt, step)
        tries = _Tries()
        while True:
            ending, result = await self._try(attempt, number, step, limit)
            tries.add(ending)
            is_last = tries.count >= step.retry.attempts or ending.is_lost
            if result is not AttemptResult.FAILED or is_last:
                break
            if not await self._pause(attempt, backoff(step.retry, tries.count - 1, 0.0), limit):
                result = attempt.stopped_as()
                break
        seconds = round(self._clock.monotonic() - began, 3)
        if step.artifacts is not None:
            await self._keep_artifacts(attempt, number, step.artifacts)
        self._note(attempt, number, tries.outcome(step, ending, result, seconds))
        is_excused = step.continue_on_error and result is AttemptResult.FAILED
        if result is not AttemptResult.COMPLETED and not is_excused and attempt.is_well:
            attempt.result, attempt.failure = result, ending
            attempt.message = f"{_step_label(step)}: {_words(ending, result)}"
            if attempt.complaint and result is AttemptResult.FAILED:
                attempt.message += f": {attempt.complaint}"
            if hint := _why_not_found(attempt, step, ending):
                attempt.message += f": {hint}"
                self._remark(attempt, number, hint)

    async def _keep_artifacts(self, attempt: Attempt, number: int, declared: Artifacts) -> None:
        """Keep what a step left behind, while the attempt has time; tell what is not kept."""
        keeping = asyncio.create_task(self._keep_all(attempt, number, declared))
        now = self._clock.monotonic()
        limit = attempt.stop_clock(now) if attempt.is_stopped else attempt.deadline
        left = None if limit is None else max(limit - now, 0)
        stop = set() if attempt.is_stopped else {attempt.stop}
        await asyncio.wait({keeping, *stop}, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        if not keeping.done() and attempt.stop.done():
            now = self._clock.monotonic()
            await asyncio.wait({keeping}, timeout=max(attempt.stop_clock(now) - now, 0))
        if not keeping.done():
            keeping.cancel()
            await asyncio.wait({keeping})
            self._remark(attempt, number, "artifacts: there was no time to keep them all")
        elif error := keeping.exception():
            raise error

    async def _keep_all(self, attempt: Attempt, number: int, declared: Artifacts) -> None:
        path = attempt.assignment.spec.path
        is_walled = attempt.folder.writers is not None
        top = artifacts.Top(Path(path or attempt.folder.path), bool(path) and is_walled)
        found = await asyncio.to_thread(artifacts.find, top, declared)
        places = asyncio.Semaphore(_KEPT_AT_ONCE)

        async def keep(path: str) -> str:
            async with places:
                return await self._keep(attempt, number, top, path, found.sizes[path])

        reasons = await asyncio.gather(*map(keep, found.paths))
        for path, why in zip(found.paths, reasons, strict=True):
            if why:
                found.leave(path, why)
        for remark in found.remarks():
            self._remark(attempt, number, remark)

    async def _keep(
        self, attempt: Attempt, number: int, top: artifacts.Top, path: str, size: int
    ) -> str:
        """Keep a file; return why it is not kept, "" if it is.

        No more of it than was found: what a step leaves running in a container may let it grow to
        whatever a file can be, and who reads that has no time for anything else.
        """
        if self._files is None:
            return "this worker keeps no files"
        try:
            descriptor = artifacts.open_artifact(top, path, attempt.folder.writers)
        except OSError as error:
            return error.strerror or str(error)
        try:
            await self._files.keep(attempt.fence, number, path, descriptor, size)
        except OSError as error:
            return error.strerror or str(error)
        except RotaError as error:
            return error.message
        finally:
            os.close(descriptor)
        return ""

    def _remark(self, attempt: Attempt, number: int, text: str) -> None:
        attempt.open_sink().feed(Stream.ROTA, number, f"{text}\n".encode(errors="replace"))

    def _note(self, attempt: Attempt, number: int, step: StepOutcome) -> None:
        """Record how a step ended, on the attempt and for whoever watches it."""
        attempt.steps.append(self._reports.stepped(attempt.fence, number, step))

    def _limit(self, attempt: Attempt, step: Step) -> float | None:
        """Return a step's deadline: its own timeout, the attempt's, or the grace after its end."""
        now = self._clock.monotonic()
        limits = [] if step.timeout is None else [now + step.timeout.total_seconds()]
        if attempt.is_stopped:
            limits.append(attempt.stop_clock(now))
        elif attempt.deadline is not None:
            limits.append(attempt.deadline)
        return min(limits, default=None)

    async def _pause(self, attempt: Attempt, pause: timedelta, limit: float | None) -> bool:
        """Wait between retries of a step; return False if a cancel or the limit came first."""
        now = self._clock.monotonic()
        seconds = pause.total_seconds()
        left = seconds if limit is None else min(seconds, limit - now)
        await asyncio.wait({attempt.stop}, timeout=max(left, 0))
        return left >= seconds and not attempt.stop.done()

    async def _try(
        self, attempt: Attempt, number: int, step: Step, limit: float | None
    ) -> tuple[Exit, AttemptResult]:
        attempt.complaint = ""
        try:
            running = self._begin(attempt, number, step)
        except OSError as error:  # no space for its script, no descriptors for its output
            reason = f"the step could not be started: {error.strerror}"
            ending, result = Exit(None, None, error=reason), AttemptResult.FAILED
        else:
            supervision = _Supervision(attempt, running.process, self._clock)
            ending, result = await supervision.end(limit)
            await running.finish()
            if result is AttemptResult.FAILED:
                attempt.complaint = running.last_line()
        if ending.error:
            attempt.open_sink().feed(Stream.ROTA, number, f"{ending.error}\n".encode())
        return ending, result

    async def _watch_progress(self) -> None:
        """Forward what jobs write to $ROTA_PROGRESS."""
        while True:
            await self._clock.sleep(_PROGRESS_INTERVAL)
            for attempt in self._attempts.values():
                line = attempt.folder.read_progress()
                progress = parse_progress(line) if line != attempt.progress else None
                if progress is not None:
                    attempt.progress = line
                    self._reports.progressed(attempt.fence, *progress)

    def _outcome(self, attempt: Attempt) -> Outcome:
        outputs, complaint = attempt.folder.read_outputs()
        if complaint:
            last = max(len(attempt.steps) - 1, 0)
            attempt.open_sink().feed(Stream.ROTA, last, f"{complaint}\n".encode())
        work, failure = attempt.assignment.work, attempt.failure
        return Outcome(
            run=work.run,
            number=work.number,
            result=AttemptResult.LOST if failure and failure.is_lost else attempt.result,
            started_at=attempt.started_at,
            ended_at=self._reports.store_micros(),
            exit_code=0 if failure is None else failure.status,
            signal=None if failure is None else failure.signal,
            message=attempt.message,
            outputs=outputs,
            steps=tuple(attempt.steps),
            cpu_seconds=round(sum(step.cpu_seconds for step in attempt.steps), 6),
            max_memory_bytes=max((step.max_memory_bytes for step in attempt.steps), default=0),
            cause="" if failure is None else failure.cause,
        )


class _Supervision:
    """Watch over one process, which is terminated on timeout or cancel."""

    def __init__(self, attempt: Attempt, process: Process, clock: Clock) -> None:
        self._attempt = attempt
        self._process = process
        self._clock = clock
        self._timer: asyncio.TimerHandle | None = None
        self._stopped_as: AttemptResult | None = None  # None: nothing stopped it

    async def end(self, limit: float | None) -> tuple[Exit, AttemptResult]:
        """Wait for the end of the whole tree."""
        stop = self._attempt.stop
        if limit is not None:
            self._call_at(limit, self._terminate)
        if not self._attempt.is_stopped:  # steps that follow a stop have what is left of the grace
            stop.add_done_callback(self._terminate)
        try:
            ending = await self._process.ended
        finally:
            stop.remove_done_callback(self._terminate)
            if self._timer is not None:
                self._timer.cancel()
        if self._stopped_as is not None:
            return ending, self._stopped_as
        is_good = ending.status == 0
        return ending, AttemptResult.COMPLETED if is_good else AttemptResult.FAILED

    def _terminate(self, _: object = None) -> None:
        """Send TERM, and after the job's grace KILL: to the whole tree, and once only."""
        if self._stopped_as is not None or self._process.ended.done():
            return
        self._stopped_as = self._attempt.stopped_as()
        self._process.signal(signal.SIGTERM)
        self._call_at(self._attempt.stop_clock(self._clock.monotonic()), self._process.kill)

    def _call_at(self, instant: float, action: Callable[[], None]) -> None:
        """Set the one timer: for the limit first, then for the end of the grace."""
        if self._timer is not None:
            self._timer.cancel()
        seconds = max(instant - self._clock.monotonic(), 0)
        self._timer = asyncio.get_running_loop().call_later(seconds, action)


def _step_label(step: Step) -> str:
    """Return the label of a step: `step Build`; without a name it is `step 2`."""
    return step.name if step.name.startswith("step ") else f"step {step.name}"


def _is_wanted(step: Step, attempt: Attempt) -> bool:
    match step.condition:
        case StepCondition.ALWAYS:
            return True
        case StepCondition.SUCCESS:
            return attempt.is_well
        case StepCondition.FAILURE:
            return attempt.result is AttemptResult.FAILED


_NOT_EXECUTED = (126, 127)  # what shells end with if they cannot execute a command


def _why_not_found(attempt: Attempt, step: Step, ending: Exit) -> str:
    """Return why a program beside the job file is not there; "": that is not what is wrong."""
    spec = attempt.assignment.spec
    if attempt.has_source or spec.path or (ending.status not in _NOT_EXECUTED and not ending.error):
        return ""
    program = program_beside(step.run)
    if not program or os.path.lexists(attempt.folder.path / program):
        return ""
    return why_not_there(program)


_CAUSES: Mapping[str, str] = {
    "oom": "it used more memory than it may",
    "processes": "it started more processes than it may",
    "disk": "it filled more disk than it may",
}


def _words(ending: Exit, result: AttemptResult) -> str:
    if ending.error:
        return ending.error
    if result is not AttemptResult.FAILED:
        return result.lower().replace("_", " ")
    how = f"exit {ending.status}"
    if ending.signal is not None:
        how = f"killed by signal {ending.signal} ({_signal_name(ending.signal)})"
    cause = _CAUSES.get(ending.cause, ending.cause)
    return f"{cause} ({how})" if cause else how


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"
