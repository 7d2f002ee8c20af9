"""Attempts whose work another system does: submitted, looked after, and told to stop.

What names the work there is in the store before the first look at it, so that the next attempt goes
on with the same work if this worker is lost. Until then only the idempotency key keeps the work
from being done twice: it is the run's id, and the same in all attempts.

`RemoteExecutor` is the walk of an attempt. How the other system is spoken to is for its heirs:
`http` sends requests, `hosted` calls classes of apps and plug-ins.
"""

from __future__ import annotations

import asyncio
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Generic, TypeVar

import structlog

from rota.domain.http import WorkStatus
from rota.domain.output import Stream
from rota.domain.quantities import format_duration
from rota.domain.run import MAX_OUTPUTS, AttemptResult, why_not_portable
from rota.domain.spec import Delivery, HttpState, JobSpec
from rota.ports.clock import Clock
from rota.ports.executor import Assignment, AttemptReports, JobBatch, RemoteWork
from rota.ports.work import RUNNING, Fence, Outcome, StepOutcome

log = structlog.get_logger()

_LONGEST_PAUSE = timedelta(minutes=1)  # between looks that got no answer of use
NO_TIME = timedelta(0)


class Ended(Exception):
    """The attempt is over, with this result."""

    def __init__(self, result: AttemptResult, message: str = "", cause: str = "") -> None:
        super().__init__(message)
        self.result, self.message, self.cause = result, message, cause


class Stopped(Exception):
    """A cancel, or the attempt's timeout, came while something was waited for."""


@dataclass(slots=True)
class RemoteAttempt:
    """State of an attempt while it is executed."""

    assignment: Assignment
    started_at: int
    deadline: float | None  # monotonic; None: no timeout
    stop: asyncio.Future[None]  # done: the attempt was cancelled
    handle: str = ""  # what names the work there, as it is kept; "": it was not submitted
    outputs: Any = None
    steps: list[StepOutcome] = field(default_factory=list)
    began: float = 0.0  # monotonic: the latest step
    is_asking: bool = False  # it is being submitted: nobody knows whether that was received

    @property
    def fence(self) -> Fence:
        return self.assignment.work.fence

    @property
    def spec(self) -> JobSpec:
        return self.assignment.spec

    @property
    def is_once(self) -> bool:
        return self.spec.delivery is Delivery.AT_MOST_ONCE

    @property
    def step(self) -> int:
        """The number of the step that goes on."""
        return max(len(self.steps) - 1, 0)


@dataclass(frozen=True, slots=True)
class Look:
    """Result of one look at the work."""

    status: WorkStatus  # its state is None if it tells nothing
    wait: timedelta | None = None  # what was asked for until the next one; None: nothing


@dataclass(frozen=True, slots=True)
class Begun:
    """Work that another system has begun."""

    handle: str  # what names it there, as JSON
    wait: timedelta | None = None  # what was asked for until the first look; None: nothing


@dataclass(frozen=True, slots=True)
class Rhythm:
    """How often the work is looked at, and how long in vain."""

    every: timedelta
    patience: timedelta  # how long looks may give no answer of use


A = TypeVar("A", bound=RemoteAttempt)
T = TypeVar("T")


class RemoteExecutor(ABC, Generic[A]):
    """Implements `rota.ports.executor.Executor`."""

    def __init__(self, reports: AttemptReports, remote: RemoteWork, clock: Clock) -> None:
        self._reports = reports
        self._remote = remote
        self._clock = clock
        self._attempts: dict[Fence, A] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    # --- how the other system is spoken to

    @abstractmethod
    def new(self, assignment: Assignment, started_at: int, deadline: float | None) -> A:
        """Make the state of an attempt."""

    @abstractmethod
    def take_up(self, attempt: A) -> None:
        """Read the handle that an earlier attempt has kept; raise `Ended` if it cannot be read."""

    @abstractmethod
    async def submit(self, attempt: A) -> Begun:
        """Have the work begun. Raise `Ended` if it was not, or is over already."""

    @abstractmethod
    async def look(self, attempt: A) -> Look:
        """Ask how the work stands."""

    @abstractmethod
    async def call_off(self, attempt: A) -> tuple[bool, str]:
        """Tell the other system to stop, within the grace: whether it will, and what came of it."""

    @abstractmethod
    def rhythm(self, attempt: A) -> Rhythm: ...

    def may_repeat(self, attempt: A) -> bool:
        """Return whether submitting once more does no harm even if the first was received."""
        return not attempt.is_once

    def may_be_shown(self, attempt: A, text: str) -> str:
        """Return the text without what nobody may see."""
        return text

    def may_be_kept(self, attempt: A, outputs: Any) -> Any:
        """Return the outputs without what nobody may see."""
        return outputs

    # --- the port

    def start(self, batches: Sequence[JobBatch]) -> None:
        loop = asyncio.get_running_loop()
        for assignment in (each for batch in batches for each in batch.assignments()):
            now = self._reports.store_micros()
            seconds = assignment.seconds_allowed(now)
            deadline = None if seconds is None else self._clock.monotonic() + seconds
            attempt = self.new(assignment, now, deadline)
            self._attempts[attempt.fence] = attempt  # at once: a cancel may be the next order
            task = loop.create_task(self._run(attempt))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def cancel(self, fences: Sequence[Fence]) -> None:
        for fence in fences:
            attempt = self._attempts.get(fence)
            if attempt is not None and not attempt.stop.done():
                attempt.stop.set_result(None)

    async def close(self) -> None:
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _run(self, attempt: A) -> None:
        ended = Ended(AttemptResult.FAILED, "internal error", "error")
        try:
            await self._carry_out(attempt)
        except Ended as end:
            ended = end
        except Exception as error:
            log.error("attempt.broken", run=attempt.fence.run, exc_info=error)
            ended = Ended(AttemptResult.FAILED, f"internal error: {error!r}", "error")
        finally:
            del self._attempts[attempt.fence]
        self.end_step(attempt, ended.result.lower())
        self._reports.ended([self._outcome(attempt, ended)])

    def _outcome(self, attempt: A, ended: Ended) -> Outcome:
        return Outcome(
            run=attempt.fence.run,
            number=attempt.fence.number,
            result=ended.result,
            started_at=attempt.started_at,
            ended_at=self._reports.store_micros(),
            message=self.may_be_shown(attempt, ended.message),
            outputs=attempt.outputs,
            steps=tuple(attempt.steps),
            cause=ended.cause,
        )

    # --- the walk of an attempt

    async def _carry_out(self, attempt: A) -> None:
        """Raise `Ended` in the end, always."""
        attempt.handle = attempt.assignment.work.handle or ""
        if attempt.handle:
            self.take_up(attempt)
        try:
            pause = NO_TIME
            if not attempt.handle:
                pause = await self._submit(attempt)
            await self._look_after(attempt, pause)
        except Stopped:
            await self._stop(attempt)

    async def _submit(self, attempt: A) -> timedelta:
        """Have the work begun, and what names it kept; return how long to wait before a look."""
        self.begin_step(attempt, "submit")
        try:
            begun = await self.submit(attempt)
        except (Ended, Stopped):
            raise
        except Exception as error:
            log.error("attempt.broken", run=attempt.fence.run, exc_info=error)
            raise self.unclear(attempt, f"submit: internal error: {error!r}", "error") from error
        attempt.handle = begun.handle
        if not await self._remote.keep_handle(attempt.fence, begun.handle):
            raise Ended(AttemptResult.INTERRUPTED, "the attempt is another worker's by now")
        self.end_step(attempt, "completed")
        return max(self.rhythm(attempt).every, begun.wait or NO_TIME)

    async def _look_after(self, attempt: A, pause: timedelta) -> None:
        """Ask how the work stands until it has ended."""
        self.begin_step(attempt, "status")
        heard_at, failures, said = self._clock.monotonic(), 0, ""
        while True:
            await self.wait(attempt, pause)
            look = await self.look(attempt)
            status, trouble = look.status, ""
            if status.state in (HttpState.COMPLETED, HttpState.FAILED):
                await self.finish(attempt, "status", status)
            if status.state is HttpState.RUNNING:
                heard_at, failures = self._clock.monotonic(), 0
            else:
                trouble, failures = status.message, failures + 1
                self._give_up_if_silent(attempt, heard_at, trouble)
            word = trouble or "running"
            if word != said:
                self.say(attempt, word)
                said = word
            pause = max(self._interval(attempt, failures), look.wait or NO_TIME)

    def _give_up_if_silent(self, attempt: A, heard_at: float, trouble: str) -> None:
        silence = timedelta(seconds=self._clock.monotonic() - heard_at)
        patience = self.rhythm(attempt).patience
        if silence >= patience:
            raise Ended(
                AttemptResult.FAILED,
                f"status: no answer of use for {format_duration(patience)}: {trouble}; "
                "the work there may go on",
                "silent",
            )

    def _interval(self, attempt: A, failures: int) -> timedelta:
        """Return the pause before the next look: longer after each that got nothing."""
        every = self.rhythm(attempt).every
        if not failures:
            return every
        doubled = every * 2.0 ** min(failures - 1, 10)
        return max(min(doubled, _LONGEST_PAUSE), every)

    async def finish(self, attempt: A, step: str, status: WorkStatus) -> None:
        """End the attempt by what the other system says; the next one does not go on with it."""
        if status.state is HttpState.COMPLETED:
            attempt.outputs = self._kept_outputs(attempt, status.outputs)
            raise Ended(AttemptResult.COMPLETED)
        if attempt.handle:
            await self._remote.keep_handle(attempt.fence, "")
        raise Ended(AttemptResult.FAILED, f"{step}: {status.message}", "remote")

    def _kept_outputs(self, attempt: A, outputs: Any) -> Any:
        """Return outputs as they are reported; None for those that no part of Rota could carry."""
        complaint = why_not_portable(outputs)
        if not complaint and len(json.dumps(outputs)) > MAX_OUTPUTS:
            complaint = "they are over 1 MiB"
        if complaint:
            self.say(attempt, f"the outputs were not kept: {complaint}")
            return None
        return self.may_be_kept(attempt, outputs)

    def unclear(self, attempt: A, message: str, cause: str) -> Ended:
        """Return the end of an attempt of which nobody knows whether the work was begun.

        To submit it again is safe only where the other system knows the idempotency key: a run that
        must not be done twice is left to a person.
        """
        result = AttemptResult.FAILED if self.may_repeat(attempt) else AttemptResult.LOST
        return Ended(result, message, cause)

    # --- stopping

    async def _stop(self, attempt: A) -> None:
        """Tell the other system to stop, unless another attempt goes on with the work."""
        is_cancel = attempt.stop.done()
        result = AttemptResult.CANCELLED if is_cancel else AttemptResult.TIMED_OUT
        if is_cancel and self._remote.goes_on_elsewhere(attempt.fence):
            raise Ended(result)
        if not attempt.handle:
            message = "it was stopped while it was submitted"
            raise self._stopped_early(attempt, result, message)
        self.end_step(attempt, "cancelled")
        is_over, told = await self.call_off(attempt)
        if is_over:
            await self._remote.keep_handle(attempt.fence, "")
        words = result.lower().replace("_", " ")
        raise Ended(result, f"{words}: {told}")

    def _stopped_early(self, attempt: A, result: AttemptResult, message: str) -> Ended:
        if attempt.is_asking and not self.may_repeat(attempt):
            return Ended(AttemptResult.LOST, f"{message}: it may have been received", "no_answer")
        return Ended(result, f"{message}: it may go on there" if attempt.is_asking else message)

    async def wait(self, attempt: A, pause: timedelta) -> None:
        """Wait; raise `Stopped` if a cancel or the timeout comes first."""
        left = pause.total_seconds()
        limit = self.left(attempt)
        await asyncio.wait({attempt.stop}, timeout=left if limit is None else min(left, limit))
        limit = self.left(attempt)
        if attempt.stop.done() or (limit is not None and limit <= 0):
            raise Stopped

    async def done_or_stopped(self, attempt: A, doing: asyncio.Future[T], grace: timedelta) -> bool:
        """Return whether it is done; after a stop wait no longer for it than the grace."""
        waiting: set[asyncio.Future[Any]] = {doing, attempt.stop}
        first = asyncio.FIRST_COMPLETED
        await asyncio.wait(waiting, timeout=self.left(attempt), return_when=first)
        if not doing.done() and grace:
            await asyncio.wait({doing}, timeout=grace.total_seconds())
        return doing.done()

    def left(self, attempt: A) -> float | None:
        """Return how many seconds it may still take; None: any number."""
        if attempt.deadline is None:
            return None
        return max(attempt.deadline - self._clock.monotonic(), 0.0)

    # --- what is told

    def begin_step(self, attempt: A, name: str) -> None:
        attempt.began = self._clock.monotonic()
        started_at = self._reports.store_micros()
        step = StepOutcome(name, RUNNING, started_at=started_at)
        number = len(attempt.steps)
        attempt.steps.append(self._reports.stepped(attempt.fence, number, step))

    def end_step(self, attempt: A, result: str) -> None:
        if not attempt.steps or attempt.steps[-1].result != RUNNING:
            return
        words: Mapping[str, str] = {"lost": "failed", "interrupted": "cancelled"}
        step = StepOutcome(
            attempt.steps[-1].name,
            words.get(result, result),
            seconds=round(self._clock.monotonic() - attempt.began, 3),
            started_at=attempt.steps[-1].started_at,
        )
        number = len(attempt.steps) - 1
        attempt.steps[-1] = self._reports.stepped(attempt.fence, number, step)

    def say(self, attempt: A, text: str) -> None:
        """Write a line of Rota's own."""
        line = self.may_be_shown(attempt, text).replace("\n", " ")
        sink = self._reports.output(attempt.fence)
        sink.feed(Stream.ROTA, attempt.step, f"{line}\n".encode())
