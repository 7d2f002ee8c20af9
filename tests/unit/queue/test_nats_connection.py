"""Only what goes away unasked is worth a line in the log."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from structlog.testing import capture_logs

from rota.clock import SystemClock
from rota.queue.nats_connection import NatsConnection

pytestmark = pytest.mark.anyio


class Client:
    """Tells its end like the one of NATS."""

    is_connected = True
    is_reconnecting = False

    def __init__(self, tell_gone: Callable[[], Awaitable[None]]) -> None:
        self._tell_gone = tell_gone

    async def close(self) -> None:
        await self._tell_gone()


@pytest.fixture
def connection(monkeypatch: pytest.MonkeyPatch) -> NatsConnection:
    connection = NatsConnection(["nats://nowhere"], SystemClock())
    monkeypatch.setattr(connection, "_client", Client(connection._note_gone))
    return connection


async def test_connection_that_goes_is_told_once(connection: NatsConnection) -> None:
    with capture_logs() as lines:
        await connection.client.close()
        await connection.client.close()

    assert [line["event"] for line in lines] == ["queue.away"]


async def test_connection_that_is_closed_goes_without_a_word(connection: NatsConnection) -> None:
    with capture_logs() as lines:
        await connection.close()

    assert lines == []
