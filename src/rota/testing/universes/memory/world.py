"""A world without a database: what servers do is decided in the domain, and by the dispatcher."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import cast

from rota.adapters.queue.local import LocalQueue
from rota.dispatcher.floor import Floor, FloorConfig
from rota.domain.ids import JobId
from rota.domain.states import LEASED_STATES
from rota.operations.backends import Backends
from rota.operations.firing import plan_firing
from rota.operations.specs import SpecBook
from rota.ports.blobs import Blobs
from rota.ports.clock import Clock
from rota.ports.records import DueSchedule, LedgerEntry
from rota.ports.store import RunStore, Store
from rota.scheduler.lease_reaper import LeaseReaper
from rota.testing.universes.catalogue import catalogue
from rota.testing.universes.memory.rows import StoredRun
from rota.testing.universes.memory.store import MemoryStore
from rota.testing.universes.plan import Plan
from rota.testing.universes.server import Staff
from rota.testing.universes.timeline import Timeline


@asynccontextmanager
async def memory_world(timeline: Timeline, plan: Plan) -> AsyncIterator[MemoryWorld]:
    yield MemoryWorld(timeline, plan)


class MemoryWorld:
    """Implements `rota.testing.universes.world.World`."""

    def __init__(self, timeline: Timeline, plan: Plan) -> None:
        self._timeline = timeline
        self._store = MemoryStore(timeline.clock, catalogue(), has_quota=plan.has_quota)

    @property
    def runs(self) -> RunStore:
        return cast(RunStore, self._store)  # it has the verbs that a universe uses, and no others

    def employ(self, server: str, clock: Clock, lease_seconds: float) -> Staff:
        store = cast(Store, self._store)  # as above
        backends = Backends(store, LocalQueue(), cast(Blobs, None), _specs())
        return Staff(
            runs=store,
            floor=Floor(backends, FloorConfig(lease=timedelta(seconds=lease_seconds)), server),
            duties=(
                (FiringDuty(self._store, self._timeline), 2.5),
                (ReleasingDuty(self._store), 2.5),
                (LeaseReaper(backends, clock), 2.5),
            ),
        )

    async def all_runs(self) -> Sequence[StoredRun]:
        return list(self._store.book.runs.values())

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


def _specs() -> SpecBook:
    """What no server has to read."""
    book = SpecBook()
    for job in catalogue().values():
        book.remember((job.id, 1), job.spec)
    return book
