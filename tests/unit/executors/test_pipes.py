from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rota.domain.output import Stream
from rota.executors.work_folder import open_pipes

pytestmark = pytest.mark.anyio


class Sink:
    """Implements `rota.ports.executor.OutputSink`, and never is full."""

    def __init__(self) -> None:
        self.fed: list[tuple[Stream, int, bytes]] = []
        self.is_full = False

    def feed(self, stream: Stream, step: int, data: bytes) -> None:
        self.fed.append((stream, step, data))

    async def drained(self) -> None: ...


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


async def test_what_is_written_reaches_the_sink_with_its_stream_and_step() -> None:
    sink = Sink()
    pipes = open_pipes(lambda: sink, step=3)
    for pipe, text in zip(pipes, (b"out", b"err"), strict=True):
        os.write(pipe.writer, text)
        os.close(pipe.writer)

    for pipe in pipes:
        await pipe.close()

    assert sink.fed == [(Stream.STDOUT, 3, b"out"), (Stream.STDERR, 3, b"err")]


async def test_nothing_stays_open_when_descriptors_run_out() -> None:
    before = descriptors()

    with room_for_one_pipe(), pytest.raises(OSError, match="Too many open files"):
        open_pipes(Sink, step=0)

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
async def test_its_last_line_is_known(written: bytes, line: str) -> None:
    sink = Sink()
    stdout, stderr = open_pipes(lambda: sink, step=0)
    os.write(stderr.writer, written)
    for pipe in (stdout, stderr):
        os.close(pipe.writer)
        await pipe.close()

    assert stderr.last_line == line
