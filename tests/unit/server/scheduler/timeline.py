"""A scheduler on a real store, in a time that passes only when told."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, cast

from rota.domain.ids import SessionId
from rota.domain.job import Job
from rota.domain.jobfile import read_file
from rota.domain.run import Run
from rota.operations import definitions
from rota.operations.definitions import find_job
from rota.operations.engine import Engine
from rota.ports.blobs import Blobs
from rota.ports.records import LedgerEntry, RunQuery
from rota.ports.store import Store
from rota.queue.local import LocalIdleWorkers
from rota.server.scheduler.releaser import Releaser
from rota.server.scheduler.shards import HeldShards
from rota.server.scheduler.timekeeper import Timekeeper, TimekeeperConfig
from testkit.builders import ALL_SHARDS, Scene, hello
from testkit.clock import START, FakeClock, FakeTicker
from testkit.new_stores import local_queue, open_new_sqlite

EVER = timedelta(days=36_500)


@dataclass(frozen=True)
class Answer:
    """A line of the ledger, with the due times as time since `START`."""

    first: timedelta
    last: timedelta
    count: int
    state: str
    cause: str


@dataclass(frozen=True)
class Scheduler:
    """The loops of time of one server."""

    timekeeper: Timekeeper
    releaser: Releaser

    async def run_once(self) -> None:
        await self.releaser.run_once()
        await self.timekeeper.run_once()


@dataclass
class Timeline:
    """Jobs, the scheduler that fires them, and a worker that ends their runs when told."""

    engine: Engine
    ticker: FakeTicker
    shards: HeldShards
    scheduler: Scheduler
    scene: Scene
    session: SessionId

    @property
    def store(self) -> Store:
        return self.engine.store

    async def apply(self, schedule: object, *, name: str = "job", **fields: Any) -> Job:
        """Define a job, or change it."""
        document = {} if schedule is None else {"schedule": schedule}
        await self.apply_all([{"name": name, **document, **fields}])
        return await self.job(name)

    async def apply_all(self, documents: Sequence[Mapping[str, Any]]) -> None:
        """Define jobs, each with a step that does nothing."""
        jobs = [{"steps": [{"run": "true"}], **document} for document in documents]
        await self.apply_file({"jobs": jobs})

    async def apply_file(self, document: Mapping[str, Any]) -> None:
        file = read_file(json.dumps(document), name="test")
        await definitions.apply(self.engine, file, actor="test", is_admin=True)

    async def job(self, name: str = "job") -> Job:
        return await find_job(self.engine, name)

    async def pass_time(self, duration: timedelta) -> None:
        """Let time pass with the scheduler awake at every moment it would wake up."""
        end = self.ticker.instant + duration
        while (moment := await self._next_moment(end)) < end:
            self._move_to(moment)
            await self.scheduler.run_once()
        self._move_to(end)
        await self.scheduler.run_once()

    def be_down(self, duration: timedelta) -> None:
        """Let time pass with nobody there."""
        self.ticker.advance(duration)

    async def end_runs(self, result: str = "COMPLETED") -> int:
        """A worker takes all that is queued, and ends it at once."""
        works = await self.start_runs()
        await self.scene.finish(self.session, works, result)
        return len(works)

    async def start_runs(self) -> list[Any]:
        works = await self.scene.claim(self.session)
        await self.scene.start(self.session, works)
        return works

    async def runs(self, name: str = "job") -> list[Run]:
        """Its runs, oldest first."""
        job = await self.job(name)
        return (await self.store.runs(RunQuery(job_id=job.id, limit=100_000)))[::-1]

    async def due_times(self, name: str = "job") -> list[timedelta]:
        """Of its runs, since `START`."""
        return [run.due_at - START for run in await self.runs(name)]

    async def entries(self, name: str = "job") -> list[LedgerEntry]:
        job = await self.job(name)
        return await self.store.ledger(job.id, START - EVER, START + EVER, 100_000)

    async def ledger(self, name: str = "job") -> list[Answer]:
        return [
            Answer(e.first - START, e.last - START, e.count, e.state, e.cause)
            for e in await self.entries(name)
        ]

    async def _next_moment(self, end: datetime) -> datetime:
        due = await self.store.due_schedules(end, 1, ALL_SHARDS)
        moments = [
            due[0].next_at if due else None,
            await self.store.next_eligible_at(),
            await self.store.next_pause_end(),
        ]
        return min((moment for moment in moments if moment is not None), default=end)

    def _move_to(self, moment: datetime) -> None:
        self.ticker.advance(max(moment - self.ticker.instant, timedelta(0)))


async def all_shards(scene: Scene) -> HeldShards:
    """Those of the only server there is, for ever."""
    held = await scene.ownership()
    shards = HeldShards(held.server, FakeClock(scene.clock))
    shards.hold(held.epochs, float("inf"))
    return shards


def new_scheduler(
    engine: Engine,
    shards: HeldShards,
    ticker: FakeTicker,
    config: TimekeeperConfig | None = None,
) -> Scheduler:
    clock = FakeClock(ticker)
    return Scheduler(Timekeeper(engine, clock, shards, config), Releaser(engine, clock, shards))


@asynccontextmanager
async def open_timeline(folder: Path, start: datetime = START) -> AsyncIterator[Timeline]:
    ticker = FakeTicker(start)
    store = await open_new_sqlite(folder / "rota.db", clock=ticker)
    try:
        blobs = cast("Blobs", None)  # no output is written here
        engine = Engine(store, local_queue(store), blobs, LocalIdleWorkers())
        scene = Scene(store, ticker)
        session = await store.register(hello(slots=1_000), EVER)
        shards = await all_shards(scene)
        yield Timeline(
            engine, ticker, shards, new_scheduler(engine, shards, ticker), scene, session.id
        )
    finally:
        await store.close()
