from __future__ import annotations

import asyncio
import os
import resource
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import uvloop

from rota.domain.output import Stream
from rota.executors.work_folder import Pipe, Pipes

pytestmark = pytest.mark.anyio


class Sink:
    """Implements `rota.ports.executor.OutputSink`; it is full when told so."""

    def __init__(self) -> None:
        self.fed: list[tuple[Stream, int, bytes]] = []
        self.is_full = False
        self.was_fed = asyncio.Event()
        self._drained = asyncio.Event()

    def feed(self, stream: Stream, step: int, data: bytes) -> None:
        self.fed.append((stream, step, data))
        self.was_fed.set()

    async def drained(self) -> None:
        await self._drained.wait()

    def drain(self) -> None:
        self.is_full = False
        self._drained.set()

    async def next(self) -> bytes:
        """Return the next that came, waiting for it."""
        async with asyncio.timeout(20):
            await self.was_fed.wait()
        self.was_fed.clear()
        return self.fed[-1][2]


@pytest.fixture
async def pipes() -> AsyncIterator[Pipes]:
    opened = Pipes()
    yield opened
    opened.close()


def descriptors() -> list[Path]:
    return sorted(Path("/proc/self/fd").iterdir())


@contextmanager
def room_for_one_pipe() -> Iterator[None]:
    """No more descriptors than one pipe needs."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.dup(0)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free + 2, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


async def end(*streams: Pipe) -> None:
    for stream in streams:
        os.close(stream.writer)
        await stream.close()


async def test_what_is_written_reaches_the_sink_with_its_stream_and_step(pipes: Pipes) -> None:
    sink = Sink()
    opened = pipes.open(lambda: sink, step=3)
    for pipe, text in zip(opened, (b"out", b"err"), strict=True):
        os.write(pipe.writer, text)

    await end(*opened)

    assert sink.fed == [(Stream.STDOUT, 3, b"out"), (Stream.STDERR, 3, b"err")]


async def test_what_is_written_arrives_while_the_job_runs(pipes: Pipes) -> None:
    sinks = [Sink() for _ in range(50)]
    opened = [pipes.open(lambda sink=sink: sink, step=0) for sink in sinks]  # type: ignore[misc]

    for number, (stdout, _) in enumerate(opened):
        os.write(stdout.writer, str(number).encode())

    assert [await sink.next() for sink in sinks] == [str(number).encode() for number in range(50)]
    for both in opened:
        await end(*both)


async def test_full_sink_holds_up_its_own_job_only(pipes: Pipes) -> None:
    slow, quick = Sink(), Sink()
    held, _ = first = pipes.open(lambda: slow, step=0)
    other, _ = second = pipes.open(lambda: quick, step=0)
    slow.is_full = True
    os.write(held.writer, b"one")
    await slow.next()

    os.write(held.writer, b"two")
    os.write(other.writer, b"passes")
    await quick.next()
    assert [data for _, _, data in slow.fed] == [b"one"]

    slow.drain()
    assert await slow.next() == b"two"
    await end(*first)
    await end(*second)


class FullSink(Sink):
    """Full again as soon as it was drained."""

    def __init__(self) -> None:
        super().__init__()
        self.is_full = True

    def drain(self) -> None:
        self._drained.set()

    async def drained(self) -> None:
        await self._drained.wait()
        self._drained.clear()


def test_descriptor_of_a_closed_pipe_is_not_read_again() -> None:
    uvloop.run(_close_a_pipe_that_rests())  # it polls before it resumes whoever waits


async def _close_a_pipe_that_rests() -> None:
    pipes, sink = Pipes(), FullSink()
    stdout, stderr = pipes.open(lambda: sink, step=0)
    os.write(stdout.writer, b"one")
    await sink.next()
    os.write(stdout.writer, b"two")
    closing = asyncio.ensure_future(end(stdout, stderr))
    await _a_round()

    sink.drain()
    await closing
    others_end, other = os.pipe()  # with the number that the pipe had
    sink.drain()
    await _a_round()
    os.write(other, b"another's")
    await _a_round()

    assert [data for _, _, data in sink.fed] == [b"one", b"two"]
    assert os.read(others_end, 100) == b"another's"
    pipes.close()
    os.close(others_end)
    os.close(other)


async def _a_round() -> None:
    """Let the event loop do all that can be done now, twice."""
    loop = asyncio.get_running_loop()
    for _ in range(2):
        passed = loop.create_future()
        loop.call_later(0.005, passed.set_result, None)
        await passed


async def test_nothing_stays_open_afterwards(pipes: Pipes) -> None:
    before = descriptors()
    sink = Sink()
    stdout, stderr = pipes.open(lambda: sink, step=0)
    os.write(stdout.writer, b"out")
    os.close(stdout.writer)  # its end is seen by the event loop, the other's by `close`
    await sink.next()
    await stdout.close()

    await end(stderr)

    assert descriptors() == before


async def test_writer_that_was_given_away_does_not_hold_up_the_end(pipes: Pipes) -> None:
    sink = Sink()
    stdout, stderr = pipes.open(lambda: sink, step=0)
    kept = os.dup(stdout.writer)
    os.write(stdout.writer, b"out")

    await end(stdout, stderr)

    assert sink.fed == [(Stream.STDOUT, 0, b"out")]
    os.close(kept)


async def test_nothing_stays_open_when_descriptors_run_out(pipes: Pipes) -> None:
    before = descriptors()

    with room_for_one_pipe(), pytest.raises(OSError, match="Too many open files"):
        pipes.open(Sink, step=0)

    assert descriptors() == before


@pytest.mark.parametrize(
    ("written", "line"),
    [
        (b"", ""),
        (b"first\nlast\n", "last"),
        (b"last\n \n\n", "last"),
        (b"\x1b[31mred\x1b[0m\r\n", "[31mred[0m"),
        (b"torn \xff\n", "torn \ufffd"),
        (b"x" * 9_000, "x" * 200),
    ],
)
async def test_its_last_line_is_known(pipes: Pipes, written: bytes, line: str) -> None:
    sink = Sink()
    stdout, stderr = pipes.open(lambda: sink, step=0)
    os.write(stderr.writer, written)

    await end(stdout, stderr)

    assert stderr.last_line == line
