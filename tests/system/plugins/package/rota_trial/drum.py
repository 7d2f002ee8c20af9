"""A type with an executor of its own, in the worker's process: it only says things and waits."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from rota.domain.output import Stream
from rota.domain.run import AttemptResult
from rota.plugins import Place, Plugin
from rota.ports.executor import Assignment, JobBatch
from rota.ports.work import Fence, Outcome


class Drum:
    """Implements `rota.ports.executor.Executor`."""

    def __init__(self, place: Place) -> None:
        self._reports = place.reports
        self._stops: dict[Fence, asyncio.Future[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, batches: Sequence[JobBatch]) -> None:
        loop = asyncio.get_running_loop()
        for assignment in (each for batch in batches for each in batch.assignments()):
            self._stops[assignment.work.fence] = loop.create_future()
            task = loop.create_task(self._run(assignment))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def cancel(self, fences: Sequence[Fence]) -> None:
        for fence in fences:
            if fence in self._stops and not self._stops[fence].done():
                self._stops[fence].set_result(None)

    async def close(self) -> None:
        await asyncio.gather(*self._tasks)

    async def _run(self, assignment: Assignment) -> None:
        fence, started_at = assignment.work.fence, self._reports.store_micros()
        stop = self._stops[fence]
        beating = asyncio.ensure_future(self._beat(assignment))
        seconds = assignment.seconds_allowed(started_at)
        both: set[asyncio.Future[Any]] = {beating, stop}
        await asyncio.wait(both, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        result = AttemptResult.CANCELLED if stop.done() else AttemptResult.TIMED_OUT
        beating.cancel()
        await asyncio.wait({beating})
        outputs, message = None, ""
        if not beating.cancelled():
            error = beating.exception()
            result = AttemptResult.FAILED if error else AttemptResult.COMPLETED
            outputs, message = (None, str(error)) if error else (beating.result(), "")
        del self._stops[fence]
        ended_at = self._reports.store_micros()
        outcome = Outcome(fence.run, fence.number, result, started_at, ended_at)
        self._reports.ended([replace(outcome, message=message, outputs=outputs)])

    async def _beat(self, assignment: Assignment) -> object:
        fence, beat = assignment.work.fence, assignment.spec.parameters.get("beat")
        sink = self._reports.output(fence)
        match beat:
            case "speak":
                sink.feed(Stream.STDOUT, 0, b"out 1\n")
                sink.feed(Stream.STDERR, 0, b"err 1\n")
                sink.feed(Stream.STDOUT, 0, b"out 2\n")
            case "fail":
                sink.feed(Stream.STDERR, 0, b"no water\n")
                raise OSError("no water")
            case "result":
                return {"rows": 3}
            case "progress":
                self._reports.progressed(fence, 1.0, 4.0, "quarter")
                await asyncio.Event().wait()
            case "hold":
                sink.feed(Stream.STDOUT, 0, b"ready\n")
                try:
                    await asyncio.Event().wait()
                finally:
                    sink.feed(Stream.STDOUT, 0, b"tidy\n")
            case _:
                pass
        return None


plugin = Plugin(api_version=1, type="drum", build=Drum)
