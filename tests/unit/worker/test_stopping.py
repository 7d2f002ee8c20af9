"""A worker that stops delivers what it can, then leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path

import pytest

from rota.clock import SystemClock
from rota.domain.errors import NotFound, Unavailable
from rota.domain.run import AttemptResult
from rota.domain.spec import JobType
from rota.ports.clock import Clock
from rota.ports.files import BlobPiece, BlobRead, BlobWritten, SourceCommit
from rota.ports.work import (
    Beat,
    BeatAnswer,
    Credential,
    Dispatch,
    Hello,
    Order,
    OutputChunk,
    Progress,
    Refused,
    RemoteHandle,
    Report,
    ReportAnswer,
    Start,
    StartAnswer,
    StepNote,
    Welcome,
    WorkBatch,
)
from rota.worker.attempts import Attempts
from rota.worker.session import SessionConfig, WorkerSession
from rota.worker.spool import DeliveryPacing, OutputDeliverer, OutputSpool
from testkit.builders import outcome
from testkit.guards import NoGuard
from tests.unit.worker.test_attempts import FENCE, Recorder, dispatch
from tests.unit.worker.test_spool import FIRST, chunks

pytestmark = pytest.mark.anyio


class Link:
    """A server that takes output once it is told to."""

    def __init__(self) -> None:
        self.takes_output = False
        self.heard: list[str] = []
        self.beaten = asyncio.Event()
        self.orders: asyncio.Queue[Order | Unavailable] = asyncio.Queue()
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

    async def report(self, report: Report) -> ReportAnswer:
        self.reported += ["COMPLETED"] * len(report.ends)
        self.reported += [outcome.result for outcome in report.outcomes]
        if self.unanswered_reports:
            self.unanswered_reports -= 1
            return ReportAnswer(again=tuple(report.fences()))
        self.answered.set()
        return ReportAnswer()

    async def output(self, chunks: Sequence[OutputChunk]) -> ReportAnswer:
        if not self.takes_output:
            self.heard.append("refused output")
            raise Unavailable("the blob store is away")
        self.heard.append("output")
        return ReportAnswer()

    async def progress(self, items: Sequence[Progress]) -> None: ...

    async def note(self, items: Sequence[StepNote]) -> None: ...

    async def read_blob(self, wish: BlobRead) -> BlobPiece:
        raise Refused("no files here")

    async def commits(self, items: Sequence[SourceCommit]) -> ReportAnswer:
        raise AssertionError("nothing is fetched here")

    async def write_blob(self, piece: BlobPiece) -> BlobWritten:
        raise Refused("no files here")

    async def keep_handles(self, items: Sequence[RemoteHandle]) -> ReportAnswer:
        raise AssertionError("there is nothing to keep")

    async def receive(self) -> Order:
        order = await self.orders.get()
        if isinstance(order, Unavailable):
            raise order
        return order

    async def leave(self) -> None:
        self.heard.append("left")

    async def renew_credential(self) -> Credential:
        raise AssertionError("nothing is to be renewed")

    async def close(self) -> None: ...


async def until(claim: Callable[[], bool]) -> None:
    """Wait for something that other tasks bring about."""
    async with asyncio.timeout(10):
        while not claim():
            await SystemClock().sleep(timedelta(milliseconds=1))


class Worker:
    """A worker with output that nobody has taken yet."""

    def __init__(self, folder: Path, clock: Clock | None = None, **config: timedelta) -> None:
        self.link = Link()
        self.connections = 0
        self.spool = OutputSpool(folder)
        self.spool.open()
        self.spool.outbox(FIRST).add(chunks(3))
        self.executor = Recorder()
        self.attempts = Attempts(SystemClock(), self.spool)
        self.attempts.serve_with({JobType.SHELL: self.executor})
        self.session = WorkerSession(
            self._connect,
            self.attempts,
            Hello("worker", "default", 1),
            NoGuard(),
            clock or SystemClock(),
            SessionConfig(**config),
        )

    async def _connect(self) -> Link:
        self.connections += 1
        return self.link

    async def run(self) -> None:
        pause = timedelta(milliseconds=5)
        deliverer = OutputDeliverer(
            self.spool,
            self.session.send_output,
            DeliveryPacing(pause, pause),
            connection=lambda: self.session.connection,
        )
        async with asyncio.TaskGroup() as group:
            delivering = group.create_task(deliverer.run())
            await self.session.run()
            delivering.cancel()


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


class LeavingLink(Link):
    """Sends more work while the worker leaves, and has forgotten its session by then."""

    async def report(self, report: Report) -> ReportAnswer:
        if "leaving" in self.heard:
            raise NotFound("no such session")
        return await super().report(report)

    async def leave(self) -> None:
        self.heard.append("leaving")
        self.orders.put_nowait(dispatch("at_least_once"))
        await asyncio.wait([asyncio.ensure_future(self.answered.wait())], timeout=0.1)
        self.heard.append("left")


async def test_work_that_comes_while_the_worker_leaves_does_not_disturb_it(tmp_path: Path) -> None:
    worker = Worker(tmp_path / "spool", stop_grace=timedelta(seconds=30))
    worker.link = LeavingLink()
    worker.link.takes_output = True
    running = asyncio.ensure_future(worker.run())
    await worker.link.beaten.wait()

    worker.session.stop()
    await asyncio.wait_for(running, 10)

    assert worker.link.heard[-2:] == ["leaving", "left"]
    assert worker.connections == 1
    assert not worker.attempts.held


async def test_an_attempt_that_outlives_its_grace_twice_was_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = Worker(
        tmp_path / "spool",
        stop_grace=timedelta(milliseconds=20),
        reconnect_delay=timedelta(milliseconds=1),
    )
    interrupts: list[None] = []
    interrupt = worker.attempts.interrupt

    def counted() -> None:
        interrupts.append(None)
        interrupt()

    monkeypatch.setattr(worker.attempts, "interrupt", counted)
    link = worker.link
    link.takes_output = True
    running = asyncio.ensure_future(worker.run())
    async with asyncio.timeout(10):
        await link.beaten.wait()
        link.orders.put_nowait(dispatch("at_least_once"))
        await until(lambda: worker.executor.started == [FENCE])
        worker.session.stop()
        await until(lambda: len(interrupts) == 1)
        link.orders.put_nowait(Dispatch(WorkBatch(), first=7))  # a broken stream: it reconnects
        await until(lambda: len(interrupts) == 2)

        worker.attempts.ended([outcome(FENCE, AttemptResult.CANCELLED)])
        await running

    assert link.reported == ["INTERRUPTED"]


async def test_a_link_that_breaks_again_and_again_does_not_lengthen_the_grace_of_a_stop(
    tmp_path: Path,
) -> None:
    worker = Worker(
        tmp_path / "spool",
        stop_grace=timedelta(milliseconds=200),
        reconnect_delay=timedelta(milliseconds=1),
    )
    running = asyncio.create_task(worker.run())
    await worker.link.beaten.wait()

    worker.session.stop()
    async with asyncio.timeout(10):
        while "left" not in worker.link.heard:
            worker.link.orders.put_nowait(Unavailable("cut"))
            await SystemClock().sleep(timedelta(milliseconds=50))

    await running
