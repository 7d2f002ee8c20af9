"""Wake-ups inside one process, by call."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from datetime import timedelta


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
        if not self._ready.is_set():
            try:
                async with asyncio.timeout(max(timeout.total_seconds(), 0)):
                    await self._ready.wait()
            except TimeoutError:
                return frozenset()
        self._ready.clear()
        payloads, self._payloads = frozenset(self._payloads), set()
        return payloads

    def close(self) -> None:
        self._queue.forget(self, self._topics)


class LocalQueue:
    """Implements `rota.ports.queue.Queue` for a server that is alone."""

    def __init__(self) -> None:
        self._listeners: defaultdict[str, set[LocalListener]] = defaultdict(set)

    def announce(self, topic: str, payload: str = "") -> None:
        for listener in self._listeners.get(topic, ()):
            listener.notice(payload)

    def listen(self, *topics: str) -> LocalListener:
        listener = LocalListener(self, topics)
        for topic in topics:
            self._listeners[topic].add(listener)
        return listener

    def is_watched(self, topic: str) -> bool:
        return bool(self._listeners.get(topic))

    def forget(self, listener: LocalListener, topics: tuple[str, ...]) -> None:
        for topic in topics:
            self._listeners[topic].discard(listener)
            if not self._listeners[topic]:
                del self._listeners[topic]

    async def close(self) -> None:
        self._listeners.clear()
