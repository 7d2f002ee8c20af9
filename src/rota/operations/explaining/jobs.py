"""Gates that other runs, or other jobs, keep closed."""

from __future__ import annotations

from rota.domain.gates import SLOT_STATES
from rota.domain.run import Reason, Run
from rota.domain.states import RunState
from rota.operations.backends import Backends
from rota.operations.explaining.explanation import Obstacle
from rota.operations.explaining.holders import holders_of
from rota.ports.places import Place
from rota.ports.records import JobQuery, RunQuery

_SHOWN = 10
_GOING = (RunState.CLAIMED, RunState.PROCESSING)


async def job_obstacle(backends: Backends, run: Run, place: Place, reason: Reason) -> Obstacle:
    """A gate that other runs of the job, or of the backfill, keep closed."""
    of_backfill = run.backfill if reason.gate == "backfill" else None
    query = RunQuery(
        project=run.project,
        job_id=run.job_id,
        backfill=of_backfill,
        states=sorted(SLOT_STATES),
        limit=_SHOWN,
    )
    found = await backends.store.runs(query)
    holders = await holders_of(backends, found[::-1])
    return Obstacle(reason, holders=tuple(holders), before=_before(place, reason))


async def upstream_obstacle(backends: Backends, run: Run, place: Place, reason: Reason) -> Obstacle:
    """The gate of a job that has to complete first."""
    name = reason.key.split("/", 1)[1]
    jobs = await backends.store.jobs(JobQuery(project=run.project, names=[name]))
    if not jobs:
        return Obstacle(reason)
    query = RunQuery(project=run.project, job_id=jobs[0].id, states=_GOING, limit=_SHOWN)
    going = await holders_of(backends, (await backends.store.runs(query))[::-1])
    return Obstacle(
        reason, holders=tuple(going), before=_before(place, reason), next_at=jobs[0].next_at
    )


def _before(place: Place, reason: Reason) -> int | None:
    return place.before if reason.key == place.blocked_on else None
