"""Job type `http`: another system does the work; it is asked to, looked after, and told to stop.

The walk of an attempt is `RemoteExecutor`; here are the requests, and what their answers mean.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeVar

from rota.domain.errors import Denied, Invalid, RotaError
from rota.domain.http import (
    KEY_HEADER,
    MAX_ANSWER,
    NOBODY_KNOWS,
    SAFE,
    Answer,
    Built,
    Facts,
    WorkStatus,
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
from rota.domain.masking import Masker
from rota.domain.output import Stream
from rota.domain.quantities import format_duration
from rota.domain.run import AttemptResult
from rota.domain.spec import Http, HttpCall, HttpState
from rota.executors.http_secrets import WorkerSecrets
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
from rota.outgoing import (
    HARMLESS,
    NoAnswer,
    NotSent,
    Outgoing,
    RedirectRefused,
    Request,
    reason_phrase,
)
from rota.ports.clock import Clock
from rota.ports.executor import Assignment, AttemptReports, RemoteWork

_PIECE = 64 * 1024
_MOST_SUBMITS = 10  # of one attempt: more often it is not asked that says "later"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class HttpGround:
    """Parts that jobs of type `http` share: connections, secrets, whether any may start."""

    outgoing: Outgoing
    secrets: WorkerSecrets
    may_start: Callable[[], bool]  # False: the lease is over, nothing may be sent


@dataclass(slots=True)
class _Attempt(RemoteAttempt):
    taken: Mapping[str, str] = field(default_factory=dict)  # what names the work there
    mask: Masker = field(default_factory=Masker)

    @property
    def http(self) -> Http:
        assert self.spec.http is not None, "jobs of this type have it"
        return self.spec.http


class HttpExecutor(RemoteExecutor[_Attempt]):
    """Implements `rota.ports.executor.Executor`."""

    def __init__(
        self, reports: AttemptReports, remote: RemoteWork, clock: Clock, ground: HttpGround
    ) -> None:
        super().__init__(reports, remote, clock)
        self._ground = ground

    def new(self, assignment: Assignment, started_at: int, deadline: float | None) -> _Attempt:
        stop = asyncio.get_running_loop().create_future()
        return _Attempt(assignment, started_at, deadline, stop)

    async def close(self) -> None:
        await super().close()
        await self._ground.outgoing.close()

    def rhythm(self, attempt: _Attempt) -> Rhythm:
        return Rhythm(attempt.http.every, attempt.http.patience)

    def may_repeat(self, attempt: _Attempt) -> bool:
        return not attempt.is_once or attempt.http.submit.method in SAFE

    def may_be_shown(self, attempt: _Attempt, text: str) -> str:
        return attempt.mask.text(text)

    def may_be_kept(self, attempt: _Attempt, outputs: Any) -> Any:
        return outputs and {name: attempt.mask.value(value) for name, value in outputs.items()}

    # --- submit

    def take_up(self, attempt: _Attempt) -> None:
        try:
            attempt.taken = from_handle(attempt.handle.encode())
        except Invalid as error:
            raise Ended(AttemptResult.FAILED, error.message, "handle") from error

    async def submit(self, attempt: _Attempt) -> Begun:
        answer = await self._submitted(attempt)
        await self._print(attempt, answer)
        try:
            status = read_submit(attempt.http, answer)
            if status.state is not HttpState.RUNNING:
                await self.finish(attempt, "submit", status)
            attempt.taken = take(attempt.http, answer)
            handle = to_handle(attempt.taken)
            if attempt.mask(handle) != handle:  # it is stored, and shown with the run
                raise Invalid("what names the work there repeats a secret: take it from elsewhere")
        except Invalid as error:
            raise self.unclear(attempt, f"submit: {error.message}", "answer") from error
        return Begun(handle.decode(), wait_asked_for(answer, self._clock.now()))

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
            self.say(attempt, f"it asks to be asked again in {words}")
            await self.wait(attempt, wait)
        if answer.status in NOBODY_KNOWS and attempt.http.submit.method not in SAFE:
            why = f"submit: answered {reason_phrase(answer.status)} by a gateway"
            raise self.unclear(attempt, f"{why}: it may have been received", "gateway")
        return answer

    async def _send_submit(self, attempt: _Attempt) -> Answer:
        """Send `submit` once. A stop waits for its answer, but no longer than the grace."""
        sending = asyncio.ensure_future(self._send(attempt, attempt.http.submit))
        attempt.is_asking = True
        try:
            answer = await self._or_stop(attempt, sending, attempt.spec.grace)
        except NotSent as error:
            raise Ended(AttemptResult.FAILED, f"submit: {error.message}", "unreachable") from error
        except NoAnswer as error:
            message = f"submit: {error.message}: it may have been received"
            raise self.unclear(attempt, message, "no_answer") from error
        except Denied as error:
            hint = f" — {error.hint}" if error.hint else ""
            message = f"submit: {error.message}{hint}"
            if isinstance(error, RedirectRefused):  # often the answer to what was done
                raise self.unclear(attempt, message, "address") from error
            raise Ended(AttemptResult.FAILED, message, "address") from error
        attempt.is_asking = False
        return answer

    # --- status and cancel

    async def look(self, attempt: _Attempt) -> Look:
        status = attempt.http.status
        assert status is not None, "work without it ends with the answer to submit"
        sending = asyncio.ensure_future(self._send(attempt, status, is_quiet=True))
        try:
            answer = await self._or_stop(attempt, sending, NO_TIME)
        except (NotSent, NoAnswer, Denied) as error:
            return Look(WorkStatus(None, error.message))
        found = read_status(attempt.http.result, answer)
        if found.state in (HttpState.COMPLETED, HttpState.FAILED):
            await self._print(attempt, answer)
        elif found.state is HttpState.RUNNING and found.progress is not None:
            self._reports.progressed(attempt.fence, found.progress, 100.0, "")
        return Look(found, wait_asked_for(answer, self._clock.now()))

    async def call_off(self, attempt: _Attempt) -> tuple[bool, str]:
        call, grace = attempt.http.cancel, attempt.spec.grace
        if call is None:
            return False, "the job has no call for that, so the work there may go on"
        self.begin_step(attempt, "cancel")
        try:
            async with asyncio.timeout(grace.total_seconds()):
                answer = await self._send(attempt, call)
        except Ended as ended:
            return False, f"the work could not be stopped: {ended.message}"
        except TimeoutError:
            return False, "the call to stop the work had no answer in time"
        except RotaError as error:
            self.say(attempt, error.message)
            return False, f"the work could not be stopped: {error.message}"
        await self._print(attempt, answer)
        if 200 <= answer.status < 300:
            return True, "the work there was told to stop"
        return False, f"the call to stop the work was answered {reason_phrase(answer.status)}"

    async def _or_stop(self, attempt: _Attempt, doing: asyncio.Future[T], grace: timedelta) -> T:
        """Return what is being done; after a stop wait no longer for it than the grace."""
        try:
            if not await self.done_or_stopped(attempt, doing, grace):
                raise Stopped
            return doing.result()
        finally:
            doing.cancel()
            await asyncio.wait({doing})
            if not doing.cancelled():
                doing.exception()  # seen: asyncio would log it

    # --- requests

    async def _send(self, attempt: _Attempt, call: HttpCall, *, is_quiet: bool = False) -> Answer:
        """Send a request; raise `NotSent`, `NoAnswer` or `Denied`."""
        try:
            built = self._built(attempt, call)
        except Invalid as error:
            name = next(name for name, each in calls_of(attempt.http) if each is call)
            message = f"{name} cannot be sent: {error.message}"
            raise Ended(AttemptResult.FAILED, message, "request") from error
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
                self.say(attempt, f"{built.method} {built.target.shown}: {error.message}")
            raise
        if not is_quiet:
            seconds = self._clock.monotonic() - began
            words = f"{reason_phrase(response.status)} in {seconds:.2f} s"
            where = "" if response.target == built.target else f" from {response.target.shown}"
            self.say(attempt, f"{built.method} {built.target.shown} → {words}{where}")
        headers = {name.lower(): value for name, value in reversed(response.headers)}
        return Answer(response.status, headers, response.body, response.is_cut)

    def _built(self, attempt: _Attempt, call: HttpCall) -> Built:
        """Build a request. Its address has no secret, so what may be sent there is known first."""
        work, spec = attempt.assignment.work, attempt.spec
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
            taken=attempt.taken,
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

    async def _print(self, attempt: _Attempt, answer: Answer) -> None:
        """Write what was answered, as the other system sent it."""
        body = attempt.mask(answer.body)
        if not body:
            return
        sink, step = self._reports.output(attempt.fence), attempt.step
        if not body.endswith(b"\n"):
            body += b"\n"
        for first in range(0, len(body), _PIECE):
            if sink.is_full:
                await sink.drained()
            sink.feed(Stream.STDOUT, step, body[first : first + _PIECE])
        if answer.is_cut:
            self.say(attempt, f"the answer is longer than {MAX_ANSWER // 1024 // 1024} MiB: cut")
