"""A connection to a NATS cluster that is mended for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from urllib.parse import urlsplit

import structlog
from nats.aio.client import Client
from nats.errors import Error as NatsError

from rota.domain.errors import Invalid
from rota.ports.clock import Clock

log = structlog.get_logger()

ANSWER_SECONDS = 2.0
_SCHEMES = frozenset({"nats", "tls"})
_RETRY = timedelta(seconds=1)
_PING_SECONDS = 5  # a cut network is noticed after two of these
_PENDING_BYTES = 1 << 20  # what may wait for a server that is away

GONE = (NatsError, OSError, TimeoutError)  # whatever calls raise while the server is away


def parse_address(address: str) -> tuple[list[str], str]:
    """Servers and deployment of `nats://host:port,host:port/DEPLOYMENT`."""
    parts = urlsplit(address)
    if parts.scheme not in _SCHEMES or not parts.netloc:
        raise Invalid(f"{parts.scheme or address!r} is not the address of a NATS server")
    hosts = [host for host in parts.netloc.split(",") if host]
    return [f"{parts.scheme}://{host}" for host in hosts], parts.path.strip("/") or "rota"


class NatsConnection:
    """Logs once when the servers go away and once when they are back."""

    def __init__(self, servers: list[str], clock: Clock) -> None:
        self._servers = servers
        self._clock = clock
        self._client = Client()
        self._connected = asyncio.Event()
        self._closed = asyncio.Event()
        self._on_up: Callable[[], None] = self._connected.set
        self._is_told_away = False
        self._is_closing = False

    @property
    def client(self) -> Client:
        """The client as it is now; another one after it had to give up."""
        return self._client

    @property
    def is_up(self) -> bool:
        return self._client.is_connected

    async def wait_until_up(self) -> None:
        await self._connected.wait()

    async def keep(self, on_up: Callable[[], None]) -> None:
        """Connect, and connect anew should the client ever give up; until cancelled."""
        self._on_up = on_up
        while True:
            self._client, self._closed = Client(), asyncio.Event()
            try:
                await self._connect()
                await self._closed.wait()
            except GONE as error:
                await self._note_error(error)
            self._connected.clear()
            await self._clock.sleep(_RETRY)

    async def close(self) -> None:
        self._is_closing = True
        if not self._client.is_connected and not self._client.is_reconnecting:
            return  # it was never connected, or gave up: there is nothing to close
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                await self._client.close()
        except GONE:
            return

    async def _connect(self) -> None:
        await self._client.connect(
            self._servers,
            name="rota",
            max_reconnect_attempts=-1,
            reconnect_time_wait=_RETRY.total_seconds() / 2,  # type: ignore[arg-type]
            connect_timeout=2,
            ping_interval=_PING_SECONDS,
            max_outstanding_pings=2,
            no_echo=True,
            pending_size=_PENDING_BYTES,
            error_cb=self._note_error,
            disconnected_cb=self._note_gone,
            reconnected_cb=self._note_back,
            closed_cb=self._note_closed,
        )
        await self._note_back()

    async def _note_error(self, error: Exception) -> None:
        if not self._client.is_connected:
            self._tell_away(str(error) or type(error).__name__)

    async def _note_gone(self) -> None:
        self._connected.clear()
        self._tell_away("the connection was lost")

    async def _note_back(self) -> None:
        self._connected.set()
        self._on_up()
        if self._is_told_away:
            log.info("queue.back")
        self._is_told_away = False

    async def _note_closed(self) -> None:
        self._closed.set()

    def _tell_away(self, error: str) -> None:
        if self._is_closing:
            return
        if not self._is_told_away:
            log.warning("queue.away", error=error, effect="work is found by polling")
        self._is_told_away = True
