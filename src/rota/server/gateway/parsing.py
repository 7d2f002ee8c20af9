"""Parsing of submitted files in child processes, where a hostile one costs its sender only.

A file of a few megabytes takes seconds of processor time and thirty times its size in memory. So
large files are parsed by children with limits on both, one file at a time for each caller; small
ones, of a few milliseconds, in place. A cart that comes line by line is parsed in blocks of lines.
"""

from __future__ import annotations

import asyncio
import math
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar, cast

import msgspec

from rota.domain.errors import RotaError, Unavailable
from rota.server.gateway.parsing_wire import (
    LENGTH,
    Order,
    Part,
    is_end,
    packed_order,
    read_part,
    rebuilt,
    too_large,
)
from rota.server.gateway.turns import Turns

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ParsingLimits:
    """Limits of time and memory for parsing."""

    in_place: int = 8 * 1024  # bytes of a file that is parsed by the server itself
    processes: int = 2
    waiting: int = 8  # files that wait for a child, one of each caller
    waiting_of_caller: int = 4  # requests of one caller whose bodies are not read yet
    memory: int = 512 * 1024 * 1024  # bytes of a child's address space
    cpu: timedelta = timedelta(seconds=5)  # of a child, for a file of up to `bytes_per_cpu`
    bytes_per_cpu: int = 4 * 1024 * 1024  # a larger file gets more, in proportion
    # Bytes of what is found in a file: defaults and anchors are written out in each job. Twice the
    # file may come on top.
    found: int = 64 * 1024 * 1024
    patience: timedelta = timedelta(minutes=2)  # for a child that hardly gets a processor
    idle: timedelta = timedelta(seconds=30)  # after the last file children end

    def cpu_seconds(self, size: int) -> float:
        """Return how long a file of this size may take."""
        return self.cpu.total_seconds() * max(1.0, size / self.bytes_per_cpu)

    def order(self, function: Callable[..., object], options: dict[str, Any], size: int) -> Order:
        """Return the order for a file of this size."""
        return Order.of(function, options, self.cpu_seconds(size), self.found + 2 * size)


class ParsingPool:
    """Children that parse files. They are started when they are needed, and end when idle."""

    def __init__(self, limits: ParsingLimits | None = None) -> None:
        self.limits = limits or ParsingLimits()
        self._slots = asyncio.Semaphore(self.limits.processes)
        self._waiting = 0
        self._turns = Turns(_too_many, waiting_of_caller=self.limits.waiting_of_caller)
        self._idle: list[_Child] = []
        self._children: set[_Child] = set()
        self._ending: asyncio.TimerHandle | None = None
        self._is_closed = False

    def turn(self, caller: str) -> AbstractAsyncContextManager[None]:
        """Wait until no other file of this caller is being read or parsed.

        Take it before a body is read: what waits then waits at its sender. Raise `Unavailable` if
        too many wait already.
        """
        return self._turns.of(caller)

    async def parse(
        self,
        function: Callable[..., T],
        body: bytes,
        *,
        refuse_gone: Callable[[], Awaitable[None]] | None = None,
        is_begun: bool = False,
        **options: Any,
    ) -> T:
        """Return what the function makes of a body, or raise its error.

        `refuse_gone` raises if nobody waits for the answer any more; nothing is parsed then.
        What `is_begun`, as parts of it are parsed already, waits however many others do.
        """
        if len(body) <= self.limits.in_place:
            return await asyncio.to_thread(function, body, **options)
        async with self._slot(is_begun=is_begun):
            if refuse_gone is not None:
                await refuse_gone()
            order = self.limits.order(function, options, len(body))
            return cast("T", await self._ask(order, body))

    async def close(self) -> None:
        """End all children; files that still wait are refused."""
        self._is_closed = True
        self._end_idle()
        for child in list(self._children):
            await child.kill()
        self._children.clear()

    @property
    def pids(self) -> list[int]:
        """List the processes that there are now."""
        return [child.pid for child in self._children if child.is_alive]

    @asynccontextmanager
    async def _slot(self, *, is_begun: bool) -> AsyncIterator[None]:
        if self._waiting >= self.limits.waiting and not is_begun:
            raise _too_many(f"{self._waiting} files wait to be read")
        waits = not is_begun
        self._waiting += waits
        try:
            await self._slots.acquire()
        finally:
            self._waiting -= waits
        try:
            yield
        finally:
            self._slots.release()

    async def _ask(self, order: Order, body: bytes) -> object:
        child = await self._child()
        try:
            async with asyncio.timeout(self.limits.patience.total_seconds()):
                answer = await child.ask(order, body)
        except BaseException as error:
            # Also when cancelled: whatever it would still say is the answer to this file.
            await asyncio.shield(child.kill())
            self._children.discard(child)
            if isinstance(error, TimeoutError):
                raise _too_many("no processor had time for this file") from error
            raise
        self._idle.append(child)
        self._end_later()
        if isinstance(answer, RotaError):
            raise answer
        return answer

    async def _child(self) -> _Child:
        if self._is_closed:
            raise Unavailable("this server is stopping", code="not_ready")
        self._children = {child for child in self._children if child.is_alive}
        while self._idle:
            child = self._idle.pop()
            if child.is_alive:
                return child
        child = await _Child.start(self.limits.memory)
        self._children.add(child)
        return child

    def _end_later(self) -> None:
        if self._ending is not None:
            self._ending.cancel()
        loop = asyncio.get_running_loop()
        self._ending = loop.call_later(self.limits.idle.total_seconds(), self._end_idle)

    def _end_idle(self) -> None:
        if self._ending is not None:
            self._ending.cancel()
        while self._idle:
            self._idle.pop().hang_up()


def _too_many(reason: str) -> Unavailable:
    return Unavailable(
        f"too many files at once: {reason}",
        code="too_many_files",
        hint="send it again in a few seconds; one after another is fastest",
        facts={"retry_after_seconds": 3},
    )


_ROOM_FOR_END = 1024  # bytes
_PIECE = 64 * 1024
_PROGRAM = "from rota.server.gateway.parsing_wire import serve; serve()"
_TOLD = ("PATH", "LANG", "LC_", "TZ", "PYTHON", "LD_LIBRARY_PATH")  # no secrets of the server


class _Child:
    """One process that parses, seen by the server."""

    def __init__(self, process: Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, memory: int) -> _Child:
        environment = {name: os.environ[name] for name in os.environ if name.startswith(_TOLD)}
        # -P: a file named like a standard module in the current directory must not be imported.
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",
            "-c",
            _PROGRAM,
            str(memory),
            stdin=PIPE,
            stdout=PIPE,
            env=environment,
            start_new_session=True,  # Ctrl-C is for the server, whose end ends it
        )
        return cls(process)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process.returncode is None

    async def ask(self, order: Order, body: bytes) -> object:
        """Return what the function of an order returns there, or the error that it raises."""
        assert self._process.stdin is not None
        try:
            for part in (packed_order(order), body):
                self._process.stdin.write(LENGTH.pack(len(part)))
                self._process.stdin.write(part)
                await self._process.stdin.drain()
            return rebuilt([part async for part in self._answer(order.longest)])
        except (asyncio.IncompleteReadError, ConnectionError, BrokenPipeError) as error:
            raise _why_it_died(await self._process.wait(), order.seconds) from error
        except (msgspec.MsgspecError, ValueError) as error:
            raise _died(f"it answered what cannot be read: {error}") from error

    async def _answer(self, longest: int) -> AsyncIterator[Part]:
        assert self._process.stdout is not None
        left = longest + _ROOM_FOR_END
        while True:
            [size] = LENGTH.unpack(await self._process.stdout.readexactly(LENGTH.size))
            left -= size
            if left < 0:
                raise _died(f"it answered with more than {longest:,} bytes")
            part = read_part(await self._process.stdout.readexactly(size))
            if is_end(part):
                return
            yield part
            # Reading does not wait while there is something in the buffer: others first.
            await asyncio.sleep(0)  # noqa: TID251 (no time passes)

    def hang_up(self) -> None:
        """Let it end by itself."""
        if self._process.stdin is not None:
            self._process.stdin.close()

    async def kill(self) -> None:
        with suppress(ProcessLookupError):
            self._process.kill()
        assert self._process.stdout is not None
        # Its end is not noticed while there is more in the pipe than the reader takes at a time.
        with suppress(RuntimeError):  # somebody else reads
            while await self._process.stdout.read(_PIECE):
                pass
        await self._process.wait()


def _why_it_died(code: int, seconds: float) -> RotaError:
    if code == -signal.SIGPROF:
        return too_large(f"longer than {math.ceil(seconds)} s of a processor")
    return _died(f"it ended with {code}")


def _died(reason: str) -> Unavailable:
    return Unavailable(f"what read the file has died: {reason}", code="reader_died")
