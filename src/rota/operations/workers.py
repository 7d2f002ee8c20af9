"""Operations of workers, and the status of the cluster and its jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import msgspec
import structlog

from rota.domain.ids import SHARD_COUNT, SessionId, micros
from rota.domain.job import Job
from rota.domain.lateness import Lateness, is_stuck, lateness_of
from rota.domain.run import why_not_portable
from rota.domain.shards import Server, Shard
from rota.domain.states import RunState
from rota.operations.engine import Engine
from rota.ports.records import Claimed, Finished, Renewal, Session
from rota.ports.work import Fence, Hello, Outcome, Progress, Start, StartAnswer, Welcome


async def register(
    engine: Engine, hello: Hello, lease: timedelta, server: str = ""
) -> tuple[Session, Welcome]:
    """Register a worker at a server, or resume the session it had."""
    if hello.resumes:
        resumed = await engine.store.resume(hello, server)
        if resumed is not None:
            return resumed, _welcome(resumed, resumed.expires_at - resumed.lease)
    session = await engine.store.register(hello, lease, server)
    return session, _welcome(session, session.registered_at)


def _welcome(session: Session, now: datetime) -> Welcome:
    return Welcome(session.id, session.lease.total_seconds(), micros(now), session.stream)


async def claim(
    engine: Engine,
    session: SessionId,
    slots: int,
    stream: int = 1,
    runs: Sequence[str] = (),
) -> Claimed:
    """Claim runs for a worker with room: those named, then others in order of service."""
    return await engine.store.claim(session, slots, stream, runs)


async def any_queued(engine: Engine, runs: Sequence[str]) -> bool:
    """Return whether one of these runs is still queued."""
    return await engine.store.any_queued(runs)


async def start(engine: Engine, session: SessionId, starts: Sequence[Start]) -> StartAnswer:
    """Move runs to PROCESSING, durable on return."""
    return await engine.store.start(session, starts)


async def finish(
    engine: Engine,
    session: SessionId,
    outcomes: Sequence[Outcome],
    *,
    claim: int = 0,
    stream: int = 1,
) -> Finished:
    """End attempts as a worker reports, and give it the next runs in the same transaction."""
    return await engine.store.finish(
        session, list(map(_bounded, outcomes)), claim=claim, stream=stream
    )


def _bounded(outcome: Outcome) -> Outcome:
    """Drop outputs that some part could not carry: a worker is not trusted to check that."""
    if outcome.outputs is None or not (complaint := why_not_portable(outcome.outputs)):
        return outcome
    message = outcome.message or f"its outputs were not kept: {complaint}"
    return msgspec.structs.replace(outcome, outputs=None, message=message)


async def renew(engine: Engine, session: SessionId, *, stopping: bool) -> Renewal:
    """Renew a worker's lease."""
    return await engine.store.renew(session, stopping=stopping)


async def lose(engine: Engine, session: SessionId, fences: Sequence[Fence]) -> None:
    """End attempts as lost that their live worker does not know."""
    await engine.store.lose(session, fences)


async def leave(engine: Engine, session: SessionId) -> None:
    """End the session of a worker that stops."""
    await engine.store.end_session(session)


async def drain(engine: Engine, worker: str, *, actor: str) -> None:
    """Let a worker finish what it has leased and give it nothing new, also after a restart."""
    await engine.store.drain_worker(worker, actor=actor)


async def undrain(engine: Engine, worker: str, *, actor: str) -> None:
    """Give a drained worker work again."""
    await engine.store.undrain_worker(worker, actor=actor)


async def record_progress(engine: Engine, session: SessionId, items: Sequence[Progress]) -> None:
    await engine.store.record_progress(session, items)


async def reap(engine: Engine, expected_beats: Mapping[SessionId, int]) -> frozenset[SessionId]:
    """End the sessions of workers that stopped renewing; their attempts are lost."""
    return await engine.store.reap(expected_beats)


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
        """Number of shards that each live server fires."""
        live = {server.id for server in self.servers if server.is_live(self.now)}
        owned: dict[str, int] = {}
        for shard in self.shards:
            if shard.owner in live:
                owned[shard.owner] = owned.get(shard.owner, 0) + 1
        return owned


async def cluster_status(engine: Engine) -> ClusterStatus:
    """Return the status of the whole cluster; its parts are read moments apart."""
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
    """Return how late the latest runs started; None: none has started."""
    return lateness_of(await engine.store.start_delays(job.id, _RUNS))


async def watch_congestion(engine: Engine) -> int:
    """Record once that a job is stuck, and once that none of its runs is held back any more."""
    now = await engine.store.now()
    found = await engine.store.congested_jobs()
    stuck = {job: seen for job, seen in found.items() if is_stuck(seen, now)}
    congested = {job for job, seen in found.items() if seen.is_holding_back}
    for job in await engine.store.mark_stuck(stuck, congested):
        log.warning("job.stuck", job_id=job, waiting=stuck[job].waiting)
    return len(stuck)
