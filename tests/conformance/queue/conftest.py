"""Every adapter of the queue port, as two nodes that share it."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest

from rota.ports.queue import Listener, Queue, Taker, Ticket
from rota.queue.local import LocalQueue
from rota.queue.nats import open_nats
from rota.queue.notify import open_notify
from testkit.servers.nats import NatsServer
from testkit.servers.postgres import PostgresServer
from testkit.waiting import PATIENCE, boottime

SOON = timedelta(milliseconds=100)


@dataclass(frozen=True, slots=True)
class Nodes:
    """Two nodes of a cluster; where a queue lives in one process, both are the same."""

    here: Queue
    there: Queue
    is_sole: bool  # a ticket goes to one taker only


@pytest.fixture(scope="session")
def servers() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture(scope="session")
def folder() -> Iterator[Path]:
    # Not below pytest's folder, which only its own user may enter.
    with tempfile.TemporaryDirectory(prefix="rota-queue-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture(scope="session")
def postgres(servers: ExitStack, folder: Path) -> PostgresServer:
    return servers.enter_context(PostgresServer(folder / "postgres"))


@pytest.fixture
def nats(tmp_path: Path) -> Iterator[NatsServer]:
    with NatsServer(tmp_path / "nats") as server:
        yield server


@pytest.fixture(params=["local", "nats", "notify"])
async def nodes(request: pytest.FixtureRequest) -> AsyncIterator[Nodes]:
    if request.param == "local":
        queue = LocalQueue()
        yield Nodes(queue, queue, is_sole=False)
        await queue.close()
        return
    if request.param == "nats":
        address = request.getfixturevalue("nats").address
        opened = Nodes(open_nats(address), open_nats(address), is_sole=True)
    else:
        address = request.getfixturevalue("postgres").address()
        opened = Nodes(open_notify(address), open_notify(address), is_sole=False)
    await until_connected(opened.here, opened.there)
    yield opened
    await opened.here.close()
    await opened.there.close()


def run_id(number: int) -> str:
    return f"r_{number:024}"


async def until_connected(*queues: Queue) -> None:
    for queue in queues:
        listener = queue.listen("nothing")
        await eventually(partial(getattr, queue, "is_connected", True), listener)
        listener.close()


async def eventually(claim: Callable[[], object], listener: Listener) -> None:
    """Wait until it is so, without holding up the loop."""
    end = boottime() + PATIENCE.total_seconds()
    while not claim():
        assert boottime() < end, "not in time"
        await listener.wait(SOON / 10)


async def hear(listener: Listener, announce: Callable[[], None]) -> frozenset[str]:
    """What a listener hears of something that is announced until it does."""
    end = boottime() + PATIENCE.total_seconds()
    while boottime() < end:
        announce()
        if heard := await listener.wait(SOON):
            return heard
    raise AssertionError("nothing was heard")


async def receive(taker: Taker, offer: Callable[[], None]) -> Ticket:
    """The ticket that a taker gets of runs that are offered until it does."""
    end = boottime() + PATIENCE.total_seconds()
    while boottime() < end:
        offer()
        if ticket := await taker.take(SOON * 5):
            return ticket
    raise AssertionError("no ticket came")
