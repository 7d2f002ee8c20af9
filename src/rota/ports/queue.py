"""Wake-ups and work tickets between the parts of Rota: hints, never the truth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Protocol

from rota.domain.ids import SessionId

# Topics. A payload is a run, session or job id, or empty.
CANCELLED = "cancelled"  # payload: session id that has something to stop
FAVOURED = "favoured"  # payload: session id that a run was left to, as it fits it better
WATCHED = "watched"  # payload: run id whose output somebody begins to follow
EVENTS = "events"  # something was appended to the event history
TIMES = "times"  # something may be due earlier than the scheduler thinks
CARTS = "carts"  # something of a cart has ended, or a cart may go on
KEYS = "keys"  # a run that takes shared keys ended or waits, or their rules changed
FOLLOWED = "followed"  # a run has completed that others follow
WORKERS = "workers"  # workers came or went
CALLERS = "callers"  # what somebody may do has changed: a token, a role, a principal
SHARDS = "shards"  # shards were given up, or a server came or left

MAX_NAMED = 1_000  # runs that one hint names; of more it only says that there is work


OUTPUT = "output."  # begins the topics of runs


def output(run: str) -> str:
    """Return the topic of a run that printed something."""
    return OUTPUT + run


class Listener(Protocol):
    """One subscription. Closing it twice is harmless."""

    async def wait(self, timeout: timedelta) -> frozenset[str]:
        """Return payloads announced since the last wait; empty when the time passed without any."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Ticket:
    """Notice that a pool has work."""

    runs: tuple[str, ...] = ()  # which runs; empty: there is work, claim in order
    is_sole: bool = False  # nobody else was given it


class Taker(Protocol):
    """Consumer of tickets of one pool. Closing it twice is harmless."""

    async def take(self, timeout: timedelta) -> Ticket | None:
        """Return all that was offered since the last take, as one ticket; None at the timeout."""
        ...

    def done(self, ticket: Ticket) -> None:
        """Acknowledge a ticket; never blocks, never fails."""
        ...

    def pass_on(self, ticket: Ticket) -> None:
        """Return a ticket for other takers; never blocks, never fails."""
        ...

    def close(self) -> None: ...


class Queue(Protocol):
    """Carrier of hints. It may lose, repeat, delay or reorder anything: listeners also poll."""

    def announce(self, topic: str, payload: str = "") -> None:
        """Notify listeners of a topic, soon; never blocks, never fails."""
        ...

    def listen(self, *topics: str) -> Listener: ...

    def offer(self, pool: str, runs: Sequence[str] = ()) -> None:
        """Offer runs to claim (none named: some of the pool); never blocks, never fails.

        A ticket goes to one taker where the queue can do that, else to all.
        """
        ...

    def takes(self, pool: str) -> Taker: ...

    def watched(self, prefix: str) -> frozenset[str]:
        """Return the topics that begin so and have listeners, as far as this node knows."""
        ...

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Wakes:
    """Notifications of a store's transaction, to be published after its commit."""

    # Pools that have work, and the runs that were queued there; none named: they are many.
    pools: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    sessions: frozenset[SessionId] = frozenset()  # have something to cancel
    times: bool = False  # something may be due earlier than the scheduler thinks
    carts: bool = False  # something of a cart has ended, or a cart may go on
    followed: bool = False  # a run has completed that others follow
    workers: bool = False  # workers came or went
    keys: bool = False  # a run that takes shared keys ended or waits, or their rules changed
    favoured: frozenset[SessionId] = frozenset()  # a run was left to them, as it fits them better
    events: bool = False  # something was appended to the event history
    callers: bool = False  # what somebody may do has changed


def publish(queue: Queue, wakes: Wakes) -> None:
    """Publish the notifications of a committed transaction. Losing them only costs time."""
    for pool, runs in wakes.pools.items():
        queue.offer(pool, runs)
    for session in wakes.sessions:
        queue.announce(CANCELLED, session)
    for session in wakes.favoured:
        queue.announce(FAVOURED, session)
    for topic, is_concerned in (
        (TIMES, wakes.times),
        (CARTS, wakes.carts),
        (FOLLOWED, wakes.followed),
        (WORKERS, wakes.workers),
        (KEYS, wakes.keys),
        (EVENTS, wakes.events),
        (CALLERS, wakes.callers),
    ):
        if is_concerned:
            queue.announce(topic)
