"""Types of jobs whose work is begun, looked after and stopped by an executor class.

The class is an app's (`@app.executor`) or a plug-in's. It lives in a function host of its own, for
all attempts of this worker: whatever its methods do, they cannot keep the worker from renewing its
lease. Each call of a method is a call of a function there. One that does not end when it is told to
takes the host with it, and with it the calls beside it: these have told nothing then, which
`RemoteExecutor` knows to deal with.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import msgspec

from rota.domain.http import WorkStatus
from rota.domain.output import Stream
from rota.domain.quantities import format_duration
from rota.domain.run import AttemptResult
from rota.domain.spec import HttpState, JobSpec, JobType
from rota.executors.python import PythonExecutor
from rota.executors.remote import (
    NO_TIME,
    Begun,
    Ended,
    Look,
    RemoteAttempt,
    RemoteExecutor,
    Rhythm,
    Stopped,
)
from rota.ports.clock import Clock
from rota.ports.executor import (
    Assignment,
    AttemptReports,
    Completions,
    JobBatch,
    OutputSink,
    RemoteWork,
    Spawner,
)
from rota.ports.work import MAX_HANDLE, Fence, Outcome, StepOutcome, WorkBatch
from rota.sdk.executors import function_of
from rota.sdk.host.wire import HostedType

_INTERRUPTED = timedelta(
    seconds=1
)  # that a call has to end once it is told to, before it is killed
_STATES = {
    "processing": HttpState.RUNNING,
    "completed": HttpState.COMPLETED,
    "failed": HttpState.FAILED,
}


class CallFailed(Exception):
    """A call did not return: its method raised, took too long, or its host died."""


@dataclass(frozen=True, slots=True)
class _StepSink:
    """Implements `OutputSink`: what a call prints is of a step of its attempt."""

    sink: OutputSink
    number: int

    @property
    def is_full(self) -> bool:
        return self.sink.is_full

    def feed(self, stream: Stream, step: int, data: bytes) -> None:
        self.sink.feed(stream, self.number, data)

    async def drained(self) -> None:
        await self.sink.drained()


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """Call of a method that goes on. Its answer is what the method returned, as JSON has it."""

    fence: Fence
    answer: asyncio.Future[Any]
    sink: _StepSink
    timeout: timedelta


class HostedCalls:
    """Calls in the function host. Implements `AttemptReports` for them: each an attempt there."""

    def __init__(self, reports: AttemptReports, spawner: Spawner, reference: str) -> None:
        self._reports = reports
        self._python = PythonExecutor(self, spawner, reference)
        self._calls: dict[Fence, Call] = {}
        self._number = 0
        self._users = 0  # executors that have not been closed

    async def ready(self) -> tuple[HostedType, ...]:
        """Return the classes once a host has loaded them; raise `Invalid` if it cannot."""
        await self._python.ready()
        return self._python.types

    def begin(
        self, attempt: RemoteAttempt, function: str, argument: object, timeout: timedelta
    ) -> Call:
        """Call a method for an attempt."""
        self._number += 1
        work, spec = attempt.assignment.work, attempt.spec
        fence = Fence(work.run, self._number)
        sink = _StepSink(self._reports.output(attempt.fence), attempt.step)
        call = Call(fence, asyncio.get_running_loop().create_future(), sink, timeout)
        self._calls[fence] = call
        batch = WorkBatch(
            [fence.run],
            [fence.number],
            [work.due_at],
            [(work.job_id, work.job_version)],
            inputs={0: json.dumps({"call": json.dumps(argument)})},
        )
        asked = JobSpec(
            spec.name,
            spec.project,
            JobType.PYTHON,
            function=function,
            timeout=timeout,
            grace=_INTERRUPTED,
        )
        self._python.start([JobBatch(asked, batch, [fence])])
        return call

    async def interrupt(self, call: Call) -> None:
        """End a call, by force if need be; return when it has."""
        if not call.answer.done():
            self._python.cancel([call.fence])
        await asyncio.wait({call.answer})
        call.answer.exception()  # seen: asyncio would log it

    def share(self) -> None:
        """Note one more executor that closes this."""
        self._users += 1

    async def close(self) -> None:
        """End the host, once all that share it have closed it."""
        self._users -= 1
        if self._users <= 0:
            await self._python.close()

    # --- from the host

    def store_micros(self) -> int:
        return self._reports.store_micros()

    def output(self, fence: Fence) -> OutputSink:
        return self._calls[fence].sink

    def progressed(self, fence: Fence, done: float, total: float | None, message: str) -> None:
        """Ignore progress: methods have no context to tell it with."""

    def stepped(self, fence: Fence, number: int, step: StepOutcome) -> StepOutcome:
        return step

    def completed(self, completions: Completions) -> None:
        for at, fence in enumerate(completions.fences):
            text = completions.outputs.get(at)
            answer = None if text is None else msgspec.json.decode(text)
            self._calls.pop(fence).answer.set_result(answer)

    def ended(self, outcomes: Sequence[Outcome]) -> None:
        for outcome in outcomes:
            call = self._calls.pop(outcome.fence)
            match outcome.result:
                case AttemptResult.COMPLETED:
                    call.answer.set_result(outcome.outputs)
                case AttemptResult.TIMED_OUT:
                    words = f"took longer than {format_duration(call.timeout)}"
                    call.answer.set_exception(CallFailed(words))
                case _:
                    call.answer.set_exception(CallFailed(outcome.message or "was interrupted"))


@dataclass(slots=True)
class _Attempt(RemoteAttempt):
    progress: tuple[float, float | None, str] | None = None  # that was told last


class HostedExecutor(RemoteExecutor[_Attempt]):
    """Implements `rota.ports.executor.Executor` for one type."""

    def __init__(
        self,
        reports: AttemptReports,
        remote: RemoteWork,
        clock: Clock,
        calls: HostedCalls,
        hosted: HostedType,
    ) -> None:
        super().__init__(reports, remote, clock)
        calls.share()
        self._calls = calls
        self._hosted = hosted
        self._timeout = timedelta(seconds=hosted.call_timeout)
        self._rhythm = Rhythm(timedelta(seconds=hosted.every), timedelta(seconds=hosted.patience))

    def new(self, assignment: Assignment, started_at: int, deadline: float | None) -> _Attempt:
        stop = asyncio.get_running_loop().create_future()
        return _Attempt(assignment, started_at, deadline, stop)

    async def close(self) -> None:
        await super().close()
        await self._calls.close()

    def rhythm(self, attempt: _Attempt) -> Rhythm:
        return self._rhythm

    def take_up(self, attempt: _Attempt) -> None:
        try:
            msgspec.json.decode(attempt.handle)
        except msgspec.DecodeError as error:
            message = "what an earlier attempt kept cannot be read"
            raise Ended(AttemptResult.FAILED, message, "handle") from error

    # --- submit

    async def submit(self, attempt: _Attempt) -> Begun:
        if attempt.stop.done():
            raise Stopped
        reply = await self._submitted(attempt)
        if "not_submitted" in reply:
            message = f"submit: {reply['not_submitted'] or 'it was not submitted'}"
            raise Ended(AttemptResult.FAILED, message, "not_submitted")
        if "status" in reply:
            status = self._status_in(attempt, reply)
            if status.state not in (HttpState.COMPLETED, HttpState.FAILED):
                message = f"submit: {status.message or 'it named no work that goes on'}"
                raise self.unclear(attempt, message, "answer")
            await self.finish(attempt, "submit", status)
        return Begun(self._handle(attempt, reply.get("value")))

    async def _submitted(self, attempt: _Attempt) -> Mapping[str, Any]:
        """Call `submit`. A stop waits for its answer, but no longer than the grace."""
        work, spec = attempt.assignment.work, attempt.spec
        usual = {n: each.default for n, each in spec.inputs.items() if each.default is not None}
        run = {
            "id": work.run,
            "job": spec.name,
            "project": spec.project,
            "attempt": work.attempt,
            "due_micros": work.due_at,
            "inputs": usual | (work.inputs or {}),
            "parameters": dict(spec.parameters),
        }
        call = self._begin(attempt, "submit", {"run": run})
        attempt.is_asking = True
        try:
            reply = await self._answer(attempt, call, spec.grace)
        except CallFailed as error:
            message = f"submit: {error}: it may have been begun"
            raise self.unclear(attempt, message, "submit") from error
        attempt.is_asking = False
        if not isinstance(reply, Mapping):
            message = "submit: what it returned cannot be kept, so nothing names the work"
            raise self.unclear(attempt, message, "answer")
        return reply

    def _handle(self, attempt: _Attempt, value: object) -> str:
        """Return what names the work, as it is kept."""
        text = json.dumps(value, ensure_ascii=False)
        problem = ""
        if value is None or value == "":
            problem = "it returned nothing that names the work"
        elif len(text.encode()) > MAX_HANDLE:
            problem = f"what it returned has more than {MAX_HANDLE // 1024} KiB"
        if problem:
            raise self.unclear(attempt, f"submit: {problem}", "answer")
        return text

    # --- status and cancel

    async def look(self, attempt: _Attempt) -> Look:
        call = self._begin(attempt, "status", {"handle": json.loads(attempt.handle)})
        try:
            reply = await self._answer(attempt, call, NO_TIME)
        except CallFailed as error:
            return Look(WorkStatus(None, str(error)))
        return Look(self._status_in(attempt, reply))

    def _status_in(self, attempt: _Attempt, reply: object) -> WorkStatus:
        """Read what `status` returned; tell the progress that is in it."""
        told = reply if isinstance(reply, Mapping) else {}
        status = told.get("status", {"state": told.get("value")})
        word, message = status.get("state"), str(status.get("message") or "")
        state = _STATES.get(word) if isinstance(word, str) else None
        if state is None:
            return WorkStatus(
                None, f"it returned {word!r}, which is not one of {', '.join(_STATES)}"
            )
        if state is HttpState.RUNNING:
            self._tell_progress(attempt, status, message)
            return WorkStatus(state)
        if state is HttpState.FAILED:
            return WorkStatus(state, message or "it failed there")
        return WorkStatus(state, outputs=self._output(attempt, status.get("output")))

    def _output(self, attempt: _Attempt, text: object) -> Any:
        """Return the output, which comes as JSON in a text: so nothing in it can cost the state."""
        try:
            return msgspec.json.decode(text) if isinstance(text, str) else None
        except (msgspec.DecodeError, RecursionError) as error:
            self.say(attempt, f"the output was not kept: {error}")
            return None

    def _tell_progress(self, attempt: _Attempt, status: Mapping[str, Any], message: str) -> None:
        done, total = status.get("progress"), status.get("total")
        if not isinstance(done, int | float):
            return
        whole = float(total) if isinstance(total, int | float) else None
        if (told := (float(done), whole, message)) != attempt.progress:
            attempt.progress = told
            self._reports.progressed(attempt.fence, *told)

    async def call_off(self, attempt: _Attempt) -> tuple[bool, str]:
        if not self._hosted.can_cancel:
            return False, "the type has no cancel(), so the work there may go on"
        self.begin_step(attempt, "cancel")
        call = self._begin(attempt, "cancel", {"handle": json.loads(attempt.handle)})
        await asyncio.wait({call.answer}, timeout=attempt.spec.grace.total_seconds())
        if not call.answer.done():
            await self._calls.interrupt(call)
            return False, "cancel() did not return in time, so the work there may go on"
        if error := call.answer.exception():
            return False, f"the work could not be stopped: {error}"
        return True, "the work there was told to stop"

    # --- calls

    def _begin(self, attempt: _Attempt, verb: str, argument: object) -> Call:
        function = function_of(self._hosted.name, verb)
        return self._calls.begin(attempt, function, argument, self._timeout)

    async def _answer(self, attempt: _Attempt, call: Call, grace: timedelta) -> Any:
        """Return the answer to a call; after a stop wait no longer for it than the grace."""
        if not await self.done_or_stopped(attempt, call.answer, grace):
            await self._calls.interrupt(call)
            if call.answer.exception() is not None:
                raise Stopped
        return call.answer.result()
