"""The way from firing to an idle worker of the same server.

Scheduler and dispatcher do not know one another. The dispatcher enters a worker here while it waits
for work; whoever fires may take its turn, so that a run that is due is claimed for it in the very
transaction that makes the run. A second commit would double how late runs begin. Where nobody
waits, nothing is lost: the run is queued, and claimed like any other.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from rota.ports.records import Room
from rota.ports.work import Work


class IdleWorker(Protocol):
    """A connected worker, as whoever has work for it sees it."""

    @property
    def pool(self) -> str: ...

    @property
    def room(self) -> Room | None:
        """None: it takes nothing at the moment."""
        ...

    def claiming(self) -> AbstractContextManager[None]:
        """From before a claim for it until it was given what that brought."""
        ...

    async def give(self, claimed: Sequence[Work], room: Room) -> None:
        """What was claimed for the room it had."""
        ...


class Turn:
    """The chance of a worker to get work, from before it is claimed; perhaps there is no worker."""

    def __init__(self, worker: IdleWorker | None) -> None:
        self._worker = worker
        self.room = worker.room if worker else None

    def claiming(self) -> AbstractContextManager[None]:
        return self._worker.claiming() if self._worker else nullcontext()

    async def give(self, claimed: Sequence[Work]) -> None:
        if self._worker and self.room:
            await self._worker.give(claimed, self.room)


class IdleWorkers(Protocol):
    """The workers of this process that wait for work; each gets its turn."""

    def waiting(self, worker: IdleWorker) -> AbstractContextManager[None]:
        """While it waits, and whether or not it is given something meanwhile."""
        ...

    def next_of(self, pool: str) -> Turn:
        """Whose turn it is in a pool."""
        ...


class NobodyIdle:
    """For processes without workers: whatever is due is queued."""

    def waiting(self, worker: IdleWorker) -> AbstractContextManager[None]:
        return nullcontext()

    def next_of(self, pool: str) -> Turn:
        return Turn(None)
