"""Execution of one attempt, and the queue of messages to the worker.

User code never touches the socket: it may be interrupted at any point, and a frame may not. So a
thread of its own sends the messages of all attempts.
"""

from __future__ import annotations

import asyncio
import math
import select
import socket
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import groupby
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Any, TypeVar

from rota.sdk.context import Cancelled, Context, Identity, StepReport
from rota.sdk.exchange import from_json, to_json
from rota.sdk.functions import JobFunction
from rota.sdk.host import wire

T = TypeVar("T")
Completion = tuple[int, int, int, int, bytes]  # key, started, ended, processor time, output

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LONGEST_TEXT = 2_000
_LARGEST_OUTPUT = 1024 * 1024
_MOST_PRINTED = 4 * 1024 * 1024  # bytes that may wait; functions that print more block
_LONGEST_PAUSE = 0.1  # seconds between two looks for room
_ATTEMPT_MASK = (1 << 32) - 1  # the attempt in the number of its fence
_MOST_STEPS = 1_000  # of one attempt, as servers take them; the last one sums up the rest
_MOST_CHANGES = 100_000  # of steps that may wait to be told; the end tells all steps again
_STEPS_WAIT = 0.2  # seconds

current: ContextVar[Execution | None] = ContextVar("rota_execution", default=None)


class CallBatch:
    """Attempts at one job version that came together; threads share what is left of them."""

    __slots__ = ("_message", "is_offered", "job", "outbox", "waiting")

    def __init__(
        self, message: wire.Calls, job: JobFunction[..., Any, Any], outbox: Outbox
    ) -> None:
        self.job = job
        self.outbox = outbox
        self.waiting = iter(message.keys)  # one iterator for all threads: each key is taken once
        self.is_offered = False  # the rest, to other threads, and none has come yet
        self._message = message

    def inputs(self, key: int) -> dict[str, Any]:
        text = self._message.inputs.get(key - self._message.first_key)
        inputs: dict[str, Any] = from_json(text) if text else {}
        return inputs

    def identity(self, key: int, inputs: dict[str, Any]) -> Identity:
        message = self._message
        at = key - message.first_key
        due_at = _EPOCH + timedelta(microseconds=message.due_at[at])
        fence = message.numbers[at]
        return Identity(
            message.runs[at],
            message.job,
            fence & _ATTEMPT_MASK,
            due_at,
            message.project,
            inputs,
            fence,
        )

    @property
    def is_simple(self) -> bool:
        """Return whether the function can be called as it is, for each of the attempts."""
        return not self._message.inputs and not self.job.parameters.takes_context


class Execution:
    """Calls a function and records the result. Receives what its context reports."""

    __slots__ = (
        "_is_odd",
        "_knows_of_cancel",
        "_step",
        "_steps",
        "_summed_up",
        "batch",
        "is_over",
        "is_to_stop",
        "key",
        "started",
    )

    def __init__(self, batch: CallBatch, key: int) -> None:
        self.batch = batch
        self.key = key
        self.started = 0  # microseconds of the machine's monotonic clock; 0: not begun
        self.is_to_stop = False
        self.is_over = False
        self._is_odd = False  # its progress is no number; told once
        self._knows_of_cancel = False
        self._step = 0
        self._steps: list[wire.Step] | None = None
        self._summed_up = 1  # steps for which the last one stands

    @property
    def is_cancelled(self) -> bool:
        """Return whether it is to stop, for the function: from then on it knows."""
        if self.is_to_stop:
            self._knows_of_cancel = True
        return self.is_to_stop

    def bound(self) -> Callable[[], Any]:
        """Return the function with the arguments of this attempt."""
        batch = self.batch
        inputs = batch.inputs(self.key)
        parameters = batch.job.parameters
        arguments = parameters.unpack(inputs) if inputs else {}
        if parameters.takes_context:
            context = Context(batch.identity(self.key, inputs), self)
            return partial(batch.job.fn, context, **arguments)
        return partial(batch.job.fn, **arguments)

    def returned(self, value: object, ended: int, cpu_micros: int = 0) -> None:
        """Report that the function returned."""
        output = b"" if value is None else self._output(value)
        if self._steps is None:
            self.batch.outbox.completed((self.key, self.started, ended, cpu_micros, output))
        else:
            self._done("completed", ended, cpu_micros, output=output)

    def raised(self, error: BaseException, ended: int, cpu_micros: int = 0) -> None:
        """Report that the function raised; an error of its own is one, even just before a stop."""
        if self.is_to_stop and isinstance(error, Cancelled | asyncio.CancelledError):
            self._done("cancelled", ended, cpu_micros, "cancelled")
            return
        is_after_stop = self._knows_of_cancel or (self.is_to_stop and _follows_a_cancel(error))
        trace = traceback.format_exception(error.with_traceback(_users_part(error.__traceback__)))
        self.write("stderr", "".join(trace).encode(errors="backslashreplace"))
        result = "cancelled" if is_after_stop else "failed"
        last_line = traceback.format_exception_only(error)[-1].strip()
        self._done(result, ended, cpu_micros, sendable(last_line))

    def broke(self, error: BaseException) -> None:
        """Report a failure of telling how the function ended."""
        self._done("failed", monotonic_micros(), 0, _in_short(error))

    def write(self, stream: str, data: bytes) -> None:
        self.batch.outbox.printed(self.key, stream, self._step, data)

    def progress(self, done: float, total: float | None, message: str) -> None:
        part, whole = float(done), None if total is None else float(total)
        if not math.isfinite(part) or not math.isfinite(whole or 0.0):
            if not self._is_odd:
                self._complain(f"progress {part:g} was not kept: it is not finite, or its total")
            self._is_odd = True
            return
        self.batch.outbox.progressed(wire.Progressed(self.key, part, whole, sendable(str(message))))

    def log(self, text: str) -> None:
        self.write("stdout", text.encode(errors="backslashreplace"))

    def step_began(self, number: int, name: str) -> None:
        self._step = min(number, _MOST_STEPS - 1)
        if self._steps is None:
            self._steps = []
        if number < _MOST_STEPS:
            begun = wire.Step(sendable(str(name)), "running", 0.0, monotonic_micros())
            self._steps.append(begun)
            self.batch.outbox.stepped(self, number)

    def step_ended(self, number: int, report: StepReport, outer: int | None) -> None:
        self._step = min(outer or 0, _MOST_STEPS - 1)
        if self._steps is None or not self._steps:
            return  # it was interrupted as it began
        place = min(number, len(self._steps) - 1)
        begun = self._steps[place]
        seconds = round(report.seconds, 6)
        step = wire.Step(sendable(str(report.name)), report.result, seconds, begun.started)
        self._steps[place] = step if number < _MOST_STEPS else self._summed(begun, step)
        self.batch.outbox.stepped(self, place)

    def step(self, number: int) -> wire.Step:
        assert self._steps is not None, "it has begun"
        return self._steps[number]

    def _summed(self, last: wire.Step, step: wire.Step) -> wire.Step:
        self._summed_up += 1
        result = last.result if step.result == "completed" else step.result
        seconds = round(last.seconds + step.seconds, 6)
        return wire.Step(f"… and {self._summed_up:,} more", result, seconds, last.started)

    def _output(self, value: object) -> bytes:
        """Encode the output; one that cannot be kept is no failure, as the work is done."""
        try:
            output = to_json(value)
        except (TypeError, ValueError, RecursionError) as error:
            self._complain(f"the result was not kept: {error}")
            return b""
        except Exception as error:  # noqa: BLE001 (a model converts itself by the user's code)
            self._complain(f"the result was not kept: {_in_short(error)}")
            return b""
        if len(output) > _LARGEST_OUTPUT:
            self._complain("the result was not kept: it is over 1 MiB")
            return b""
        return output

    def _complain(self, text: str) -> None:
        self.write("rota", f"{sendable(text)}\n".encode())

    def _done(
        self, result: str, ended: int, cpu_micros: int, message: str = "", output: bytes = b""
    ) -> None:
        self.is_over = True
        steps = tuple(_over(step, result) for step in self._steps or ())
        started = self.started or ended
        self.batch.outbox.done(
            wire.Done(self.key, result, started, ended, cpu_micros, message, output, steps)
        )


def _over(step: wire.Step, result: str) -> wire.Step:
    """Return a step of a function that has ended: one that was not told to end did so with it."""
    if step.result != "running":
        return step
    return wire.Step(step.name, result, step.seconds, step.started)


def _follows_a_cancel(error: BaseException) -> bool:
    """Return whether an error was raised while a cancel was being handled."""
    seen: set[int] = set()
    chain: list[BaseException | None] = [error]
    while chain:
        each = chain.pop()
        if isinstance(each, Cancelled | asyncio.CancelledError):
            return True
        if each is not None and id(each) not in seen:
            seen.add(id(each))
            chain += [each.__cause__, each.__context__]
    return False


def monotonic_micros() -> int:
    return time.monotonic_ns() // 1000


def _users_part(trace: TracebackType | None) -> TracebackType | None:
    """Return the traceback without the SDK's own frames that lead to the user's function."""
    while trace is not None and _is_ours(trace):
        trace = trace.tb_next
    return trace


def _is_ours(trace: TracebackType) -> bool:
    return str(trace.tb_frame.f_globals.get("__name__", "")).startswith("rota.sdk.")


def _in_short(error: BaseException) -> str:
    """Return the type of an error, and what it says if it can."""
    try:
        return sendable(f"{type(error).__name__}: {error}")
    except BaseException:  # noqa: BLE001 (the user's code says it)
        return type(error).__name__


def sendable(text: str) -> str:
    """Return the text in a form that any encoder accepts, cut to a limit."""
    return text[:_LONGEST_TEXT].encode(errors="backslashreplace").decode()


class Outbox:
    """Queue of messages: one thread sends all there are, and so batches more the busier it gets.

    Functions that add to it may be interrupted at any call. So it has no lock that Python code
    takes and gives back: an interruption in between would leave it taken for ever.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._completed: deque[Completion] = deque()
        self._done: deque[wire.Done] = deque()
        self._printed: deque[wire.Printed] = deque()
        self._progressed: deque[wire.Progressed] = deque()
        self._stepped: deque[tuple[Execution, int]] = deque()
        self._waiting_bytes = 0
        self._bell: SimpleQueue[None] = SimpleQueue()
        self._rung = False
        self._rung_for_steps = False
        self._thread = threading.Thread(target=self._send_all, name="rota-outbox", daemon=True)
        self._thread.start()

    def completed(self, completion: Completion) -> None:
        self._completed.append(completion)
        if not self._rung:
            self._ring()

    def done(self, done: wire.Done) -> None:
        self._done.append(done)
        self._ring()

    def printed(self, key: int, stream: str, step: int, data: bytes) -> None:
        if self._waiting_bytes > _MOST_PRINTED:
            self._wait_for_room()
        self._printed.append(wire.Printed(key, stream, step, data))
        self._waiting_bytes += len(data)
        self._ring()

    def progressed(self, progressed: wire.Progressed) -> None:
        self._progressed.append(progressed)
        self._ring()

    def stepped(self, execution: Execution, number: int) -> None:
        """Note that a step began or ended. It waits a little: most functions are over by then."""
        if len(self._stepped) < _MOST_CHANGES:
            self._stepped.append((execution, number))
        if not self._rung_for_steps:
            self._rung_for_steps = True
            self._bell.put(None)

    def _wait_for_room(self) -> None:
        pause = 0.001
        while self._waiting_bytes > _MOST_PRINTED:
            self._ring()  # whoever printed last may have been interrupted before it did
            select.select((), (), (), pause)  # a wait without a lock
            pause = min(pause * 2, _LONGEST_PAUSE)

    def _ring(self) -> None:
        if not self._rung:
            # Python interrupts at calls and in loops: not between these, which would mute the bell.
            self._rung = True
            self._bell.put(None)

    def _send_all(self) -> None:
        while True:
            self._wait_for_news()
            try:
                if news := self._take():
                    wire.send(self._connection, news)
            except OSError:
                return  # the worker is gone, and the reader of its orders ends the process
            self._waiting_bytes = 0

    def _wait_for_news(self) -> None:
        self._bell.get()
        if not self._rung:
            with suppress(Empty):  # steps go with what else there is, or alone after a while
                self._bell.get(timeout=_STEPS_WAIT)
        self._rung = self._rung_for_steps = False

    def _take(self) -> wire.News:
        # Ends first: what their attempts had printed is then certainly among the printed.
        completed = _columns(_drain(self._completed))
        done = _drain(self._done)
        changed = dict.fromkeys(_drain(self._stepped))
        printed = _drain(self._printed)
        latest = {each.key: each for each in _drain(self._progressed)}
        stepped = tuple(
            wire.Stepped(execution.key, number, execution.step(number))
            for execution, number in changed
            if not execution.is_over
        )
        return wire.News(_joined(printed), tuple(latest.values()), completed, tuple(done), stepped)


def _drain(queue: deque[T]) -> list[T]:
    return [queue.popleft() for _ in range(len(queue))]


def _columns(completions: list[Completion]) -> wire.Completed:
    if not completions:
        return wire.Completed()
    keys, started, ended, cpu, outputs = map(list, zip(*completions, strict=True))
    kept = {at: output for at, output in enumerate(outputs) if output} if any(outputs) else {}
    return wire.Completed(keys, started, ended, cpu, kept)


def _joined(printed: list[wire.Printed]) -> tuple[wire.Printed, ...]:
    """Join consecutive pieces of one stream."""
    groups = groupby(printed, key=lambda piece: (piece.key, piece.stream, piece.step))
    return tuple(
        wire.Printed(key, stream, step, b"".join(piece.data for piece in pieces))
        for (key, stream, step), pieces in groups
    )
