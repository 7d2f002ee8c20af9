"""Service of the worker's orders.

There are threads for plain functions, and an event loop in its own thread for async ones.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import copy_context
from functools import cached_property
from itertools import starmap
from operator import length_hint
from queue import SimpleQueue
from typing import Any

from rota.sdk.context import Cancelled
from rota.sdk.functions import JobFunction
from rota.sdk.host import wire
from rota.sdk.host.execution import CallBatch, Execution, Outbox, current, monotonic_micros

Functions = Mapping[str, JobFunction[..., Any, Any]]

_QUICK_NANOS = 100_000
_STALL_SECONDS = 0.002  # without getting on while something waits: more threads are needed


class Seat:
    """Place of one execution at a time in one thread, where it can be interrupted.

    Taking and leaving it is done without a lock: whoever interrupts announces that first and looks
    second, and whoever leaves does so first and looks for an announcement second.
    """

    __slots__ = ("_is_interrupted", "_lock", "_thread_id", "execution", "is_announced", "watch")

    def __init__(self) -> None:
        self.execution: Execution | None = None
        self.is_announced = False  # somebody interrupts, or did
        self.watch = Stopwatch()
        self._thread_id = threading.get_ident()
        self._lock = threading.Lock()
        self._is_interrupted = False

    def interrupt(self, key: int) -> None:
        """Raise `Cancelled` in the thread, once, if it still runs this attempt."""
        with self._lock:
            self.is_announced = True
            execution = self.execution
            if execution is None or execution.key != key:
                self.is_announced = self._is_interrupted
                return
            execution.is_to_stop = True
            if not self._is_interrupted:
                self._is_interrupted = True
                _raise_in(self._thread_id, Cancelled)

    def vacate(self) -> None:
        """End the execution: from here on nothing is raised, not even a pending cancel."""
        self.execution = None
        if self.is_announced:
            with self._lock:
                if self._is_interrupted:
                    _raise_in(self._thread_id, None)
                    self._is_interrupted = False
                self.is_announced = False


def _raise_in(thread_id: int, kind: type[BaseException] | None) -> None:
    argument = None if kind is None else ctypes.py_object(kind)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread_id), argument)


class Stopwatch:
    """Processor time of a thread's attempts.

    Asking the kernel for it takes longer than a short function. So an attempt that is quick, and
    follows quick ones, is said to have been busy all the time; it cannot have been any longer.
    """

    __slots__ = ("_at", "_cpu", "_is_quick")

    def __init__(self) -> None:
        self._is_quick = False
        self._cpu = self._at = 0

    def start(self, *, is_first: bool = False) -> int:
        """Return the time, in nanoseconds of the machine's monotonic clock."""
        now = time.monotonic_ns()
        if is_first or not self._is_quick:
            self._at = now
            self._cpu = time.thread_time_ns()
        return now

    def stop(self, started: int, ended: int) -> int:
        """Return the microseconds of an attempt that ran between these times."""
        wall = ended - started
        if self._is_quick and wall < _QUICK_NANOS:
            return wall // 1000
        self._is_quick = wall < _QUICK_NANOS
        cpu = time.thread_time_ns() - self._cpu - (started - self._at)
        return min(max(cpu, 0), wall) // 1000


class ThreadPool:
    """Threads for plain functions: few while they are quick, as many as needed when they wait.

    A batch is one thread's as long as it gets on. When that sits in a long function, or nothing is
    begun any more because all functions wait, others share what is left.
    """

    def __init__(self, cancelled: set[int]) -> None:
        self._cancelled = cancelled
        self._queue: SimpleQueue[CallBatch] = SimpleQueue()
        self._batches: list[CallBatch] = []  # of which something may wait; only the reader adds
        self._seats: list[Seat] = []
        self._threads = 0
        self._begun = 0
        self._wanted = 1  # threads for a batch, as far as the latest ones tell
        self._has_backlog = threading.Event()
        self._start_thread()
        threading.Thread(target=self._grow, name="rota-pool-growth", daemon=True).start()

    def start(self, batch: CallBatch) -> None:
        self._batches = [each for each in self._batches if length_hint(each.waiting)]
        self._batches.append(batch)
        for _ in range(min(self._wanted, length_hint(batch.waiting))):
            self._queue.put(batch)
        self._wanted = max(self._wanted // 2, 1)
        self._has_backlog.set()

    def cancel(self, key: int) -> None:
        for seat in list(self._seats):
            execution = seat.execution
            if execution is not None and execution.key == key:
                seat.interrupt(key)

    def _start_thread(self) -> None:
        self._threads += 1
        name = f"rota-function-{self._threads}"
        threading.Thread(target=self._serve, name=name, daemon=True).start()

    def _grow(self) -> None:
        """Double the threads whenever something waits and none of them gets to it."""
        while True:
            self._has_backlog.wait()
            self._has_backlog.clear()
            while waiting := [each for each in self._batches if length_hint(each.waiting)]:
                begun = self._begun
                running = [(seat, seat.execution) for seat in list(self._seats)]
                threading.Event().wait(_STALL_SECONDS)
                if self._begun == begun:
                    self._share(waiting)
                else:
                    self._relieve(each for seat, each in running if each and seat.execution is each)

    def _share(self, waiting: Sequence[CallBatch]) -> None:
        """Offer what waits to as many threads as there are, once more."""
        count = min(sum(length_hint(each.waiting) for each in waiting), self._threads)
        self._wanted = max(self._wanted, count)
        self._offer([waiting[number % len(waiting)] for number in range(count)])

    def _relieve(self, long: Iterable[Execution]) -> None:
        """Offer the rest of batches whose threads sit in long functions to as many others."""
        for batch, count in Counter(each.batch for each in long).items():
            left = length_hint(batch.waiting)
            if left and not batch.is_offered:
                batch.is_offered = True
                self._offer([batch] * min(count, left))

    def _offer(self, batches: Sequence[CallBatch]) -> None:
        busy = sum(seat.execution is not None for seat in self._seats)
        for batch in batches:
            self._queue.put(batch)
        for _ in range(len(batches) - (self._threads - busy)):
            self._start_thread()

    def _serve(self) -> None:
        seat = Seat()
        self._seats.append(seat)
        while True:
            batch = self._queue.get()
            self._run_all(batch, seat)
            current.set(None)

    def _run_all(self, batch: CallBatch, seat: Seat) -> None:
        """Run what waits of a batch; other threads may do the same."""
        cancelled = self._cancelled
        function = batch.job.fn if batch.is_simple else None
        batch.is_offered = False
        watch = seat.watch
        watch.start(is_first=True)
        for key in batch.waiting:
            self._begun += 1
            execution = Execution(batch, key)
            started = watch.start()
            execution.started = started // 1000
            results, error = _call(execution, seat, function, cancelled)
            ended = time.monotonic_ns()
            cpu = watch.stop(started, ended)
            try:
                if error is None or results:
                    execution.returned(results[0], ended // 1000, cpu)
                else:
                    execution.raised(error, ended // 1000, cpu)
            except BaseException as caught:  # noqa: BLE001 (results and errors have code of users)
                execution.broke(caught)
            if cancelled:
                cancelled.discard(key)


def _call(
    execution: Execution, seat: Seat, function: Callable[[], Any] | None, cancelled: set[int]
) -> tuple[list[Any], BaseException | None]:
    """Call the function; return its result in a list, or the error if that is empty.

    An interruption may come at any point until `vacate`.

    What the function returned is stored by `extend` without an instruction in between at which
    Python could interrupt, and so is what it raised. An interruption that comes a moment later
    does not change how the function ended.
    """
    results: list[Any] = []
    error: BaseException | None = None
    try:
        seat.execution = execution
        # Looked at after the seat was taken: whoever cancels does it the other way round.
        if cancelled and execution.key in cancelled:
            execution.is_to_stop = True
            raise Cancelled
        current.set(execution)
        results.extend(starmap(copy_context().run, ((function or execution.bound(),),)))
    except BaseException as caught:  # noqa: BLE001 (the edge of the user's code)
        error = caught
    try:
        seat.vacate()
    except Cancelled:
        seat.vacate()  # there was only one: nothing interrupts from here on
    return results, error


class LoopThread:
    """Event loop for async functions."""

    def __init__(self, cancelled: set[int]) -> None:
        self._cancelled = cancelled
        self._loop = asyncio.new_event_loop()
        self._tasks: dict[int, tuple[Execution, asyncio.Task[None]]] = {}
        threading.Thread(target=self._loop.run_forever, name="rota-loop", daemon=True).start()

    def start(self, batch: CallBatch) -> None:
        self._loop.call_soon_threadsafe(self._begin, batch)

    def cancel(self, key: int) -> None:
        self._loop.call_soon_threadsafe(self._interrupt, key)

    def _begin(self, batch: CallBatch) -> None:
        for key in batch.waiting:
            execution = Execution(batch, key)
            # A context of its own, so that what each prints is told apart.
            task = self._loop.create_task(self._run(execution), context=copy_context())
            self._tasks[key] = execution, task

    def _interrupt(self, key: int) -> None:
        if key in self._tasks:
            execution, task = self._tasks[key]
            execution.is_to_stop = True
            # A task cancelled before its first step would never run, not even to report its end.
            if execution.started:
                task.cancel()

    async def _run(self, execution: Execution) -> None:
        try:
            await self._run_and_report(execution)
        except BaseException as caught:  # noqa: BLE001 (results and errors have code of users)
            execution.broke(caught)
        self._cancelled.discard(execution.key)

    async def _run_and_report(self, execution: Execution) -> None:
        execution.started = monotonic_micros()
        try:
            current.set(execution)
            if execution.is_to_stop:
                raise Cancelled
            value = await execution.bound()()
        except BaseException as error:  # noqa: BLE001 (the edge of the user's code)
            del self._tasks[execution.key]
            execution.raised(error, monotonic_micros())
        else:
            del self._tasks[execution.key]
            execution.returned(value, monotonic_micros())


def serve(connection: socket.socket, functions: Functions) -> None:
    """Handle orders until told to stop; without a worker, nothing may go on."""
    executions = Executions(Outbox(connection), functions)
    for order in wire.receive(connection):
        match order:
            case wire.Run(batches):
                for batch in batches:
                    executions.start(batch)
            case wire.Cancel(keys):
                executions.cancel(keys)
            case wire.Stop():
                return
    os._exit(1)


class Executions:
    """Executions in progress, each in its thread or on the event loop."""

    def __init__(self, outbox: Outbox, functions: Functions) -> None:
        self._outbox = outbox
        self._functions = functions
        # Keys that are to stop, until they have. A cancel that crosses an end stays: there are few.
        self._cancelled: set[int] = set()
        self._pool = ThreadPool(self._cancelled)

    @cached_property
    def _loop(self) -> LoopThread:
        return LoopThread(self._cancelled)

    def start(self, message: wire.Calls) -> None:
        job = self._functions.get(message.function)
        if job is None:
            self._refuse(message)
            return
        batch = CallBatch(message, job, self._outbox)
        (self._loop if job.is_async else self._pool).start(batch)

    def cancel(self, keys: tuple[int, ...]) -> None:
        self._cancelled.update(keys)  # before looking for them: one may begin just now
        for key in keys:
            self._pool.cancel(key)
            if "_loop" in self.__dict__:
                self._loop.cancel(key)

    def _refuse(self, message: wire.Calls) -> None:
        now = monotonic_micros()
        words = f"the app has no function {message.function}"
        for key in message.keys:
            self._outbox.done(wire.Done(key, "failed", now, now, message=words))
