"""What a server knows about one connected worker."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from rota.domain.errors import NotFound
from rota.operations.specs import Ref
from rota.ports.records import Session
from rota.ports.work import Fence, Order, Work


@dataclass(slots=True, eq=False)
class Desk:
    """One connection of one worker; when it connects anew it gets another desk."""

    session: Session
    held: set[Fence] = field(default_factory=set)  # what this server believes it holds
    known_specs: set[Ref] = field(default_factory=set)
    suspects: frozenset[Fence] = frozenset()  # held by the store's book, not by the worker's
    has_backlog: bool = True  # the latest claim left runs behind, as far as is known
    takes_nothing: bool = False  # the worker stops, or is drained, or is not settled
    is_settled: bool = True  # whether it is known what its former connections left behind
    has_room: asyncio.Event = field(default_factory=asyncio.Event)
    _orders: asyncio.Queue[Order | None] = field(default_factory=asyncio.Queue)

    @classmethod
    def resumed(cls, session: Session) -> Desk:
        """Of a worker that comes back, perhaps from another server.

        Its first beat says what it holds. Until then nothing is claimed for it, so whatever it does
        not name by then was claimed by way of a former connection, and will never arrive.
        """
        return cls(session, takes_nothing=True, is_settled=False)

    def free(self, after: int = 0) -> int:
        """Slots that are free, or will be after that many attempts have ended."""
        return 0 if self.takes_nothing else self.session.slots - len(self.held) + after

    async def wait_for_room(self) -> None:
        self.has_room.clear()
        await self.has_room.wait()

    def give(self, claimed: list[Work], asked: int) -> None:
        """Note what a claim brought; less than it asked for means that no more is waiting."""
        self.has_backlog = len(claimed) == asked
        self.held.update(item.fence for item in claimed)

    def order(self, order: Order) -> None:
        """Have something sent to the worker."""
        self._orders.put_nowait(order)

    async def next_order(self) -> Order:
        order = await self._orders.get()
        if order is None:
            raise moved(self.session.id)
        return order

    def close(self) -> None:
        """Whoever waits for orders hears that none will come."""
        self._orders.put_nowait(None)


def moved(session: str) -> NotFound:
    """The answer to a connection that is not the worker's latest one."""
    return NotFound(f"session {session} has another connection by now", code="session_not_found")
