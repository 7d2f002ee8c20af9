"""Work tickets on a JetStream work-queue stream: each goes to one taker, or to nobody for a while.

Streams and consumers are made when they are missing, whoever removed them. Nothing here is relied
upon: a ticket that is lost, doubled or late costs a poll or a claim that finds nothing.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta

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

from rota.ports.queue import Ticket
from rota.queue.local import Names, run_ids
from rota.queue.nats_connection import ANSWER_SECONDS, GONE, NatsConnection, Subjects

log = structlog.get_logger()

NAMED_RUNS = 100  # in one message
_MAX_AGE_SECONDS = 60.0
_DUPLICATE_SECONDS = 10.0
_MAX_BYTES = 16 << 20
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
    """The stream of one deployment with a consumer for each pool."""

    def __init__(self, connection: NatsConnection, subjects: Subjects) -> None:
        self._connection = connection
        self._subjects = subjects
        self._ready: set[str] = set()  # pools whose consumer is there, as far as is known
        self._making = asyncio.Lock()

    def next_of(self, pool: str) -> str:
        """Where the next ticket of a pool is asked for."""
        subjects = self._subjects
        return f"$JS.API.CONSUMER.MSG.NEXT.{subjects.stream}.{subjects.consumer(pool)}"

    def doubt(self) -> None:
        """Something did not answer: look after everything again."""
        self._ready.clear()

    async def ensure(self, pool: str) -> None:
        """Make the stream and the pool's consumer unless they are there."""
        async with self._making:
            if pool not in self._ready:
                await self._make_stream()
                await self._make_consumer(pool)
                self._ready.add(pool)

    async def publish(self, pool: str, runs: Sequence[str]) -> None:
        """Offer runs, in messages of a bounded size; raises one of `GONE` if that fails."""
        await self.ensure(pool)
        pieces = [runs[at : at + NAMED_RUNS] for at in range(0, len(runs), NAMED_RUNS)] or [()]
        await asyncio.gather(*(self._publish(pool, piece) for piece in pieces))

    async def _publish(self, pool: str, runs: Sequence[str]) -> None:
        number = self._connection.client.new_inbox()  # unique, so that a repetition is known
        try:
            await self._send(pool, runs, number)
        except (NoStreamResponseError, TimeoutError):
            self.doubt()
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
            max_bytes=_MAX_BYTES,
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
    """Asks for tickets of one pool, a few at a time, and never for longer than told."""

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
        """All tickets that are there, as one; raises one of `GONE` if the server is not well."""
        client = await self._subscribed()
        await self._stream.ensure(self._pool)
        patience = {"batch": 1, "expires": wait // timedelta(microseconds=1) * 1_000}
        found: list[Msg] = []
        await self._pull(client, patience, wait.total_seconds() + _GRACE_SECONDS, found)
        if found and (waiting := found[0].metadata.num_pending):
            at_once = {"batch": min(waiting, _MERGED), "no_wait": True}
            with suppress(*GONE):  # what was taken already is not asked for again
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
        """Add what a request brings until it is fulfilled or the server says that this was all."""
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
    """Why a request ends; "" for a message of the stream."""
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
