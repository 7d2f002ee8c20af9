"""Execution of one attempt, and the queue of messages to the worker.

User code never touches the socket: it may be interrupted at any point, and a frame may not. So a
thread of its own sends the messages of all attempts.
"""

from __future__ import annotations

import asyncio
import socket
import threading
import time
import traceback
from collections import deque
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from itertools import groupby
from queue import SimpleQueue
from types import TracebackType
from typing import Any, TypeVar

from rota.sdk.context import Cancelled, Context, Identity, StepReport
from rota.sdk.exchange import to_json
from rota.sdk.functions import JobFunction
from rota.sdk.host import wire

T = TypeVar("T")

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LONGEST_TEXT = 2_000
_LARGEST_OUTPUT = 1024 * 1024
_MOST_PRINTED = 4 * 1024 * 1024  # bytes that may wait; functions that print more block

current: ContextVar[Execution | None] = ContextVar("rota_execution", default=None)


class Execution:
    """Calls the function and records the result. Receives what its context reports."""

    __slots__ = ("_job", "_outbox", "_started", "_step", "_steps", "is_cancelled", "seat", "task")

    def __init__(self, task: wire.Task, job: JobFunction[..., Any, Any], outbox: Outbox) -> None:
        self.task = task
        self.is_cancelled = False
        self.seat: object = None  # the thread that runs it, while one does
        self._job = job
        self._outbox = outbox
        self._started = 0
        self._step = 0
        self._steps: list[wire.Step] = []

    @property
    def is_async(self) -> bool:
        return self._job.is_async

    @property
    def has_begun(self) -> bool:
        return self._started > 0

    def call(self) -> Any:
        """Call the function; return its result, or the coroutine of an async one."""
        current.set(self)
        self._started = monotonic_micros()
        if self.is_cancelled:
            raise Cancelled
        parameters = self._job.parameters
        arguments = parameters.unpack(self.task.inputs) if self.task.inputs else {}
        if parameters.takes_context:
            return self._job.fn(self._context(), **arguments)
        return self._job.fn(**arguments)

    def returned(self, value: object, cpu_micros: int = 0) -> wire.Done:
        output = b"" if value is None else self._output(value)
        return self._done("completed", cpu_micros, output=output)

    def raised(self, error: BaseException, cpu_micros: int = 0) -> wire.Done:
        if self.is_cancelled and isinstance(error, Cancelled | asyncio.CancelledError):
            return self._done("cancelled", cpu_micros, "cancelled")
        trace = traceback.format_exception(error.with_traceback(_users_part(error.__traceback__)))
        self.write("stderr", "".join(trace).encode(errors="backslashreplace"))
        result = "cancelled" if self.is_cancelled else "failed"
        last_line = traceback.format_exception_only(error)[-1].strip()
        return self._done(result, cpu_micros, sendable(last_line))

    def write(self, stream: str, data: bytes) -> None:
        self._outbox.printed(self.task.key, stream, self._step, data)

    def progress(self, done: float, total: float | None, message: str) -> None:
        whole = None if total is None else float(total)
        self._outbox.progressed(
            wire.Progressed(self.task.key, float(done), whole, sendable(str(message)))
        )

    def log(self, text: str) -> None:
        self.write("stdout", text.encode(errors="backslashreplace"))

    def step_began(self, number: int | None) -> None:
        self._step = number or 0

    def step_ended(self, report: StepReport) -> None:
        name = sendable(str(report.name))
        self._steps.append(wire.Step(name, report.result, round(report.seconds, 6)))

    def _context(self) -> Context:
        task = self.task
        due_at = _EPOCH + timedelta(microseconds=task.due_at)
        inputs = task.inputs or {}
        identity = Identity(task.run, task.job, task.attempt, due_at, task.project, inputs)
        return Context(identity, self)

    def _output(self, value: object) -> bytes:
        """Encode the output; one that cannot be kept is no failure, as the work is done."""
        try:
            output = to_json(value)
        except (TypeError, ValueError, RecursionError) as error:
            self._complain(f"the result was not kept: {error}")
            return b""
        if len(output) > _LARGEST_OUTPUT:
            self._complain("the result was not kept: it is over 1 MiB")
            return b""
        return output

    def _complain(self, text: str) -> None:
        self.write("rota", f"{sendable(text)}\n".encode())

    def _done(
        self, result: str, cpu_micros: int, message: str = "", output: bytes = b""
    ) -> wire.Done:
        ended = monotonic_micros()
        return wire.Done(
            self.task.key,
            result,
            self._started or ended,
            ended,
            cpu_micros,
            message,
            output,
            tuple(self._steps),
        )


def monotonic_micros() -> int:
    return time.monotonic_ns() // 1000


def _users_part(trace: TracebackType | None) -> TracebackType | None:
    """Return the traceback without the SDK's own frames that lead to the user's function."""
    while trace is not None and _is_ours(trace):
        trace = trace.tb_next
    return trace


def _is_ours(trace: TracebackType) -> bool:
    return str(trace.tb_frame.f_globals.get("__name__", "")).startswith("rota.sdk.")


def sendable(text: str) -> str:
    """Return the text in a form that any encoder accepts, cut to a limit."""
    return text[:_LONGEST_TEXT].encode(errors="backslashreplace").decode()


class Outbox:
    """Queue of messages: one thread sends all there are, and so batches more the busier it gets."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._done: deque[wire.Done] = deque()
        self._printed: deque[wire.Printed] = deque()
        self._progressed: deque[wire.Progressed] = deque()
        self._waiting_bytes = 0
        self._has_room = threading.Event()
        self._has_room.set()
        self._bell: SimpleQueue[None] = SimpleQueue()
        self._rung = False
        self._thread = threading.Thread(target=self._send_all, name="rota-outbox", daemon=True)
        self._thread.start()

    def done(self, done: wire.Done) -> None:
        self._done.append(done)
        self._ring()

    def printed(self, key: int, stream: str, step: int, data: bytes) -> None:
        self._has_room.wait()
        self._printed.append(wire.Printed(key, stream, step, data))
        self._waiting_bytes += len(data)
        if self._waiting_bytes > _MOST_PRINTED:
            self._has_room.clear()
        self._ring()

    def progressed(self, progressed: wire.Progressed) -> None:
        self._progressed.append(progressed)
        self._ring()

    def _ring(self) -> None:
        if not self._rung:
            self._rung = True
            self._bell.put(None)

    def _send_all(self) -> None:
        while True:
            self._bell.get()
            self._rung = False
            try:
                wire.send(self._connection, self._take())
            except OSError:
                return  # the worker is gone, and the reader of its orders ends the process
            self._waiting_bytes = 0
            self._has_room.set()

    def _take(self) -> wire.News:
        # Ends first: what their tasks had printed is then certainly among the printed.
        done = _drain(self._done)
        printed = _drain(self._printed)
        latest = {each.key: each for each in _drain(self._progressed)}
        return wire.News(_joined(printed), tuple(latest.values()), tuple(done))


def _drain(queue: deque[T]) -> list[T]:
    return [queue.popleft() for _ in range(len(queue))]


def _joined(printed: list[wire.Printed]) -> tuple[wire.Printed, ...]:
    """Join consecutive pieces of one stream."""
    groups = groupby(printed, key=lambda piece: (piece.key, piece.stream, piece.step))
    return tuple(
        wire.Printed(key, stream, step, b"".join(piece.data for piece in pieces))
        for (key, stream, step), pieces in groups
    )
