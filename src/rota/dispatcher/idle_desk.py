"""A desk whose worker waits for work."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from rota.dispatcher.desk import Desk
from rota.ports.records import Room
from rota.ports.work import Work


@dataclass(frozen=True, slots=True, eq=False)
class IdleDesk:
    """Implements `rota.operations.idle_workers.IdleWorker`."""

    desk: Desk
    most: int  # runs at a time
    dispatch: Callable[[Desk, list[Work], int], Awaitable[None]]  # given also the number asked for

    @property
    def pool(self) -> str:
        return self.desk.session.pool

    @property
    def room(self) -> Room | None:
        return self.desk.room(self.most)

    def claiming(self) -> AbstractContextManager[None]:
        return self.desk.claiming()

    async def give(self, claimed: Sequence[Work], room: Room) -> None:
        await self.dispatch(self.desk, list(claimed), room.slots)
