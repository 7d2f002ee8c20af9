"""The job type `python`: functions of an app, run by a host process."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, cast

import msgspec

from rota.domain.errors import Invalid, Unavailable
from rota.domain.output import Stream
from rota.domain.quantities import format_duration
from rota.domain.run import AttemptResult, why_not_portable
from rota.ports.executor import Assignment, Desk, Exit, OutputSink, Process, Spawner
from rota.ports.work import Fence, Outcome, StepOutcome
from rota.sdk.host.wire import (
    Cancel,
    Done,
    Hello,
    News,
    Order,
    Printed,
    Run,
    Stop,
    Task,
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
class _Held:
    """Attempt from its assignment to its end."""

    assignment: Assignment
    sent_at: int | None = None  # microseconds of the store's clock; None: no host has it
    timer: asyncio.TimerHandle | None = None  # of its timeout, later of its grace
    stopped_as: AttemptResult | None = None  # CANCELLED or TIMED_OUT once it is to stop

    def set_timer(self, timer: asyncio.TimerHandle | None) -> None:
        if self.timer is not None:
            self.timer.cancel()
        self.timer = timer


class PythonExecutor:
    """Implements `rota.ports.executor.Executor`.

    One host runs all attempts, since a thread is cheap and a process is not. If an attempt does not
    stop within its grace, the host is killed: its other attempts are LOST, and a new one is
    started.
    """

    def __init__(self, desk: Desk, spawner: Spawner, app: str) -> None:
        self._desk = desk
        self._spawner = spawner
        self._app = app
        self._loop = asyncio.get_running_loop()
        self._keys = count(1)
        self._held: dict[int, _Held] = {}
        self._unsent: dict[int, Task] = {}  # held, but given to no host yet
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

    def start(self, assignments: Sequence[Assignment]) -> None:
        tasks = [self._hold(assignment) for assignment in assignments]
        self._unsent.update((task.key, task) for task in tasks)
        if self._host is None:
            self._start_host()
        elif self._host.is_open:
            self._send_all(self._host)

    def cancel(self, fences: Sequence[Fence]) -> None:
        wanted = set(fences)
        keys = [key for key, held in self._held.items() if held.assignment.work.fence in wanted]
        self._stop(keys, AttemptResult.CANCELLED)

    async def close(self) -> None:
        self._is_closing = True
        if self._starting is not None:
            await asyncio.wait({self._starting})
        if self._host is not None:
            await self._host.stop()

    def _hold(self, assignment: Assignment) -> Task:
        key = next(self._keys)
        work, spec = assignment.work, assignment.spec
        self._held[key] = _Held(assignment)
        return Task(
            key,
            spec.function,
            work.run,
            work.attempt,
            spec.name,
            spec.project,
            work.due_at,
            work.inputs,
        )

    def _send_all(self, host: FunctionHost) -> None:
        now = self._desk.store_micros()
        for key in self._unsent:
            self._begin(key, now)
        if self._unsent:
            host.connection.send(Run(tuple(self._unsent.values())))
            self._unsent.clear()

    def _begin(self, key: int, now: int) -> None:
        held = self._held[key]
        held.sent_at = now
        seconds = held.assignment.seconds_allowed(now)
        if seconds is not None:
            held.timer = self._loop.call_later(seconds, self._stop, [key], AttemptResult.TIMED_OUT)

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
            self._end(list(self._unsent), AttemptResult.FAILED, str(error))
            return
        self._host = starting.result()
        self._host.ended.add_done_callback(partial(self._host_ended, self._host))
        self._send_all(self._host)

    def _host_ended(self, host: FunctionHost, ended: asyncio.Future[Exit]) -> None:
        """End the attempts of a host that died: a single one is to blame, several are LOST."""
        self._host = None
        ran = {key: held for key, held in self._held.items() if key not in self._unsent}
        for result in (AttemptResult.CANCELLED, AttemptResult.TIMED_OUT):
            stopped = [key for key, held in ran.items() if held.stopped_as is result]
            self._end(stopped, result, "killed: it did not stop within its grace")
        others = [key for key, held in ran.items() if held.stopped_as is None]
        is_culprit = len(ran) == 1 and not host.is_killed
        result = AttemptResult.FAILED if is_culprit else AttemptResult.LOST
        self._end(others, result, f"the function host died ({_describe_exit(ended.result())})")
        if not self._is_closing:
            self._start_host()

    def _stop(self, keys: Sequence[int], result: AttemptResult) -> None:
        """Interrupt functions; kill the host of one that does not end within its grace."""
        self._end([key for key in keys if key in self._unsent], result, "it had not begun")
        stopping = [key for key in keys if key in self._held and not self._held[key].stopped_as]
        for key in stopping:
            held = self._held[key]
            held.stopped_as = result
            grace = held.assignment.spec.grace.total_seconds()
            held.set_timer(self._loop.call_later(grace, self._kill_host))
        if self._host is not None and stopping:
            self._host.connection.send(Cancel(tuple(stopping)))

    def _kill_host(self) -> None:
        if self._host is not None:
            self._host.kill()

    def _hear(self, news: News) -> None:
        for printed in news.printed:
            if printed.key in self._held:
                self._feed(self._held[printed.key], printed)
        for each in news.progressed:
            if each.key in self._held:
                fence = self._held[each.key].assignment.work.fence
                self._desk.progressed(fence, each.done, each.total, each.message)
        if news.done:
            shift = self._desk.store_micros() - time.monotonic_ns() // 1000
            self._desk.ended([_outcome(self._release(done.key), done, shift) for done in news.done])

    def _feed(self, held: _Held, printed: Printed) -> None:
        sink = self._desk.output(held.assignment.work.fence)
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

    def _release(self, key: int) -> _Held:
        held = self._held.pop(key)
        self._unsent.pop(key, None)
        held.set_timer(None)
        return held

    def _end(self, keys: Sequence[int], result: AttemptResult, message: str) -> None:
        """Report attempts that no host reported."""
        now = self._desk.store_micros()
        released = [self._release(key) for key in keys]
        if released:
            self._desk.ended([_unreported(held, result, now, message) for held in released])


def _unreported(held: _Held, result: AttemptResult, now: int, message: str) -> Outcome:
    work = held.assignment.work
    began_at = now if held.sent_at is None else held.sent_at
    return Outcome(work.run, work.attempt, result, began_at, now, message=message)


def _outcome(held: _Held, done: Done, shift: int) -> Outcome:
    """Build the outcome; `shift` converts the machine's monotonic time to the store's."""
    work = held.assignment.work
    result, message = _result(held, done)
    return Outcome(
        work.run,
        work.attempt,
        result,
        done.started + shift,
        done.ended + shift,
        message=message,
        outputs=_portable(done.output) if done.output else None,
        steps=tuple(
            StepOutcome(step.name, step.result, seconds=step.seconds) for step in done.steps
        ),
        cpu_seconds=done.cpu / 1e6,
    )


def _portable(output: bytes) -> Any:
    """Return a function's result; None if some part of Rota could not carry it."""
    outputs = msgspec.json.decode(output)
    return None if why_not_portable(outputs) else outputs


def _result(held: _Held, done: Done) -> tuple[AttemptResult, str]:
    if held.stopped_as is AttemptResult.TIMED_OUT:
        timeout = held.assignment.spec.timeout
        words = f"timed out after {format_duration(timeout)}" if timeout else "its deadline passed"
        return AttemptResult.TIMED_OUT, words
    if done.result == "completed":
        return AttemptResult.COMPLETED, ""
    return held.stopped_as or AttemptResult.FAILED, done.message
