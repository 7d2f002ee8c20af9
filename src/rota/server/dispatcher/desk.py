"""State that a server keeps for one connected worker."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field

from rota.domain.errors import NotFound
from rota.operations.specs import Ref
from rota.ports.records import Room, Session
from rota.ports.work import (
    Beat,
    Cancel,
    Dispatch,
    Fence,
    Move,
    Order,
    SpecEntry,
    Watch,
    WorkBatch,
)

_NOT_ORDERED = 0
_NOT_SENT = sys.maxsize


@dataclass(slots=True, eq=False)
class GivenWork:
    """Work of one claim, which all its runs share, and how far it is on its way to the worker."""

    batch: WorkBatch
    fences: Sequence[Fence]
    specs: tuple[SpecEntry, ...] = ()
    last: int = _NOT_ORDERED  # which item of the stream's work its last one is, from 1


@dataclass(slots=True, eq=False)
class Desk:
    """One connection of one worker; when it connects anew it gets another desk."""

    session: Session
    # What this server believes it holds, each with the work it was given with.
    held: dict[Fence, GivenWork] = field(default_factory=dict)
    known_specs: set[Ref] = field(default_factory=set)
    http_jobs: set[Ref] = field(default_factory=set)  # versions of type http that it was sent
    http: set[Fence] = field(default_factory=set)  # the held ones that are attempts at these
    has_backlog: bool = True  # the latest claim left runs behind, as far as is known
    takes_nothing: bool = False  # the worker stops, or is not settled
    is_retiring: bool = False  # our server stops
    is_held_up: bool = False  # the latest claim waited too long for a lock, which was logged
    is_settled: bool = True  # whether it is known what its former connections left behind
    has_room: asyncio.Event = field(default_factory=asyncio.Event)
    taking_report: asyncio.Lock = field(default_factory=asyncio.Lock)
    watched: set[str] = field(default_factory=set)  # runs that are followed, here or elsewhere
    _orders: asyncio.Queue[Order | GivenWork | None] = field(default_factory=asyncio.Queue)
    _is_sending: bool = False  # the order handed out last may not be written yet
    _is_closed: bool = False
    _has_moved_on: asyncio.Event = field(default_factory=asyncio.Event)  # towards having sent all
    _sent: int = 0  # items of work
    _claims_begun: int = 0
    _open_claims: set[int] = field(default_factory=set)  # not yet dispatched, by their number
    _unordered: dict[Fence, int] = field(default_factory=dict)  # and the latest claim by then

    @classmethod
    def resumed(cls, session: Session) -> Desk:
        """Create the desk of a worker that reconnects, perhaps from another server.

        Its first beat says what it holds. Until then nothing is claimed for it, so whatever it does
        not name by then was claimed by way of a former connection, and will never arrive.
        """
        return cls(session, takes_nothing=True, is_settled=False)

    def free(self, after: int = 0) -> int:
        """Return how many slots are free, or will be after that many attempts have ended.

        Where one is free, and it has got jobs of type http before, their slots count as well.
        """
        if self.takes_nothing or self.is_retiring:
            return 0
        slots = self.session.slots - len(self.held) + len(self.http) + after
        return slots + self.free_for_http if self.http_jobs and slots > 0 else slots

    @property
    def free_for_http(self) -> int:
        """Return for how many jobs of type http there is room, which take no slot."""
        if self.takes_nothing or self.is_retiring:
            return 0
        return max(self.session.http_slots - len(self.http), 0)

    def room(self, most: int) -> Room | None:
        """Return the room to claim for, at most so many free slots; None: no slot is free."""
        free = self.free()
        slots = min(free if free > 0 else self.free_for_http, most)
        return Room(self.session.id, slots, self.session.stream) if slots > 0 else None

    async def wait_for_room(self) -> None:
        self.has_room.clear()
        await self.has_room.wait()

    def give(self, claimed: WorkBatch, asked: int) -> GivenWork:
        """Record the claimed runs; fewer than were asked for means that no more are queued."""
        self.has_backlog = len(claimed) == asked
        return self._note_given(claimed)

    def _note_given(self, batch: WorkBatch) -> GivenWork:
        given = GivenWork(batch, batch.fences())
        self.held.update(dict.fromkeys(given.fences, given))
        return given

    def drop(self, fences: Collection[Fence]) -> None:
        """Forget attempts that have ended."""
        for fence in fences:
            self.held.pop(fence, None)
        if self.http:
            self.http.difference_update(fences)
        if self.watched:
            self.watched.difference_update([fence.run for fence in fences])

    @contextmanager
    def claiming(self) -> Iterator[None]:
        """Mark a claim as open, from before it is made until its runs are queued as an order."""
        self._claims_begun += 1
        number = self._claims_begun
        self._open_claims.add(number)
        try:
            yield
        finally:
            self._open_claims.discard(number)
            self._has_moved_on.set()

    async def retire(self) -> None:
        """Stop taking work, send all that is claimed, then the worker to another server.

        Returns when all of it was sent, or the connection is closed.
        """
        self.is_retiring = True
        await self._wait_until_sent()
        self.order(Move())
        await self._wait_until_sent()

    async def _wait_until_sent(self) -> None:
        while (self._open_claims or self._has_unsent) and not self._is_closed:
            self._has_moved_on.clear()
            await self._has_moved_on.wait()

    @property
    def _has_unsent(self) -> bool:
        return self._is_sending or not self._orders.empty()

    def never_arrived(self, ours: frozenset[Fence], beat: Beat) -> frozenset[Fence]:
        """Return the worker's attempts that a beat does not name and that will not arrive.

        They have reached the worker, which does not hold them; or no claim is left that could order
        them. A beat that comes twice or late does no harm: what was sent after it is beyond what it
        has received.
        """
        missing = ours.difference(beat.held)
        if not self.is_settled:
            return missing
        ordered = {
            each: given
            for each in missing
            if (given := self.held.get(each)) is not None and given.last != _NOT_ORDERED
        }
        arrived = {each for each, given in ordered.items() if given.last <= beat.received}
        return self._left_behind(missing - ordered.keys()) | arrived

    def _left_behind(self, unordered: frozenset[Fence]) -> frozenset[Fence]:
        """Return those that no claim which is still open can have brought.

        A claim may take long to become a dispatch, and its answer may be lost.
        """
        oldest = min(self._open_claims, default=self._claims_begun + 1)
        self._unordered = {e: self._unordered.get(e, self._claims_begun) for e in unordered}
        return frozenset(each for each, latest in self._unordered.items() if latest < oldest)

    def mark_http(self, given: GivenWork) -> None:
        """Note which of these attempts take no slot, now that their jobs are known."""
        places = {at for at, job in enumerate(given.batch.jobs) if job in self.http_jobs}
        job_of = given.batch.job_of or [0] * len(given.fences)
        self.http.update(
            fence
            for fence, place in zip(given.fences, job_of, strict=True)
            if place in places and fence in self.held
        )

    def order(self, order: Cancel | Watch | Move) -> None:
        """Queue an order to be sent to the worker."""
        self._orders.put_nowait(order)

    def send(self, given: GivenWork, specs: tuple[SpecEntry, ...] = ()) -> None:
        """Queue work to be sent to the worker, with what it needs to know for it."""
        given.specs, given.last = specs, _NOT_SENT
        self._orders.put_nowait(given)

    def send_part(self, batch: WorkBatch, specs: tuple[SpecEntry, ...]) -> None:
        """Queue the part of a claim that can be sent; the rest is not on its way."""
        self.send(self._note_given(batch), specs)

    async def next_order(self) -> Order:
        """Wait for the next order; work that was taken back while queued is left out."""
        self._is_sending = False  # the caller has sent the previous order before it asks again
        self._has_moved_on.set()
        order = await self._orders.get()
        self._is_sending = True
        if order is None:
            raise moved(self.session.id)
        return self._dispatch(order) if isinstance(order, GivenWork) else order

    def _dispatch(self, given: GivenWork) -> Dispatch:
        batch, first = given.batch, self._sent + 1
        if not all(map(self.held.__contains__, given.fences)):
            batch = batch.part([at for at, each in enumerate(given.fences) if each in self.held])
        self._sent += len(batch)
        given.last = self._sent
        return Dispatch(batch, given.specs, first)

    def close(self) -> None:
        """Close the desk; `next_order` raises `NotFound` for whoever waits for orders."""
        self._is_closed = True
        self._has_moved_on.set()
        self._orders.put_nowait(None)


def moved(session: str) -> NotFound:
    """Return the error for a connection that is not the worker's latest one."""
    return NotFound(f"session {session} has another connection by now", code="session_not_found")


@dataclass(frozen=True, slots=True, eq=False)
class IdleDesk:
    """Implements `rota.ports.idle_workers.IdleWorker`."""

    desk: Desk
    most: int  # runs at a time
    dispatch: Callable[[Desk, WorkBatch, int], Awaitable[None]]  # given also the number asked for

    @property
    def pool(self) -> str:
        return self.desk.session.pool

    @property
    def room(self) -> Room | None:
        return self.desk.room(self.most)

    def claiming(self) -> AbstractContextManager[None]:
        return self.desk.claiming()

    async def give(self, claimed: WorkBatch, room: Room) -> None:
        await self.dispatch(self.desk, claimed, room.slots)
