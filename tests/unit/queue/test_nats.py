"""What a taker gets of a server that fails in the middle of answering."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, cast

import msgspec
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg

from rota.domain.ids import new_run_id
from rota.queue.nats import TicketInbox, TicketStream
from rota.queue.nats_connection import NatsConnection
from testkit.clock import START

pytestmark = pytest.mark.anyio
NO_CLIENT = cast("Client", None)


RUNS = [new_run_id(START) for _ in range(2)]


class FailingServer:
    """Has several tickets, and gives one for each request, from the second on with trouble."""

    def __init__(self) -> None:
        self._requests = 0
        self._deliver: Callable[[Msg], Awaitable[None]] | None = None

    def new_inbox(self) -> str:
        return "inbox"

    async def subscribe(self, subject: str, cb: Callable[[Msg], Awaitable[None]]) -> None:
        self._deliver = cb

    async def publish(self, subject: str, data: bytes, reply: str) -> None:
        assert self._deliver is not None
        await self._deliver(ticket(self._requests))
        if self._requests:
            await self._deliver(Msg(NO_CLIENT, reply, headers={"Status": "503"}))
        self._requests += 1


def ticket(number: int) -> Msg:
    receipt = f"$JS.ACK.stream.consumer.1.{number}.{number}.1700000000000000000.9"
    return Msg(NO_CLIENT, "tickets", receipt, msgspec.json.encode([RUNS[number]]))


class ReadyStream:
    def next_of(self, pool: str) -> str:
        return pool

    async def ensure(self, pool: str) -> None: ...


def inbox_at(server: FailingServer) -> TicketInbox:
    class Connection:
        client = server

    connection: Any = Connection()
    return TicketInbox(
        cast("NatsConnection", connection), cast("TicketStream", ReadyStream()), "default"
    )


async def test_a_ticket_is_not_lost_when_others_cannot_be_had() -> None:
    inbox = inbox_at(FailingServer())

    async with asyncio.timeout(20):
        taken = await inbox.fetch(timedelta(seconds=1))

    assert taken is not None
    assert list(taken.runs) == RUNS
    assert len(taken.receipts) == 2
