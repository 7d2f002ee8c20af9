"""What a forecast starts from: read without a lock, then put together beside the event loop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from rota.domain.calendars import Calendar
from rota.domain.forecast.durations import remembered_runs
from rota.domain.ids import JobId
from rota.domain.limits import Declaration
from rota.domain.shared_keys import Key
from rota.operations.backends import Backends
from rota.ports.forecasts import ComingJob, OpenCart, OpenRun, TokensLeft
from rota.ports.records import Session

MOST_JOBS = 20_000
_MOST_RUNS = 50_000
_MOST_WAVES = 10_000
_MOST_BUCKETS = 20_000


@dataclass(frozen=True, slots=True)
class Inputs:
    """All that the store knows about the time ahead, of all projects."""

    now: datetime
    until: datetime
    jobs: Sequence[ComingJob]
    runs: Sequence[OpenRun]
    carts: Sequence[OpenCart]
    sessions: Sequence[Session]
    durations: Mapping[JobId, Sequence[float]]
    declarations: Sequence[Declaration]
    tokens: Mapping[Key, TokensLeft]  # of rate limits; missing: all
    completions: Mapping[
        tuple[str, str], datetime
    ]  # of jobs that are followed, by project and name
    weights: Mapping[str, float]
    calendars: Mapping[tuple[str, str], Calendar]  # by project and name

    def seconds_to(self, at: datetime) -> float:
        """From now; below 0 in the past."""
        return (at - self.now).total_seconds()

    @property
    def is_cut(self) -> bool:
        """Whether there is more than was read."""
        waves = sum(len(cart.waves) for cart in self.carts)
        return len(self.jobs) >= MOST_JOBS or len(self.runs) >= _MOST_RUNS or waves >= _MOST_WAVES


async def read_inputs(backends: Backends, until: datetime) -> Inputs:
    """Read it, each part as it is at its moment: nothing waits, and nothing is decided by it."""
    store = backends.store
    now = await store.now()
    jobs = await store.coming_jobs(until, MOST_JOBS)
    runs = await store.open_runs(_MOST_RUNS)
    carts = await store.open_carts(_MOST_WAVES)
    ids = {job.id for job in jobs} | {run.job_id for run in runs} | {cart.job_id for cart in carts}
    return Inputs(
        now=now,
        until=until,
        jobs=jobs,
        runs=runs,
        carts=carts,
        sessions=await store.sessions(alive_only=True),
        durations=await store.latest_durations(ids, remembered_runs(len(ids))),
        declarations=[each.declaration for each in await store.declarations()],
        tokens=await store.tokens_left(_MOST_BUCKETS),
        completions=await store.completions(MOST_JOBS),
        weights={each.share: each.weight for each in await store.share_weights()},
        calendars=await _calendars(backends, jobs),
    )


async def _calendars(
    backends: Backends, jobs: Sequence[ComingJob]
) -> dict[tuple[str, str], Calendar]:
    projects = {job.project for job in jobs if job.document.get("calendars")}
    found = [each for project in projects for each in await backends.store.calendars(project)]
    return {(each.project, each.calendar.name): each.calendar for each in found}
