"""The queue on NATS: wake-ups on plain subjects, work tickets on a JetStream work queue.

`TicketStream` and `TicketInbox` publish and fetch tickets, each of which goes to one taker;
`NatsQueue` implements the port. Wake-ups go to all listeners, and on this node by direct call as
well: a node that is cut off from NATS still wakes itself, and finds the work of others by polling.

Nothing here is relied upon. A ticket that is lost, doubled or late costs a poll, or a claim that
finds nothing; so the stream is in memory, drops what is old, and is created again, as are its
consumers, whenever it is found missing, whoever removed it.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

import msgspec
import structlog
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import Error as NatsError
from nats.js.api import (
    AckPolicy,
    ConsumerConfig,
    DiscardPolicy,
    Header,
    RetentionPolicy,
    StorageType,
    StreamConfig,
)
from nats.js.errors import APIError, NoStreamResponseError

from rota.clock import SystemClock
from rota.ports.clock import Clock
from rota.ports.queue import Ticket
from rota.queue.local import (
    LocalListener,
    LocalQueue,
    LocalTaker,
    Names,
    Offers,
    Wakes,
    keep_up,
    run_ids,
)
from rota.queue.nats_connection import ANSWER_SECONDS, GONE, NatsConnection, Subjects, parse_address

log = structlog.get_logger()

NAMED_RUNS = 100  # in one message
_MAX_AGE_SECONDS = 60.0
_DUPLICATE_SECONDS = 10.0
_MAX_STREAM_BYTES = 16 << 20
_ACK_SECONDS = 5.0
_MAX_DELIVERIES = 10  # how often a ticket is passed on
_FORGOTTEN_SECONDS = 3600.0  # after which the consumer of a pool that nobody serves goes
_MERGED = 32  # tickets taken at once
_GRACE_SECONDS = 0.5  # for the server to say that a request has ended
_NO_MESSAGES = frozenset({"404", "408"})
_NAME_IN_USE = 10058  # a stream of that name with other settings: good enough

_decoder = msgspec.json.Decoder(tuple[str, ...])


@dataclass(frozen=True, slots=True)
class NatsTicket(Ticket):
    receipts: tuple[str, ...] = ()  # where the messages are acknowledged


class TicketStream:
    """Stream of one deployment with a consumer for each pool."""

    def __init__(self, connection: NatsConnection, subjects: Subjects) -> None:
        self._connection = connection
        self._subjects = subjects
        self._ready: set[str] = set()  # pools whose consumer is there, as far as is known
        self._making = asyncio.Lock()

    def next_of(self, pool: str) -> str:
        """Return the subject on which the next ticket of a pool is requested."""
        subjects = self._subjects
        return f"$JS.API.CONSUMER.MSG.NEXT.{subjects.stream}.{subjects.consumer(pool)}"

    def recheck(self) -> None:
        """Check stream and consumers again before their next use, because a request failed."""
        self._ready.clear()

    async def ensure(self, pool: str) -> None:
        """Create the stream and the pool's consumer unless they exist."""
        async with self._making:
            if pool not in self._ready:
                await self._make_stream()
                await self._make_consumer(pool)
                self._ready.add(pool)

    async def publish(self, pool: str, runs: Sequence[str]) -> None:
        """Publish runs, in messages of a bounded size; raise one of `GONE` if that fails."""
        await self.ensure(pool)
        pieces = [runs[at : at + NAMED_RUNS] for at in range(0, len(runs), NAMED_RUNS)] or [()]
        await asyncio.gather(*(self._publish(pool, piece) for piece in pieces))

    async def _publish(self, pool: str, runs: Sequence[str]) -> None:
        number = self._connection.client.new_inbox()  # unique, so that a repetition is known
        try:
            await self._send(pool, runs, number)
        except (NoStreamResponseError, TimeoutError):
            self.recheck()
            await self.ensure(pool)
            await self._send(pool, runs, number)

    async def _send(self, pool: str, runs: Sequence[str], number: str) -> None:
        await self._connection.client.jetstream().publish(
            self._subjects.tickets(pool),
            msgspec.json.encode(runs),
            timeout=ANSWER_SECONDS,
            headers={Header.MSG_ID.value: number},
        )

    async def _make_stream(self) -> None:
        stream = self._connection.client.jetstream(timeout=ANSWER_SECONDS)
        for replicas in (3, 1):  # a server that is alone refuses three
            try:
                await stream.add_stream(self._stream_config(replicas))
            except APIError as error:
                if error.err_code == _NAME_IN_USE:
                    return
                if replicas == 1:
                    raise
            else:
                return

    def _stream_config(self, replicas: int) -> StreamConfig:
        return StreamConfig(
            name=self._subjects.stream,
            subjects=[self._subjects.all_tickets],
            retention=RetentionPolicy.WORK_QUEUE,
            discard=DiscardPolicy.OLD,
            storage=StorageType.MEMORY,
            max_age=_MAX_AGE_SECONDS,
            max_bytes=_MAX_STREAM_BYTES,
            duplicate_window=_DUPLICATE_SECONDS,
            num_replicas=replicas,
        )

    async def _make_consumer(self, pool: str) -> None:
        await self._connection.client.jetstream(timeout=ANSWER_SECONDS).add_consumer(
            self._subjects.stream,
            ConsumerConfig(
                durable_name=self._subjects.consumer(pool),
                filter_subject=self._subjects.tickets(pool),
                ack_policy=AckPolicy.EXPLICIT,
                ack_wait=_ACK_SECONDS,
                max_deliver=_MAX_DELIVERIES,
                inactive_threshold=_FORGOTTEN_SECONDS,
            ),
        )


class TicketInbox:
    """Requests tickets of one pool, a few at a time, and never for longer than told."""

    def __init__(self, connection: NatsConnection, stream: TicketStream, pool: str) -> None:
        self._connection = connection
        self._stream = stream
        self._pool = pool
        self._numbers = itertools.count(1)
        self._client: Client | None = None
        self._inbox = ""
        self._subscription: Subscription | None = None
        self._arrived: asyncio.Queue[Msg] = asyncio.Queue()

    async def fetch(self, wait: timedelta) -> NatsTicket | None:
        """Fetch all available tickets as one; raise one of `GONE` if the server is not healthy."""
        client = await self._subscribed()
        await self._stream.ensure(self._pool)
        patience = {"batch": 1, "expires": wait // timedelta(microseconds=1) * 1_000}
        found: list[Msg] = []
        await self._pull(client, patience, wait.total_seconds() + _GRACE_SECONDS, found)
        if found and (waiting := found[0].metadata.num_pending):
            at_once = {"batch": min(waiting, _MERGED), "no_wait": True}
            with suppress(*GONE):  # a failure must not lose the tickets taken so far
                await self._pull(client, at_once, _GRACE_SECONDS, found)
        return _merged(found)

    async def close(self) -> None:
        if self._subscription is not None:
            await self._subscription.unsubscribe()

    async def _subscribed(self) -> Client:
        client = self._connection.client
        if self._client is not client:
            self._inbox = client.new_inbox()
            self._subscription = await client.subscribe(f"{self._inbox}.*", cb=self._arrived.put)
            self._client = client
        return client

    async def _pull(
        self, client: Client, request: dict[str, int], within_seconds: float, found: list[Msg]
    ) -> None:
        """Append the messages of a request until it is fulfilled or the server ends it."""
        reply = f"{self._inbox}.{next(self._numbers)}"
        asked = msgspec.json.encode(request)
        await client.publish(self._stream.next_of(self._pool), asked, reply)
        enough = len(found) + request["batch"]
        async with asyncio.timeout(within_seconds):
            while len(found) < enough:
                message = await self._arrived.get()
                status = _status(message)
                if not status:
                    found.append(message)
                elif message.subject == reply:  # else it ends an earlier request
                    if status in _NO_MESSAGES:
                        break
                    raise NatsError(f"tickets cannot be had: status {status}")


def _status(message: Msg) -> str:
    """Return the status with which a request ends; "" for a message of the stream."""
    return "" if message.data else (message.headers or {}).get(Header.STATUS.value, "")


def _merged(messages: Sequence[Msg]) -> NatsTicket | None:
    names, receipts = Names(), []
    for message in messages:
        try:
            names.add(run_ids(_decoder.decode(message.data)))
        except msgspec.MsgspecError as error:
            log.warning("queue.malformed", subject=message.subject, error=str(error))
        receipts.append(message.reply)
    return NatsTicket(names.empty(), is_sole=True, receipts=tuple(receipts)) if receipts else None


_FETCH = timedelta(seconds=1)  # never rely on a long one: after a server's death it may hang
_PAUSE = timedelta(milliseconds=200)  # before a server that is not well is asked again
_LINGER = timedelta(milliseconds=1)  # hints that come meanwhile share a message
_MAX_MESSAGES, _MAX_BYTES = 10_000, 4 << 20  # heard, but not passed on yet
_DONE, _PASS_ON = b"+ACK", b"-NAK"


def open_nats(address: str, clock: Clock | None = None) -> NatsQueue:
    """Create a queue on the servers of `nats://HOST[:PORT][,HOST…][/DEPLOYMENT]`.

    They need not be up.
    """
    servers, deployment = parse_address(address)
    clock = clock or SystemClock()
    return NatsQueue(NatsConnection(servers, clock), Subjects(deployment), clock)


class NatsListener:
    """Receives announcements of this node and of others."""

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
    """Takes tickets from the stream, and from this node those the stream could not carry."""

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
            self._queue.recheck(error)
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
        # One way or the other: the stream gives a ticket to one taker, the local queue to each.
        if self.is_connected:
            self._offers.add(pool, runs)
            self._has_offers.set()
        else:
            self._local.offer(pool, runs)

    def takes(self, pool: str) -> NatsTaker:
        inbox = TicketInbox(self._connection, self._stream, pool)
        return NatsTaker(self, self._local.takes(pool), inbox)

    def watched(self, prefix: str) -> frozenset[str]:
        return self._local.watched(prefix)

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
        """Acknowledge soon; if that is lost, the ticket comes again."""
        self._spawn(self._publish_all([(receipt, answer) for receipt in receipts]))

    def retire(self, inbox: TicketInbox) -> None:
        self._spawn(self._close_inbox(inbox))

    def recheck(self, error: Exception) -> None:
        """Log a failed request, and check the stream and its consumers again."""
        log.debug("queue.doubtful", error=str(error))
        self._stream.recheck()

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
                    self.recheck(error)
                    self._local.offer(pool, runs)
            await self._clock.sleep(_LINGER)

    async def _close_inbox(self, inbox: TicketInbox) -> None:
        with suppress(*GONE):
            await inbox.close()

    async def _keep_subscribed(self) -> None:
        """Subscribe to the topics listened to here; with a new client, to all of them again."""
        self._is_to_subscribe.set()
        while True:
            await self._is_to_subscribe.wait()
            await self._connection.wait_until_up()
            # Before the topics are read: one that comes while we subscribe starts another round.
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
        # Differences are sets of their own: topics come and go while this waits for the server.
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
