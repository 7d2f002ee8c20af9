"""What every operation works on."""

from __future__ import annotations

from dataclasses import dataclass, field

from rota.operations.idle_workers import IdleWorkers
from rota.operations.specs import SpecBook
from rota.ports.blobs import Blobs
from rota.ports.queue import CANCELLED, CARTS, EVENTS, TIMES, Queue
from rota.ports.records import Wakes
from rota.ports.store import Store


@dataclass(frozen=True, slots=True)
class Backends:
    """The store, the queue and the blob store of one deployment."""

    store: Store
    queue: Queue
    blobs: Blobs
    specs: SpecBook = field(default_factory=SpecBook)  # read from this store
    idle: IdleWorkers = field(default_factory=IdleWorkers)  # of this process

    def announce(self, wakes: Wakes) -> None:
        """Tell others what a durable write concerns. Losing this only costs time."""
        for pool, runs in wakes.pools.items():
            self.queue.offer(pool, runs)
        for session in wakes.sessions:
            self.queue.announce(CANCELLED, session)
        if wakes.times:
            self.queue.announce(TIMES)
        if wakes.carts:
            self.queue.announce(CARTS)
        self.queue.announce(EVENTS)
