"""Wake-ups and tickets between servers by PostgreSQL's NOTIFY.

A connection of its own notifies and listens, after the commits it notifies about: a NOTIFY inside
every transaction would make all commits wait for one another. LISTEN needs a direct connection:
through a pooler that hands connections out by transaction a node can notify, but receives nothing,
and polls. That is detected, because its own notification does not come back.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from enum import StrEnum
from secrets import token_hex
from typing import Any, NamedTuple

import asyncpg
import msgspec
import structlog

from rota.clock import SystemClock
from rota.ports.clock import Clock
from rota.queue.local import LocalListener, LocalQueue, LocalTaker, Offers, Wakes, keep_up, run_ids
from rota.store.postgres.connections import DRIVER_ERRORS, connect_settings

_MAX_BYTES = 7_900  # PostgreSQL takes less than 8,000
_MAX_VALUES = 50  # ids in one line


class Kind(StrEnum):
    WAKE = "wake"
    OFFER = "offer"


class Hint(NamedTuple):
    """Line of a message: a topic with payloads, or a pool with runs."""

    kind: Kind
    name: str
    values: tuple[str, ...]


_decoder = msgspec.json.Decoder(Hint)


def hints(
    wakes: Mapping[str, Sequence[str]], offers: Mapping[str, Sequence[str]]
) -> Iterator[Hint]:
    """Yield lines for all wake-ups and offers, each of a bounded length."""
    for kind, told in ((Kind.WAKE, wakes), (Kind.OFFER, offers)):
        for name, values in told.items():
            for at in range(0, max(len(values), 1), _MAX_VALUES):
                yield Hint(kind, name, tuple(values[at : at + _MAX_VALUES]))


def pack(node: str, lines: Iterator[Hint]) -> Iterator[str]:
    """Pack lines into payloads that begin with the node's name; lines that fit none are dropped."""
    start = node.encode()
    text = bytearray(start)
    for line in lines:
        encoded = msgspec.json.encode(line)
        if len(start) + 1 + len(encoded) > _MAX_BYTES:
            continue
        if len(text) + 1 + len(encoded) > _MAX_BYTES:
            yield text.decode()
            text = bytearray(start)
        text += b"\n" + encoded
    if len(text) > len(start):
        yield text.decode()


def unpack(text: str) -> tuple[str, list[Hint]]:
    """Decode a payload into node and hints; raise `msgspec.MsgspecError` if it is invalid."""
    node, *lines = text.split("\n")
    return node, [_decoder.decode(line) for line in lines]


log = structlog.get_logger()

_CHANNEL = "rota_queue"
_LINGER = timedelta(milliseconds=3)  # hints that come meanwhile share a notice
_RETRY = timedelta(seconds=1)
_PROBE_SECONDS = 10.0  # how often a quiet connection is tried
_ECHO_SECONDS = 3.0
# A hint may be lost: it waits for no disk, and changes no setting beyond its own transaction.
_TELL = "SELECT set_config('synchronous_commit', 'off', true), pg_notify($1, $2)"


def open_notify(address: str, clock: Clock | None = None) -> NotifyQueue:
    """Create a queue on the database at this address, which need not be up."""
    return NotifyQueue(connect_settings(address), clock or SystemClock())


class NotifyQueue:
    """Implements `rota.ports.queue.Queue` for servers that share a PostgreSQL store."""

    def __init__(self, settings: dict[str, Any], clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._node = token_hex(8)
        self._echoes = f"{_CHANNEL}_{self._node}"  # a channel of this node's own
        self._local = LocalQueue()
        self._wakes = Wakes()
        self._offers = Offers()
        self._has_news = asyncio.Event()
        self._echo = asyncio.Event()
        self._is_connected = False
        self._is_told_away = False
        self._is_told_deaf = False
        self._task = asyncio.create_task(keep_up("notices", self._keep, clock))

    @property
    def is_connected(self) -> bool:
        return self._is_connected

    # --- the port

    def announce(self, topic: str, payload: str = "") -> None:
        self._local.announce(topic, payload)
        if self._is_connected:
            self._wakes.add(topic, payload)
            self._has_news.set()

    def listen(self, *topics: str) -> LocalListener:
        return self._local.listen(*topics)

    def offer(self, pool: str, runs: Sequence[str] = ()) -> None:
        self._local.offer(pool, runs)
        if self._is_connected:
            self._offers.add(pool, runs)
            self._has_news.set()

    def takes(self, pool: str) -> LocalTaker:
        return self._local.takes(pool)

    def watched(self, prefix: str) -> frozenset[str]:
        return self._local.watched(prefix)

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])
        await self._local.close()

    # --- what goes on behind

    async def _keep(self) -> None:
        """Connect, and reconnect whenever the connection breaks; until cancelled."""
        while True:
            try:
                await self._serve()
            except DRIVER_ERRORS as error:
                self._tell_away(error)
            await self._clock.sleep(_RETRY)

    async def _serve(self) -> None:
        async with self._connection() as connection:
            # Ends the wait below, which then finds the connection closed.
            connection.add_termination_listener(lambda _: self._has_news.set())
            is_heard = await self._listen_on(connection)
            self._tell_up(is_heard)
            self._is_connected = True
            try:
                while True:
                    await self._notify_pending(connection, is_heard)
                    await self._clock.sleep(_LINGER)
            finally:
                self._is_connected = False

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[Any]:
        connection = await asyncpg.connect(**self._settings)
        try:
            yield connection
        finally:
            connection.terminate()

    async def _listen_on(self, connection: Any) -> bool:
        """Listen, and return whether notifications arrive; if not, unlisten.

        Through a pooler the listening connection may well receive what it sent itself, so the test
        that counts is sent by another connection.
        """
        await connection.add_listener(self._echoes, self._hear)
        async with self._connection() as other:
            is_heard = await self._is_heard(other)
        if is_heard:
            await connection.add_listener(_CHANNEL, self._hear)
        else:
            await connection.remove_listener(self._echoes, self._hear)
        return is_heard

    async def _notify_pending(self, connection: Any, is_heard: bool) -> None:
        """Notify of what is pending; if nothing was for long, test whether we still receive."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_PROBE_SECONDS):
                await self._has_news.wait()
        if connection.is_closed():
            raise ConnectionError("the database closed the connection")
        if not self._has_news.is_set() and is_heard and not await self._is_heard(connection):
            raise ConnectionError("the database does not send notices any more")
        self._has_news.clear()
        for text in pack(self._node, hints(self._wakes.empty(), self._offers.empty())):
            await connection.execute(_TELL, _CHANNEL, text)

    async def _is_heard(self, connection: Any) -> bool:
        """Return whether a notification of ours comes back to us."""
        self._echo.clear()
        await connection.execute(_TELL, self._echoes, self._node)
        with suppress(TimeoutError):
            async with asyncio.timeout(_ECHO_SECONDS):
                await self._echo.wait()
        return self._echo.is_set()

    def _hear(self, _connection: Any, _pid: int, _channel: str, text: str) -> None:
        if text.startswith(self._node):
            self._echo.set()  # what it says was passed on here by call
            return
        try:
            _, told = unpack(text)
        except msgspec.MsgspecError as error:
            log.warning("queue.malformed", error=str(error))
            return
        for hint in told:
            self._pass_on(hint)

    def _pass_on(self, hint: Hint) -> None:
        match hint.kind:
            case Kind.OFFER:
                self._local.offer(hint.name, run_ids(hint.values))
            case Kind.WAKE:
                for payload in hint.values:
                    self._local.announce(hint.name, payload)

    def _tell_up(self, is_heard: bool) -> None:
        if self._is_told_away:
            log.info("queue.back")
        self._is_told_away = False
        if not is_heard and not self._is_told_deaf:
            log.warning(
                "queue.deaf",
                effect="work of other servers is found by polling",
                hint="LISTEN does not work through a pooler: give ROTA_QUEUE the address of"
                " PostgreSQL itself, or NATS",
            )
        self._is_told_deaf = not is_heard

    def _tell_away(self, error: BaseException) -> None:
        if not self._is_told_away:
            log.warning(
                "queue.away",
                error=str(error) or type(error).__name__,
                effect="work of other servers is found by polling",
            )
        self._is_told_away = True
