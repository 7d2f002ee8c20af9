"""How the cluster and its jobs fare: servers, shards, lateness, and schedules that are stuck."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

import structlog

from rota.domain.ids import SHARD_COUNT
from rota.domain.job import Job
from rota.domain.lateness import Lateness, is_stuck, lateness_of
from rota.domain.shards import Server, Shard
from rota.domain.states import RunState
from rota.operations.engine import Engine


@dataclass(frozen=True, slots=True)
class PoolQueue:
    """Runs of a pool that wait for a worker."""

    pool: str
    queued: int
    oldest_queued_at: datetime | None


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    now: datetime  # by the store's clock
    servers: tuple[Server, ...]  # of the last day, the newest first
    shards: tuple[Shard, ...]
    oldest_due_at: datetime | None  # due and not fired; None: nothing is
    queues: tuple[PoolQueue, ...]

    def shards_of(self) -> Mapping[str, int]:
        """How many each live server fires."""
        live = {server.id for server in self.servers if server.is_live(self.now)}
        owned: dict[str, int] = {}
        for shard in self.shards:
            if shard.owner in live:
                owned[shard.owner] = owned.get(shard.owner, 0) + 1
        return owned


async def cluster_status(engine: Engine) -> ClusterStatus:
    """A look at the whole; its parts are moments apart."""
    store = engine.store
    now = await store.now()
    due = await store.due_schedules(now, 1, range(SHARD_COUNT))
    counts = await store.counts()
    queued = {pool: n for (state, pool), n in counts.runs.items() if state == RunState.QUEUED}
    return ClusterStatus(
        now=now,
        servers=tuple(await store.servers()),
        shards=tuple(await store.shards()),
        oldest_due_at=due[0].next_at if due else None,
        queues=tuple(
            PoolQueue(pool, n, counts.oldest_queued_at.get(pool))
            for pool, n in sorted(queued.items())
        ),
    )


_RUNS = 100  # percentiles are of this many

log = structlog.get_logger()


async def lateness(engine: Engine, job: Job) -> Lateness | None:
    """How late the runs started that started last; None: none has."""
    return lateness_of(await engine.store.start_delays(job.id, _RUNS))


async def watch_congestion(engine: Engine) -> int:
    """Tell once when a job is stuck, and once when nothing of it is held back any more."""
    now = await engine.store.now()
    found = await engine.store.congested_jobs()
    stuck = {job: seen for job, seen in found.items() if is_stuck(seen, now)}
    congested = {job for job, seen in found.items() if seen.is_holding_back}
    for job in await engine.store.mark_stuck(stuck, congested):
        log.warning("job.stuck", job_id=job, waiting=stuck[job].waiting)
    return len(stuck)
