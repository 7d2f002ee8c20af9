"""Carries what a process prints to its attempt's output, as fast as that can take it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress

from rota.domain.output import Stream
from rota.ports.executor import OutputSink

_READ_SIZE = 256 * 1024
_KEPT = 4 * 1024  # bytes of the end that are looked at for a last line
_LONGEST_LINE = 200  # characters


class Pipe:
    """The reading end of one stream. The writing end goes to the process.

    The sink is opened at the first byte: most short jobs print nothing.
    """

    def __init__(self, open_sink: Callable[[], OutputSink], stream: Stream, step: int) -> None:
        self._open_sink = open_sink
        self._stream = stream
        self._step = step
        self._loop = asyncio.get_running_loop()
        self._reader, self.writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        os.set_blocking(self.writer, True)  # a job expects its output to block
        self._waiting: asyncio.Task[None] | None = None
        self._end = b""  # the last bytes that came
        self._loop.add_reader(self._reader, self._read)

    def _read(self) -> None:
        if not self._pass_on():
            self._loop.remove_reader(self._reader)
        elif (sink := self._open_sink()).is_full:
            self._loop.remove_reader(self._reader)
            self._waiting = self._loop.create_task(self._read_on_when_drained(sink))

    def _pass_on(self) -> bool:
        """Hand over what is there; False at the end of the stream."""
        try:
            data = os.read(self._reader, _READ_SIZE)
        except BlockingIOError:
            return True
        if data:
            self._take(data)
        return bool(data)

    def _take(self, data: bytes) -> None:
        self._end = (self._end + data[-_KEPT:])[-_KEPT:]
        self._open_sink().feed(self._stream, self._step, data)

    @property
    def last_line(self) -> str:
        """The last line with something in it, without what only a terminal understands."""
        lines = self._end.decode(errors="replace").split("\n")
        printable = ("".join(filter(str.isprintable, line)).strip() for line in reversed(lines))
        return next(filter(None, printable), "")[:_LONGEST_LINE]

    async def _read_on_when_drained(self, sink: OutputSink) -> None:
        await sink.drained()
        self._loop.add_reader(self._reader, self._read)

    def discard(self) -> None:
        """Close both ends: no process will write."""
        self._loop.remove_reader(self._reader)
        os.close(self._reader)
        os.close(self.writer)

    async def close(self) -> None:
        """Take the rest; every process that could write is gone, so the end is near."""
        if self._waiting is not None:
            await self._waiting
        self._loop.remove_reader(self._reader)
        with suppress(BlockingIOError):
            while data := os.read(self._reader, _READ_SIZE):
                self._take(data)
        os.close(self._reader)


def open_pipes(open_sink: Callable[[], OutputSink], step: int) -> tuple[Pipe, Pipe]:
    """For standard output and error of a step: both or, with an `OSError`, none."""
    stdout = Pipe(open_sink, Stream.STDOUT, step)
    try:
        return stdout, Pipe(open_sink, Stream.STDERR, step)
    except OSError:
        stdout.discard()
        raise
