"""Wake-ups and tickets inside one process, by call."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from datetime import timedelta

from rota.adapters.queue.names import Names
from rota.ports.queue import Ticket


async def _is_set(event: asyncio.Event, timeout: timedelta) -> bool:
    """Whether it is set, at the latest after so long."""
    if not event.is_set():
        try:
            async with asyncio.timeout(max(timeout.total_seconds(), 0)):
                await event.wait()
        except TimeoutError:
            return False
    return True


class LocalListener:
    def __init__(self, queue: LocalQueue, topics: tuple[str, ...]) -> None:
        self._queue = queue
        self._topics = topics
        self._payloads: set[str] = set()
        self._ready = asyncio.Event()

    def notice(self, payload: str) -> None:
        self._payloads.add(payload)
        self._ready.set()

    async def wait(self, timeout: timedelta) -> frozenset[str]:
        if not await _is_set(self._ready, timeout):
            return frozenset()
        self._ready.clear()
        payloads, self._payloads = frozenset(self._payloads), set()
        return payloads

    def close(self) -> None:
        self._queue.forget(self, self._topics)


class LocalTaker:
    def __init__(self, queue: LocalQueue, pool: str) -> None:
        self._queue = queue
        self._pool = pool
        self._names = Names()
        self._ready = asyncio.Event()

    def notice(self, runs: Sequence[str]) -> None:
        self._names.add(runs)
        self._ready.set()

    async def take(self, timeout: timedelta) -> Ticket | None:
        if not await _is_set(self._ready, timeout):
            return None
        self._ready.clear()
        return Ticket(self._names.empty())

    def done(self, ticket: Ticket) -> None:
        """Every taker got its own: nothing is left to do."""

    def pass_on(self, ticket: Ticket) -> None:
        """Every other taker has it already."""

    def close(self) -> None:
        self._queue.dismiss(self, self._pool)


class LocalQueue:
    """Implements `rota.ports.queue.Queue` for a server that is alone."""

    def __init__(self) -> None:
        self._listeners: defaultdict[str, set[LocalListener]] = defaultdict(set)
        self._takers: defaultdict[str, set[LocalTaker]] = defaultdict(set)

    def announce(self, topic: str, payload: str = "") -> None:
        for listener in self._listeners.get(topic, ()):
            listener.notice(payload)

    def listen(self, *topics: str) -> LocalListener:
        listener = LocalListener(self, topics)
        for topic in topics:
            self._listeners[topic].add(listener)
        return listener

    def offer(self, pool: str, runs: Sequence[str] = ()) -> None:
        for taker in self._takers.get(pool, ()):
            taker.notice(runs)

    def takes(self, pool: str) -> LocalTaker:
        taker = LocalTaker(self, pool)
        self._takers[pool].add(taker)
        return taker

    def is_watched(self, topic: str) -> bool:
        return bool(self._listeners.get(topic))

    def forget(self, listener: LocalListener, topics: tuple[str, ...]) -> None:
        for topic in topics:
            self._listeners[topic].discard(listener)
            if not self._listeners[topic]:
                del self._listeners[topic]

    def dismiss(self, taker: LocalTaker, pool: str) -> None:
        self._takers[pool].discard(taker)
        if not self._takers[pool]:
            del self._takers[pool]

    async def close(self) -> None:
        self._listeners.clear()
        self._takers.clear()
