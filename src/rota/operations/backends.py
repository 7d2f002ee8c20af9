"""What every operation works on."""

from __future__ import annotations

from dataclasses import dataclass

from rota.ports.blobs import Blobs
from rota.ports.queue import CANCELLED, EVENTS, TIMES, Queue, work
from rota.ports.records import Wakes
from rota.ports.store import Store


@dataclass(frozen=True, slots=True)
class Backends:
    """The store, the queue and the blob store of one deployment."""

    store: Store
    queue: Queue
    blobs: Blobs

    def announce(self, wakes: Wakes) -> None:
        """Tell others what a durable write concerns. Losing this only costs time."""
        for pool in wakes.pools:
            self.queue.announce(work(pool))
        for session in wakes.sessions:
            self.queue.announce(CANCELLED, session)
        if wakes.times:
            self.queue.announce(TIMES)
        self.queue.announce(EVENTS)
