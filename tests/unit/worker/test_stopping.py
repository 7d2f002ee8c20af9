"""A worker that stops delivers what it can, then leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import pytest

from rota.clock import SystemClock
from rota.domain.errors import Unavailable
from rota.domain.spec import JobType
from rota.ports.work import (
    Beat,
    BeatAnswer,
    Fence,
    Hello,
    Order,
    Outcome,
    OutputChunk,
    Progress,
    ReportAnswer,
    Start,
    StartAnswer,
    Welcome,
)
from rota.worker.attempts import Attempts
from rota.worker.session import SessionConfig, WorkerSession
from rota.worker.spool import DeliveryPacing, OutputDeliverer, OutputSpool
from testkit.guards import NoGuard
from tests.unit.worker.test_attempts import Recorder, dispatch
from tests.unit.worker.test_spool import FIRST, chunks

pytestmark = pytest.mark.anyio


class Link:
    """A server that takes output once it is told to."""

    def __init__(self) -> None:
        self.takes_output = False
        self.heard: list[str] = []
        self.beaten = asyncio.Event()
        self.orders: asyncio.Queue[Order] = asyncio.Queue()
        self.reported: list[str] = []
        self.unanswered_reports = 0
        self.answered = asyncio.Event()

    async def register(self, hello: Hello) -> Welcome:
        return Welcome("w_1", lease_seconds=30, store_now=1)

    async def beat(self, beat: Beat) -> BeatAnswer:
        self.beaten.set()
        return BeatAnswer(alive=True, store_now=1)

    async def start(self, starts: Sequence[Start]) -> StartAnswer:
        raise AssertionError("nothing is to start")

    async def report(self, outcomes: Sequence[Outcome]) -> ReportAnswer:
        self.reported += [outcome.result for outcome in outcomes]
        if self.unanswered_reports:
            self.unanswered_reports -= 1
            return ReportAnswer()
        self.answered.set()
        return ReportAnswer(accepted=tuple(Fence(o.run, o.attempt) for o in outcomes))

    async def output(self, chunks: Sequence[OutputChunk]) -> ReportAnswer:
        if not self.takes_output:
            self.heard.append("refused output")
            raise Unavailable("the blob store is away")
        self.heard.append("output")
        return ReportAnswer(accepted=(FIRST,))

    async def progress(self, items: Sequence[Progress]) -> None: ...

    async def receive(self) -> Order:
        return await self.orders.get()

    async def leave(self) -> None:
        self.heard.append("left")

    async def close(self) -> None: ...


class Worker:
    """A worker with output that nobody has taken yet."""

    def __init__(self, folder: Path, **config: timedelta) -> None:
        self.link = Link()
        self.connections = 0
        self.spool = OutputSpool(folder)
        self.spool.open()
        self.spool.outbox(FIRST).add(chunks(3))
        self.executor = Recorder()
        attempts = Attempts(SystemClock(), self.spool)
        attempts.serve_with({JobType.SHELL: self.executor})
        self.session = WorkerSession(
            self._connect,
            attempts,
            Hello("worker", "default", 1),
            NoGuard(),
            SystemClock(),
            SessionConfig(**config),
        )

    async def _connect(self) -> Link:
        self.connections += 1
        return self.link

    async def run(self) -> None:
        pause = timedelta(milliseconds=5)
        deliverer = OutputDeliverer(self.spool, self._send, DeliveryPacing(pause, pause))
        async with asyncio.TaskGroup() as group:
            delivering = group.create_task(deliverer.run())
            await self.session.run()
            delivering.cancel()

    async def _send(self, sent: Sequence[OutputChunk]) -> ReportAnswer:
        return await self.session.link.output(sent)


async def test_output_is_delivered_before_the_worker_leaves(tmp_path: Path) -> None:
    worker = Worker(tmp_path / "spool", stop_grace=timedelta(seconds=30))
    running = asyncio.ensure_future(worker.run())
    await worker.link.beaten.wait()

    worker.session.stop()
    await asyncio.wait([running], timeout=0.1)
    assert "left" not in worker.link.heard
    worker.link.takes_output = True
    await asyncio.wait_for(running, 10)

    assert worker.link.heard[-2:] == ["output", "left"]


async def test_after_its_grace_a_worker_leaves_without_its_output(tmp_path: Path) -> None:
    worker = Worker(tmp_path / "spool", stop_grace=timedelta(milliseconds=100))
    running = asyncio.ensure_future(worker.run())
    await worker.link.beaten.wait()

    worker.session.stop()
    await asyncio.wait_for(running, 10)

    assert worker.link.heard[-1] == "left"
    assert worker.spool.is_empty


@pytest.mark.parametrize("delivery", ["at_least_once", "at_most_once"])
async def test_work_that_comes_after_the_stop_is_given_back_unbegun(
    tmp_path: Path, delivery: str
) -> None:
    worker = Worker(tmp_path / "spool", stop_grace=timedelta(seconds=30))
    running = asyncio.ensure_future(worker.run())
    await worker.link.beaten.wait()

    worker.session.stop()
    worker.link.orders.put_nowait(dispatch(delivery))
    await asyncio.wait([running], timeout=0.1)
    worker.link.takes_output = True
    await asyncio.wait_for(running, 10)

    assert not worker.executor.started
    assert worker.link.reported == ["INTERRUPTED"]
