"""Connection to a NATS cluster that reconnects for ever, and the names used on it."""

from __future__ import annotations

import asyncio
import hashlib
import string
from collections.abc import Callable
from datetime import timedelta
from urllib.parse import urlsplit

import structlog
from nats.aio.client import Client
from nats.errors import Error as NatsError

from rota.domain.errors import Invalid, Unavailable
from rota.ports.clock import Clock

log = structlog.get_logger()

ANSWER_SECONDS = 2.0
_SCHEMES = frozenset({"nats", "tls"})
_RETRY = timedelta(seconds=1)
_PING_SECONDS = 5  # a cut network is noticed after two of these
_PENDING_BYTES = 1 << 20  # what may wait for a server that is away

GONE = (NatsError, OSError, TimeoutError)  # whatever calls raise while the server is away


def parse_address(address: str) -> tuple[list[str], str]:
    """Parse servers and deployment of `nats://host:port,host:port/DEPLOYMENT`."""
    parts = urlsplit(address)
    if parts.scheme not in _SCHEMES or not parts.netloc:
        raise Invalid(f"{parts.scheme or address!r} is not the address of a NATS server")
    hosts = [host for host in parts.netloc.split(",") if host]
    return [f"{parts.scheme}://{host}" for host in hosts], parts.path.strip("/") or "rota"


class NatsConnection:
    """Connection that logs once when the servers go away and once when they are back."""

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
        """Return the current client; a new one replaces it after it gave up."""
        return self._client

    @property
    def is_up(self) -> bool:
        return self._client.is_connected

    async def wait_until_up(self) -> None:
        await self._connected.wait()

    async def keep(self, on_up: Callable[[], None]) -> None:
        """Connect, and reconnect should the client ever give up; until cancelled."""
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
            no_echo=True,  # listeners of this node were notified by call
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


_ANSWER_SECONDS = 3


async def inspect_nats(address: str) -> str:
    """Describe the server that answers; `Unavailable` if none does, or none with JetStream."""
    servers, _ = parse_address(address)
    client = Client()
    try:
        async with asyncio.timeout(2 * _ANSWER_SECONDS):
            await client.connect(
                servers, connect_timeout=_ANSWER_SECONDS, allow_reconnect=False, error_cb=_ignore
            )
            await client.jetstream(timeout=_ANSWER_SECONDS).account_info()
        known = len(client.servers)
        return f"NATS {client.connected_server_version} with JetStream, {known} servers known"
    except NatsError as error:
        hint = "start nats-server with --jetstream" if client.is_connected else ""
        raise Unavailable(f"no NATS server answers: {error}", hint=hint) from error
    except GONE as error:
        raise Unavailable(f"no NATS server answers: {error}") from error
    finally:
        await client.close()


async def _ignore(error: Exception) -> None:
    """Ignore the error: the closing of the connection reports it too."""


_PLAIN = frozenset(string.ascii_letters + string.digits + "_-")
_MAX_TOKEN = 150


def token(name: str) -> str:
    """Encode a name as one token of a subject; different names give different tokens."""
    written = "".join(
        character if character in _PLAIN else "".join(f"={byte:02X}" for byte in character.encode())
        for character in name
    )
    if len(written) > _MAX_TOKEN:
        return f"=={hashlib.sha256(name.encode()).hexdigest()}"
    return written or "="


class Subjects:
    """Subject names that one deployment uses."""

    def __init__(self, deployment: str) -> None:
        self._prefix = token(deployment)

    @property
    def stream(self) -> str:
        return f"{self._prefix}-tickets"

    @property
    def all_tickets(self) -> str:
        return f"{self._prefix}.tickets.*"

    def tickets(self, pool: str) -> str:
        return f"{self._prefix}.tickets.{token(pool)}"

    def consumer(self, pool: str) -> str:
        return f"pool-{token(pool)}"

    def wake(self, topic: str) -> str:
        return f"{self._prefix}.wake.{token(topic)}"
