"""Server lease, shard ownership, and the pacing of the scheduler's loops."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from datetime import datetime, timedelta

import structlog

from rota.domain.ids import ServerId
from rota.domain.lease import guard_margin, renewal_interval
from rota.domain.shards import LEADING_SHARD
from rota.operations.engine import Engine
from rota.ports.clock import Clock
from rota.ports.queue import SHARDS, Queue
from rota.ports.records import NewServer, OwnedShards, Ownership


class HeldShards:
    """Shards that the scheduler's loops may work on.

    Empty once the lease may have expired by this node's clock, even if nobody noticed: a server
    that was suspended and resumes finds itself without shards, not with those of another.
    """

    def __init__(self, server: ServerId, clock: Clock) -> None:
        self._server = server
        self._clock = clock
        self._epochs: Mapping[int, int] = {}
        self._until = 0.0
        self._to_tell: list[Callable[[], None]] = []

    @property
    def epochs(self) -> Mapping[int, int]:
        """Return the epoch of each shard, by number."""
        return self._epochs if self.is_current else {}

    @property
    def is_current(self) -> bool:
        """Return whether the server's lease is surely valid, with shards or without."""
        return self._clock.monotonic() < self._until

    @property
    def is_leading(self) -> bool:
        """Return whether this server does the duties that are not divided among servers.

        Two leaders at once are harmless, as all they write is guarded; a short time without one
        only delays.
        """
        return LEADING_SHARD in self.epochs

    def ownership(self) -> Ownership:
        return Ownership(self._server, self.epochs)

    def on_gain(self, tell: Callable[[], None]) -> None:
        """Register a callback for whenever shards are gained, or regained."""
        self._to_tell.append(tell)

    def hold(self, epochs: Mapping[int, int], until: float) -> None:
        """Set the owned shards, valid until a monotonic time."""
        known = self.epochs
        has_gained = any(known.get(number) != epoch for number, epoch in epochs.items())
        self._epochs, self._until = dict(epochs), until
        if has_gained:
            for tell in self._to_tell:
                tell()

    def lose(self, ownership: Ownership, numbers: Collection[int]) -> None:
        """Drop shards that the store says are not owned; those gained since stay."""
        if not numbers:  # as after nearly every firing
            return
        stale = {(number, ownership.epochs.get(number)) for number in numbers}
        self._epochs = dict(held for held in self._epochs.items() if held not in stale)


log = structlog.get_logger()

_HAND_OVER_TRIES = 5  # the rest goes with the next renewal
_HAND_OVER_PAUSE = timedelta(milliseconds=20)
_AFTER_AN_END = timedelta(milliseconds=20)  # how soon a lease that was not renewed is looked at


class ShardKeeper:
    """Renews this server's lease, acquires the shards that fall to it, and releases the others.

    A shard that is released or left behind is announced, so that its next owner need not wait for
    its next renewal; the lease of another server has to expire first.
    """

    name = "shard-keeper"

    def __init__(self, engine: Engine, clock: Clock, server: NewServer, held: HeldShards) -> None:
        self._engine = engine
        self._clock = clock
        self._server = server
        self._held = held
        self._is_stopping = False
        self._turn = asyncio.Lock()
        self._pause = timedelta(0)

    async def run(self) -> None:
        listener = self._engine.queue.listen(SHARDS)
        try:
            while True:
                await self.run_once()
                await listener.wait(self._pause)
        finally:
            listener.close()

    async def run_once(self) -> int:
        """Renew the lease; return how many shards are owned then."""
        async with self._turn:
            sent_at = self._clock.monotonic()
            holding = await self._renew()
            # Counted from the sending, so that it is over here before it is over in the store.
            lasts = self._server.lease - guard_margin(self._server.lease)
            held = {} if self._is_stopping else holding.shards
            self._held.hold(held, sent_at + lasts.total_seconds())
            self._pause = self._until_next(holding)
        if holding.given:
            log.info("shards.given", count=len(holding.given))
            self._engine.queue.announce(SHARDS)
        return len(holding.shards)

    async def hand_over(self) -> None:
        """Release all shards and acquire none from here on, while this server finishes its work."""
        self._is_stopping = True
        self._held.hold({}, 0.0)
        for _ in range(_HAND_OVER_TRIES):
            if not await self.run_once():
                return
            await self._clock.sleep(_HAND_OVER_PAUSE)  # shards that are being fired stay behind

    async def leave(self) -> None:
        """End the lease. Nothing may renew after this."""
        self._held.hold({}, 0.0)  # first: after the commit the shards may have other owners
        async with self._turn:
            await self._engine.store.leave_cluster(self._server.id)
        self._engine.queue.announce(SHARDS)

    async def _renew(self) -> OwnedShards:
        store = self._engine.store
        holding = await store.keep_shards(self._server.id, stopping=self._is_stopping)
        if not holding.alive:
            await store.join(self._server)
            if not self._server.is_alone:
                log.info("server.joined", server=self._server.id)
            self._engine.queue.announce(SHARDS)
            holding = await store.keep_shards(self._server.id, stopping=self._is_stopping)
        return holding

    def _until_next(self, holding: OwnedShards) -> timedelta:
        """Return the time until this lease is to be renewed, or another's may have expired."""
        pause = renewal_interval(self._server.lease)
        ends = [_left(it.expires_at, holding) for it in holding.servers if it.id != self._server.id]
        return min([pause, *ends])


def _left(expires_at: datetime, holding: OwnedShards) -> timedelta:
    return expires_at - holding.now + _AFTER_AN_END


async def at_each_wake(
    queue: Queue,
    topic: str,
    run_once: Callable[[], Awaitable[object]],
    pause: Callable[[], timedelta],
) -> None:
    """Call `run_once` for ever, waiting for the topic in between, at most for what `pause` says."""
    listener = queue.listen(topic)
    try:
        while True:
            await run_once()
            await listener.wait(pause())
    finally:
        listener.close()


def until_next(
    next_at: datetime | None, looked_at: datetime, now: datetime, most: timedelta
) -> timedelta:
    """Return how long to wait after a look, if something is due next at this time.

    What was already due at the look, and still is, belongs to another server or cannot be read.
    What fell due since then is ours.
    """
    if next_at is None or next_at <= looked_at:
        return most
    return min(most, max(next_at - now, timedelta(0)))
