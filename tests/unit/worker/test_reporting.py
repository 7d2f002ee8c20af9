"""A worker reports how attempts ended until it has an answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from pathlib import Path

import pytest

from rota.domain.errors import NotFound, RotaError, Unavailable
from rota.ports.work import (
    Dispatch,
    Order,
    Outcome,
    Progress,
    Refused,
    Report,
    ReportAnswer,
    Work,
    WorkBatch,
)
from tests.unit.worker.test_attempts import FENCE, dispatch
from tests.unit.worker.test_stopping import Link, Worker, until

pytestmark = pytest.mark.anyio


async def test_an_end_that_a_server_could_not_take_is_reported_again_without_reconnecting(
    tmp_path: Path,
) -> None:
    worker = Worker(tmp_path / "spool", report_again=timedelta(milliseconds=10))
    worker.link.takes_output = True
    worker.link.unanswered_reports = 2
    unreadable = Work("r_1", 1, "j_of_a_later_version", 1, due_at=0)
    running = asyncio.ensure_future(worker.run())

    worker.link.orders.put_nowait(Dispatch(WorkBatch.of([unreadable]), ()))
    await asyncio.wait_for(worker.link.answered.wait(), 10)
    worker.session.stop()
    await asyncio.wait_for(running, 10)

    assert worker.link.reported == ["FAILED"] * 3
    assert worker.connections == 1


class BusyLink(Link):
    """A server that answers some reports with errors, and every progress."""

    def __init__(self, *errors: RotaError) -> None:
        super().__init__()
        self.takes_output = True
        self.errors = list(errors)
        self.outcomes: list[Outcome] = []

    async def report(self, report: Report) -> ReportAnswer:
        if self.errors:
            raise self.errors.pop(0)
        self.outcomes += report.outcomes
        return await super().report(report)

    async def progress(self, items: Sequence[Progress]) -> None:
        raise Refused("the store is busy")


async def end_one(worker: Worker, link: BusyLink) -> Outcome:
    """Let an attempt that has a result and made progress end; return what arrives of it."""
    worker.link = link
    running = asyncio.ensure_future(worker.run())
    link.orders.put_nowait(dispatch("at_least_once"))
    await until(lambda: worker.executor.started == [FENCE])
    worker.attempts.progressed(FENCE, 1, None, "half")
    worker.attempts.ended(
        [Outcome(FENCE.run, FENCE.number, "COMPLETED", 1, 2, outputs={"answer": 42})]
    )
    await until(lambda: bool(link.outcomes))
    worker.session.stop()
    await asyncio.wait_for(running, 10)
    return link.outcomes[0]


async def test_a_report_that_a_living_server_refuses_is_put_off_and_loses_nothing(
    tmp_path: Path,
) -> None:
    worker = Worker(tmp_path / "spool", report_again=timedelta(milliseconds=1))

    told = await end_one(worker, BusyLink(*[Refused("the store is busy")] * 5))

    assert (told.outputs, told.message) == ({"answer": 42}, "")
    assert worker.connections == 1


async def test_a_session_that_is_gone_still_ends_the_connection(tmp_path: Path) -> None:
    worker = Worker(tmp_path / "spool", reconnect_delay=timedelta(milliseconds=1))

    told = await end_one(worker, BusyLink(*[NotFound("no such session")] * 5))

    assert told.outputs == {"answer": 42}
    assert worker.connections == 6


class SlowLink(Link):
    """A server that takes its time to answer reports."""

    def __init__(self) -> None:
        super().__init__()
        self.takes_output = True
        self.sizes: asyncio.Queue[int] = asyncio.Queue()  # of reports, as they come
        self.may_answer = asyncio.Event()
        self.is_idle = asyncio.Event()
        self.breaks = False

    async def report(self, report: Report) -> ReportAnswer:
        self.sizes.put_nowait(len(report))
        if self.breaks:
            raise Unavailable("the connection broke")
        await self.may_answer.wait()
        return await super().report(report)

    async def receive(self) -> Order:
        if self.orders.empty():
            self.is_idle.set()
        return await super().receive()

    async def send(self, *runs: str) -> None:
        """Give it runs that end at once, and wait until it has them."""
        works = WorkBatch.of(Work(run, 1, "j_of_a_later_version", 1, due_at=0) for run in runs)
        self.is_idle.clear()
        self.orders.put_nowait(Dispatch(works, ()))
        await self.is_idle.wait()


@pytest.fixture
async def link(tmp_path: Path) -> AsyncIterator[SlowLink]:
    worker = Worker(tmp_path / "spool", reconnect_delay=timedelta(milliseconds=1))
    worker.link = link = SlowLink()
    running = asyncio.ensure_future(worker.run())
    async with asyncio.timeout(10):
        await link.beaten.wait()
        yield link
        link.may_answer.set()
        worker.session.stop()
        await running


async def test_the_next_report_does_not_wait_for_the_answer_to_one_that_is_no_larger(
    link: SlowLink,
) -> None:
    await link.send("r_1", "r_2")
    assert await link.sizes.get() == 2

    await link.send("r_3")
    await link.send("r_4")

    assert await link.sizes.get() == 2


async def test_what_was_on_its_way_when_the_connection_broke_is_reported_by_the_next(
    link: SlowLink,
) -> None:
    link.breaks = True
    await link.send("r_1", "r_2")
    assert await link.sizes.get() == 2

    link.breaks = False

    assert await link.sizes.get() == 2
