"""The loops behind a queue go on whatever happens to them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import asyncpg
import pytest
from nats.aio.client import Client
from structlog.testing import capture_logs

from rota.queue.local import keep_up
from rota.queue.nats import NatsQueue, TicketStream
from rota.queue.nats_connection import NatsConnection, Subjects
from rota.queue.notify import open_notify

pytestmark = pytest.mark.anyio


class HastyClock:
    """Sleeps only as long as it takes others to have their turn."""

    def __init__(self) -> None:
        self.pauses: list[timedelta] = []

    def now(self) -> datetime:
        return datetime(2030, 1, 1, tzinfo=UTC)

    def monotonic(self) -> float:
        return 0.0

    async def sleep(self, duration: timedelta) -> None:
        self.pauses.append(duration)
        await asyncio.sleep(0)  # noqa: TID251 - the clock of this test


class Mishap:
    """Fails once, as nobody foresaw, and does as it is told from then on."""

    def __init__(self, then: Callable[..., Any]) -> None:
        self.calls = 0
        self._then = then

    async def __call__(self, *args: Any, **named: Any) -> Any:
        self.calls += 1
        if self.calls == 1:
            raise ZeroDivisionError("nobody foresaw this")
        return await self._then(*args, **named)


async def wait_for_ever(*_: Any, **__: Any) -> None:
    await asyncio.Event().wait()


@asynccontextmanager
async def going_on(clock: HastyClock, loop: Mishap) -> AsyncIterator[None]:
    task = asyncio.create_task(keep_up("tickets", loop, clock))
    async with asyncio.timeout(20):
        yield
    task.cancel()
    await asyncio.wait([task])


async def test_a_loop_that_broke_is_told_as_an_error_and_begins_again() -> None:
    clock, is_back = HastyClock(), asyncio.Event()

    async def serve() -> None:
        is_back.set()
        await wait_for_ever()

    with capture_logs() as told:
        async with going_on(clock, Mishap(serve)):
            await is_back.wait()

    assert [(line["log_level"], line["loop"]) for line in told] == [("error", "tickets")]
    assert clock.pauses == [timedelta(seconds=1)]


async def test_notices_are_told_again_after_what_nobody_foresaw(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    is_tried_again = asyncio.Event()

    async def connect(**_: Any) -> None:
        is_tried_again.set()
        await wait_for_ever()

    monkeypatch.setattr(asyncpg, "connect", Mishap(connect))
    queue = open_notify("postgresql://nowhere/rota", HastyClock())

    async with asyncio.timeout(20):
        await is_tried_again.wait()

    await queue.close()


class Connected:
    """A connection to NATS that is always up, and says nothing."""

    is_up = True
    client = Client()

    async def keep(self, on_up: Callable[[], None]) -> None:
        on_up()
        await wait_for_ever()

    async def wait_until_up(self) -> None: ...

    async def close(self) -> None: ...


async def test_tickets_and_subscriptions_go_on_after_what_nobody_foresaw(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    published: asyncio.Queue[Sequence[str]] = asyncio.Queue()
    subscribed: asyncio.Queue[str] = asyncio.Queue()

    async def publish(pool: str, runs: Sequence[str]) -> None:
        published.put_nowait(runs)

    async def subscribe(subject: str, **_: Any) -> None:
        subscribed.put_nowait(subject)

    publishing = Mishap(publish)
    monkeypatch.setattr(TicketStream, "publish", lambda _, *offer: publishing(*offer))
    connection = Connected()
    monkeypatch.setattr(connection.client, "subscribe", Mishap(subscribe))
    queue = NatsQueue(cast("NatsConnection", connection), Subjects("test"), HastyClock())

    async with asyncio.timeout(20):
        listener = queue.listen("events")
        assert await subscribed.get() == Subjects("test").wake("events")
        queue.offer("default", ["r_1"])
        while published.empty():
            queue.offer("default", ["r_2"])
            await asyncio.sleep(0)  # noqa: TID251 - the loop's turn

    assert publishing.calls == 2
    listener.close()
    await queue.close()
