"""Job type `http`: another system does the work; it is asked to, looked after, and told to stop.

What names the work there is in the store before the first look at it, so that the next attempt goes
on with the same work if this worker is lost. Until then only the idempotency key keeps the work
from being done twice: it is the run's, and the same in all attempts.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeVar

import structlog

from rota.domain.errors import Denied, Invalid, RotaError
from rota.domain.http import (
    KEY_HEADER,
    MAX_ANSWER,
    NOBODY_KNOWS,
    SAFE,
    Answer,
    Built,
    Facts,
    Standing,
    build,
    calls_of,
    from_handle,
    read_status,
    read_submit,
    secrets_of,
    take,
    to_handle,
    wait_asked_for,
)
from rota.domain.ids import instant
from rota.domain.output import Stream
from rota.domain.quantities import format_duration
from rota.domain.run import MAX_OUTPUTS, AttemptResult, why_not_portable
from rota.domain.spec import Delivery, Http, HttpCall, HttpState
from rota.executors.http_secrets import Masker, WorkerSecrets
from rota.outgoing import HARMLESS, NoAnswer, NotSent, Outgoing, Request, reason_phrase
from rota.ports.clock import Clock
from rota.ports.executor import Assignment, AttemptReports, JobBatch, RemoteWork
from rota.ports.work import RUNNING, Fence, Outcome, StepOutcome

log = structlog.get_logger()

_PIECE = 64 * 1024
_MOST_SUBMITS = 10  # of one attempt: more often it is not asked that says "later"
_LONGEST_PAUSE = timedelta(minutes=1)  # between looks that got no answer of use
_NO_SECONDS = timedelta(0)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class HttpGround:
    """What jobs of type `http` have of their worker."""

    outgoing: Outgoing
    secrets: WorkerSecrets
    may_start: Callable[[], bool]  # False: the lease is over, nothing may be sent


class _Ended(Exception):
    """The attempt is over, with this result."""

    def __init__(self, result: AttemptResult, message: str = "", cause: str = "") -> None:
        super().__init__(message)
        self.result, self.message, self.cause = result, message, cause


class _Stopped(Exception):
    """A cancel, or the attempt's timeout, came while something was waited for."""


@dataclass(slots=True)
class _Attempt:
    """State of an attempt while it is executed."""

    assignment: Assignment
    http: Http
    started_at: int
    deadline: float | None  # monotonic; None: no timeout
    stop: asyncio.Future[None]  # done: the attempt was cancelled
    taken: Mapping[str, str] | None = None  # what names the work there; None: it was not submitted
    outputs: Mapping[str, object] | None = None
    steps: list[StepOutcome] = field(default_factory=list)
    began: float = 0.0  # monotonic: the latest step
    is_asking: bool = False  # `submit` is under way: nobody knows whether it was received
    mask: Masker = field(default_factory=Masker)

    @property
    def fence(self) -> Fence:
        return self.assignment.work.fence

    @property
    def is_once(self) -> bool:
        return self.assignment.spec.delivery is Delivery.AT_MOST_ONCE


class HttpExecutor:
    """Implements `rota.ports.executor.Executor`."""

    def __init__(
        self, reports: AttemptReports, remote: RemoteWork, clock: Clock, ground: HttpGround
    ) -> None:
        self._reports = reports
        self._remote = remote
        self._clock = clock
        self._ground = ground
        self._attempts: dict[Fence, _Attempt] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, batches: Sequence[JobBatch]) -> None:
        loop = asyncio.get_running_loop()
        for assignment in (each for batch in batches for each in batch.assignments()):
            http, now = assignment.spec.http, self._reports.store_micros()
            assert http is not None, "jobs of this type have it"
            seconds = assignment.seconds_allowed(now)
            deadline = None if seconds is None else self._clock.monotonic() + seconds
            attempt = _Attempt(assignment, http, now, deadline, loop.create_future())
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
        await self._ground.outgoing.close()

    async def _run(self, attempt: _Attempt) -> None:
        ended = _Ended(AttemptResult.FAILED, "internal error", "error")
        try:
            await self._carry_out(attempt)
        except _Ended as end:
            ended = end
        except Exception as error:
            log.error("attempt.broken", run=attempt.fence.run, exc_info=error)
            ended = _Ended(AttemptResult.FAILED, f"internal error: {error!r}", "error")
        finally:
            del self._attempts[attempt.fence]
        self._end_step(attempt, ended.result.lower())
        self._reports.ended([self._outcome(attempt, ended)])

    def _outcome(self, attempt: _Attempt, ended: _Ended) -> Outcome:
        return Outcome(
            run=attempt.fence.run,
            number=attempt.fence.number,
            result=ended.result,
            started_at=attempt.started_at,
            ended_at=self._reports.store_micros(),
            message=attempt.mask.text(ended.message),
            outputs=attempt.outputs,
            steps=tuple(attempt.steps),
            cause=ended.cause,
        )

    # --- the walk of an attempt

    async def _carry_out(self, attempt: _Attempt) -> None:
        """Raise `_Ended` in the end, always."""
        handle = attempt.assignment.work.handle
        if handle:
            try:
                attempt.taken = from_handle(handle.encode())
            except Invalid as error:
                raise _Ended(AttemptResult.FAILED, error.message, "handle") from error
        try:
            pause = _NO_SECONDS
            if attempt.taken is None:
                pause = await self._submit(attempt)
            await self._look_after(attempt, pause)
        except _Stopped:
            await self._stop(attempt)

    async def _submit(self, attempt: _Attempt) -> timedelta:
        """Have the work begun, and what names it kept; return how long to wait before a look."""
        self._begin_step(attempt, "submit")
        answer = await self._submitted(attempt)
        await self._print(attempt, answer)
        try:
            standing = read_submit(attempt.http, answer)
            if standing.state is not HttpState.RUNNING:
                await self._finish(attempt, "submit", standing)
            attempt.taken = take(attempt.http, answer)
            handle = to_handle(attempt.taken)
        except Invalid as error:
            raise self._unclear(attempt, f"submit: {error.message}", "answer") from error
        if not await self._remote.keep_handle(attempt.fence, handle.decode()):
            raise _Ended(AttemptResult.INTERRUPTED, "the attempt is another worker's by now")
        self._end_step(attempt, "completed")
        return self._pause(attempt, answer, attempt.http.every)

    async def _submitted(self, attempt: _Attempt) -> Answer:
        """Send `submit` until it has an answer that is more than "later"."""
        tries = 1
        while True:
            answer = await self._send_submit(attempt)
            wait = wait_asked_for(answer, self._clock.now())
            if answer.status not in (429, 503) or wait is None or tries == _MOST_SUBMITS:
                break
            tries += 1
            words = format_duration(timedelta(seconds=round(wait.total_seconds())))
            self._say(attempt, f"it asks to be asked again in {words}")
            await self._wait(attempt, wait)
        if answer.status in NOBODY_KNOWS and attempt.http.submit.method not in SAFE:
            why = f"submit: answered {reason_phrase(answer.status)} by a gateway"
            raise self._unclear(attempt, f"{why}: it may have been received", "gateway")
        return answer

    async def _send_submit(self, attempt: _Attempt) -> Answer:
        """Send `submit` once. A stop waits for its answer, but no longer than the grace."""
        sending = asyncio.ensure_future(self._send(attempt, attempt.http.submit))
        attempt.is_asking = True
        try:
            answer = await self._or_stop(attempt, sending, attempt.assignment.spec.grace)
        except NotSent as error:
            raise _Ended(AttemptResult.FAILED, f"submit: {error.message}", "unreachable") from error
        except NoAnswer as error:
            message = f"submit: {error.message}: it may have been received"
            raise self._unclear(attempt, message, "no_answer") from error
        except Denied as error:
            hint = f" — {error.hint}" if error.hint else ""
            message = f"submit: {error.message}{hint}"
            raise _Ended(AttemptResult.FAILED, message, "address") from error
        attempt.is_asking = False
        return answer

    def _unclear(self, attempt: _Attempt, message: str, cause: str) -> _Ended:
        """Return the end of an attempt of which nobody knows whether the work was begun.

        To send it again is safe only where the other system knows the idempotency key: a run that
        must not be done twice is left to a person.
        """
        is_safe = not attempt.is_once or attempt.http.submit.method in SAFE
        result = AttemptResult.FAILED if is_safe else AttemptResult.LOST
        return _Ended(result, message, cause)

    async def _look_after(self, attempt: _Attempt, pause: timedelta) -> None:
        """Ask how the work stands until it has ended."""
        status = attempt.http.status
        assert status is not None, "work without it ends with the answer to submit"
        self._begin_step(attempt, "status")
        heard_at, failures, said = self._clock.monotonic(), 0, ""
        while True:
            await self._wait(attempt, pause)
            answer, trouble = await self._look(attempt, status)
            if answer is not None:
                standing = read_status(attempt.http.result, answer)
                if standing.state in (HttpState.COMPLETED, HttpState.FAILED):
                    await self._print(attempt, answer)
                    await self._finish(attempt, "status", standing)
                if standing.state is HttpState.RUNNING:
                    self._tell_progress(attempt, standing)
                    heard_at, failures, trouble = self._clock.monotonic(), 0, ""
                else:
                    trouble = standing.message
            if trouble:
                failures += 1
                self._give_up_if_silent(attempt, heard_at, trouble)
            word = trouble or "running"
            if word != said:
                self._say(attempt, word)
                said = word
            pause = self._pause(attempt, answer, self._interval(attempt.http, failures))

    async def _look(self, attempt: _Attempt, status: HttpCall) -> tuple[Answer | None, str]:
        """Return the answer to `status`, or what went wrong."""
        sending = asyncio.ensure_future(self._send(attempt, status, is_quiet=True))
        try:
            return await self._or_stop(attempt, sending, _NO_SECONDS), ""
        except (NotSent, NoAnswer, Denied) as error:
            return None, error.message

    def _give_up_if_silent(self, attempt: _Attempt, heard_at: float, trouble: str) -> None:
        silence = timedelta(seconds=self._clock.monotonic() - heard_at)
        if silence >= attempt.http.patience:
            words = format_duration(attempt.http.patience)
            raise _Ended(
                AttemptResult.FAILED,
                f"status: no answer of use for {words}: {trouble}; the work there may go on",
                "silent",
            )

    def _interval(self, http: Http, failures: int) -> timedelta:
        """Return the pause before the next look: longer after each that got nothing."""
        if not failures:
            return http.every
        doubled = http.every * 2.0 ** min(failures - 1, 10)
        return max(min(doubled, _LONGEST_PAUSE), http.every)

    def _pause(self, attempt: _Attempt, answer: Answer | None, usual: timedelta) -> timedelta:
        asked = wait_asked_for(answer, self._clock.now()) if answer is not None else None
        return usual if asked is None else max(usual, asked)

    async def _finish(self, attempt: _Attempt, step: str, standing: Standing) -> None:
        """End the attempt by what the other system says; the next one does not go on with it."""
        if standing.state is HttpState.COMPLETED:
            attempt.outputs = self._kept_outputs(attempt, standing.outputs)
            raise _Ended(AttemptResult.COMPLETED)
        if attempt.taken is not None:
            await self._remote.keep_handle(attempt.fence, "")
        raise _Ended(AttemptResult.FAILED, f"{step}: {standing.message}", "remote")

    def _kept_outputs(
        self, attempt: _Attempt, outputs: Mapping[str, object] | None
    ) -> Mapping[str, object] | None:
        """Return outputs as they are reported; None for those that no part of Rota could carry."""
        if outputs is None:
            return None
        complaint = why_not_portable(outputs)
        if not complaint and len(json.dumps(outputs)) > MAX_OUTPUTS:
            complaint = "they are over 1 MiB"
        if complaint:
            self._say(attempt, f"the outputs were not kept: {complaint}")
            return None
        return {name: attempt.mask.value(value) for name, value in outputs.items()}

    # --- stopping

    async def _stop(self, attempt: _Attempt) -> None:
        """Tell the other system to stop, unless another attempt goes on with the work."""
        is_cancel = attempt.stop.done()
        result = AttemptResult.CANCELLED if is_cancel else AttemptResult.TIMED_OUT
        if is_cancel and self._remote.goes_on_elsewhere(attempt.fence):
            raise _Ended(result)
        if attempt.taken is None:
            message = "it was stopped while it was submitted"
            raise self._stopped_early(attempt, result, message)
        told = await self._tell_to_stop(attempt)
        words = result.lower().replace("_", " ")
        raise _Ended(result, f"{words}: {told}")

    def _stopped_early(self, attempt: _Attempt, result: AttemptResult, message: str) -> _Ended:
        if attempt.is_once and attempt.http.submit.method not in SAFE and attempt.is_asking:
            return _Ended(AttemptResult.LOST, f"{message}: it may have been received", "no_answer")
        return _Ended(result, f"{message}: it may go on there" if attempt.is_asking else message)

    async def _tell_to_stop(self, attempt: _Attempt) -> str:
        """Send `cancel`, within the grace; return what came of it."""
        call, grace = attempt.http.cancel, attempt.assignment.spec.grace
        if call is None:
            return "the job has no call for that, so the work there may go on"
        self._end_step(attempt, "cancelled")
        self._begin_step(attempt, "cancel")
        try:
            async with asyncio.timeout(grace.total_seconds()):
                answer = await self._send(attempt, call)
        except _Ended as ended:
            return f"the work could not be stopped: {ended.message}"
        except TimeoutError:
            return "the call to stop the work had no answer in time"
        except RotaError as error:
            self._say(attempt, error.message)
            return f"the work could not be stopped: {error.message}"
        if 200 <= answer.status < 300:
            await self._remote.keep_handle(attempt.fence, "")
            return "the work there was told to stop"
        return f"the call to stop the work was answered {reason_phrase(answer.status)}"

    async def _wait(self, attempt: _Attempt, pause: timedelta) -> None:
        """Wait; raise `_Stopped` if a cancel or the timeout comes first."""
        left = pause.total_seconds()
        limit = self._left(attempt)
        await asyncio.wait({attempt.stop}, timeout=left if limit is None else min(left, limit))
        limit = self._left(attempt)
        if attempt.stop.done() or (limit is not None and limit <= 0):
            raise _Stopped

    async def _or_stop(self, attempt: _Attempt, doing: asyncio.Future[T], grace: timedelta) -> T:
        """Return what is being done; after a stop wait no longer for it than the grace."""
        try:
            waiting: set[asyncio.Future[Any]] = {doing, attempt.stop}
            await asyncio.wait(
                waiting, timeout=self._left(attempt), return_when=asyncio.FIRST_COMPLETED
            )
            if not doing.done() and grace:
                await asyncio.wait({doing}, timeout=grace.total_seconds())
            if not doing.done():
                raise _Stopped
            return doing.result()
        finally:
            doing.cancel()
            await asyncio.wait({doing})
            if not doing.cancelled():
                doing.exception()  # seen: asyncio would log it

    def _left(self, attempt: _Attempt) -> float | None:
        """Return how many seconds it may still take; None: any number."""
        if attempt.deadline is None:
            return None
        return max(attempt.deadline - self._clock.monotonic(), 0.0)

    # --- requests

    async def _send(self, attempt: _Attempt, call: HttpCall, *, is_quiet: bool = False) -> Answer:
        """Send a request; raise `NotSent`, `NoAnswer` or `Denied`."""
        try:
            built = self._built(attempt, call)
        except Invalid as error:
            name = next(name for name, each in calls_of(attempt.http) if each is call)
            message = f"{name} cannot be sent: {error.message}"
            raise _Ended(AttemptResult.FAILED, message, "request") from error
        if not self._ground.may_start():
            raise NotSent("the worker's lease is over")
        began = self._clock.monotonic()
        try:
            response = await self._ground.outgoing.send(
                Request(built.method, built.target, built.headers, built.body),
                call.timeout.total_seconds(),
                MAX_ANSWER,
            )
        except RotaError as error:
            if not is_quiet:
                self._say(attempt, f"{built.method} {built.target.shown}: {error.message}")
            raise
        if not is_quiet:
            seconds = self._clock.monotonic() - began
            words = f"{reason_phrase(response.status)} in {seconds:.2f} s"
            where = "" if response.target == built.target else f" from {response.target.shown}"
            self._say(attempt, f"{built.method} {built.target.shown} → {words}{where}")
        headers = {name.lower(): value for name, value in reversed(response.headers)}
        return Answer(response.status, headers, response.body, response.is_cut)

    def _built(self, attempt: _Attempt, call: HttpCall) -> Built:
        """Build a request. Its address has no secret, so what may be sent there is known first."""
        work, spec = attempt.assignment.work, attempt.assignment.spec
        given = work.inputs or {}
        usual = {n: each.default for n, each in spec.inputs.items() if each.default is not None}
        facts = Facts(
            inputs=usual | given,
            run={
                "id": work.run,
                "job": spec.name,
                "project": spec.project,
                "due_at": instant(work.due_at).isoformat().replace("+00:00", "Z"),
                "attempt": str(work.attempt),
            },
            taken=attempt.taken or {},
        )
        bare = HttpCall(call.url, path=call.path, query={})
        base = build(HttpCall(attempt.http.submit.url), facts).target
        target = build(bare, facts, base).target
        names = secrets_of(Http(call))
        values = self._ground.secrets.values(names, spec.project, target)
        attempt.mask = attempt.mask.and_also(values.values())
        built = build(call, Facts(facts.inputs, facts.run, values, facts.taken), base)
        headers = dict(built.headers)
        named = {name.lower() for name in headers}
        is_unsafe = call is attempt.http.submit and call.method not in SAFE
        if is_unsafe and KEY_HEADER.lower() not in named:
            headers[KEY_HEADER] = work.run
        if (call.url.answer or call.url.header) and target.origin != base.origin:
            headers = {name: headers[name] for name in headers if name.lower() in HARMLESS}
        return Built(built.method, built.target, headers, built.body)

    # --- what is told

    def _begin_step(self, attempt: _Attempt, name: str) -> None:
        attempt.began = self._clock.monotonic()
        started_at = self._reports.store_micros()
        step = StepOutcome(name, RUNNING, started_at=started_at)
        number = len(attempt.steps)
        attempt.steps.append(self._reports.stepped(attempt.fence, number, step))

    def _end_step(self, attempt: _Attempt, result: str) -> None:
        if not attempt.steps or attempt.steps[-1].result != RUNNING:
            return
        words = {"lost": "failed", "interrupted": "cancelled"}
        step = StepOutcome(
            attempt.steps[-1].name,
            words.get(result, result),
            seconds=round(self._clock.monotonic() - attempt.began, 3),
            started_at=attempt.steps[-1].started_at,
        )
        number = len(attempt.steps) - 1
        attempt.steps[-1] = self._reports.stepped(attempt.fence, number, step)

    def _say(self, attempt: _Attempt, text: str) -> None:
        """Write a line of Rota's own."""
        line = attempt.mask.text(text).replace("\n", " ")
        step = max(len(attempt.steps) - 1, 0)
        self._reports.output(attempt.fence).feed(Stream.ROTA, step, f"{line}\n".encode())

    async def _print(self, attempt: _Attempt, answer: Answer) -> None:
        """Write what was answered, as the other system sent it."""
        body = attempt.mask(answer.body)
        if not body:
            return
        sink, step = self._reports.output(attempt.fence), max(len(attempt.steps) - 1, 0)
        if not body.endswith(b"\n"):
            body += b"\n"
        for first in range(0, len(body), _PIECE):
            if sink.is_full:
                await sink.drained()
            sink.feed(Stream.STDOUT, step, body[first : first + _PIECE])
        if answer.is_cut:
            self._say(attempt, f"the answer is longer than {MAX_ANSWER // 1024 // 1024} MiB: cut")

    def _tell_progress(self, attempt: _Attempt, standing: Standing) -> None:
        if standing.progress is not None:
            self._reports.progressed(attempt.fence, standing.progress, 100.0, "")
