"""Idle workers: the way from firing to an idle worker of the same server.

Scheduler and dispatcher do not know one another. The dispatcher enters a worker here while it waits
for work; whoever fires may take its turn, so that a run that is due is claimed for it in the very
transaction that makes the run. A second commit would double how late runs begin. Where nobody
waits, nothing is lost: the run is queued, and claimed like any other.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from rota.ports.records import Room
from rota.ports.work import WorkBatch


class IdleWorker(Protocol):
    """Connected worker that may be given work."""

    @property
    def pool(self) -> str: ...

    @property
    def room(self) -> Room | None:
        """Return its free room; None: it takes nothing at the moment."""
        ...

    def claiming(self) -> AbstractContextManager[None]:
        """Mark a claim for it, from before the claim until its result was given to it."""
        ...

    async def give(self, claimed: WorkBatch, room: Room) -> None:
        """Give it the runs that were claimed for its room."""
        ...


class Turn:
    """Chance of a worker to get work, taken before the claim; perhaps there is no worker."""

    def __init__(self, worker: IdleWorker | None) -> None:
        self._worker = worker
        self.room = worker.room if worker else None

    def claiming(self) -> AbstractContextManager[None]:
        return self._worker.claiming() if self._worker else nullcontext()

    async def give(self, claimed: WorkBatch) -> None:
        if self._worker and self.room:
            await self._worker.give(claimed, self.room)


class IdleWorkers(Protocol):
    """Workers of this process that wait for work; each gets its turn."""

    def waiting(self, worker: IdleWorker) -> AbstractContextManager[None]:
        """Register a worker while it waits, whether or not it is given something meanwhile."""
        ...

    def next_of(self, pool: str) -> Turn:
        """Return the next turn in a pool."""
        ...


class NobodyIdle:
    """Implementation for processes without workers: due runs are queued."""

    def waiting(self, worker: IdleWorker) -> AbstractContextManager[None]:
        return nullcontext()

    def next_of(self, pool: str) -> Turn:
        return Turn(None)
