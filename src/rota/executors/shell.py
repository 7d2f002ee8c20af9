"""Job type `shell`: steps, one process tree after another."""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path

import structlog

from rota.domain.ids import instant
from rota.domain.output import Stream
from rota.domain.retry import backoff
from rota.domain.run import AttemptResult
from rota.domain.spec import JobSpec, Step, StepCondition, without_reserved
from rota.executors.work_folder import Pipe, Pipes, WorkFolder, WorkFolders, parse_progress
from rota.ports.clock import Clock
from rota.ports.executor import (
    Assignment,
    AttemptReports,
    Exit,
    JobBatch,
    OutputSink,
    Process,
    Spawner,
)
from rota.ports.work import Fence, Outcome, StepOutcome

_INLINE_LIMIT = 100_000  # characters; longer scripts go through a file (the kernel takes 128 KiB)


@dataclass(frozen=True, slots=True)
class _Shell:
    """Way to run a script in a shell. Shells stop at the first command that fails: a step that
    failed half-way must not look successful.
    """

    by_file: tuple[str, ...]
    suffix: str = ""
    inline: tuple[str, ...] = ()  # empty: only from a file
    name: tuple[str, ...] = ()  # what an inline script is to see as `$0`, if not its shell


# Where nearly all systems have it. To look along the PATH at each start takes a third of what the
# guardian needs, and would let the PATH of a job decide in which shell it runs.
_SH = "/bin/sh" if os.access("/bin/sh", os.X_OK) else "sh"
_SHELLS: Mapping[str, _Shell] = {
    "sh": _Shell((_SH, "-e"), ".sh", (_SH, "-ec"), ("sh",)),
    "bash": _Shell(("bash", "-eo", "pipefail"), ".sh", ("bash", "-eo", "pipefail", "-c")),
    "python": _Shell(("python3",), ".py"),
    "node": _Shell(("node",), ".js"),
}


def command_of(step: Step, number: int, folder: WorkFolder) -> tuple[str, ...]:
    """Return the argument list; write the script to a file where one is needed."""
    if isinstance(step.run, tuple):
        return step.run
    shell = _SHELLS.get(step.shell, _Shell((step.shell,)))
    if shell.inline and not step.interpreter and len(step.run) <= _INLINE_LIMIT:
        return (*shell.inline, step.run, *shell.name)
    path = folder.write_script(number, shell.suffix, step.run)
    return (*(step.interpreter or shell.by_file), str(path))


_INHERITED = ("PATH", "HOME", "LANG", "TZ")
_DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def inherited_variables() -> dict[str, str]:
    """Return the variables that a job inherits from the worker's own environment."""
    base = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    base.setdefault("PATH", _DEFAULT_PATH)
    base.setdefault("HOME", "/")
    base.setdefault("LANG", "C.UTF-8")
    return base


def attempt_variables(
    base: Mapping[str, str], assignment: Assignment, output: Path, progress: Path
) -> dict[str, str]:
    """Return the variables that all steps of an attempt have."""
    spec = assignment.spec
    return {
        **base,
        **without_reserved(spec.env),
        **input_variables(spec, assignment.work.inputs),
        **rota_variables(assignment, output, progress),
    }


def step_variables(attempt: Mapping[str, str], step: Step) -> dict[str, str]:
    """Return the variables of the attempt and of the step.

    A server of an earlier version may send a step that sets ROTA_FENCE; Rota's own variables must
    stay true, so that is ignored.
    """
    return {**attempt, **without_reserved(step.env)}


def rota_variables(assignment: Assignment, output: Path, progress: Path) -> dict[str, str]:
    """Return the variables that identify the run, and name the files for results and progress."""
    work, spec = assignment.work, assignment.spec
    cart = {"ROTA_CART": work.cart, "ROTA_ITEM": work.item}
    return {name: value for name, value in cart.items() if value is not None} | {
        "ROTA_RUN_ID": work.run,
        "ROTA_JOB": spec.name,
        "ROTA_PROJECT": spec.project,
        "ROTA_DUE_AT": instant(work.due_at)
        .isoformat(timespec="microseconds")
        .replace("+00:00", "Z"),
        "ROTA_ATTEMPT": str(work.attempt),
        "ROTA_FENCE": str(work.number),
        "ROTA_OUTPUT": str(output),
        "ROTA_PROGRESS": str(progress),
        "TRACEPARENT": traceparent(work.run, work.attempt),
    }


def input_variables(spec: JobSpec, inputs: Mapping[str, object] | None) -> dict[str, str]:
    """Return inputs as `INPUT_*` variables: never pasted into a shell line.

    A run that was not triggered by hand has the job's default inputs.
    """
    defaults = {n: each.default for n, each in spec.inputs.items() if each.default is not None}
    values = {**defaults, **(inputs or {})}
    return {f"INPUT_{name.upper()}": as_text(value) for name, value in values.items()}


def as_text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def traceparent(run: str, attempt: int) -> str:
    """Return a W3C trace context: the run is the trace, the attempt is the span."""
    trace = hashlib.blake2b(run.encode(), digest_size=16).hexdigest()
    span = hashlib.blake2b(f"{run}/{attempt}".encode(), digest_size=8).hexdigest()
    return f"00-{trace}-{span}-01"


log = structlog.get_logger()

_PROGRESS_INTERVAL = timedelta(seconds=1)


@dataclass(slots=True)
class _Attempt:
    """State of an attempt while it is executed."""

    assignment: Assignment
    folder: WorkFolder
    env: dict[str, str]
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
        )


class ShellExecutor:
    """Implements `rota.ports.executor.Executor`."""

    def __init__(
        self, reports: AttemptReports, spawner: Spawner, clock: Clock, work_root: Path
    ) -> None:
        self._reports = reports
        self._spawner = spawner
        self._clock = clock
        self._folders = WorkFolders(work_root, clock)
        self._pipes = Pipes()
        self._base_env = inherited_variables()
        self._attempts: dict[Fence, _Attempt] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._progress = asyncio.get_running_loop().create_task(self._watch_progress())

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
        self._pipes.close()

    async def _run(self, attempt: _Attempt) -> None:
        try:
            await self._run_steps(attempt)
            outcome = self._outcome(attempt)
        except Exception as error:
            log.error("attempt.broken", run=attempt.fence.run, exc_info=error)
            outcome = self._failed(attempt.assignment, f"internal error: {error!r}")
        finally:
            del self._attempts[attempt.fence]
            self._folders.give_back(attempt.folder)
        self._reports.ended([outcome])

    def _prepare(self, assignment: Assignment) -> _Attempt:
        folder = self._folders.take()
        now, started_at = self._clock.monotonic(), self._reports.store_micros()
        seconds = assignment.seconds_allowed(started_at)
        return _Attempt(
            assignment=assignment,
            folder=folder,
            env=attempt_variables(self._base_env, assignment, folder.output, folder.progress),
            open_sink=partial(self._reports.output, assignment.work.fence),
            started_at=started_at,
            deadline=None if seconds is None else now + seconds,
            stop=asyncio.get_running_loop().create_future(),
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

    async def _run_steps(self, attempt: _Attempt) -> None:
        for number, step in enumerate(attempt.assignment.spec.steps):
            if attempt.stop.done() and attempt.is_well:
                attempt.result = AttemptResult.CANCELLED
                attempt.message = f"cancelled before {_step_label(step)}"
            if _is_wanted(step, attempt) and self._has_time(attempt):
                await self._run_step(attempt, number, step)
            else:
                attempt.steps.append(StepOutcome(step.name, "skipped"))

    def _has_time(self, attempt: _Attempt) -> bool:
        now = self._clock.monotonic()
        return not attempt.is_stopped or now < attempt.stop_clock(now)

    async def _run_step(self, attempt: _Attempt, number: int, step: Step) -> None:
        """Run one step with its own retries; a failure is recorded on the attempt."""
        began = self._clock.monotonic()
        limit = self._limit(attempt, step)
        tries = _Tries()
        while True:
            ending, result = await self._try(attempt, number, step, limit)
            tries.add(ending)
            if result is not AttemptResult.FAILED or tries.count >= step.retry.attempts:
                break
            if not await self._pause(attempt, backoff(step.retry, tries.count - 1, 0.0), limit):
                result = _stopped_as(attempt)
                break
        seconds = round(self._clock.monotonic() - began, 3)
        attempt.steps.append(tries.outcome(step, ending, result, seconds))
        is_excused = step.continue_on_error and result is AttemptResult.FAILED
        if result is not AttemptResult.COMPLETED and not is_excused and attempt.is_well:
            attempt.result, attempt.failure = result, ending
            attempt.message = f"{_step_label(step)}: {_words(ending, result)}"
            if attempt.complaint and result is AttemptResult.FAILED:
                attempt.message += f": {attempt.complaint}"

    def _limit(self, attempt: _Attempt, step: Step) -> float | None:
        """Return a step's deadline: its own timeout, the attempt's, or the grace after its end."""
        now = self._clock.monotonic()
        limits = [] if step.timeout is None else [now + step.timeout.total_seconds()]
        if attempt.is_stopped:
            limits.append(attempt.stop_clock(now))
        elif attempt.deadline is not None:
            limits.append(attempt.deadline)
        return min(limits, default=None)

    async def _pause(self, attempt: _Attempt, pause: timedelta, limit: float | None) -> bool:
        """Wait between retries of a step; return False if a cancel or the limit came first."""
        now = self._clock.monotonic()
        seconds = pause.total_seconds()
        left = seconds if limit is None else min(seconds, limit - now)
        await asyncio.wait({attempt.stop}, timeout=max(left, 0))
        return left >= seconds and not attempt.stop.done()

    async def _try(
        self, attempt: _Attempt, number: int, step: Step, limit: float | None
    ) -> tuple[Exit, AttemptResult]:
        attempt.complaint = ""
        try:
            command = command_of(step, number, attempt.folder)
            streams = self._pipes.open(attempt.open_sink, number)
        except OSError as error:  # no space for its script, no descriptors for its output
            reason = f"the step could not be started: {error.strerror}"
            ending, result = Exit(None, None, error=reason), AttemptResult.FAILED
        else:
            process = self._spawn(attempt, step, command, streams)
            ending, result = await _Supervision(attempt, process, self._clock).end(limit)
            for stream in streams:
                await stream.close()
            if result is AttemptResult.FAILED:
                stdout, stderr = streams
                attempt.complaint = stderr.last_line or stdout.last_line
        if ending.error:
            attempt.open_sink().feed(Stream.ROTA, number, f"{ending.error}\n".encode())
        return ending, result

    def _spawn(
        self, attempt: _Attempt, step: Step, command: tuple[str, ...], streams: Sequence[Pipe]
    ) -> Process:
        stdout, stderr = streams
        return self._spawner.spawn(
            command,
            env=step_variables(attempt.env, step),
            cwd=attempt.assignment.spec.path or str(attempt.folder.path),
            stdout=stdout.writer,
            stderr=stderr.writer,
        )

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

    def _outcome(self, attempt: _Attempt) -> Outcome:
        outputs, complaint = attempt.folder.read_outputs()
        if complaint:
            attempt.open_sink().feed(Stream.ROTA, len(attempt.steps) - 1, f"{complaint}\n".encode())
        work, failure = attempt.assignment.work, attempt.failure
        return Outcome(
            run=work.run,
            number=work.number,
            result=attempt.result,
            started_at=attempt.started_at,
            ended_at=self._reports.store_micros(),
            exit_code=0 if failure is None else failure.status,
            signal=None if failure is None else failure.signal,
            message=attempt.message,
            outputs=outputs,
            steps=tuple(attempt.steps),
            cpu_seconds=round(sum(step.cpu_seconds for step in attempt.steps), 6),
            max_memory_bytes=max((step.max_memory_bytes for step in attempt.steps), default=0),
        )


class _Supervision:
    """Watch over one process, which is terminated on timeout or cancel."""

    def __init__(self, attempt: _Attempt, process: Process, clock: Clock) -> None:
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
        self._stopped_as = _stopped_as(self._attempt)
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


def _is_wanted(step: Step, attempt: _Attempt) -> bool:
    match step.condition:
        case StepCondition.ALWAYS:
            return True
        case StepCondition.SUCCESS:
            return attempt.is_well
        case StepCondition.FAILURE:
            return attempt.result is AttemptResult.FAILED


def _stopped_as(attempt: _Attempt) -> AttemptResult:
    """Return why a step is terminated: a cancel, unless one was obeyed before, or a timeout."""
    is_cancelled = attempt.stop.done() and not attempt.is_stopped
    return AttemptResult.CANCELLED if is_cancelled else AttemptResult.TIMED_OUT


def _words(ending: Exit, result: AttemptResult) -> str:
    if ending.error:
        return ending.error
    if result is not AttemptResult.FAILED:
        return result.lower().replace("_", " ")
    if ending.signal is not None:
        return f"killed by signal {ending.signal} ({_signal_name(ending.signal)})"
    return f"exit {ending.status}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"
