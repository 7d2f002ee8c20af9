"""Threads for plain functions, and an event loop in its own thread for async ones."""

from __future__ import annotations

import asyncio
import ctypes
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextvars import copy_context
from queue import SimpleQueue

from rota.sdk.context import Cancelled
from rota.sdk.host import wire
from rota.sdk.host.execution import Execution

_STALL_SECONDS = 0.002  # that nothing was begun while something waits: more threads are needed


class Seat:
    """Slot for one execution at a time in one thread, where it can be interrupted."""

    def __init__(self) -> None:
        self._thread_id = threading.get_ident()
        self._lock = threading.Lock()
        self._execution: Execution | None = None
        self._is_interrupted = False

    def occupy(self, execution: Execution) -> None:
        with self._lock:
            self._execution = execution
            execution.seat = self

    def interrupt(self, execution: Execution) -> None:
        """Raise `Cancelled` in the thread, once, if it still runs this execution."""
        with self._lock:
            if self._execution is execution and not self._is_interrupted:
                self._is_interrupted = True
                _raise_in(self._thread_id, Cancelled)

    def vacate(self) -> None:
        """End the execution: from here on nothing is raised, not even a pending cancel."""
        with self._lock:
            self._execution = None
            if self._is_interrupted:
                _raise_in(self._thread_id, None)
                self._is_interrupted = False


class ThreadPool:
    """Threads for plain functions: few while they are quick, as many as needed when they wait."""

    def __init__(self, finished: Callable[[wire.Done], None]) -> None:
        self._finished = finished
        self._queue: SimpleQueue[Execution] = SimpleQueue()
        self._threads = 0
        self._begun = 0
        self._has_backlog = threading.Event()
        self._start_thread()
        threading.Thread(target=self._grow, name="rota-pool-growth", daemon=True).start()

    def start(self, executions: Iterable[Execution]) -> None:
        for execution in executions:
            self._queue.put(execution)
        self._has_backlog.set()

    def cancel(self, execution: Execution) -> None:
        execution.is_cancelled = True
        if isinstance(execution.seat, Seat):
            execution.seat.interrupt(execution)

    def _start_thread(self) -> None:
        self._threads += 1
        name = f"rota-function-{self._threads}"
        threading.Thread(target=self._serve, name=name, daemon=True).start()

    def _grow(self) -> None:
        """Double the threads whenever something waits and none of them gets to it."""
        while True:
            self._has_backlog.wait()
            self._has_backlog.clear()
            while not self._queue.empty():
                begun = self._begun
                threading.Event().wait(_STALL_SECONDS)
                if self._begun == begun:
                    for _ in range(min(self._queue.qsize(), self._threads)):
                        self._start_thread()

    def _serve(self) -> None:
        seat = Seat()
        while True:
            execution = self._queue.get()
            self._begun += 1
            self._finished(_run(execution, seat))


def _run(execution: Execution, seat: Seat) -> wire.Done:
    """Run the function to its end. An interruption may come at any point until `vacate`."""
    done = None
    cpu_before = time.thread_time_ns()
    try:
        try:
            seat.occupy(execution)
            value = copy_context().run(execution.call)
            done = execution.returned(value, _micros_since(cpu_before))
        except BaseException as error:  # noqa: BLE001 (the edge of the user's code)
            done = execution.raised(error, _micros_since(cpu_before))
        seat.vacate()
    except Cancelled as late:  # the only one there can be: nothing interrupts from here on
        seat.vacate()
        return done or execution.raised(late)
    return done


def _micros_since(cpu_before: int) -> int:
    return (time.thread_time_ns() - cpu_before) // 1000


def _raise_in(thread_id: int, kind: type[BaseException] | None) -> None:
    argument = None if kind is None else ctypes.py_object(kind)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread_id), argument)


class LoopThread:
    """Event loop for async functions."""

    def __init__(self, finished: Callable[[wire.Done], None]) -> None:
        self._finished = finished
        self._loop = asyncio.new_event_loop()
        self._tasks: dict[Execution, asyncio.Task[None]] = {}
        threading.Thread(target=self._loop.run_forever, name="rota-loop", daemon=True).start()

    def start(self, executions: Sequence[Execution]) -> None:
        self._loop.call_soon_threadsafe(self._begin, executions)

    def cancel(self, execution: Execution) -> None:
        execution.is_cancelled = True
        self._loop.call_soon_threadsafe(self._interrupt, execution)

    def _begin(self, executions: Sequence[Execution]) -> None:
        for execution in executions:
            # A context of its own, so that what each prints is told apart.
            task = self._loop.create_task(self._run(execution), context=copy_context())
            self._tasks[execution] = task

    def _interrupt(self, execution: Execution) -> None:
        # A task cancelled before its first step would never run, not even to report its end.
        if execution.has_begun and execution in self._tasks:
            self._tasks[execution].cancel()

    async def _run(self, execution: Execution) -> None:
        try:
            done = execution.returned(await execution.call())
        except BaseException as error:  # noqa: BLE001 (the edge of the user's code)
            done = execution.raised(error)
        del self._tasks[execution]
        self._finished(done)
