"""Wake-ups on NATS subjects, tickets on a JetStream work queue.

On this node everything also goes by call, so while NATS is away a node only loses touch with the
others, and finds their work by polling.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any

import msgspec
import structlog
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from rota.clock import SystemClock
from rota.ports.clock import Clock
from rota.ports.queue import Ticket
from rota.queue.local import LocalListener, LocalQueue, LocalTaker, Offers, Wakes, keep_up
from rota.queue.nats_connection import GONE, NatsConnection, Subjects, parse_address
from rota.queue.nats_tickets import NatsTicket, TicketInbox, TicketStream

log = structlog.get_logger()

_FETCH = timedelta(seconds=1)  # never rely on a long one: after a server's death it may hang
_PAUSE = timedelta(milliseconds=200)  # before a server that is not well is asked again
_LINGER = timedelta(milliseconds=1)  # hints that come meanwhile share a message
_MAX_MESSAGES, _MAX_BYTES = 10_000, 4 << 20  # heard, but not passed on yet
_DONE, _PASS_ON = b"+ACK", b"-NAK"

_decoder = msgspec.json.Decoder(tuple[str, ...])


def open_nats(address: str, clock: Clock | None = None) -> NatsQueue:
    """A queue on the servers of `nats://HOST[:PORT][,HOST…][/DEPLOYMENT]`; they need not be up."""
    servers, deployment = parse_address(address)
    clock = clock or SystemClock()
    return NatsQueue(NatsConnection(servers, clock), Subjects(deployment), clock)


class NatsListener:
    """Hears what is announced on this node and on others."""

    def __init__(self, queue: NatsQueue, local: LocalListener, topics: tuple[str, ...]) -> None:
        self._queue = queue
        self._local = local
        self._topics = topics
        self._is_open = True

    async def wait(self, timeout: timedelta) -> frozenset[str]:
        return await self._local.wait(timeout)

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            self._local.close()
            self._queue.unsubscribe(self._topics)


class NatsTaker:
    """Takes from the stream, and from this node what the stream could not carry."""

    def __init__(self, queue: NatsQueue, local: LocalTaker, inbox: TicketInbox) -> None:
        self._queue = queue
        self._local = local
        self._inbox = inbox
        self._is_open = True

    async def take(self, timeout: timedelta) -> Ticket | None:
        left = timeout
        while True:
            wait = min(left, _FETCH)
            ticket = await self._look(wait)
            left -= wait
            if ticket is not None or left <= timedelta(0):
                return ticket

    async def _look(self, wait: timedelta) -> Ticket | None:
        if not self._queue.is_connected:
            return await self._local.take(wait)
        ticket = await self._local.take(timedelta(0))
        if ticket is not None:
            return ticket
        try:
            return await self._inbox.fetch(wait)
        except GONE as error:
            self._queue.doubt(error)
            return await self._local.take(min(wait, _PAUSE))

    def done(self, ticket: Ticket) -> None:
        self._answer(ticket, _DONE)

    def pass_on(self, ticket: Ticket) -> None:
        self._answer(ticket, _PASS_ON)

    def _answer(self, ticket: Ticket, answer: bytes) -> None:
        if isinstance(ticket, NatsTicket):
            self._queue.acknowledge(ticket.receipts, answer)

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            self._local.close()
            self._queue.retire(self._inbox)


class NatsQueue:
    """Implements `rota.ports.queue.Queue` for servers that share a NATS cluster."""

    def __init__(self, connection: NatsConnection, subjects: Subjects, clock: Clock) -> None:
        self._connection = connection
        self._subjects = subjects
        self._clock = clock
        self._local = LocalQueue()
        self._stream = TicketStream(connection, subjects)
        self._wakes = Wakes()
        self._has_wakes = asyncio.Event()
        self._offers = Offers()
        self._has_offers = asyncio.Event()
        self._wanted: Counter[str] = Counter()  # topics by how many listen
        self._is_to_subscribe = asyncio.Event()
        self._subscribed: Client | None = None
        self._subscriptions: dict[str, Subscription] = {}  # of that client, by topic
        self._tasks: set[asyncio.Task[None]] = set()
        keep_connected = partial(connection.keep, self._is_to_subscribe.set)
        self._spawn(keep_up("connection", keep_connected, clock))
        self._spawn(keep_up("wakes", self._send_wakes, clock))
        self._spawn(keep_up("tickets", self._send_tickets, clock))
        self._spawn(keep_up("subscriptions", self._keep_subscribed, clock))

    @property
    def is_connected(self) -> bool:
        return self._connection.is_up

    # --- the port

    def announce(self, topic: str, payload: str = "") -> None:
        self._local.announce(topic, payload)
        if self.is_connected:
            self._wakes.add(topic, payload)
            self._has_wakes.set()

    def listen(self, *topics: str) -> NatsListener:
        self._wanted.update(topics)
        self._is_to_subscribe.set()
        return NatsListener(self, self._local.listen(*topics), topics)

    def offer(self, pool: str, runs: Sequence[str] = ()) -> None:
        if self.is_connected:
            self._offers.add(pool, runs)
            self._has_offers.set()
        else:
            self._local.offer(pool, runs)

    def takes(self, pool: str) -> NatsTaker:
        inbox = TicketInbox(self._connection, self._stream, pool)
        return NatsTaker(self, self._local.takes(pool), inbox)

    def is_watched(self, topic: str) -> bool:
        return self._local.is_watched(topic)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._connection.close()
        await self._local.close()

    # --- for its listeners and takers

    def unsubscribe(self, topics: Sequence[str]) -> None:
        self._wanted.subtract(topics)
        for topic in topics:
            if not self._wanted[topic]:
                del self._wanted[topic]
        self._is_to_subscribe.set()

    def acknowledge(self, receipts: Sequence[str], answer: bytes) -> None:
        """Soon; if it is lost, the ticket comes again."""
        self._spawn(self._publish_all([(receipt, answer) for receipt in receipts]))

    def retire(self, inbox: TicketInbox) -> None:
        self._spawn(self._close_inbox(inbox))

    def doubt(self, error: Exception) -> None:
        """The stream or a consumer did not answer as it should."""
        log.debug("queue.doubtful", error=str(error))
        self._stream.doubt()

    # --- what goes on behind

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            log.error("queue.broken", exc_info=error)

    async def _send_wakes(self) -> None:
        while True:
            await self._has_wakes.wait()
            self._has_wakes.clear()
            wakes = self._wakes.empty().items()
            await self._publish_all(
                [(self._subjects.wake(topic), msgspec.json.encode(told)) for topic, told in wakes]
            )
            await self._clock.sleep(_LINGER)

    async def _publish_all(self, messages: Sequence[tuple[str, bytes]]) -> None:
        with suppress(*GONE):
            for subject, data in messages:
                await self._connection.client.publish(subject, data)

    async def _send_tickets(self) -> None:
        while True:
            await self._has_offers.wait()
            self._has_offers.clear()
            for pool, runs in self._offers.empty().items():
                try:
                    await self._stream.publish(pool, runs)
                except GONE as error:
                    self.doubt(error)
                    self._local.offer(pool, runs)
            await self._clock.sleep(_LINGER)

    async def _close_inbox(self, inbox: TicketInbox) -> None:
        with suppress(*GONE):
            await inbox.close()

    async def _keep_subscribed(self) -> None:
        """Subscribe to what is listened to here; a new client, to all of it anew."""
        self._is_to_subscribe.set()
        while True:
            await self._is_to_subscribe.wait()
            await self._connection.wait_until_up()
            self._is_to_subscribe.clear()
            client = self._connection.client
            if client is not self._subscribed:
                self._subscribed, self._subscriptions = client, {}
            try:
                await self._subscribe(client, self._subscriptions)
            except GONE:
                self._is_to_subscribe.set()
                await self._clock.sleep(_PAUSE)

    async def _subscribe(self, client: Client, subscriptions: dict[str, Subscription]) -> None:
        for topic in subscriptions.keys() - self._wanted.keys():
            await subscriptions.pop(topic).unsubscribe()
        for topic in self._wanted.keys() - subscriptions.keys():
            subscriptions[topic] = await client.subscribe(
                self._subjects.wake(topic),
                cb=partial(self._hear, topic),
                pending_msgs_limit=_MAX_MESSAGES,
                pending_bytes_limit=_MAX_BYTES,
            )

    async def _hear(self, topic: str, message: Msg) -> None:
        """Pass on what another node announced."""
        try:
            payloads = _decoder.decode(message.data)
        except msgspec.MsgspecError as error:
            log.warning("queue.malformed", subject=message.subject, error=str(error))
            return
        for payload in payloads:
            self._local.announce(topic, payload)
