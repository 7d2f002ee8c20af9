"""Wake-ups, tickets and idle workers inside one process, by direct calls."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta

import structlog

from rota.domain.ids import is_run_id
from rota.ports.clock import Clock
from rota.ports.idle_workers import IdleWorker, Turn
from rota.ports.queue import MAX_NAMED, Ticket


def run_ids(texts: Iterable[str]) -> tuple[str, ...]:
    """Return the run ids that may reach the store: anybody may have written the message."""
    return tuple(filter(is_run_id, texts))


class Names:
    """Run ids, each once and in order; of too many, or if some were unnamed, it names none."""

    def __init__(self, limit: int = MAX_NAMED) -> None:
        self._limit = limit
        self._runs: dict[str, None] = {}
        self._is_vague = False

    def add(self, runs: Sequence[str]) -> None:
        if not self._is_vague:
            self._runs.update(dict.fromkeys(runs))
            self._is_vague = not runs or len(self._runs) > self._limit
        if self._is_vague:
            self._runs.clear()

    def empty(self) -> tuple[str, ...]:
        """Return the gathered ids, and clear."""
        runs = tuple(self._runs)
        self._runs.clear()
        self._is_vague = False
        return runs


async def _is_set(event: asyncio.Event, timeout: timedelta) -> bool:
    """Wait for the event, at most so long; return whether it is set."""
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
        self._ready.clear()  # nothing is awaited until the payloads are taken: none gets lost here
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
        """Do nothing: every taker got its own ticket."""

    def pass_on(self, ticket: Ticket) -> None:
        """Do nothing: every other taker has the ticket already."""

    def close(self) -> None:
        self._queue.dismiss(self, self._pool)


class LocalQueue:
    """Implements `rota.ports.queue.Queue` for a server that is alone."""

    def __init__(self) -> None:
        self._listeners: defaultdict[str, set[LocalListener]] = defaultdict(set)
        self._takers: defaultdict[str, set[LocalTaker]] = defaultdict(set)

    def announce(self, topic: str, payload: str = "") -> None:
        # `get`: to read a missing topic would create it, and there is one for each run's output.
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

    def watched(self, prefix: str) -> frozenset[str]:
        return frozenset(topic for topic in self._listeners if topic.startswith(prefix))

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


_MAX_HINTS = 10_000


class Wakes:
    """Announcements to send, each once; when there are too many, the newest are dropped."""

    def __init__(self, limit: int = _MAX_HINTS) -> None:
        self._limit = limit
        self._payloads: defaultdict[str, dict[str, None]] = defaultdict(dict)
        self._count = 0

    def add(self, topic: str, payload: str) -> None:
        if self._count < self._limit and payload not in self._payloads[topic]:
            self._payloads[topic][payload] = None
            self._count += 1

    def empty(self) -> dict[str, list[str]]:
        """Return the payloads by topic, and clear."""
        taken = {topic: list(payloads) for topic, payloads in self._payloads.items() if payloads}
        self._payloads.clear()
        self._count = 0
        return taken


class Offers:
    """Claimable runs by pool; of too many pools, the newest are dropped."""

    def __init__(self, limit: int = _MAX_HINTS) -> None:
        self._limit = limit
        self._pools: defaultdict[str, Names] = defaultdict(Names)

    def add(self, pool: str, runs: Sequence[str]) -> None:
        if pool in self._pools or len(self._pools) < self._limit:
            self._pools[pool].add(runs)

    def empty(self) -> dict[str, tuple[str, ...]]:
        """Return the runs by pool (no ids: they are many), and clear."""
        taken = {pool: names.empty() for pool, names in self._pools.items()}
        self._pools.clear()
        return taken


log = structlog.get_logger()

_PAUSE = timedelta(seconds=1)


async def keep_up(name: str, loop: Callable[[], Awaitable[None]], clock: Clock) -> None:
    """Run a loop until cancelled; log an unexpected error and restart the loop.

    The server can do without a queue, which is a hint: so an error here does not end it, as a bug
    elsewhere would.
    """
    while True:
        try:
            await loop()
        except Exception:  # (the edge of a loop)
            log.exception("queue.broken", loop=name, effect="work is found by polling meanwhile")
        await clock.sleep(_PAUSE)


class LocalIdleWorkers:
    """Implements `rota.ports.idle_workers.IdleWorkers` for the roles of one process.

    It has the workers that wait for work; the one that was given something last comes last.
    """

    def __init__(self) -> None:
        self._waiting: dict[IdleWorker, None] = {}

    @contextmanager
    def waiting(self, worker: IdleWorker) -> Iterator[None]:
        self._waiting[worker] = None
        try:
            yield
        finally:
            del self._waiting[worker]

    def next_of(self, pool: str) -> Turn:
        worker = next((each for each in self._waiting if each.pool == pool), None)
        if worker is not None:
            self._waiting[worker] = self._waiting.pop(worker)
        return Turn(worker)
