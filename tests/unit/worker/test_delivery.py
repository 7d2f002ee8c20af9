from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from rota.domain.errors import NotFound, RotaError, Unavailable
from rota.ports.work import Fence, OutputChunk, Refused, ReportAnswer
from rota.worker.spool import DeliveryPacing, NotSent, OutputDeliverer, OutputSpool
from testkit.waiting import eventually
from tests.unit.worker.test_spool import FIRST, SECOND, chunks, large_chunks, lines, text

pytestmark = pytest.mark.anyio

LONG = timedelta(hours=1)
SHORT = timedelta(milliseconds=1)


class Server:
    """Fails with each of these errors in turn, then takes everything."""

    def __init__(self, *errors: RotaError) -> None:
        self._errors = list(errors)
        self.tries = 0
        self.taken: list[OutputChunk] = []
        self.has_failed = asyncio.Event()

    async def take(self, sent: Sequence[OutputChunk]) -> ReportAnswer:
        self.tries += 1
        if self._errors:
            self.has_failed.set()
            raise self._errors.pop(0)
        self.taken += sent
        return ReportAnswer()


@pytest.fixture
def spool(tmp_path: Path) -> OutputSpool:
    spool = OutputSpool(tmp_path / "spool")
    spool.open()
    return spool


class Link:
    """Breaks at certain messages, or after so many; each break makes a new connection."""

    def __init__(self, breaks_at: Callable[[Sequence[OutputChunk]], bool]) -> None:
        self.connection = 1
        self.messages: list[list[OutputChunk]] = []  # that arrived
        self.tries = 0
        self.most_under_way = 0
        self._under_way = 0
        self._breaks_at = breaks_at

    async def take(self, sent: Sequence[OutputChunk]) -> ReportAnswer:
        self.tries += 1
        self._under_way += 1
        self.most_under_way = max(self.most_under_way, self._under_way)
        await asyncio.sleep(0)  # noqa: TID251 (others may send meanwhile)
        self._under_way -= 1
        if self._breaks_at(sent):
            self.connection += 1
            raise Unavailable("the connection broke")
        self.messages.append(list(sent))
        return ReportAnswer()

    def taken(self, fence: Fence) -> list[OutputChunk]:
        return [chunk for message in self.messages for chunk in message if chunk.fence == fence]


class RefusingLink(Link):
    """Refuses what it is sent, and is made anew soon after; at last it takes everything."""

    def __init__(self) -> None:
        super().__init__(lambda _: False)

    async def take(self, sent: Sequence[OutputChunk]) -> ReportAnswer:
        if self.tries < 20:
            self.tries += 1
            self.connection += 1
            raise Refused("the blob store is away")
        return await super().take(sent)


async def delivered(spool: OutputSpool, server: Server | Link, pause: timedelta) -> None:
    """Run a deliverer until the spool is empty."""
    deliverer = OutputDeliverer(
        spool,
        server.take,
        DeliveryPacing(pause, pause),
        connection=lambda: server.connection if isinstance(server, Link) else 1,
    )
    delivering = asyncio.ensure_future(deliverer.run())
    try:
        await asyncio.to_thread(eventually, lambda: spool.is_empty)
    finally:
        delivering.cancel()
        await asyncio.wait([delivering])


async def test_everything_arrives_once_and_in_order(spool: OutputSpool) -> None:
    server = Server()
    spool.outbox(FIRST).add(chunks(40))

    await delivered(spool, server, LONG)

    assert text(server.taken) == lines(0, 120)
    assert server.tries == 3


@pytest.mark.parametrize("error", [Unavailable("away"), NotFound("no such session")])
async def test_a_failed_delivery_is_tried_again(spool: OutputSpool, error: RotaError) -> None:
    server = Server(error, error, error)
    spool.outbox(FIRST).add(chunks(40))

    await delivered(spool, server, SHORT)

    assert text(server.taken) == lines(0, 120)
    assert not spool.is_stalled


async def test_a_mended_connection_ends_the_pause(spool: OutputSpool) -> None:
    server = Server(Unavailable("away"))
    spool.outbox(FIRST).add(chunks(1))
    delivering = asyncio.ensure_future(delivered(spool, server, LONG))
    await server.has_failed.wait()
    await asyncio.wait([delivering], timeout=0.01)
    assert spool.is_stalled

    spool.wants_delivery.set()
    await delivering

    assert text(server.taken) == lines(0, 3)


async def test_several_messages_are_under_way_but_one_of_each_attempt(spool: OutputSpool) -> None:
    link = Link(lambda _: False)
    fences = [Fence(f"r_{number}", 1) for number in range(8)]
    for fence in fences:
        spool.outbox(fence).add(large_chunks(3))

    await delivered(spool, link, LONG)

    assert link.most_under_way == 4
    for fence in fences:
        assert [chunk.meta.number for chunk in link.taken(fence)] == [0, 1, 2]
    assert link.tries == 24


async def test_what_was_acknowledged_is_not_sent_again_over_twenty_cuts(
    spool: OutputSpool,
) -> None:
    sent = 0

    def cuts(message: Sequence[OutputChunk]) -> bool:
        nonlocal sent
        sent += 1
        return sent % 3 == 0

    link = Link(cuts)
    fences = [Fence(f"r_{number}", 1) for number in range(5)]
    for fence in fences:
        spool.outbox(fence).add(large_chunks(10))

    await delivered(spool, link, SHORT)

    assert link.connection > 20
    for fence in fences:
        assert [chunk.meta.number for chunk in link.taken(fence)] == list(range(10))


class TestWhatNoLinkCarries:
    async def test_it_becomes_a_gap_with_the_reason_and_the_rest_arrives(
        self, spool: OutputSpool
    ) -> None:
        link = Link(lambda sent: any(is_poison(chunk) for chunk in sent))
        spool.outbox(FIRST).add(chunks(1) + large_chunks(4)[1:])
        spool.outbox(SECOND).add(chunks(5))

        with capture_logs() as entries:
            await delivered(spool, link, SHORT)

        first, gap, *rest = link.taken(FIRST)
        assert text([first]) == lines(0, 3)
        assert gap.meta.number == 1
        assert "could not be delivered: the link to the server broke" in text([gap])[0]
        assert [chunk.meta.number for chunk in rest] == [2, 3]
        assert text(link.taken(SECOND)) == lines(0, 15)
        told = [each["event"] for each in entries if each["log_level"] == "error"]
        assert told == ["output.given_up"]

    async def test_output_that_the_server_refuses_over_a_link_that_lives_is_kept(
        self, spool: OutputSpool
    ) -> None:
        server = Server(*[Unavailable("the blob store is away")] * 20)
        spool.outbox(FIRST).add(chunks(2))

        await delivered(spool, server, SHORT)

        assert text(server.taken) == lines(0, 6)

    async def test_what_a_living_server_refused_is_not_blamed_for_a_later_break(
        self, spool: OutputSpool
    ) -> None:
        link = RefusingLink()
        spool.outbox(FIRST).add(chunks(1))

        await delivered(spool, link, SHORT)

        assert text(link.taken(FIRST)) == lines(0, 3)
        assert link.connection == 21

    async def test_a_worker_without_a_connection_blames_nothing(self, spool: OutputSpool) -> None:
        server = Server(*[NotSent("not connected to a server")] * 20)
        spool.outbox(FIRST).add(chunks(2))

        await delivered(spool, server, SHORT)

        assert text(server.taken) == lines(0, 6)
        assert spool.trouble == ""


async def test_trouble_is_told_while_servers_do_not_take_output(spool: OutputSpool) -> None:
    server = Server(*[Unavailable("the blob store is away")] * 3)
    deliverer = OutputDeliverer(spool, server.take)
    spool.outbox(FIRST).add(chunks(1))
    spool.outbox(SECOND).add(large_chunks(2))

    told = [spool.trouble]
    for _ in range(4):
        await deliverer.run_once()
        told.append(spool.trouble)
    while await deliverer.run_once():
        pass

    assert told[:3] == ["", "", ""]
    assert told[3] == "output of 2 runs (0.5 MB) cannot be delivered: the blob store is away"
    assert (told[4], spool.trouble) == ("", "")


def is_poison(chunk: OutputChunk) -> bool:
    return chunk.fence == FIRST and chunk.meta.number == 1 and len(chunk.data) > 1_000
