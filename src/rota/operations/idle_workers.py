"""The workers at this server that have nothing to do: what is due can be theirs at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
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


class IdleWorkers:
    """Those that wait for work; the one that was given something last comes last."""

    def __init__(self) -> None:
        self._waiting: dict[IdleWorker, None] = {}

    @contextmanager
    def waiting(self, worker: IdleWorker) -> Iterator[None]:
        """While it waits, and whether or not it is given something meanwhile."""
        self._waiting[worker] = None
        try:
            yield
        finally:
            del self._waiting[worker]

    def next_of(self, pool: str) -> Turn:
        """Whose turn it is in a pool."""
        worker = next((each for each in self._waiting if each.pool == pool), None)
        if worker is not None:
            self._waiting[worker] = self._waiting.pop(worker)
        return Turn(worker)


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
