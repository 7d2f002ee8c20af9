"""A worker renews its lease every third of it, and tells how much work has reached it."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from rota.clock import SystemClock
from rota.ports.work import Beat, BeatAnswer, Dispatch, Hello, Welcome, Work, WorkBatch
from rota.worker.attempts import Attempts
from rota.worker.session import WorkerSession
from rota.worker.spool import OutputSpool
from testkit.guards import NoGuard
from tests.unit.worker.test_stopping import Link, Worker

pytestmark = pytest.mark.anyio

INTERVAL = 10.0  # a third of the link's lease


class SkippingClock(SystemClock):
    """Leaves time out when told."""

    skipped = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.skipped


class SlowLink(Link):
    """Each of its answers takes as long as the pause between two beats."""

    def __init__(self, clock: SkippingClock) -> None:
        super().__init__()
        self._clock = clock
        self._beats = 0

    async def beat(self, beat: Beat) -> BeatAnswer:
        self._clock.skipped += INTERVAL
        self._beats += 1
        if self._beats == 3:
            self.beaten.set()
        return BeatAnswer(alive=True, store_now=1)


async def test_a_slow_answer_does_not_put_off_the_next_beat(tmp_path: Path) -> None:
    clock = SkippingClock()
    link = SlowLink(clock)

    async def connect() -> Link:
        return link

    attempts = Attempts(clock, OutputSpool(tmp_path / "spool"))
    hello = Hello("worker", "default", 1)
    session = WorkerSession(connect, attempts, hello, NoGuard(), clock)
    running = asyncio.ensure_future(session.run())

    await asyncio.wait_for(link.beaten.wait(), INTERVAL / 2)

    session.stop()
    await asyncio.wait_for(running, INTERVAL)


class CountingLink(Link):
    """Each connection is a stream of its own, and counts what it sends."""

    def __init__(self) -> None:
        super().__init__()
        self.takes_output = True
        self.streams = 0
        self.beats: asyncio.Queue[Beat] = asyncio.Queue()

    async def register(self, hello: Hello) -> Welcome:
        self.streams += 1
        return Welcome("w_1", lease_seconds=30, store_now=1, stream=self.streams)

    async def beat(self, beat: Beat) -> BeatAnswer:
        self.beats.put_nowait(beat)
        return await super().beat(beat)

    def send(self, run: str, first: int) -> None:
        """A run that no worker of this version can read: it fails at once."""
        work = Work(run, 1, "j_of_a_later_version", 1, due_at=0)
        self.orders.put_nowait(Dispatch(WorkBatch.of([work]), first=first))


async def test_a_stream_of_which_a_part_is_missing_is_left_for_another(tmp_path: Path) -> None:
    worker = Worker(tmp_path / "spool", reconnect_delay=timedelta(milliseconds=1))
    worker.link = link = CountingLink()
    running = asyncio.ensure_future(worker.run())

    async with asyncio.timeout(10):
        beats = [await link.beats.get()]
        link.send("r_1", first=1)
        link.send("r_3", first=3)
        beats.append(await link.beats.get())
        worker.session.stop()
        await running

    assert [(beat.stream, beat.received) for beat in beats] == [(1, 0), (2, 0)]
    assert link.reported == ["FAILED"]
