"""Servers that share a store and a queue get all work done, whatever becomes of the queue."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from rota.queue.nats import open_nats
from testkit.servers.nats import NatsServer
from tests.conformance.queue.conftest import Nodes, until_connected
from tests.conformance.queue.crew import at_work

pytestmark = pytest.mark.anyio
POLL = timedelta(milliseconds=500)
NEVER = timedelta(hours=1)


async def test_every_run_is_executed_once(nodes: Nodes, tmp_path: Path) -> None:
    async with at_work(tmp_path, [nodes.here, nodes.there], POLL) as crew:
        await crew.submit(batches=50)

        await crew.until_completed(200)


async def test_tickets_alone_are_enough_while_the_queue_is_well(
    nodes: Nodes, tmp_path: Path
) -> None:
    async with at_work(tmp_path, [nodes.here, nodes.there], NEVER) as crew:
        await crew.submit(batches=50)

        await crew.until_completed(200)


async def test_nats_may_die_and_lose_everything_in_between(
    nats: NatsServer, tmp_path: Path
) -> None:
    queues = [open_nats(nats.address), open_nats(nats.address)]
    await until_connected(*queues)
    async with at_work(tmp_path, queues, POLL) as crew:
        await crew.submit(batches=10)
        await asyncio.to_thread(nats.kill)
        await crew.submit(batches=10)
        await crew.until_completed(80)
        nats.wipe()
        await asyncio.to_thread(nats.start)
        await crew.submit(batches=10)

        await crew.until_completed(120)
    for queue in queues:
        await queue.close()
