"""NATS may be killed, wiped, cut off or meddled with: the only effect is lateness."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import nats as client
import pytest
from nats.js import JetStreamContext
from structlog.testing import capture_logs

from rota.ports.queue import EVENTS, Queue, Taker
from rota.queue.nats import NatsQueue, open_nats
from rota.queue.nats_connection import Subjects
from testkit.servers.nats import NatsCluster, NatsServer
from tests.conformance.queue.conftest import (
    SOON,
    eventually,
    hear,
    receive,
    run_id,
    until_connected,
)

pytestmark = pytest.mark.anyio
SUBJECTS = Subjects("rota")
POOL = "default"


@pytest.fixture
async def here(nats: NatsServer) -> AsyncIterator[NatsQueue]:
    queue = open_nats(nats.address)
    await until_connected(queue)
    yield queue
    await queue.close()


@asynccontextmanager
async def meddler(address: str) -> AsyncIterator[JetStreamContext]:
    connection = await client.connect(address)
    try:
        yield connection.jetstream()
    finally:
        await connection.close()


async def works(queue: Queue, taker: Taker, run: str) -> None:
    """Tickets go through the stream, as the receipt of a sole one shows."""
    while True:
        await until_connected(queue)
        ticket = await receive(taker, lambda: queue.offer(POOL, [run]))
        taker.done(ticket)
        if ticket.is_sole and run in ticket.runs:
            return


async def test_tickets_come_again_after_the_stream_was_deleted(
    nats: NatsServer, here: NatsQueue
) -> None:
    taker = here.takes(POOL)
    await works(here, taker, run_id(1))
    async with meddler(nats.address) as jetstream:
        await jetstream.delete_stream(SUBJECTS.stream)

    await works(here, taker, run_id(2))
    taker.close()


async def test_tickets_come_again_after_the_consumer_was_deleted(
    nats: NatsServer, here: NatsQueue
) -> None:
    taker = here.takes(POOL)
    await works(here, taker, run_id(1))
    async with meddler(nats.address) as jetstream:
        await jetstream.delete_consumer(SUBJECTS.stream, SUBJECTS.consumer(POOL))

    await works(here, taker, run_id(2))
    taker.close()


async def test_tickets_come_again_after_the_server_lost_its_data(
    nats: NatsServer, here: NatsQueue
) -> None:
    taker = here.takes(POOL)
    await works(here, taker, run_id(1))
    nats.kill()
    nats.wipe()
    nats.start()

    await works(here, taker, run_id(2))
    taker.close()


@pytest.mark.slow
async def test_twenty_restarts_leave_no_consumer_dead(nats: NatsServer, here: NatsQueue) -> None:
    taker, listener = here.takes(POOL), here.listen(EVENTS)
    other = open_nats(nats.address)
    for number in range(20):
        await asyncio.to_thread(nats.kill)
        await asyncio.to_thread(nats.start)

        await works(other, taker, run_id(number))
        await hear(listener, lambda: other.announce(EVENTS, "again"))
    taker.close()
    await other.close()


async def test_while_nats_is_away_a_node_still_talks_to_itself(
    nats: NatsServer, here: NatsQueue
) -> None:
    taker, listener = here.takes(POOL), here.listen(EVENTS)
    with capture_logs() as logs:
        nats.kill()
        await eventually(lambda: not here.is_connected, listener)
        for number in range(50_000):
            here.announce(EVENTS, str(number))
            here.offer(POOL, [run_id(number)])

        heard, ticket = await listener.wait(SOON), await taker.take(SOON)

    assert len(heard) == 50_000
    assert ticket is not None
    assert [log["event"] for log in logs if log["log_level"] == "warning"] == ["queue.away"]
    taker.close()


async def test_a_node_that_starts_before_nats_finds_it_later(tmp_path: Path) -> None:
    server = NatsServer(tmp_path)
    queue = open_nats(server.address)
    taker = queue.takes(POOL)
    here = await receive(taker, lambda: queue.offer(POOL, [run_id(1)]))

    with server:
        await works(queue, taker, run_id(2))

    assert not here.is_sole
    await queue.close()


@pytest.mark.slow
async def test_a_ticket_that_was_not_finished_comes_again(
    nats: NatsServer, here: NatsQueue
) -> None:
    """Its taker may have died with it."""
    taker, other = here.takes(POOL), here.takes(POOL)
    ticket = await receive(taker, lambda: here.offer(POOL, [run_id(1)]))

    again = await other.take(timedelta(seconds=20))

    assert again is not None
    assert (ticket.runs, again.runs) == ((run_id(1),), (run_id(1),))
    taker.close()
    other.close()


async def test_a_finished_ticket_does_not_come_again(nats: NatsServer, here: NatsQueue) -> None:
    taker = here.takes(POOL)
    await works(here, taker, run_id(1))

    async with meddler(nats.address) as jetstream:

        async def left() -> int:
            return (await jetstream.stream_info(SUBJECTS.stream)).state.messages

        while await left():
            assert await taker.take(SOON) is None
    taker.close()


async def test_ten_times_the_same_message_is_harmless(nats: NatsServer, here: NatsQueue) -> None:
    taker = here.takes(POOL)
    await works(here, taker, run_id(0))
    async with meddler(nats.address) as jetstream:
        for _ in range(10):
            await jetstream.publish(SUBJECTS.tickets(POOL), json.dumps([run_id(1)]).encode())

    named: list[str] = []
    while ticket := await taker.take(SOON):
        named += ticket.runs
        taker.done(ticket)

    assert set(named) == {run_id(1)}
    taker.close()


async def test_only_runs_are_named_whatever_a_message_names(
    nats: NatsServer, here: NatsQueue
) -> None:
    taker = here.takes(POOL)
    await works(here, taker, run_id(0))
    forged = ["\0", "", "r_1", "r_" + "!" * 24, run_id(1), run_id(2) + "\n"]
    async with meddler(nats.address) as jetstream:
        await jetstream.publish(SUBJECTS.tickets(POOL), json.dumps(forged).encode())

    named: set[str] = set()
    while ticket := await taker.take(SOON * 5):
        named |= set(ticket.runs)
        taker.done(ticket)

    assert named == {run_id(1)}
    taker.close()


@pytest.mark.parametrize("nonsense", [b"", b"\xff\x00", b"{}", b"[1]", b"[" * 10_000])
async def test_malformed_messages_are_ignored_and_logged(
    nats: NatsServer, here: NatsQueue, nonsense: bytes
) -> None:
    taker, listener = here.takes(POOL), here.listen(EVENTS)
    await works(here, taker, run_id(0))
    other = open_nats(nats.address)
    await hear(listener, lambda: other.announce(EVENTS, "ready"))
    with capture_logs() as logs:
        async with meddler(nats.address) as jetstream:
            await jetstream.publish(SUBJECTS.tickets(POOL), nonsense)
            await jetstream._nc.publish(SUBJECTS.wake(EVENTS), nonsense)

        await works(here, taker, run_id(1))
        await hear(listener, lambda: other.announce(EVENTS, "fine"))

    malformed = [log["subject"] for log in logs if log["event"] == "queue.malformed"]
    assert set(malformed) == {SUBJECTS.tickets(POOL), SUBJECTS.wake(EVENTS)}
    taker.close()
    await other.close()


async def test_two_deployments_on_one_nats_do_not_hear_one_another(nats: NatsServer) -> None:
    blue, green = open_nats(f"{nats.address}/blue"), open_nats(f"{nats.address}/green")
    await until_connected(blue, green)
    taker, listener = green.takes(POOL), green.listen(EVENTS)
    await works(green, taker, run_id(1))

    await works(blue, blue.takes(POOL), run_id(2))
    blue.announce(EVENTS, "blue")

    assert await taker.take(SOON) is None
    assert await listener.wait(SOON) == frozenset()
    await blue.close()
    await green.close()


class TestCluster:
    @pytest.mark.slow
    async def test_each_node_may_die_in_turn(self, tmp_path: Path) -> None:
        with NatsCluster(tmp_path) as cluster:
            here, there = open_nats(cluster.address), open_nats(cluster.address)
            await until_connected(here, there)
            taker, listener = there.takes(POOL), there.listen(EVENTS)
            await works(here, taker, run_id(1))
            for number, node in enumerate(cluster.nodes):
                await asyncio.to_thread(node.kill)

                await works(here, taker, run_id(number))
                await hear(listener, lambda: here.announce(EVENTS, "still there"))

                await asyncio.to_thread(node.start)
            taker.close()
            await here.close()
            await there.close()
