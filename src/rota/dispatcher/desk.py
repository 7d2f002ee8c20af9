"""What a server knows about one connected worker."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import msgspec

from rota.domain.errors import NotFound
from rota.operations.specs import Ref
from rota.ports.records import Room, Session
from rota.ports.work import Dispatch, Fence, Order, Work


@dataclass(slots=True, eq=False)
class Desk:
    """One connection of one worker; when it connects anew it gets another desk."""

    session: Session
    held: set[Fence] = field(default_factory=set)  # what this server believes it holds
    known_specs: set[Ref] = field(default_factory=set)
    has_backlog: bool = True  # the latest claim left runs behind, as far as is known
    takes_nothing: bool = False  # the worker stops, or is drained, or is not settled
    is_held_up: bool = False  # the latest claim could not be made, which has been told
    is_settled: bool = True  # whether it is known what its former connections left behind
    has_room: asyncio.Event = field(default_factory=asyncio.Event)
    _orders: asyncio.Queue[Order | None] = field(default_factory=asyncio.Queue)
    _claims_begun: int = 0
    _open_claims: set[int] = field(default_factory=set)  # not yet dispatched, by their number
    _missing: dict[Fence, int] = field(default_factory=dict)  # and the latest claim at that time
    _suspects: frozenset[Fence] = frozenset()  # missing, and not on their way from a claim

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

    def room(self, most: int) -> Room | None:
        """Up to so many of the free slots; None: there are none."""
        slots = min(self.free(), most)
        return Room(self.session.id, slots, self.session.stream) if slots > 0 else None

    async def wait_for_room(self) -> None:
        self.has_room.clear()
        await self.has_room.wait()

    def give(self, claimed: list[Work], asked: int) -> None:
        """Note what a claim brought; less than it asked for means that no more is waiting."""
        self.has_backlog = len(claimed) == asked
        self.held.update(item.fence for item in claimed)

    @contextmanager
    def claiming(self) -> Iterator[None]:
        """From before a claim until what it brought is ordered."""
        self._claims_begun += 1
        number = self._claims_begun
        self._open_claims.add(number)
        try:
            yield
        finally:
            self._open_claims.discard(number)

    def never_arrived(self, missing: frozenset[Fence]) -> frozenset[Fence]:
        """Those of the attempts missing from a beat that will not arrive any more.

        A claim may take long to become a dispatch, and its answer may be lost: an attempt is under
        suspicion once every claim is over that can have brought it, and lost with the next beat,
        which the worker sends after whatever was ordered until then.
        """
        if not self.is_settled:
            return missing
        oldest = min(self._open_claims, default=self._claims_begun + 1)
        self._missing = {each: self._missing.get(each, self._claims_begun) for each in missing}
        suspects = frozenset(each for each, latest in self._missing.items() if latest < oldest)
        lost, self._suspects = suspects & self._suspects, suspects
        return lost

    def order(self, order: Order) -> None:
        """Have something sent to the worker."""
        self._orders.put_nowait(order)

    async def next_order(self) -> Order:
        """Work that was taken back while it waited here is left out."""
        order = await self._orders.get()
        if order is None:
            raise moved(self.session.id)
        if isinstance(order, Dispatch):
            return msgspec.structs.replace(order, work=self.still_held(order.work))
        return order

    def still_held(self, work: Iterable[Work]) -> tuple[Work, ...]:
        return tuple(item for item in work if item.fence in self.held)

    def close(self) -> None:
        """Whoever waits for orders hears that none will come."""
        self._orders.put_nowait(None)


def moved(session: str) -> NotFound:
    """The answer to a connection that is not the worker's latest one."""
    return NotFound(f"session {session} has another connection by now", code="session_not_found")
