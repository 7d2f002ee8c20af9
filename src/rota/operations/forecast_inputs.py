"""Inputs of a forecast: read without locks, then assembled in a thread beside the event loop."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

from rota.domain.calendars import Calendar
from rota.domain.external import EXTERNAL_SESSION
from rota.domain.forecast.ahead import Durations, JobAhead, Setting, durations_of, remembered_runs
from rota.domain.gates import AFTER, ClosableJob, Gate, after_key, can_close, job_key, opens_at
from rota.domain.ids import CartId, JobId, micros
from rota.domain.job import RunRules
from rota.domain.keys import (
    KINDS,
    Asker,
    Bucket,
    Declaration,
    Demands,
    Key,
    KeyRule,
    Quota,
    Rate,
    demands_of,
    key_of,
    rule_of,
    takes_keys,
)
from rota.domain.order import DEFAULT_EXPECTED_SECONDS, share_key
from rota.domain.resources import capacity_of
from rota.domain.shape import shape_of
from rota.domain.simulation.model import SimWorker
from rota.domain.spec import EXTERNAL_POOL, Overlap
from rota.operations.engine import Engine
from rota.ports.forecasts import ComingJob, OpenCart, OpenRun, PoolGroup, TokensLeft
from rota.ports.records import Session

MOST_JOBS = 20_000
_MOST_RUNS = 50_000
_MOST_WAVES = 10_000
_MOST_BUCKETS = 20_000


@dataclass(frozen=True, slots=True)
class Inputs:
    """Everything that the store knows about the time ahead, of all projects or some."""

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
        """Return seconds from now to a time; below 0 in the past."""
        return (at - self.now).total_seconds()

    @property
    def is_cut(self) -> bool:
        """Return whether there is more than was read."""
        waves = sum(len(cart.waves) for cart in self.carts)
        return len(self.jobs) >= MOST_JOBS or len(self.runs) >= _MOST_RUNS or waves >= _MOST_WAVES


async def read_inputs(engine: Engine, until: datetime, group: PoolGroup | None = None) -> Inputs:
    """Read the inputs without locks: each part is as it was at its own moment.

    With a group, only what is of its projects, and the workers that their runs can come to.
    """
    store = engine.store
    projects = None if group is None else group.projects
    now = await store.now()
    jobs = await store.coming_jobs(until, MOST_JOBS, projects)
    runs = await store.open_runs(_MOST_RUNS, projects)
    carts = await store.open_carts(_MOST_WAVES, projects)
    sessions = await store.sessions(alive_only=True)
    if group is not None:
        pools = group.pools | {run.pool for run in runs}
        sessions = [session for session in sessions if session.pool in pools]
    ids = {job.id for job in jobs} | {run.job_id for run in runs} | {cart.job_id for cart in carts}
    return Inputs(
        now=now,
        until=until,
        jobs=jobs,
        runs=runs,
        carts=carts,
        sessions=sessions,
        durations=await store.latest_durations(ids, remembered_runs(len(ids))),
        declarations=[each.declaration for each in await store.declarations()],
        tokens=await store.tokens_left(_MOST_BUCKETS),
        completions=await store.completions(MOST_JOBS, projects),
        weights={each.share: each.weight for each in await store.share_weights()},
        calendars=await _calendars(engine, jobs),
    )


async def _calendars(engine: Engine, jobs: Sequence[ComingJob]) -> dict[tuple[str, str], Calendar]:
    projects = {job.project for job in jobs if job.document.get("calendars")}
    found = [each for project in projects for each in await engine.store.calendars(project)]
    return {(each.project, each.calendar.name): each.calendar for each in found}


_OF_A_BACKFILL = f"{Gate.BACKFILL}:"


class JobsAhead:
    """Factory of one `JobAhead` for all runs that are alike."""

    def __init__(self, inputs: Inputs) -> None:
        self._durations = inputs.durations
        self._declared: dict[str, list[Declaration]] = defaultdict(list)
        for declaration in inputs.declarations:
            self._declared[declaration.project].append(declaration)
        self.workers = [*map(_worker, filter(_takes_more, inputs.sessions)), _OUTSIDE]
        self._bare = Setting(self.workers)
        self._plain: dict[tuple[str, str], bool] = {}
        self._alike: dict[Hashable, JobAhead] = {}
        self._weights, self._tokens = inputs.weights, inputs.tokens
        self._now, self._since = micros(inputs.now), inputs.now
        self.scheduled = {job.id: self._of_job(job) for job in inputs.jobs}
        self.rules = {job.id: job.rules for job in inputs.jobs}
        self.made_at = {job.id: job.created_at for job in inputs.jobs}
        self._upstreams: dict[JobId, tuple[str, ...]] = {
            run.job_id: (run.blocked_on,) for run in inputs.runs if _is_after(run)
        }
        self._upstreams |= {job.id: _upstreams(job.rules) for job in inputs.jobs}
        self._ids = {(run.project, run.job): run.job_id for run in inputs.runs}
        self._ids |= {(job.project, job.name): job.id for job in inputs.jobs}

    def upstreams(self, job: JobId) -> tuple[str, ...]:
        """Return the keys of the jobs that its due runs wait for."""
        return self._upstreams.get(job, ())

    def id_of(self, project: str, name: str) -> JobId | None:
        """Find a job's id by name; None: nothing of it comes or goes on."""
        return self._ids.get((project, name))

    def of_run(self, run: OpenRun) -> JobAhead:
        """Return the `JobAhead` of a run that exists: its demands were settled when it was made."""
        group, limit = self._gate(run)
        place = run.pool, run.priority, run.share, run.shape, run.cart, run.created_by, group, limit
        key = run.job_id, *place, *run.keys.items()
        if key not in self._alike:
            self._alike[key] = JobAhead(
                id=run.job_id,
                project=run.project,
                name=run.job,
                durations=self._known_durations(run),
                pool=run.pool,
                priority=run.priority,
                share=run.share,
                shape=run.shape,
                timeout=run.timeout,
                demands=run.keys,
                group=group,
                limit=limit,
                cart=run.cart,
                created_by=run.created_by,
                is_plain=not run.keys and self._is_plain(run.pool, run.shape),
                opening=self._opening(run.closable),
            )
        return self._alike[key]

    def of_cart(self, cart: OpenCart) -> JobAhead:
        """Return the `JobAhead` of a cart's items that have no run yet."""
        return self._ahead(cart.job_id, cart.job_rules, cart.created_by, cart=cart.id)

    def setting(self, jobs: Iterable[JobAhead]) -> Setting:
        """Return the workers and key rules that these jobs are placed on.

        A declared key has its rule even if no run uses it: people ask how busy it will be.
        """
        every = [each for declared in self._declared.values() for each in declared]
        declared = {(KINDS[type(each)], each.project, each.name): each for each in every}
        rules: dict[Key, KeyRule] = {
            key_of(KINDS[type(each)], each.project, each.name): each.rule
            for each in every
            if not isinstance(each, Quota)
        }
        for key in {key for job in jobs for key in job.demands}:
            if (rule := rule_of(key, declared)) is not None:
                rules[key] = rule
        return Setting(self.workers, rules, self._weights, self._levels(rules))

    def _levels(self, rules: Mapping[Key, KeyRule]) -> dict[Key, float]:
        """Return the tokens that rate limits have left now, by the rules that hold now."""
        return {
            key: Bucket(rule, left.level, micros(left.at)).level_at(self._now)
            for key, rule in rules.items()
            if isinstance(rule, Rate) and (left := self._tokens.get(key))
        }

    def _of_job(self, job: ComingJob) -> JobAhead:
        rules = job.rules
        allows = rules.overlap is Overlap.ALLOW
        limit = rules.max_concurrency if allows else rules.max_concurrency or 1
        return self._ahead(job.id, rules, job.created_by, limit=limit)

    def _ahead(
        self,
        job: JobId,
        rules: RunRules,
        user: str,
        *,
        limit: int | None = None,
        cart: CartId | None = None,
    ) -> JobAhead:
        shape, demands = shape_of(rules), self._demands(rules, user)
        return JobAhead(
            id=job,
            project=rules.project,
            name=rules.name,
            durations=durations_of(self._durations.get(job, ()), rules.expect),
            pool=rules.pool,
            priority=rules.priority,
            share=share_key(rules.project, user, rules.share),
            shape=shape,
            timeout=rules.timeout.total_seconds() if rules.timeout else None,
            demands=demands,
            group=job,
            limit=limit or rules.max_concurrency,
            cart=cart,
            created_by=user,
            is_plain=not demands and self._is_plain(rules.pool, shape),
            # Without its pause: whoever pauses a job holds its schedule, too.
            opening=self._opening(ClosableJob(job, rules)),
        )

    def _opening(self, job: ClosableJob | None) -> Callable[[float], float] | None:
        """Return how a job's gates put off what comes to them; None: nothing ever closes it."""
        if job is None or not can_close(job):
            return None
        return partial(_open_from, job, self._since)

    def _demands(self, rules: RunRules, user: str) -> Demands:
        declared = self._declared.get(rules.project, ())
        if not declared and not takes_keys(rules):
            return {}
        return demands_of(Asker(rules, user, {}), declared)

    def _is_plain(self, pool: str, shape: str) -> bool:
        key = pool, shape
        if key not in self._plain:
            self._plain[key] = self._bare.is_slot_enough(pool, shape)
        return self._plain[key]

    def _known_durations(self, run: OpenRun) -> Durations:
        job = self.scheduled.get(run.job_id)
        if job is not None:
            return job.durations
        is_guess = run.expected == DEFAULT_EXPECTED_SECONDS
        expect = None if is_guess else timedelta(seconds=run.expected)
        return durations_of(self._durations.get(run.job_id, ()), expect)

    def _gate(self, run: OpenRun) -> tuple[str, int | None]:
        """Return the key of the runs that it counts with, and how many of these may go at once."""
        if run.blocked_on.startswith(_OF_A_BACKFILL):
            return run.blocked_on, 1
        job = self.scheduled.get(run.job_id)
        is_held_back = run.blocked_on == job_key(run.job_id)
        if job is not None:
            return run.job_id, job.limit
        return run.job_id, 1 if is_held_back else None


def _open_from(job: ClosableJob, now: datetime, at: float) -> float:
    """Return when all gates of the job are open; where nobody knows, as if they were."""
    opens = opens_at(job, now + timedelta(seconds=at))
    return at if opens is None else max((opens - now).total_seconds(), at)


# What other systems do takes no room of anybody.
_OUTSIDE = SimWorker(EXTERNAL_SESSION, EXTERNAL_POOL, capacity_of(1_000_000, {}), {}, (), ())


def _is_after(run: OpenRun) -> bool:
    return run.blocked_on.startswith(AFTER)


def _upstreams(rules: RunRules) -> tuple[str, ...]:
    names = rules.after if rules.is_scheduled else ()
    return tuple(after_key(rules.project, name) for name in names)


def _takes_more(session: Session) -> bool:
    return not (session.draining or session.stopping)


def _worker(session: Session) -> SimWorker:
    return SimWorker(
        session.id,
        session.pool,
        session.capacity,
        session.all_labels,
        session.functions,
        session.offered,
    )
