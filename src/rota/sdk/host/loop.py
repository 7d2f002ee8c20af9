"""An event loop for async functions, in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from contextvars import copy_context

from rota.sdk.host import wire
from rota.sdk.host.execution import Execution


class LoopThread:
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
