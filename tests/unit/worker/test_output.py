from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from rota.domain.errors import Unavailable
from rota.domain.output import PACKED_LIMIT, Stream, to_raw, unpack
from rota.ports.work import Fence, OutputChunk, ReportAnswer
from rota.worker.output import AttemptOutput, FinishedOutput, OutputTimes
from rota.worker.spool import OutputDeliverer, OutputSpool

pytestmark = pytest.mark.anyio

FENCE = Fence("r_1", 1)
LINE = b"a line of text\n"
BIG = random.Random(1).randbytes(600_000)  # more than a chunk, and does not compress


@dataclass
class Server:
    """Takes chunks, unless told otherwise."""

    messages: list[Sequence[OutputChunk]] = field(default_factory=list)
    is_away: bool = False
    refuses: bool = False

    async def take(self, chunks: Sequence[OutputChunk]) -> ReportAnswer:
        if self.is_away:
            raise Unavailable("away")
        self.messages.append(chunks)
        return ReportAnswer(refused=(FENCE,) if self.refuses else ())

    @property
    def chunks(self) -> list[OutputChunk]:
        return [chunk for message in self.messages for chunk in message]

    @property
    def text(self) -> bytes:
        return b"".join(to_raw(unpack(chunk.data)) for chunk in self.chunks)


class Attempt:
    """An attempt that prints, on a clock that moves when told."""

    def __init__(self, folder: Path, log_limit: int = 1 << 40, *, may_ride: bool = True) -> None:
        self.now = 100.0
        self.server = Server()
        self.spool = OutputSpool(folder)
        self.spool.open()
        self._deliverer = OutputDeliverer(self.spool, self.server.take)
        times = OutputTimes(lambda: self.now, lambda: int(self.now * 1000))
        self.output = AttemptOutput(log_limit, times, self.spool.outbox(FENCE), may_ride=may_ride)

    def prints(self, data: bytes, step: int = 0) -> None:
        self.output.feed(Stream.STDOUT, step, data)

    async def after(self, seconds: float) -> bytes:
        """What has arrived when so much time has passed."""
        self.now += seconds
        self.output.post_due()
        await self.deliver()
        return self.server.text

    async def deliver(self) -> None:
        """Everything, or nothing if the server is away."""
        while await self._deliverer.run_once():
            pass

    async def ends(self) -> FinishedOutput:
        finished = self.output.finish()
        await self.deliver()
        return finished


@pytest.fixture
def attempt(tmp_path: Path) -> Attempt:
    return Attempt(tmp_path / "spool")


async def test_nothing_printed_is_nothing_due(attempt: Attempt) -> None:
    assert attempt.output.due_at is None


async def test_small_output_waits_its_time(attempt: Attempt) -> None:
    attempt.prints(LINE)

    assert attempt.output.due_at == 110.0
    assert await attempt.after(9.9) == b""
    assert await attempt.after(0.1) == LINE
    assert attempt.output.due_at is None


async def test_the_wait_counts_from_the_first_unsent_byte(attempt: Attempt) -> None:
    attempt.prints(LINE)
    attempt.now += 6
    attempt.prints(LINE)

    assert await attempt.after(4) == LINE + LINE


async def test_watched_output_is_sent_within_half_a_second(attempt: Attempt) -> None:
    attempt.prints(b"Continue? ")

    attempt.output.set_watched(True)

    assert attempt.output.due_at == 100.5
    assert await attempt.after(0.5) == b"Continue? "


async def test_a_full_chunk_is_sent_at_once_and_the_rest_waits(attempt: Attempt) -> None:
    attempt.prints(BIG + b"\n" + LINE)

    arrived = await attempt.after(0)

    assert 0 < len(arrived) < len(BIG)
    assert BIG.startswith(arrived)
    assert await attempt.after(10) == BIG + b"\n" + LINE


async def test_times_are_the_stores(attempt: Attempt) -> None:
    attempt.prints(LINE)
    attempt.now = 103.0
    attempt.prints(LINE)
    await attempt.after(20)

    [chunk] = attempt.server.chunks

    assert (chunk.meta.first_at, chunk.meta.last_at) == (100_000, 103_000)
    assert chunk.fence == FENCE


async def test_an_outage_loses_and_doubles_nothing(attempt: Attempt) -> None:
    attempt.server.is_away = True
    attempt.prints(LINE)
    assert await attempt.after(10) == b""
    attempt.prints(BIG)
    assert await attempt.after(10) == b""

    attempt.server.is_away = False
    finished = await attempt.ends()

    assert attempt.server.text == LINE + BIG
    numbers = [chunk.meta.number for chunk in attempt.server.chunks]
    assert numbers == list(range(len(numbers)))
    assert (finished.inline, finished.totals.bytes) == (b"", len(LINE + BIG))


async def test_messages_stay_small(attempt: Attempt) -> None:
    for _ in range(10):
        attempt.prints(BIG)

    await attempt.ends()

    assert len(attempt.server.messages) > 1
    assert max(len(message) for message in attempt.server.messages) <= 16
    sizes = [sum(len(chunk.data) for chunk in message) for message in attempt.server.messages]
    assert max(sizes) <= PACKED_LIMIT


async def test_a_job_that_prints_faster_than_is_taken_is_held_back(attempt: Attempt) -> None:
    while not attempt.output.is_full:
        attempt.prints(BIG)
    resumed = asyncio.ensure_future(attempt.output.drained())
    await asyncio.wait([resumed], timeout=0.01)
    assert not resumed.done()

    await attempt.deliver()
    await resumed

    assert not attempt.output.is_full


async def test_a_job_is_not_held_back_while_nobody_takes_its_output(attempt: Attempt) -> None:
    while not attempt.output.is_full:
        attempt.prints(BIG)
    resumed = asyncio.ensure_future(attempt.output.drained())

    attempt.server.is_away = True
    await attempt.deliver()
    await resumed
    for _ in range(20):
        attempt.prints(BIG)

    assert not attempt.output.is_full


async def test_a_reader_with_room_need_not_wait(attempt: Attempt) -> None:
    attempt.prints(LINE)

    await asyncio.wait_for(attempt.output.drained(), timeout=1)


async def test_small_output_rides_in_the_report(attempt: Attempt) -> None:
    attempt.prints(LINE)
    attempt.prints(b"the end")

    finished = await attempt.ends()

    assert to_raw(finished.inline) == LINE + b"the end"
    assert (finished.totals.lines, finished.totals.truncated) == (2, False)
    assert attempt.server.messages == []


async def test_what_began_as_chunks_ends_as_chunks(attempt: Attempt) -> None:
    attempt.prints(LINE)
    await attempt.after(10)
    attempt.prints(b"the end")

    finished = await attempt.ends()

    assert finished.inline == b""
    assert attempt.server.text == LINE + b"the end"


async def test_the_end_is_settled_once_everything_has_arrived(attempt: Attempt) -> None:
    attempt.prints(BIG)
    attempt.output.finish()
    settled = asyncio.ensure_future(attempt.output.settled())
    await asyncio.wait([settled], timeout=0.01)
    assert not settled.done()

    await attempt.deliver()

    await settled


async def test_the_end_does_not_wait_for_a_server_that_is_away(attempt: Attempt) -> None:
    attempt.server.is_away = True
    attempt.prints(BIG)
    await attempt.after(10)

    attempt.output.finish()

    await asyncio.wait_for(attempt.output.settled(), timeout=1)
    assert attempt.server.messages == []


async def test_a_refused_attempt_sends_and_keeps_nothing_more(attempt: Attempt) -> None:
    attempt.server.refuses = True
    attempt.prints(BIG)
    await attempt.after(10)
    assert attempt.spool.is_empty

    for _ in range(20):
        attempt.prints(BIG)
    await attempt.after(10)
    finished = await attempt.ends()

    assert len(attempt.server.messages) == 1
    assert finished.inline == b""
    assert attempt.output.due_at is None
    assert not attempt.output.is_full


async def test_refusal_lets_a_held_back_reader_go_on(attempt: Attempt) -> None:
    while not attempt.output.is_full:
        attempt.prints(BIG)
    attempt.server.refuses = True

    await attempt.deliver()

    await asyncio.wait_for(attempt.output.drained(), timeout=1)


async def test_the_limit_of_the_job_cuts_its_output(tmp_path: Path) -> None:
    attempt = Attempt(tmp_path / "spool", log_limit=4)
    attempt.prints(LINE)
    attempt.output.remark("stopped after 3s")

    finished = await attempt.ends()

    assert finished.totals.truncated
    assert to_raw(finished.inline).startswith(b"a li\noutput cut here: log_limit 4B reached\n")
    assert b"stopped after 3s\n" in to_raw(finished.inline)


async def test_where_all_output_goes_to_the_blob_store_a_line_is_a_chunk(tmp_path: Path) -> None:
    attempt = Attempt(tmp_path / "spool", may_ride=False)
    attempt.prints(LINE)

    finished = attempt.output.finish()
    await attempt.deliver()

    assert finished.inline == b""
    assert attempt.server.text == LINE
