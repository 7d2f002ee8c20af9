from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import pytest

from rota.domain.errors import NotFound, RotaError, Unavailable
from rota.ports.work import OutputChunk, ReportAnswer
from rota.worker.spool import DeliveryPacing, OutputDeliverer, OutputSpool
from tests.unit.worker.test_spool import FIRST, chunks, lines, text

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
        return ReportAnswer(accepted=(FIRST,))


@pytest.fixture
def spool(tmp_path: Path) -> OutputSpool:
    spool = OutputSpool(tmp_path / "spool")
    spool.open()
    return spool


async def delivered(spool: OutputSpool, server: Server, pause: timedelta) -> None:
    """Run a deliverer until the spool is empty."""
    delivering = asyncio.ensure_future(
        OutputDeliverer(spool, server.take, DeliveryPacing(pause, pause)).run()
    )
    try:
        await asyncio.wait_for(spool.emptied(), 10)
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
