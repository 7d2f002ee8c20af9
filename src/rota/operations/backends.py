"""What every operation works on."""

from __future__ import annotations

from dataclasses import dataclass, field

from rota.operations.specs import SpecBook
from rota.ports.blobs import Blobs
from rota.ports.queue import CANCELLED, EVENTS, TIMES, Queue
from rota.ports.records import Wakes
from rota.ports.store import Store


@dataclass(frozen=True, slots=True)
class Backends:
    """The store, the queue and the blob store of one deployment."""

    store: Store
    queue: Queue
    blobs: Blobs
    specs: SpecBook = field(default_factory=SpecBook)  # read from this store

    def announce(self, wakes: Wakes) -> None:
        """Tell others what a durable write concerns. Losing this only costs time."""
        for pool, runs in wakes.pools.items():
            self.queue.offer(pool, runs)
        for session in wakes.sessions:
            self.queue.announce(CANCELLED, session)
        if wakes.times:
            self.queue.announce(TIMES)
        self.queue.announce(EVENTS)
