"""World of a universe: one SQLite store in memory, and the servers' use of it."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, closing, contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import cast

from rota.domain.carts.facts import CartState, ItemState
from rota.domain.carts.intake import NewItem
from rota.domain.ids import SHARD_COUNT, CartId, JobId, RunId, ServerId
from rota.domain.keys import Declaration
from rota.domain.lease import SERVER_LEASE
from rota.domain.run import Run
from rota.domain.shards import SCHEDULER
from rota.operations.engine import Engine
from rota.ports.blobs import Blobs
from rota.ports.carts import Cart, CartQuery, Command, ItemQuery, NewCart
from rota.ports.clock import AlarmClock
from rota.ports.limits import WaitingStore
from rota.ports.queue import publish
from rota.ports.records import LedgerEntry, NewJob, NewServer, RunQuery
from rota.ports.store import RunStore, Store
from rota.queue.local import LocalIdleWorkers, LocalQueue
from rota.server.dispatcher.floor import Floor, FloorConfig
from rota.server.scheduler.carts import CartKeeper
from rota.server.scheduler.releaser import Follower, KeyKeeper, Releaser, Sweeper, WorkerWatch
from rota.server.scheduler.shards import HeldShards, ShardKeeper
from rota.server.scheduler.timekeeper import Timekeeper, TimekeeperConfig, grace_of
from rota.server.scheduler.watches import LeaseReaper
from rota.store.sqlite.driver import InlineSqliteDriver, connect
from rota.store.sqlite.opening import migrate
from rota.store.store import SqlStore
from testkit.clock import START
from testkit.universes.catalogue import (
    API,
    KEY_RULES,
    LICENCE,
    PROJECT,
    QUOTA,
    KnownJob,
    catalogue,
    shards,
)
from testkit.universes.plan import Plan
from testkit.universes.server import Duty, Staff
from testkit.universes.timeline import Timeline

_IN_MEMORY = Path(":memory:")


@dataclass(frozen=True, slots=True)
class SeenItem:
    """Item as a person can see it."""

    state: ItemState
    run: RunId | None  # None: it never had one


@dataclass(frozen=True, slots=True)
class SeenCart:
    """Cart as a person can see it."""

    id: CartId
    state: CartState
    items: Mapping[str, SeenItem]


@contextmanager
def empty_database() -> Iterator[sqlite3.Connection]:
    """Create a database with a schema, for one universe after another.

    It has only the shards that jobs and carts of universes are in: with all 256, renewing them
    would be a third of the work.
    """
    with closing(connect(_IN_MEMORY)) as connection:
        migrate(connection)
        others = [(number,) for number in range(SHARD_COUNT) if number not in shards()]
        connection.executemany("DELETE FROM shard WHERE number = ?", others)
        yield connection


@asynccontextmanager
async def new_world(
    database: sqlite3.Connection, timeline: Timeline, plan: Plan
) -> AsyncIterator[World]:
    """Create a world in an empty database, which is as empty again afterwards.

    One transaction goes around all that happens, and is rolled back: that costs less than a copy
    of the database, and its statements stay compiled.
    """
    database.execute("BEGIN")
    try:
        world = World(InlineSqliteDriver(database, timeline.clock), plan)
        await world.prepare()
        yield world
    finally:
        database.execute("ROLLBACK")


class World:
    """Database, as people and servers use it: each of them has a store object of their own."""

    def __init__(self, driver: InlineSqliteDriver, plan: Plan) -> None:
        self._driver = driver
        self._plan = plan
        self._store: Store = SqlStore(driver)  # of people

    async def prepare(self) -> None:
        """Declare limits and save the jobs."""
        await self._store.save_declarations(_declared(self._plan), actor="admin")
        jobs = [_new(job) for job in catalogue().values()]
        await self._store.save_jobs(jobs, removed=(), actor="editor")

    # --- what people do

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
        """Command a cart; raise `Conflict` if that is refused."""
        await self._store.command_cart(cart, command, actor="bob")

    # --- what servers do

    def employ(self, server: str, clock: AlarmClock) -> Staff:
        """Start a server."""
        queue = LocalQueue()
        store = SqlStore(self._driver, publish=partial(publish, queue))
        engine = Engine(store, queue, cast(Blobs, None), LocalIdleWorkers())  # nothing is printed
        lease = timedelta(seconds=self._plan.lease_seconds)
        return Staff(
            runs=store,
            floor=Floor(engine, FloorConfig(lease=lease), server),
            duties=_duties(engine, clock, ServerId(server)),
        )

    # --- what can be seen

    async def all_runs(self) -> Sequence[Run]:
        return await self._store.runs(RunQuery(limit=10_000))

    async def all_carts(self) -> Sequence[SeenCart]:
        return [await self._seen(cart) for cart in await self._store.carts(CartQuery())]

    async def _seen(self, cart: Cart) -> SeenCart:
        items = await self._store.items(ItemQuery(cart.id))
        seen = {item.key: SeenItem(item.state, item.run) for item in items}
        return SeenCart(cart.id, cart.state, seen)

    async def ledger(self, job: JobId, until: datetime) -> list[LedgerEntry]:
        """Return the answers to all due times of a job."""
        return await self._store.ledger(job, START, until, 1_000)

    async def held(self) -> Sequence[object]:
        """List sessions with attempts, and keys with holders."""
        sessions = await self._store.sessions(alive_only=True)
        uses = await self._store.key_uses(KEY_RULES)
        return [each for each in sessions if each.held] + [
            (key, use.holders) for key, use in uses.items() if use.holders
        ]


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


def _duties(engine: Engine, clock: AlarmClock, server: ServerId) -> Sequence[tuple[Duty, float]]:
    """Return the loops of a server, each with the seconds between two rounds."""
    held = HeldShards(server, clock)
    new = NewServer(server, server, SERVER_LEASE, (SCHEDULER,))
    punctuality = TimekeeperConfig(grace=grace_of(SERVER_LEASE))
    timekeeper = Timekeeper(engine, clock, held, punctuality)
    return (
        (ShardKeeper(engine, clock, new, held).run_once, 1.5),
        # Apart from one another, as in a real server: what was seen may have been fired since.
        (timekeeper.look, 2.0),
        (timekeeper.fire_due, 1.5),
        (Releaser(engine, clock, held).run_once, 3.0),
        (KeyKeeper(engine, held).run_once, 3.0),
        (CartKeeper(engine, held).run_once, 2.5),
        (Follower(engine, held).run_once, 3.0),
        (WorkerWatch(engine, held).run_once, 5.0),
        (Sweeper(engine, clock, held).run_once, 5.0),
        (LeaseReaper(engine, clock).run_once, 3.0),
    )
