"""How jobs fare: how late they start, and whether one is stuck."""

from __future__ import annotations

import structlog

from rota.domain.congestion import is_stuck
from rota.domain.job import Job
from rota.domain.lateness import Lateness, lateness_of
from rota.operations.backends import Backends

_RUNS = 100  # percentiles are of this many

log = structlog.get_logger()


async def lateness(backends: Backends, job: Job) -> Lateness | None:
    """How late the runs started that started last; None: none has."""
    return lateness_of(await backends.store.start_delays(job.id, _RUNS))


async def watch_congestion(backends: Backends) -> int:
    """Tell once when a job is stuck, and once when nothing of it is held back any more."""
    now = await backends.store.now()
    found = await backends.store.congested_jobs()
    stuck = {job: seen for job, seen in found.items() if is_stuck(seen, now)}
    congested = {job for job, seen in found.items() if seen.is_holding_back}
    for job in await backends.store.mark_stuck(stuck, congested):
        log.warning("job.stuck", job_id=job, waiting=stuck[job].waiting)
    return len(stuck)
