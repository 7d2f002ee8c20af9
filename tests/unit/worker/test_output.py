from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field

import pytest

from rota.domain.errors import Unavailable
from rota.domain.output import Stream, to_raw, unpack
from rota.ports.work import Fence, OutputChunk, ReportAnswer
from rota.worker.output import AttemptOutput, OutputTimes

pytestmark = pytest.mark.anyio

FENCE = Fence("r_1", 1)
LINE = b"a line of text\n"
BIG = random.Random(1).randbytes(600_000)  # more than a chunk, and does not compress


@dataclass
class Server:
    """Takes chunks, unless told otherwise."""

    messages: list[list[OutputChunk]] = field(default_factory=list)
    is_away: bool = False
    refuses: bool = False

    async def take(self, chunks: list[OutputChunk]) -> ReportAnswer:
        if self.is_away:
            raise Unavailable("away")
        self.messages.append(chunks)
        return ReportAnswer(fenced=(FENCE,)) if self.refuses else ReportAnswer(accepted=(FENCE,))

    @property
    def chunks(self) -> list[OutputChunk]:
        return [chunk for message in self.messages for chunk in message]

    @property
    def text(self) -> bytes:
        return b"".join(to_raw(unpack(chunk.data)) for chunk in self.chunks)


class Attempt:
    """An attempt that prints, on a clock that moves when told."""

    def __init__(self, log_limit: int = 1 << 40) -> None:
        self.now = 100.0
        self.server = Server()
        times = OutputTimes(lambda: self.now, lambda: int(self.now * 1000))
        self.output = AttemptOutput(FENCE, log_limit, times, self.server.take)

    def prints(self, data: bytes, step: int = 0) -> None:
        self.output.feed(Stream.STDOUT, step, data)

    async def after(self, seconds: float) -> bytes:
        """What has arrived when so much time has passed."""
        self.now += seconds
        await self.output.send_due()
        return self.server.text


async def test_nothing_printed_is_nothing_due() -> None:
    assert Attempt().output.due_at is None


async def test_small_output_waits_its_time() -> None:
    attempt = Attempt()
    attempt.prints(LINE)

    assert attempt.output.due_at == 110.0
    assert await attempt.after(9.9) == b""
    assert await attempt.after(0.1) == LINE
    assert attempt.output.due_at is None


async def test_the_wait_counts_from_the_first_unsent_byte() -> None:
    attempt = Attempt()
    attempt.prints(LINE)
    attempt.now += 6
    attempt.prints(LINE)

    assert await attempt.after(4) == LINE + LINE


async def test_watched_output_is_sent_within_half_a_second() -> None:
    attempt = Attempt()
    attempt.prints(b"Continue? ")

    attempt.output.set_watched(True)

    assert attempt.output.due_at == 100.5
    assert await attempt.after(0.5) == b"Continue? "


async def test_a_full_chunk_is_sent_at_once_and_the_rest_waits() -> None:
    attempt = Attempt()
    attempt.prints(BIG + b"\n" + LINE)

    arrived = await attempt.after(0)

    assert 0 < len(arrived) < len(BIG)
    assert BIG.startswith(arrived)
    assert await attempt.after(10) == BIG + b"\n" + LINE


async def test_times_are_the_stores() -> None:
    attempt = Attempt()
    attempt.prints(LINE)
    attempt.now = 103.0
    attempt.prints(LINE)
    await attempt.after(20)

    [chunk] = attempt.server.chunks

    assert (chunk.meta.first_at, chunk.meta.last_at) == (100_000, 103_000)
    assert Fence(chunk.run, chunk.attempt) == FENCE


async def test_an_outage_loses_and_doubles_nothing() -> None:
    attempt = Attempt()
    attempt.server.is_away = True
    attempt.prints(LINE)
    with pytest.raises(Unavailable):
        await attempt.after(10)
    attempt.prints(BIG)
    with pytest.raises(Unavailable):
        await attempt.after(10)

    attempt.server.is_away = False
    await attempt.output.send_due()
    finished = await attempt.output.finish()

    assert attempt.server.text == LINE + BIG
    numbers = [chunk.meta.number for chunk in attempt.server.chunks]
    assert numbers == list(range(len(numbers)))
    assert (finished.inline, finished.totals.bytes) == (b"", len(LINE + BIG))


async def test_messages_stay_small() -> None:
    attempt = Attempt()
    for _ in range(10):
        attempt.prints(BIG)

    await attempt.output.finish()

    assert len(attempt.server.messages) > 1
    assert max(len(message) for message in attempt.server.messages) <= 16


async def test_a_job_that_prints_faster_than_is_sent_is_held_back() -> None:
    attempt = Attempt()
    attempt.server.is_away = True
    while not attempt.output.is_full:
        attempt.prints(BIG)
    resumed = asyncio.ensure_future(attempt.output.drained())
    with pytest.raises(Unavailable):
        await attempt.output.send_due()
    assert not resumed.done()

    attempt.server.is_away = False
    await attempt.output.send_due()
    await resumed

    assert not attempt.output.is_full


async def test_a_reader_with_room_need_not_wait() -> None:
    attempt = Attempt()
    attempt.prints(LINE)

    await asyncio.wait_for(attempt.output.drained(), timeout=1)


async def test_small_output_rides_in_the_report() -> None:
    attempt = Attempt()
    attempt.prints(LINE)
    attempt.prints(b"the end")

    finished = await attempt.output.finish()

    assert to_raw(finished.inline) == LINE + b"the end"
    assert (finished.totals.lines, finished.totals.truncated) == (2, False)
    assert attempt.server.messages == []


async def test_what_began_as_chunks_ends_as_chunks() -> None:
    attempt = Attempt()
    attempt.prints(LINE)
    await attempt.after(10)
    attempt.prints(b"the end")

    finished = await attempt.output.finish()

    assert finished.inline == b""
    assert attempt.server.text == LINE + b"the end"


async def test_finishing_can_be_tried_again() -> None:
    attempt = Attempt()
    attempt.prints(BIG)
    attempt.server.is_away = True
    with pytest.raises(Unavailable):
        await attempt.output.finish()

    attempt.server.is_away = False
    first = await attempt.output.finish()
    again = await attempt.output.finish()

    assert attempt.server.text == BIG
    assert first == again


async def test_a_refused_attempt_sends_and_keeps_nothing_more() -> None:
    attempt = Attempt()
    attempt.server.refuses = True
    attempt.prints(BIG)
    await attempt.after(10)
    assert attempt.output.is_fenced

    for _ in range(20):
        attempt.prints(BIG)
    await attempt.after(10)
    finished = await attempt.output.finish()

    assert len(attempt.server.messages) == 1
    assert finished.inline == b""
    assert attempt.output.due_at is None
    assert not attempt.output.is_full


async def test_refusal_lets_a_held_back_reader_go_on() -> None:
    attempt = Attempt()
    while not attempt.output.is_full:
        attempt.prints(BIG)
    attempt.server.refuses = True

    await attempt.output.send_due()

    await asyncio.wait_for(attempt.output.drained(), timeout=1)


async def test_the_limit_of_the_job_cuts_its_output() -> None:
    attempt = Attempt(log_limit=4)
    attempt.prints(LINE)
    attempt.output.remark("stopped after 3s")

    finished = await attempt.output.finish()

    assert finished.totals.truncated
    assert to_raw(finished.inline).startswith(b"a li\noutput cut here: log_limit 4B reached\n")
    assert b"stopped after 3s\n" in to_raw(finished.inline)
