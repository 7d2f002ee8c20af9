"""The job type `python`: functions of an app, run by a host process."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import msgspec

from rota.domain.errors import Invalid, Unavailable
from rota.domain.output import Stream
from rota.domain.quantities import format_duration
from rota.domain.run import AttemptResult, why_not_portable
from rota.domain.spec import JobSpec
from rota.ports.executor import (
    AttemptReports,
    Completions,
    Exit,
    JobBatch,
    OutputSink,
    Process,
    Spawner,
)
from rota.ports.work import Fence, Outcome, StepOutcome
from rota.sdk.host.wire import (
    Calls,
    Cancel,
    Completed,
    Done,
    Hello,
    HostedType,
    News,
    Order,
    Printed,
    Run,
    Step,
    Stop,
    Unusable,
    encode,
    message_reader,
)

_START_SECONDS = 60.0  # an app's imports may take their time
_EXIT_SECONDS = 5.0  # between the host's last message and its exit
_WORKERS_OWN = "ROTA_GUARDIAN_"  # variables that name descriptors which only the worker has


class HostConnection(asyncio.Protocol):
    """Worker side of the socket to a function host."""

    def __init__(self, hear: Callable[[News], None]) -> None:
        loop = asyncio.get_running_loop()
        self.greeting: asyncio.Future[Hello | Unusable] = loop.create_future()
        self.closed: asyncio.Future[None] = loop.create_future()
        self._hear = hear
        self._reader = message_reader()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is no subclass

    def data_received(self, data: bytes) -> None:
        for message in self._reader.feed(data):
            if isinstance(message, News):
                self._hear(message)
            else:
                self.greeting.set_result(message)

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self.closed.set_result(None)

    def send(self, order: Order) -> None:
        """Send an order; to a host that has ended it is lost, as is the host."""
        if self._transport is not None:
            self._transport.write(encode(order))

    def pause_reading(self) -> None:
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if self._transport is not None:
            self._transport.resume_reading()


class FunctionHost:
    """Host that is ready. `ended` is set after all its messages were handled."""

    def __init__(self, process: Process, connection: HostConnection, hello: Hello) -> None:
        self.functions = hello.functions
        self.types = hello.types
        self.connection = connection
        self._process = process
        self.is_killed = False  # by us
        self.ended = asyncio.ensure_future(self._end())

    @property
    def is_open(self) -> bool:
        """Return whether it accepts orders."""
        return not self.is_killed and not self.connection.closed.done()

    def kill(self) -> None:
        self.is_killed = True
        self._process.kill()

    async def stop(self) -> None:
        """Let it exit by itself, within a time limit."""
        self.connection.send(Stop())
        await asyncio.wait({self.ended}, timeout=_EXIT_SECONDS)
        if not self.ended.done():
            self.kill()
        await self.ended

    async def _end(self) -> Exit:
        await self.connection.closed
        await asyncio.wait({self._process.ended}, timeout=_EXIT_SECONDS)
        if not self._process.ended.done():
            self.kill()
        return await self._process.ended


async def start_host(app: str, spawner: Spawner, hear: Callable[[News], None]) -> FunctionHost:
    """Start a host that loads the app.

    Raise `Invalid` if it cannot load it, `Unavailable` if it does not answer.
    """
    connection = HostConnection(hear)
    folder = Path(tempfile.mkdtemp(prefix="rota-host-"))
    try:
        address = str(folder / "socket")
        loop = asyncio.get_running_loop()
        server = await loop.create_unix_server(lambda: connection, address)
        process = _spawn(app, address, spawner)
        waits: set[asyncio.Future[Any]] = {connection.greeting, process.ended}
        await asyncio.wait(waits, timeout=_START_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        server.close()
    finally:
        shutil.rmtree(folder)
    greeting = connection.greeting.result() if connection.greeting.done() else None
    if isinstance(greeting, Hello):
        return FunctionHost(process, connection, greeting)
    process.kill()
    end = await process.ended
    if greeting is None:
        raise Unavailable(
            f"the function host of {app} did not start: {end.error or _describe_exit(end)}"
        )
    raise Invalid(
        f"the app {app} cannot be loaded: {greeting.message}",
        hint="--app takes MODULE:NAME, found from the folder the worker was started in",
    )


def _describe_exit(end: Exit) -> str:
    """Describe how a host ended."""
    return f"signal {end.signal}" if end.signal is not None else f"exit {end.status}"


def _spawn(app: str, address: str, spawner: Spawner) -> Process:
    """Spawn the host in the worker's own environment: functions are part of the worker."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(_WORKERS_OWN)}
    return spawner.spawn(
        [sys.executable, "-X", "faulthandler", "-m", "rota.sdk.host", app, address],
        env=env,
        cwd=str(Path.cwd()),
        stdout=os.dup(1),
        stderr=os.dup(2),
    )


@dataclass(slots=True, eq=False)
class _Sent:
    """Attempts that a host has, with consecutive keys."""

    batch: JobBatch
    first_key: int
    sent_at: int  # microseconds of the store's clock
    going: int  # that have not ended
    timer: asyncio.TimerHandle | None = None  # of their timeout

    def fence(self, key: int) -> Fence:
        return self.batch.fences[key - self.first_key]

    @property
    def keys(self) -> range:
        return range(self.first_key, self.first_key + len(self.batch))


@dataclass(frozen=True, slots=True)
class _Stop:
    """Order to an attempt to stop."""

    result: AttemptResult  # CANCELLED or TIMED_OUT
    at: int  # microseconds of the machine's monotonic clock
    timer: asyncio.TimerHandle  # of its grace


class PythonExecutor:
    """Implements `rota.ports.executor.Executor`.

    One host runs all attempts, since a thread is cheap and a process is not. If an attempt does not
    stop within its grace, the host is killed: its other attempts are LOST, and a new one is
    started.
    """

    def __init__(self, reports: AttemptReports, spawner: Spawner, app: str) -> None:
        self._reports = reports
        self._spawner = spawner
        self._app = app
        self._loop = asyncio.get_running_loop()
        self._next_key = 1
        self._sent: dict[int, _Sent] = {}  # by key, until its attempt has ended
        self._stops: dict[int, _Stop] = {}
        self._deadlines: dict[int, asyncio.TimerHandle] = {}
        self._unsent: list[JobBatch] = []  # given to no host yet
        self._host: FunctionHost | None = None
        self._starting: asyncio.Task[FunctionHost] | None = None
        self._full: list[OutputSink] = []  # why nothing is read from the host
        self._draining: asyncio.Task[None] | None = None
        self._is_closing = False

    async def ready(self) -> tuple[str, ...]:
        """Return the functions' names once a host has loaded them; raise `Invalid` if it cannot."""
        if self._host is None:
            await asyncio.shield(self._start_host())
        assert self._host is not None
        return self._host.functions

    @property
    def types(self) -> tuple[HostedType, ...]:
        """Return the executor classes that the host has; () before it is ready."""
        return () if self._host is None else self._host.types

    def start(self, batches: Sequence[JobBatch]) -> None:
        self._unsent += batches
        if self._host is None:
            self._start_host()
        elif self._host.is_open:
            self._send_all(self._host)

    def cancel(self, fences: Sequence[Fence]) -> None:
        wanted = set(fences)
        unsent = [fence for each in self._unsent for fence in each.fences if fence in wanted]
        self._unsent = [rest for each in self._unsent if len(rest := each.without(wanted))]
        now = self._reports.store_micros()
        self._end(unsent, now, AttemptResult.CANCELLED, "it had not begun")
        self._stop(
            [key for key, sent in self._sent.items() if sent.fence(key) in wanted],
            AttemptResult.CANCELLED,
        )

    async def close(self) -> None:
        self._is_closing = True
        if self._starting is not None:
            await asyncio.wait({self._starting})
        if self._host is not None:
            await self._host.stop()

    # --- the host

    def _start_host(self) -> asyncio.Task[FunctionHost]:
        if self._starting is None:
            starting = start_host(self._app, self._spawner, self._hear)
            self._starting = self._loop.create_task(starting)
            self._starting.add_done_callback(self._host_started)
        return self._starting

    def _host_started(self, starting: asyncio.Task[FunctionHost]) -> None:
        self._starting = None
        error = starting.exception()
        if error is not None:
            unsent, self._unsent = self._unsent, []
            fences = [fence for each in unsent for fence in each.fences]
            now = self._reports.store_micros()
            self._end(fences, now, AttemptResult.FAILED, str(error))
            return
        self._host = starting.result()
        self._host.ended.add_done_callback(partial(self._host_ended, self._host))
        self._send_all(self._host)

    def _host_ended(self, host: FunctionHost, ended: asyncio.Future[Exit]) -> None:
        """End the attempts of a host that died: a single one is to blame, several are LOST."""
        self._host = None
        is_culprit = len(self._sent) == 1 and not host.is_killed
        for result in (AttemptResult.CANCELLED, AttemptResult.TIMED_OUT):
            stopped = [key for key, stop in self._stops.items() if stop.result is result]
            self._end_sent(stopped, result, "killed: it did not stop within its grace")
        result = AttemptResult.FAILED if is_culprit else AttemptResult.LOST
        words = f"the function host died ({_describe_exit(ended.result())})"
        self._end_sent(list(self._sent), result, words)
        if not self._is_closing:
            self._start_host()

    def _kill_host(self) -> None:
        if self._host is not None:
            self._host.kill()

    # --- attempts

    def _send_all(self, host: FunctionHost) -> None:
        if self._unsent:
            now = self._reports.store_micros()
            host.connection.send(Run(tuple(self._message(each, now) for each in self._unsent)))
            self._unsent = []

    def _message(self, batch: JobBatch, now: int) -> Calls:
        """Return the message that starts attempts, and note that the host has them."""
        sent = _Sent(batch, self._next_key, now, len(batch))
        self._next_key += len(batch)
        self._sent.update(dict.fromkeys(sent.keys, sent))
        self._set_timers(sent)
        spec, columns = batch.spec, batch.batch
        return Calls(
            spec.function,
            spec.name,
            spec.project,
            sent.first_key,
            columns.runs,
            columns.numbers,
            columns.due_at,
            columns.inputs,
        )

    def _set_timers(self, sent: _Sent) -> None:
        timed_out = AttemptResult.TIMED_OUT
        if sent.batch.spec.timeout is not None:
            seconds = sent.batch.spec.timeout.total_seconds()
            sent.timer = self._loop.call_later(seconds, self._stop_all, sent, timed_out)
        for at, seconds in sent.batch.deadlines(sent.sent_at).items():
            key = sent.first_key + at
            self._deadlines[key] = self._loop.call_later(seconds, self._stop, [key], timed_out)

    def _stop_all(self, sent: _Sent, result: AttemptResult) -> None:
        self._stop([key for key in sent.keys if key in self._sent], result)

    def _stop(self, keys: Sequence[int], result: AttemptResult) -> None:
        """Interrupt functions; kill the host of one that does not end within its grace."""
        stopping = [key for key in keys if key in self._sent and key not in self._stops]
        for key in stopping:
            grace = self._sent[key].batch.spec.grace.total_seconds()
            timer = self._loop.call_later(grace, self._kill_host)
            self._stops[key] = _Stop(result, _monotonic_micros(), timer)
        if self._host is not None and stopping:
            self._host.connection.send(Cancel(tuple(stopping)))

    def _hear(self, news: News) -> None:
        for printed in news.printed:
            if printed.key in self._sent:
                self._feed(self._sent[printed.key].fence(printed.key), printed)
        for each in news.progressed:
            if each.key in self._sent:
                fence = self._sent[each.key].fence(each.key)
                self._reports.progressed(fence, each.done, each.total, each.message)
        shift = self._reports.store_micros() - _monotonic_micros()
        for stepped in news.stepped:
            if stepped.key in self._sent:
                fence = self._sent[stepped.key].fence(stepped.key)
                self._reports.stepped(fence, stepped.number, _step_outcome(stepped.step, shift))
        completed, more = self._sorted(news)
        if completed.keys:
            self._complete(completed, shift)
        if more:
            self._reports.ended([self._outcome(done, shift) for done in more])

    def _sorted(self, news: News) -> tuple[Completed, Sequence[Done]]:
        """Return what completed, and what has more to tell: also what was to stop."""
        completed = news.completed
        if not self._stops or self._stops.keys().isdisjoint(completed.keys):
            return completed, news.done
        each = [
            Done(key, "completed", started, ended, cpu, "", completed.outputs.get(at, b""))
            for at, (key, started, ended, cpu) in enumerate(
                zip(completed.keys, completed.started, completed.ended, completed.cpu, strict=True)
            )
        ]
        return Completed(), [*each, *news.done]

    def _complete(self, completed: Completed, shift: int) -> None:
        fences = self._release(completed.keys)
        portable = {at: _portable_text(output) for at, output in completed.outputs.items()}
        self._reports.completed(
            Completions(
                fences,
                [started + shift for started in completed.started],
                [ended + shift for ended in completed.ended],
                completed.cpu,
                {at: text for at, text in portable.items() if text},
            )
        )

    def _outcome(self, done: Done, shift: int) -> Outcome:
        """Build the outcome; `shift` converts the machine's monotonic time to the store's."""
        spec, stop = self._sent[done.key].batch.spec, self._stops.get(done.key)
        result, message = _result(spec, stop, done)
        [fence] = self._release([done.key])
        text = _portable_text(done.output) if done.output else ""
        return Outcome(
            fence.run,
            fence.number,
            result,
            done.started + shift,
            done.ended + shift,
            message=message,
            outputs=msgspec.json.decode(text) if text else None,
            steps=tuple(_step_outcome(step, shift) for step in done.steps),
            cpu_seconds=done.cpu / 1e6,
        )

    def _feed(self, fence: Fence, printed: Printed) -> None:
        sink = self._reports.output(fence)
        sink.feed(Stream(printed.stream), printed.step, printed.data)
        if sink.is_full and sink not in self._full:
            self._full.append(sink)
            if self._draining is None and self._host is not None:
                self._draining = self._loop.create_task(self._drain(self._host.connection))

    async def _drain(self, connection: HostConnection) -> None:
        """Stop reading until there is room for output: functions that print then wait."""
        connection.pause_reading()
        while self._full:
            await self._full[0].drained()
            del self._full[0]
        self._draining = None
        connection.resume_reading()

    def _release(self, keys: Sequence[int]) -> list[Fence]:
        """Forget attempts that have ended; return their fences."""
        batches = list(map(self._sent.pop, keys))
        for sent, count in Counter(batches).items():
            sent.going -= count
            if not sent.going and sent.timer is not None:
                sent.timer.cancel()
        if self._stops or self._deadlines:
            self._cancel_timers(keys)
        return [
            sent.batch.fences[key - sent.first_key] for key, sent in zip(keys, batches, strict=True)
        ]

    def _cancel_timers(self, keys: Sequence[int]) -> None:
        for key in keys:
            if stop := self._stops.pop(key, None):
                stop.timer.cancel()
            if timer := self._deadlines.pop(key, None):
                timer.cancel()

    def _end_sent(self, keys: Sequence[int], result: AttemptResult, message: str) -> None:
        """Report attempts that died with their host."""
        by_start: dict[int, list[int]] = {}
        for key in keys:
            by_start.setdefault(self._sent[key].sent_at, []).append(key)
        for sent_at, together in by_start.items():
            self._end(self._release(together), sent_at, result, message)

    def _end(
        self, fences: Sequence[Fence], began_at: int, result: AttemptResult, message: str
    ) -> None:
        """Report attempts that no host reported."""
        now = self._reports.store_micros()
        outcomes = [
            Outcome(f.run, f.number, result, began_at, now, message=message) for f in fences
        ]
        if outcomes:
            self._reports.ended(outcomes)


def _step_outcome(step: Step, shift: int) -> StepOutcome:
    """Build a step; `shift` converts the machine's monotonic time to the store's."""
    started_at = max(step.started + shift, 0) if step.started else 0
    return StepOutcome(step.name, step.result, seconds=step.seconds, started_at=started_at)


def _monotonic_micros() -> int:
    return time.monotonic_ns() // 1000


def _portable_text(output: bytes) -> str:
    """Return a function's result as JSON; "" if some part of Rota could not carry it."""
    try:
        return "" if why_not_portable(msgspec.json.decode(output)) else output.decode()
    except (ValueError, RecursionError):  # no JSON, or nested deeper than anything here reads
        return ""


def _result(spec: JobSpec, stop: _Stop | None, done: Done) -> tuple[AttemptResult, str]:
    """Return how an attempt ended. What ended before it was to stop ended by itself."""
    is_stopped = stop is not None and done.ended > stop.at
    if is_stopped and stop is not None and stop.result is AttemptResult.TIMED_OUT:
        timeout = spec.timeout
        words = f"timed out after {format_duration(timeout)}" if timeout else "its deadline passed"
        return AttemptResult.TIMED_OUT, words
    if done.result == "completed":
        return AttemptResult.COMPLETED, ""
    is_cancelled = done.result == "cancelled"
    return AttemptResult.CANCELLED if is_cancelled else AttemptResult.FAILED, done.message
