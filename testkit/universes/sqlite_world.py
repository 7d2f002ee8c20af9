"""A world on a real SQLite store, with the real loops of the scheduler."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import cast

from rota.domain.carts.intake import NewItem
from rota.domain.ids import CartId, JobId, ServerId
from rota.domain.keys import Declaration
from rota.domain.lease import SERVER_LEASE
from rota.domain.run import Run
from rota.domain.shards import SCHEDULER
from rota.operations.backends import Backends
from rota.ports.blobs import Blobs
from rota.ports.carts import Cart, CartQuery, Command, ItemQuery, NewCart
from rota.ports.clock import Clock
from rota.ports.queue import publish
from rota.ports.records import LedgerEntry, NewJob, NewServer, RunQuery
from rota.ports.store import RunStore, WaitingStore
from rota.queue.local import LocalQueue
from rota.server.dispatcher.floor import Floor, FloorConfig
from rota.server.scheduler.carts import CartKeeper
from rota.server.scheduler.lease_reaper import LeaseReaper
from rota.server.scheduler.releaser import Follower, KeyKeeper, Releaser, Sweeper, WorkerWatch
from rota.server.scheduler.shards import HeldShards, ShardKeeper
from rota.server.scheduler.timekeeper import Timekeeper, TimekeeperConfig, grace_of
from rota.store.store import SqlStore
from testkit.clock import START
from testkit.new_stores import open_new_sqlite
from testkit.universes.catalogue import API, KEY_RULES, LICENCE, PROJECT, QUOTA, KnownJob, catalogue
from testkit.universes.plan import Plan
from testkit.universes.server import Staff
from testkit.universes.timeline import Timeline
from testkit.universes.world import SeenCart, SeenItem

_IN_MEMORY = Path("/dev/shm")  # noqa: S108 (where there is one: what is durable is not at stake)


@asynccontextmanager
async def sqlite_world(timeline: Timeline, plan: Plan) -> AsyncIterator[SqliteWorld]:
    with tempfile.TemporaryDirectory(prefix="rota-universe-", dir=_folder()) as name:
        store = await open_new_sqlite(Path(name) / "rota.db", clock=timeline.clock)
        try:
            await store.save_declarations(_declared(plan), actor="admin")
            await store.save_jobs([_new(job) for job in catalogue().values()], actor="editor")
            yield SqliteWorld(store)
        finally:
            await store.close()


def _folder() -> Path | None:
    return _IN_MEMORY if _IN_MEMORY.is_dir() else None


def _declared(plan: Plan) -> list[Declaration]:
    return [LICENCE, API, QUOTA] if plan.has_quota else [LICENCE, API]


def _new(job: KnownJob) -> NewJob:
    return NewJob(
        id=job.id,
        project=PROJECT,
        name=job.name,
        document=job.document,
        digest=job.name,
        rules=job.rules,
        set_name="universe",
        next_at=job.firing.timetable.next_after(START) if job.firing else None,
        held_from=None,
        anchor=START,
        enabled=True,
    )


class SqliteWorld:
    """Implements `testkit.universes.world.World`."""

    def __init__(self, store: SqlStore) -> None:
        self._store = store

    @property
    def runs(self) -> RunStore:
        return self._store

    @property
    def waiting(self) -> WaitingStore:
        return self._store

    async def submit_cart(self, cart: NewCart, items: Sequence[NewItem]) -> None:
        await self._store.create_cart(cart)
        await self._store.add_items(cart.id, 0, items)
        await self._store.submit_cart(cart.id)

    async def command_cart(self, cart: CartId, command: Command) -> None:
        await self._store.command_cart(cart, command, actor="bob")

    def employ(self, server: str, clock: Clock, lease_seconds: float) -> Staff:
        queue = LocalQueue()
        store = self._store.shared_with(partial(publish, queue))
        backends = Backends(store, queue, cast(Blobs, None))  # nothing is printed
        held = HeldShards(ServerId(server), clock)
        new = NewServer(ServerId(server), server, SERVER_LEASE, (SCHEDULER,))
        punctuality = TimekeeperConfig(grace=grace_of(SERVER_LEASE))
        return Staff(
            runs=store,
            floor=Floor(backends, FloorConfig(lease=timedelta(seconds=lease_seconds)), server),
            duties=(
                (ShardKeeper(backends, clock, new, held), 1.5),
                (Timekeeper(backends, clock, held, punctuality), 2.5),
                (Releaser(backends, clock, held), 3.0),
                (KeyKeeper(backends, held), 3.0),
                (CartKeeper(backends, held), 2.5),
                (Follower(backends, held), 3.0),
                (WorkerWatch(backends, held), 5.0),
                (Sweeper(backends, clock, held), 5.0),
                (LeaseReaper(backends, clock), 3.0),
            ),
        )

    async def all_runs(self) -> Sequence[Run]:
        return await self._store.runs(RunQuery(limit=10_000))

    async def all_carts(self) -> Sequence[SeenCart]:
        return [await self._seen(cart) for cart in await self._store.carts(CartQuery())]

    async def _seen(self, cart: Cart) -> SeenCart:
        items = await self._store.items(ItemQuery(cart.id))
        seen = {item.key: SeenItem(item.state, item.run) for item in items}
        return SeenCart(cart.id, cart.state, seen)

    async def ledger(self, job: JobId, until: datetime) -> list[LedgerEntry]:
        return await self._store.ledger(job, START, until, 1_000)

    async def held(self) -> Sequence[object]:
        sessions = await self._store.sessions(alive_only=True)
        uses = await self._store.key_uses(KEY_RULES)
        return [each for each in sessions if each.held] + [
            (key, use.holders) for key, use in uses.items() if use.holders
        ]
