"""Attempts that a worker holds, from dispatch to the acknowledged report."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta

import msgspec

from rota.domain.errors import Unavailable
from rota.domain.ids import instant, micros
from rota.domain.lease import StoreTime
from rota.domain.run import AttemptResult
from rota.domain.spec import Delivery, JobSpec, JobType
from rota.ports.clock import Clock
from rota.ports.executor import Assignment, Executor
from rota.ports.work import (
    KNOWN_SPECS,
    MAX_ITEMS,
    Beat,
    Dispatch,
    Fence,
    Outcome,
    Progress,
    SpecEntry,
    Start,
    Work,
)
from rota.worker.output import AttemptOutput, OutputTimes
from rota.worker.spool import OutputSpool

_MAX_REPORT_BYTES = 8 * 1024 * 1024
_SETTLING = timedelta(seconds=1)  # how long an end waits for the last of its output to arrive


@dataclass(slots=True)
class Held:
    """Attempt that this worker holds."""

    assignment: Assignment
    received_at: float  # monotonic
    started_at: int = 0  # store's microseconds; 0: not begun
    is_announced: bool = False  # the store knows that it began
    is_cancelled: bool = False
    is_interrupted: bool = False  # the worker stops: whatever becomes of it, another one tries
    output: AttemptOutput | None = None
    outcome: Outcome | None = None  # set when it ended; kept until acknowledged
    report_at: float = 0.0  # monotonic; not before then, as the server could not take it yet


class Attempts:
    """Implements `rota.ports.executor.Desk` for executors, and tracks the session's attempts."""

    def __init__(self, clock: Clock, spool: OutputSpool) -> None:
        self.spool = spool
        self._clock = clock
        self._times = OutputTimes(clock.monotonic, lambda: self.store_micros() // 1000)
        self._executors: Mapping[JobType, Executor] = {}
        self._specs: dict[tuple[str, int], JobSpec] = {}
        self._held: dict[Fence, Held] = {}
        self._ended: dict[Fence, Held] = {}  # the held ones whose outcome is to be reported
        self._received = 0  # items of work, in this stream
        self._store_time = StoreTime(instant(0), clock.monotonic())
        self._finishing: set[asyncio.Task[None]] = set()
        self.progress: dict[Fence, Progress] = {}
        self.has_news = asyncio.Event()  # an outcome waits to be reported

    def serve_with(self, executors: Mapping[JobType, Executor]) -> None:
        self._executors = executors

    @property
    def held(self) -> Mapping[Fence, Held]:
        return self._held

    def learn_time(self, store_now: int, received_at: float) -> None:
        """Record the store's time, and the monotonic time at which it was received."""
        self._store_time = StoreTime(instant(store_now), received_at)

    def beat(self, stream: int, *, stopping: bool = False) -> Beat:
        """Build a beat: held attempts and the count of received work, of the same moment."""
        return Beat(tuple(self._held), stopping, self._received, stream)

    # --- from the server

    def begin_stream(self) -> None:
        """Reset the count of received work, as the server does, and resend unanswered reports."""
        self._received = 0
        self._ended = {fence: held for fence, held in self._held.items() if held.outcome}

    def accept(self, dispatch: Dispatch) -> tuple[list[Held], list[Held]]:
        """Accept work; return what may begin at once, and what needs a permit first.

        Work whose spec did not come, because this version cannot read it, fails. A dispatch that
        comes twice is ignored, however long ago its attempts have ended. Raise `Unavailable` if one
        before it is missing.
        """
        if not self._is_next(dispatch):
            return [], []
        self._received += len(dispatch.work)
        self._learn(dispatch.specs)
        now = self._clock.monotonic()
        free: list[Held] = []
        guarded: list[Held] = []
        for work in dispatch.work:
            fence = work.fence
            if fence in self._held:
                continue  # sent twice: harmless
            spec = self._specs.get((work.job_id, work.job_version))
            if spec is None:
                self._refuse_unreadable(work, now)
                continue
            held = Held(Assignment(work, spec), now)
            self._held[fence] = held
            (guarded if spec.delivery is Delivery.AT_MOST_ONCE else free).append(held)
        return free, guarded

    def _is_next(self, dispatch: Dispatch) -> bool:
        """Return False if the dispatch came before; raise `Unavailable` if one is missing."""
        if dispatch.first > self._received + 1:
            raise Unavailable("a part of the stream from the server is missing")
        return dispatch.first in (0, self._received + 1)

    def _learn(self, entries: Sequence[SpecEntry]) -> None:
        """Remember the specs that were sent last; held work keeps its own."""
        for entry in entries:
            ref = (entry.job_id, entry.job_version)
            self._specs.pop(ref, None)
            self._specs[ref] = entry.spec
        for ref in list(self._specs)[:-KNOWN_SPECS]:
            del self._specs[ref]

    def _refuse_unreadable(self, work: Work, now: float) -> None:
        unread = Assignment(work, JobSpec(work.job_id))
        self._held[work.fence] = Held(unread, now)
        self.ended([self._refusal(unread, "this worker's version of Rota cannot read the job")])

    def begin(self, items: Sequence[Held]) -> None:
        """Hand attempts to the executor of their type, except those cancelled meanwhile."""
        self.withdraw([item.assignment.work.fence for item in items if item.is_cancelled])
        now = self.store_micros()
        by_type: dict[JobType, list[Assignment]] = {}
        for item in items:
            if item.is_cancelled:
                continue
            item.started_at = now
            by_type.setdefault(item.assignment.spec.type, []).append(item.assignment)
        for kind, assignments in by_type.items():
            executor = self._executors.get(kind)
            if executor is None:
                self.ended(
                    [self._refusal(a, f"this worker does not run {kind} jobs") for a in assignments]
                )
            else:
                executor.start(assignments)

    def _refusal(self, assignment: Assignment, message: str) -> Outcome:
        now = self.store_micros()
        return Outcome(
            assignment.work.run,
            assignment.work.attempt,
            AttemptResult.FAILED,
            now,
            now,
            message=message,
        )

    def unpermitted(self) -> list[Held]:
        """List attempts that need a permit and have not begun: the request may be unanswered."""
        return [
            held
            for held in self._held.values()
            if held.assignment.spec.delivery is Delivery.AT_MOST_ONCE
            and not held.started_at
            and held.outcome is None
        ]

    def withdraw(self, fences: Sequence[Fence]) -> None:
        """Report attempts as cancelled before they began."""
        now = self.store_micros()
        self.ended([Outcome(f.run, f.attempt, AttemptResult.CANCELLED, 0, now) for f in fences])

    def give_back(self, items: Sequence[Held]) -> None:
        """Return work that arrived while the worker stops: others may begin it at once."""
        for item in items:
            item.is_interrupted = True
        self.withdraw([item.assignment.work.fence for item in items])

    def forget(self, fences: Sequence[Fence]) -> None:
        """Forget attempts whose reports were acknowledged or refused for good."""
        for fence in fences:
            self._held.pop(fence, None)
            self._ended.pop(fence, None)
            self.progress.pop(fence, None)

    def cancel(self, fences: Sequence[Fence]) -> None:
        """Stop attempts; repeating this is harmless."""
        by_type: dict[JobType, list[Fence]] = {}
        for fence in fences:
            held = self._held.get(fence)
            if held is not None and not held.is_cancelled and held.outcome is None:
                held.is_cancelled = True
                if held.started_at:  # else `begin` will see it
                    by_type.setdefault(held.assignment.spec.type, []).append(fence)
        for kind, stopped in by_type.items():
            if kind in self._executors:
                self._executors[kind].cancel(stopped)

    def interrupt(self) -> None:
        """Stop all attempts because the worker must stop; they are retried elsewhere."""
        going = [fence for fence, held in self._held.items() if held.outcome is None]
        for fence in going:
            self._held[fence].is_interrupted = not self._held[fence].is_cancelled
        self.cancel(going)

    def watch(self, runs: Sequence[str]) -> None:
        """Deliver the output of these runs promptly, because somebody follows it."""
        wanted = set(runs)
        for fence, held in self._held.items():
            if fence.run in wanted and held.outcome is None:
                self._output_of(fence, held).set_watched(True)

    # --- from executors

    def store_micros(self) -> int:
        return micros(self._store_time.at(self._clock.monotonic()))

    def output(self, fence: Fence) -> AttemptOutput:
        return self._output_of(fence, self._held[fence])

    def _output_of(self, fence: Fence, held: Held) -> AttemptOutput:
        if held.output is None:
            outbox = self.spool.outbox(fence)
            held.output = AttemptOutput(held.assignment.spec.log_limit, self._times, outbox)
        return held.output

    def progressed(self, fence: Fence, done: float, total: float | None, message: str) -> None:
        self.progress[fence] = Progress(fence.run, fence.attempt, done, total, message)

    def ended(self, outcomes: Sequence[Outcome]) -> None:
        for outcome in outcomes:
            held = self._held.get(Fence(outcome.run, outcome.attempt))
            if held is None or held.outcome is not None:
                continue
            final = _interrupted(outcome) if held.is_interrupted else outcome
            if held.output is None:
                self._end(held, final)
            else:
                task = asyncio.get_running_loop().create_task(self._finish_output(held, final))
                self._finishing.add(task)
                task.add_done_callback(self._finishing.discard)

    async def _finish_output(self, held: Held, outcome: Outcome) -> None:
        """Deliver the rest of the output before the end is reported, but wait only briefly.

        The store compares what has arrived with what was printed, and knows what is still here.
        """
        assert held.output is not None
        rest = held.output.finish()
        with suppress(TimeoutError):
            async with asyncio.timeout(_SETTLING.total_seconds()):
                await held.output.settled()
        final = msgspec.structs.replace(
            outcome,
            output=rest.inline,
            output_bytes=rest.totals.bytes,
            output_lines=rest.totals.lines,
            truncated=rest.totals.truncated,
        )
        self._end(held, final)

    def _end(self, held: Held, outcome: Outcome) -> None:
        held.outcome = outcome
        self._ended[Fence(outcome.run, outcome.attempt)] = held
        self.has_news.set()

    # --- for the session's loops

    def post_due_output(self) -> None:
        for held in self._held.values():
            if held.output is not None and held.outcome is None:
                held.output.post_due()

    @property
    def unreported_count(self) -> int:
        """Return how many outcomes are not being sent."""
        return len(self._ended)

    def unreported(self) -> list[Outcome]:
        """Return outcomes that may be reported by now, as many as fit one message."""
        now = self._clock.monotonic()
        outcomes: list[Outcome] = []
        size = 0
        for held in self._ended.values():
            if held.outcome is None or held.report_at > now:
                continue
            size += _size(held.outcome)
            if outcomes and (len(outcomes) >= MAX_ITEMS or size > _MAX_REPORT_BYTES):
                break
            outcomes.append(held.outcome)
        return outcomes

    def mark_sent(self, outcomes: Sequence[Outcome]) -> None:
        """Mark outcomes as being sent, until they are forgotten or put off, or the stream ends."""
        for outcome in outcomes:
            del self._ended[Fence(outcome.run, outcome.attempt)]

    def put_off(self, outcomes: Sequence[Outcome], pause: timedelta) -> None:
        """Report unanswered outcomes again, after a pause."""
        report_at = self._clock.monotonic() + pause.total_seconds()
        for outcome in outcomes:
            fence = Fence(outcome.run, outcome.attempt)
            held = self._held.get(fence)
            if held is not None:
                held.report_at = report_at
                self._ended[fence] = held

    def starts_to_report(self, older_than: float) -> list[Start]:
        """List starts of attempts that have run for so long; shorter ones only report their end."""
        limit = self._clock.monotonic() - older_than
        return [
            Start(fence.run, fence.attempt, held.started_at)
            for fence, held in self._held.items()
            if held.started_at
            and not held.is_announced
            and held.outcome is None
            and held.received_at < limit
        ]

    def mark_announced(self, fences: Sequence[Fence]) -> None:
        for fence in fences:
            held = self._held.get(fence)
            if held is not None:
                held.is_announced = True


def _size(outcome: Outcome) -> int:
    """Estimate the size of an outcome in a message, in bytes."""
    outputs = 0 if outcome.outputs is None else len(msgspec.msgpack.encode(outcome.outputs))
    return 500 + len(outcome.output) + len(outcome.message) + 200 * len(outcome.steps) + outputs


def _interrupted(outcome: Outcome) -> Outcome:
    if outcome.result == AttemptResult.COMPLETED:
        return outcome
    return msgspec.structs.replace(
        outcome, result=AttemptResult.INTERRUPTED, message="its worker was stopped before it ended"
    )
