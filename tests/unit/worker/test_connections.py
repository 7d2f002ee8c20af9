"""What a worker does over connections that break, move and answer in part."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from rota.clock import SystemClock
from rota.domain.errors import Unavailable
from rota.domain.spec import JobType
from rota.ports.executor import Completions, JobBatch
from rota.ports.work import (
    Cancel,
    Dispatch,
    Fence,
    Hello,
    Move,
    Order,
    Outcome,
    OutputChunk,
    Progress,
    Refused,
    Report,
    ReportAnswer,
    Start,
    StartAnswer,
    Welcome,
)
from rota.worker.session import AT_ONCE, SessionConfig
from tests.unit.worker.test_attempts import FENCE, Recorder, dispatch, fences
from tests.unit.worker.test_spool import large_chunks
from tests.unit.worker.test_stopping import Link, Worker, until

pytestmark = pytest.mark.anyio

SOON = timedelta(milliseconds=1)
NEVER = timedelta(hours=1)


@asynccontextmanager
async def running(worker: Worker) -> AsyncIterator[None]:
    """Let the worker run; at the end it stops, and every error of its tasks is known."""
    odd: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: odd.append(context))
    task = asyncio.ensure_future(worker.run())
    async with asyncio.timeout(20):
        await worker.link.beaten.wait()
        yield
        worker.session.stop()
        await task
    assert odd == []


class PermitLink(Link):
    """Answers requests for permits with what it was given, one after another."""

    def __init__(self, *answers: StartAnswer) -> None:
        super().__init__()
        self.takes_output = True
        self.asked: list[list[Fence]] = []
        self._answers = list(answers)

    async def start(self, starts: Sequence[Start]) -> StartAnswer:
        self.asked.append([start.fence for start in starts])
        return self._answers.pop(0)


async def test_only_what_a_permit_names_begins_and_the_rest_is_asked_for_again(
    tmp_path: Path,
) -> None:
    first, second, third = fences(3)
    foreign = Fence("r_foreign", 1)
    worker = Worker(tmp_path / "spool", report_again=SOON)
    worker.link = link = PermitLink(
        StartAnswer(granted=(second, foreign), refused=(foreign,)),
        StartAnswer(),
        StartAnswer(granted=(first,), cancelled=(third,)),
    )

    async with running(worker):
        link.orders.put_nowait(dispatch("at_most_once", first, second, third))
        await until(lambda: link.reported == ["CANCELLED"])
        begun = list(worker.executor.started)
        worker.attempts.completed(Completions([first, second], [1, 1], [2, 2], [0, 0]))

    assert begun == [second, first]
    assert link.asked == [[first, second, third], [first, third], [first, third]]


class MovingLink(Link):
    """Each connection is a stream of its own; sessions are resumed."""

    def __init__(self) -> None:
        super().__init__()
        self.takes_output = True
        self.resumed: list[str] = []

    async def register(self, hello: Hello) -> Welcome:
        self.resumed.append(hello.resumes)
        return await super().register(hello)


async def test_a_worker_that_is_sent_away_goes_at_once_and_its_attempts_go_on(
    tmp_path: Path,
) -> None:
    worker = Worker(tmp_path / "spool", reconnect_delay=NEVER)
    worker.link = link = MovingLink()

    async with running(worker):
        link.orders.put_nowait(dispatch("at_least_once"))
        await until(lambda: worker.executor.started == [FENCE])
        link.orders.put_nowait(Move())
        await until(lambda: worker.connections == 2)
        link.orders.put_nowait(Cancel((FENCE,)))
        await until(lambda: worker.executor.cancelled == [FENCE])
        worker.attempts.completed(Completions([FENCE], [1], [2], [0]))

    assert link.resumed == ["", "w_1"]
    assert link.reported == ["COMPLETED"]


class PausingClock(SystemClock):
    """Takes no time for the pauses between connections, and notes them."""

    def __init__(self) -> None:
        self.pauses: list[timedelta] = []

    async def sleep(self, duration: timedelta) -> None:
        is_tick = duration == SessionConfig().tick
        if not is_tick:
            self.pauses.append(duration)
        await super().sleep(duration if is_tick else SOON)


async def test_a_worker_that_is_sent_round_in_circles_slows_down(tmp_path: Path) -> None:
    clock = PausingClock()
    worker = Worker(tmp_path / "spool", clock, reconnect_delay=timedelta(seconds=2))
    worker.link = link = MovingLink()

    async with running(worker):
        for connections in (2, 3):
            link.orders.put_nowait(Move())
            await until(lambda wanted=connections: worker.connections == wanted)  # type: ignore[misc]
        at_once, later = clock.pauses

    assert at_once <= AT_ONCE
    assert timedelta(seconds=1) <= later


class CutLink(Link):
    """Cut after every megabyte that it carried, with everything that is on its way."""

    LIMIT = 1_000_000

    def __init__(self) -> None:
        super().__init__()
        self.takes_output = True
        self.carried = 0
        self.cuts = 0
        self.received: list[OutputChunk] = []
        self.runs: list[str] = []
        self._cut = asyncio.Event()

    async def register(self, hello: Hello) -> Welcome:
        self.carried = 0
        self._cut = asyncio.Event()
        return await super().register(hello)

    async def _carry(self, size: int) -> None:
        self.carried += size
        if self.carried > self.LIMIT:
            self.cuts += not self._cut.is_set()
            self._cut.set()
            raise Unavailable("the connection was cut")
        await SystemClock().sleep(SOON)

    async def output(self, chunks: Sequence[OutputChunk]) -> ReportAnswer:
        await self._carry(sum(len(chunk.data) for chunk in chunks))
        self.received += chunks
        return await super().output(chunks)

    async def report(self, report: Report) -> ReportAnswer:
        await self._carry(100 * len(report))
        self.runs += [fence.run for fence in report.fences()]
        return await super().report(report)

    async def receive(self) -> Order:
        cut = asyncio.ensure_future(self._cut.wait())
        order = asyncio.ensure_future(self.orders.get())
        try:
            await asyncio.wait({cut, order}, return_when=asyncio.FIRST_COMPLETED)
            if order.done() and not isinstance(found := order.result(), Unavailable):
                return found
        finally:
            cut.cancel()
            order.cancel()
        raise Unavailable("the connection was cut")


class PrintingExecutor(Recorder):
    """Each attempt has printed half a megabyte, and is over at once."""

    worker: Worker

    def start(self, batches: Sequence[JobBatch]) -> None:
        super().start(batches)
        for batch in batches:
            for fence in batch.fences:
                self.worker.spool.outbox(fence).add(large_chunks(2))
            count = len(batch)
            columns = [1] * count, [2] * count, [0] * count
            self.worker.attempts.completed(Completions(list(batch.fences), *columns))


async def test_a_link_that_is_cut_twenty_times_repeats_no_run_and_idles_no_slot(
    tmp_path: Path,
) -> None:
    worker = Worker(tmp_path / "spool", reconnect_delay=NEVER)
    worker.executor = executor = PrintingExecutor()
    executor.worker = worker
    worker.attempts.serve_with({JobType.SHELL: executor})
    worker.link = link = CutLink()
    wanted = [Fence(f"r_of_{number}", 1) for number in range(45)]
    longest = 0.0

    async with running(worker):
        for fence in wanted:
            before = SystemClock().monotonic()
            link.orders.put_nowait(dispatch("at_least_once", fence))
            await until(lambda fence=fence: fence.run in link.runs)  # type: ignore[misc]
            longest = max(longest, SystemClock().monotonic() - before)
        await until(lambda: worker.spool.is_empty)

    assert link.cuts >= 20
    assert executor.started == wanted
    assert sorted(link.runs) == sorted(fence.run for fence in wanted)
    delivered = [(chunk.fence, chunk.meta.number) for chunk in link.received]
    assert len(delivered) == len(set(delivered))
    assert {each for each in delivered if each[0] in wanted} == {
        (fence, number) for fence in wanted for number in range(2)
    }
    assert longest < 1


async def test_trouble_with_output_is_told_with_the_next_beat(tmp_path: Path) -> None:
    worker = Worker(tmp_path / "spool")
    async with running(worker):
        await until(lambda: bool(worker.spool.trouble))

        assert "the blob store is away" in worker.attempts.beat(stream=1).trouble
        worker.link.takes_output = True
        await until(lambda: worker.spool.is_empty)
        assert worker.attempts.beat(stream=1).trouble == ""


async def test_output_waits_for_ends_that_were_on_their_way_when_the_link_broke(
    tmp_path: Path,
) -> None:
    worker = Worker(tmp_path / "spool")
    worker.attempts.accept(dispatch("at_least_once"))
    worker.attempts.completed(Completions([FENCE], [1], [2], [0]))
    assert worker.attempts.next_report() is not None
    worker.link = link = HoldingLink()

    async with running(worker):
        await link.has_report.wait()
        before = list(link.heard)
        link.may_answer.set()
        await until(lambda: "output" in link.heard)

    assert before == []


async def test_an_end_that_is_suspected_waits_for_output_that_is_under_way(
    tmp_path: Path,
) -> None:
    worker = Worker(tmp_path / "spool")
    worker.attempts.accept(dispatch("at_least_once"))
    worker.link = link = SlowOutputLink()

    async with running(worker):
        await link.has_output.wait()
        worker.attempts.completed(Completions([FENCE], [1], [2], [0]))
        assert worker.attempts.next_report() is not None
        worker.attempts.begin_stream()
        worker.attempts.progressed(FENCE, 1, None, "told with a report or by the next tick")
        await until(lambda: link.has_progress)
        before = list(link.reported)
        link.may_answer.set()
        await until(lambda: bool(link.reported))

    assert before == []


class SlowOutputLink(Link):
    """Answers no output until it may."""

    def __init__(self) -> None:
        super().__init__()
        self.takes_output = True
        self.has_output = asyncio.Event()
        self.may_answer = asyncio.Event()
        self.has_progress = False

    async def progress(self, items: Sequence[Progress]) -> None:
        self.has_progress = True

    async def output(self, chunks: Sequence[OutputChunk]) -> ReportAnswer:
        self.has_output.set()
        await self.may_answer.wait()
        return await super().output(chunks)


class PoisonedLink(Link):
    """Breaks at every report with a certain run, without an answer."""

    def __init__(self) -> None:
        super().__init__()
        self.takes_output = True
        self.runs: list[str] = []
        self.breaks = 0

    async def report(self, report: Report) -> ReportAnswer:
        runs = [fence.run for fence in report.fences()]
        if POISON.run in runs and self.breaks < 6:
            self.breaks += 1
            raise Unavailable("the connection broke")
        self.runs += runs
        return await super().report(report)


POISON = Fence("r_bad", 1)


async def test_an_end_that_breaks_every_link_keeps_neither_ends_nor_output_from_it(
    tmp_path: Path,
) -> None:
    others = [Fence(f"r_of_{number}", 1) for number in range(3)]
    worker = Worker(tmp_path / "spool", reconnect_delay=SOON, report_again=SOON)
    worker.link = link = PoisonedLink()

    async with running(worker):
        link.orders.put_nowait(dispatch("at_least_once", POISON, *others))
        await until(lambda: len(worker.executor.started) == 4)
        fences = [POISON, *others]
        worker.attempts.completed(Completions(fences, [1] * 4, [2] * 4, [0] * 4))
        await until(lambda: len(link.runs) == 3 and worker.spool.is_empty)
        breaks = link.breaks
        link.breaks = 6  # a server that can take it
        await until(lambda: len(link.runs) == 4)

    assert breaks <= 5
    assert link.runs[-1] == POISON.run


class RefusingStartsLink(Link):
    """Refuses to note that attempts began, as long as a report is under way."""

    def __init__(self) -> None:
        super().__init__()
        self.takes_output = True
        self.refusals = 0
        self.has_report = False
        self.outcomes: list[Outcome] = []

    async def start(self, starts: Sequence[Start]) -> StartAnswer:
        if not self.has_report or self.refusals == 8:
            return StartAnswer()
        self.refusals += 1
        self.has_report = False
        raise Refused("the store is busy")

    async def report(self, report: Report) -> ReportAnswer:
        self.has_report = True
        await until(lambda: self.refusals == 8)
        self.outcomes += report.outcomes
        return await super().report(report)


async def test_an_end_is_not_blamed_for_a_connection_that_ended_after_an_answer(
    tmp_path: Path,
) -> None:
    ended, going = fences(2)
    worker = Worker(
        tmp_path / "spool", reconnect_delay=SOON, announce_after=timedelta(0), tick=SOON
    )
    worker.link = link = RefusingStartsLink()

    async with running(worker):
        link.orders.put_nowait(dispatch("at_least_once", ended, going))
        await until(lambda: len(worker.executor.started) == 2)
        worker.attempts.ended([Outcome(ended.run, 1, "COMPLETED", 1, 2, outputs=[1])])
        await until(lambda: bool(link.outcomes))
        worker.attempts.completed(Completions([going], [1], [2], [0]))

    assert worker.connections == 9
    assert link.outcomes[0].outputs == [1]


async def test_connections_that_are_of_no_use_follow_one_another_ever_slower(
    tmp_path: Path,
) -> None:
    clock = PausingClock()
    worker = Worker(tmp_path / "spool", clock, reconnect_delay=timedelta(seconds=1))
    worker.attempts.accept(dispatch("at_least_once"))
    worker.attempts.completed(Completions([FENCE], [1], [2], [0]))
    worker.link = link = PoisonedLink()
    link.breaks = 6
    link.takes_output = False

    async with running(worker):
        await until(lambda: bool(link.runs))
        clock.pauses.clear()
        for connections in (2, 3, 4):
            link.orders.put_nowait(Unavailable("the connection broke"))
            await until(lambda wanted=connections: worker.connections == wanted)  # type: ignore[misc]
        first, second, third = clock.pauses[:3]
        link.takes_output = True

    assert first <= AT_ONCE
    assert timedelta(milliseconds=500) <= second <= timedelta(seconds=1) <= third


class HoldingLink(Link):
    """Answers no report until it may."""

    def __init__(self) -> None:
        super().__init__()
        self.takes_output = True
        self.has_report = asyncio.Event()
        self.may_answer = asyncio.Event()

    async def report(self, report: Report) -> ReportAnswer:
        self.has_report.set()
        await self.may_answer.wait()
        return await super().report(report)


async def test_a_broken_dispatch_is_answered_with_a_new_connection(tmp_path: Path) -> None:
    worker = Worker(tmp_path / "spool", reconnect_delay=SOON)
    worker.link.takes_output = True

    async with running(worker):
        sound = dispatch("at_least_once")
        worker.link.orders.put_nowait(Dispatch(sound.batch, sound.specs, first=2))
        await until(lambda: worker.connections == 2)

    assert not worker.executor.started
