"""A world without a database: what servers do is decided in the domain, and by the dispatcher."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import cast

from rota.domain.carts.intake import NewItem
from rota.domain.ids import CartId, JobId
from rota.domain.states import LEASED_STATES
from rota.operations.backends import Backends
from rota.operations.firing import plan_firing
from rota.operations.specs import SpecBook
from rota.ports.blobs import Blobs
from rota.ports.carts import Command, NewCart
from rota.ports.clock import Clock
from rota.ports.records import DueSchedule, LedgerEntry
from rota.ports.store import RunStore, Store, WaitingStore
from rota.queue.local import LocalQueue
from rota.server.dispatcher.floor import Floor, FloorConfig
from rota.server.scheduler.lease_reaper import LeaseReaper
from testkit.universes.catalogue import catalogue
from testkit.universes.memory.cart_rows import StoredCart
from testkit.universes.memory.carts import MemoryCarts
from testkit.universes.memory.rows import StoredRun
from testkit.universes.memory.store import MemoryStore
from testkit.universes.memory.waiting import MemoryWaiting
from testkit.universes.plan import Plan
from testkit.universes.server import Staff
from testkit.universes.timeline import Timeline
from testkit.universes.world import SeenCart, SeenItem


@asynccontextmanager
async def memory_world(timeline: Timeline, plan: Plan) -> AsyncIterator[MemoryWorld]:
    yield MemoryWorld(timeline, plan)


class MemoryWorld:
    """Implements `testkit.universes.world.World`."""

    def __init__(self, timeline: Timeline, plan: Plan) -> None:
        self._timeline = timeline
        self._store = MemoryStore(timeline.clock, catalogue(), has_quota=plan.has_quota)
        self._waiting = MemoryWaiting(self._store.book, timeline.clock)
        self._carts = MemoryCarts(self._store.book, timeline.clock)

    @property
    def runs(self) -> RunStore:
        return cast(RunStore, self._store)  # it has the verbs that a universe uses, and no others

    @property
    def waiting(self) -> WaitingStore:
        return cast(WaitingStore, self._waiting)  # as above

    async def submit_cart(self, cart: NewCart, items: Sequence[NewItem]) -> None:
        self._carts.submit(cart, items)

    async def command_cart(self, cart: CartId, command: Command) -> None:
        self._carts.command(cart, command)

    def employ(self, server: str, clock: Clock, lease_seconds: float) -> Staff:
        store = cast(Store, self._store)  # as above
        backends = Backends(store, LocalQueue(), cast(Blobs, None), _specs())
        return Staff(
            runs=store,
            floor=Floor(backends, FloorConfig(lease=timedelta(seconds=lease_seconds)), server),
            duties=(
                (FiringDuty(self._store, self._timeline), 2.5),
                (ReleasingDuty(self._store), 2.5),
                (FollowingDuty(self._waiting), 2.5),
                (CartDuty(self._carts), 2.5),
                (LeaseReaper(backends, clock), 2.5),
            ),
        )

    async def all_runs(self) -> Sequence[StoredRun]:
        return list(self._store.book.runs.values())

    async def all_carts(self) -> Sequence[SeenCart]:
        return [_seen(cart) for cart in self._store.book.carts.values()]

    async def ledger(self, job: JobId, until: datetime) -> list[LedgerEntry]:
        return await self._store.ledger(job)

    async def held(self) -> Sequence[object]:
        return [run.fence for run in self._store.book.live.values() if run.state in LEASED_STATES]


class FiringDuty:
    """Answers the due times that it saw in its last round: by now others may have done so."""

    def __init__(self, store: MemoryStore, timeline: Timeline) -> None:
        self._store = store
        self._timeline = timeline
        self._seen: list[DueSchedule] = []

    async def run_once(self) -> int:
        jobs, now = catalogue(), self._timeline.clock.instant
        firings = []
        for due in self._seen:
            rules = jobs[due.job_id].firing
            assert rules is not None
            after = rules.timetable.next_after(due.next_at)
            firings.append(plan_firing(due, rules, after, now))
        fired = await self._store.fire(firings)
        self._seen = await self._store.due_schedules()
        return fired.run_count


class ReleasingDuty:
    """Lets go what may go."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    async def run_once(self) -> int:
        return await self._store.release()


class FollowingDuty:
    """Answers the ends that it saw in its last round: by now others may have done so."""

    def __init__(self, waiting: MemoryWaiting) -> None:
        self._waiting = waiting
        self._seen: list[StoredRun] = []

    async def run_once(self) -> int:
        followed = self._waiting.follow(self._seen)
        self._seen = self._waiting.ends()
        return followed


class CartDuty:
    """Lets carts go on."""

    def __init__(self, carts: MemoryCarts) -> None:
        self._carts = carts

    async def run_once(self) -> int:
        return self._carts.advance()


def _seen(cart: StoredCart) -> SeenCart:
    items = {it.key: SeenItem(it.state, it.run.id if it.run else None) for it in cart.items}
    return SeenCart(cart.id, cart.state, items)


def _specs() -> SpecBook:
    """What no server has to read."""
    book = SpecBook()
    for job in catalogue().values():
        book.remember((job.id, 1), job.spec)
    return book
