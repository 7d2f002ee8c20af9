"""What waits to be told to other nodes, until the carrier has time for it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from rota.adapters.queue.names import Names

_MAX_HINTS = 10_000


class Wakes:
    """Announcements, each once; when there are too many, the newest are dropped."""

    def __init__(self, limit: int = _MAX_HINTS) -> None:
        self._limit = limit
        self._payloads: defaultdict[str, dict[str, None]] = defaultdict(dict)
        self._count = 0

    def add(self, topic: str, payload: str) -> None:
        if self._count < self._limit and payload not in self._payloads[topic]:
            self._payloads[topic][payload] = None
            self._count += 1

    def empty(self) -> dict[str, list[str]]:
        """Payloads by topic; none are left."""
        taken = {topic: list(payloads) for topic, payloads in self._payloads.items() if payloads}
        self._payloads.clear()
        self._count = 0
        return taken


class Offers:
    """Runs that may be claimed, by pool; of too many pools, the newest are dropped."""

    def __init__(self, limit: int = _MAX_HINTS) -> None:
        self._limit = limit
        self._pools: defaultdict[str, Names] = defaultdict(Names)

    def add(self, pool: str, runs: Sequence[str]) -> None:
        if pool in self._pools or len(self._pools) < self._limit:
            self._pools[pool].add(runs)

    def empty(self) -> dict[str, tuple[str, ...]]:
        """Runs by pool (none named: they are many); none are left."""
        taken = {pool: names.empty() for pool, names in self._pools.items()}
        self._pools.clear()
        return taken
