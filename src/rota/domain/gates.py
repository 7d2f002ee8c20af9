"""Gates that a run passes before it is queued, each with a reason a person can act on.

Pure decisions over what the store read under its lock; the store applies them in the same
transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from operator import attrgetter
from typing import NamedTuple

from rota.domain.ids import BackfillId, CartId, JobId, RunId
from rota.domain.job import RunRules
from rota.domain.policy import Bounds, excesses
from rota.domain.run import Reason, Run, Trigger
from rota.domain.spec import DEFAULT_PROJECT, Overlap
from rota.domain.states import Cause, RunState


class Gate(StrEnum):
    """Gates that can hold a run, in the order in which people are told. The texts are stored."""

    TIME = "time"
    CALENDAR = "calendar"
    PAUSE = "pause"
    POLICY = "policy"
    POOL = "pool"
    HOLD = "hold"
    AFTER = "after"
    CART = "cart"
    OVERLAP = "overlap"
    MAX_CONCURRENCY = "max_concurrency"
    BACKFILL = "backfill"
    EXCLUSIVE_BY = "exclusive_by"
    RATE_LIMIT = "rate_limit"
    QUOTA = "quota"
    RESOURCE = "resource"
    WORKER = "worker"


# Gates of shared keys: a run has those of its keys only.
KEY_GATES = frozenset({Gate.EXCLUSIVE_BY, Gate.RATE_LIMIT, Gate.QUOTA, Gate.RESOURCE})


def gates_of(run: Run, own: Collection[str]) -> tuple[Gate, ...]:
    """Return the gates that there are for a run, in their order.

    A gate is one of every run unless it is named here. `own` are those that the run itself does
    not tell: of its keys, and those that it stands at. A job that is not closed is not said to have
    passed what only some jobs ask for.
    """
    is_due = run.trigger is Trigger.SCHEDULE
    only_if: dict[Gate, bool] = {
        Gate.CALENDAR: is_due,
        Gate.AFTER: is_due,
        Gate.CART: run.cart is not None,
        Gate.OVERLAP: is_due,
        Gate.BACKFILL: run.backfill is not None,
        **{gate: gate in own for gate in KEY_GATES},
        **{it.gate: it.gate in own for it in CLOSINGS if it.gate is not Gate.PAUSE},
        Gate.POOL: Gate.POOL in own,
    }
    return tuple(gate for gate in Gate if only_if.get(gate, True))


class ClosableJob(NamedTuple):
    """A job that is in service, as far as gates need it that close all of it.

    A tuple, as `JobRules` and `ActiveRun`: each firing makes them for thousands of jobs.
    """

    job_id: JobId
    rules: RunRules  # of its current version
    is_paused: bool = False
    paused_until: datetime | None = None  # None: until somebody resumes it
    bounds: Bounds | None = None  # what its project may ask for; None: anything


@dataclass(frozen=True, slots=True)
class Closing:
    """Gate that closes a whole job for a while: none of its runs passes, whatever asked for it.

    The sweep reopens it: runs that wait on its key pass the gates again once `reason` names the
    gate no more, by time or by an edit of the job. Queued runs stay queued when it closes; a gate
    that takes them back, as a pause does, calls `block_job` of the store.
    """

    gate: Gate
    concerns: Callable[[ClosableJob], bool]  # whether it could close this job, now or later
    # Why it is closed then, made by `closing_reason`; None: it is open. Asked if it `concerns`.
    reason: Callable[[ClosableJob, datetime], Reason | None]


def closing_key(gate: Gate, job_id: JobId) -> str:
    """Return the key that runs of a job wait on while this gate closes it."""
    return f"{gate}:{job_id}"


def closing_reason(
    gate: Gate, job: ClosableJob, message: str, *, opens_at: datetime | None, action: str
) -> Reason:
    """Make the reason of a closed job. `opens_at`: None where only an event opens it."""
    key = closing_key(gate, job.job_id)
    return Reason(gate, message, key, eligible_at=opens_at, action=action)


def _paused(job: ClosableJob, _: datetime) -> Reason:
    # Whatever the time is: a pause that is over lasts until its end is written down.
    name = job.rules.name
    return closing_reason(
        Gate.PAUSE,
        job,
        f"job {name} is paused",
        opens_at=job.paused_until,
        action=f"rota job resume {name}",
    )


def _beyond_policy(job: ClosableJob, _: datetime) -> Reason | None:
    found = excesses(job.bounds, job.rules) if job.bounds else []
    if not found:
        return None
    project, first = job.rules.project, found[0]
    if first.pool:
        key = closing_key(Gate.POLICY, job.job_id)  # which servers of the former release know
        return Reason(Gate.POOL, first.message, key, action=first.action)
    message = f"the policy of project {project} does not let it start: {first.message}"
    action = f"rota project show {project}"
    return closing_reason(Gate.POLICY, job, message, opens_at=None, action=action)


# In this order a run comes to them. Admission, release, sweep and forecast go by this table.
CLOSINGS: tuple[Closing, ...] = (
    Closing(Gate.PAUSE, attrgetter("is_paused"), _paused),
    Closing(Gate.POLICY, attrgetter("bounds"), _beyond_policy),
)
_MOST_OPENINGS = 1_000  # that are looked at in search of one when all gates are open


def can_close(job: ClosableJob) -> bool:
    """Return whether a gate could close the job, now or later."""
    return any(closing.concerns(job) for closing in CLOSINGS)


def closed_jobs(jobs: Collection[ClosableJob], at: datetime) -> dict[JobId, Reason]:
    """Return why no run of a job may go then, by the first gate that is closed.

    Jobs that are open are not in it. All at once: each firing asks, and hardly any job is closed.
    """
    closed: dict[JobId, Reason] = {}
    for closing in reversed(CLOSINGS):
        for job in filter(closing.concerns, jobs):
            if (reason := closing.reason(job, at)) is not None:
                closed[job.job_id] = reason
    return closed


def opens_at(job: ClosableJob, at: datetime) -> datetime | None:
    """Return the first instant from `at` on when all gates of the job are open; None: unknown."""
    concerned = [closing for closing in CLOSINGS if closing.concerns(job)]
    for _ in range(_MOST_OPENINGS):
        reasons = [it for closing in concerned if (it := closing.reason(job, at)) is not None]
        times = [reason.eligible_at for reason in reasons]
        known = [time for time in times if time is not None]
        if len(known) < len(times):
            return None
        if all(time <= at for time in known):  # a pause is told to the end, and over by then
            return at
        at = max(known)
    return None


def job_behind(key: str) -> JobId | None:
    """Return the job of a key on which runs wait for a slot or for a closed job; None: another."""
    kind, _, name = key.partition(":")
    return JobId(name) if kind == "job" or is_closing(key) else None


def is_closing(key: str) -> bool:
    """Return whether it is the key of a gate that closes a whole job."""
    kind = key.partition(":")[0]
    return any(closing.gate == kind for closing in CLOSINGS)


@dataclass(frozen=True, slots=True)
class Upstream:
    """Job that another one follows."""

    name: str
    completed_at: datetime | None = None  # when a run of it last did; None: none has
    exists: bool = True  # False: it was deleted


def missing(upstreams: Sequence[Upstream], since: datetime) -> tuple[Upstream, ...]:
    """Return the upstreams that have not completed since then."""
    return tuple(
        upstream
        for upstream in upstreams
        if not upstream.exists or upstream.completed_at is None or upstream.completed_at <= since
    )


def find_cycle(edges: Mapping[str, Collection[str]]) -> list[str] | None:
    """Find a cycle among jobs and those that each follows: [a, b, a]; None: there is none."""
    done: set[str] = set()
    for start in sorted(edges):
        if start not in done and (cycle := _cycle_from(start, edges, done)):
            return cycle
    return None


def _cycle_from(
    start: str, edges: Mapping[str, Collection[str]], done: set[str]
) -> list[str] | None:
    """Search depth-first without recursion: chains of jobs may be long."""
    path, ahead = [start], [_followed(start, edges)]
    place = {start: 0}  # of each job on the path
    while path:
        upstream = next(ahead[-1], None)
        if upstream is None:
            ahead.pop()
            done.add(path.pop())
            place.popitem()
        elif upstream in place:
            return [*path[place[upstream] :], upstream]
        elif upstream not in done:
            place[upstream] = len(path)
            path.append(upstream)
            ahead.append(_followed(upstream, edges))
    return None


def _followed(job: str, edges: Mapping[str, Collection[str]]) -> Iterator[str]:
    return iter(sorted(edges.get(job, ())))


def cycle_text(cycle: Sequence[str]) -> str:
    """Format a cycle: `a → b → a`."""
    return " → ".join(cycle)


AFTER = f"{Gate.AFTER}:"  # what the keys of upstreams begin with
# A run in one of these has a slot of its job: it may be executing now, or at any moment.
SLOT_STATES = frozenset({RunState.QUEUED, RunState.CLAIMED, RunState.PROCESSING, RunState.UNKNOWN})


class JobRules(NamedTuple):
    """Rules of a job that its gates need."""

    job_id: JobId
    name: str
    overlap: Overlap
    max_concurrency: int | None
    closed: Reason | None = None  # why none of its runs may go; None: no gate closes all of it
    project: str = DEFAULT_PROJECT
    after: tuple[str, ...] = ()  # names of jobs that its due runs wait for
    after_within: timedelta | None = None  # how long; None: for ever

    def can_hold_back(self, trigger: Trigger) -> bool:
        """Return whether its other runs can keep a run of this kind from going."""
        is_limited = trigger is Trigger.BACKFILL or self.max_concurrency is not None
        return is_limited or self.goes_in_turn(trigger)

    def goes_in_turn(self, trigger: Trigger) -> bool:
        """Return whether even runs that wait can keep a run of this kind from going."""
        return trigger is Trigger.SCHEDULE and self.overlap is not Overlap.ALLOW

    def counts(self, trigger: Trigger, state: RunState) -> bool:
        """Return whether a run of this kind must be seen by those that come after it."""
        is_limited = trigger is Trigger.BACKFILL or self.max_concurrency is not None
        is_counted = is_limited and state in SLOT_STATES and trigger is not Trigger.PROBE
        return trigger is Trigger.SCHEDULE or is_counted

    def lets_any_go(self, trigger: Trigger) -> bool:
        """Return whether runs of this kind go at once, however many there are."""
        if self.max_concurrency is not None or self.closed is not None:
            return trigger is Trigger.PROBE  # the run that it asks about has passed
        return trigger is not Trigger.SCHEDULE and trigger is not Trigger.BACKFILL


@dataclass(frozen=True, slots=True)
class BackfillRules:
    """Rules of a backfill that its gate needs."""

    id: BackfillId
    max_parallel: int


class ActiveRun(NamedTuple):
    """A run of the job that is due and not final."""

    id: RunId
    seq: int  # age: the lower, the older
    state: RunState
    trigger: Trigger
    attempt: int = 0  # 0: it was never tried
    backfill: BackfillId | None = None  # None: it is of no backfill
    is_caught_up: bool = False  # the misfire policy promises that it runs
    cart: CartId | None = None  # None: it is of no cart
    is_held: bool = False  # somebody holds it: it keeps its place, and no other run ends it

    @property
    def gives_way(self) -> bool:
        """Return whether a later due time may take its place."""
        return not self.is_caught_up and not self.is_held


@dataclass(frozen=True, slots=True)
class Admission:
    """Decision about a run at its gates, and the effect on others of its job."""

    state: RunState  # QUEUED, BLOCKED or SKIPPED
    cause: str = ""  # of SKIPPED
    blocked_on: str = ""  # first blocking key
    reasons: tuple[Reason, ...] = ()
    supersedes: tuple[RunId, ...] = ()  # waiting runs that become SKIPPED
    cancels: tuple[RunId, ...] = ()  # live runs that are asked to stop
    within: timedelta | None = None  # how long after its release it may wait so; None: for ever


QUEUED = Admission(RunState.QUEUED)


def job_key(job_id: JobId) -> str:
    """Return the key that a run waits on while its job has no room for it."""
    return f"job:{job_id}"


def pause_key(job_id: JobId) -> str:
    """Return the key that a run waits on while its job is paused."""
    return closing_key(Gate.PAUSE, job_id)


def backfill_key(backfill: BackfillId) -> str:
    """Return the key that a run waits on until it is its turn in its backfill."""
    return f"{Gate.BACKFILL}:{backfill}"


def cart_key(cart: CartId) -> str:
    """Return the key that a run waits on while its cart is paused or ends early."""
    return f"{Gate.CART}:{cart}"


def hold_key(run: RunId) -> str:
    """Return the key that a held run waits on."""
    return f"{Gate.HOLD}:{run}"


def after_key(project: str, upstream: str) -> str:
    """Return the key that a due run waits on until a job that it follows has completed."""
    return f"{AFTER}{project}/{upstream}"


def admit(
    rules: JobRules,
    run: ActiveRun,
    active: Sequence[ActiveRun],
    backfill: BackfillRules | None = None,
    missing: Sequence[Upstream] = (),
) -> Admission:
    """Pass a run through the gates of its job, or of its job and its backfill.

    `active` are the job's other active runs, `missing` the jobs that have not completed yet and
    that a due run waits for. Runs that are caught up queue one after another, whatever the overlap
    policy: they take nobody's place, and nobody takes theirs.
    """
    if rules.closed is not None:
        return blocked(rules.closed)
    if backfill is not None:
        return _in_turn(rules, backfill, active)
    if not active and not missing:
        return QUEUED
    supersedes: tuple[RunId, ...] = ()
    if rules.goes_in_turn(run.trigger):
        others = [other for other in active if _goes_before(other, run)]
        is_droppable = run.attempt == 0 and not run.is_caught_up
        if others and rules.overlap is Overlap.SKIP and is_droppable:
            return Admission(RunState.SKIPPED, cause=Cause.OVERLAP)
        supersedes = _superseded(rules, run, others)
        if missing:
            return replace(_following(rules, missing), supersedes=supersedes)
        ahead = [other for other in others if other.id not in supersedes]
        if ahead:
            return _overlapping(rules, run, ahead, supersedes)
    if missing:
        return _following(rules, missing)
    admission = _concurrent(rules, active)
    return replace(admission, supersedes=supersedes) if supersedes else admission


def blocked(reason: Reason) -> Admission:
    """Block a run for one reason, on its key."""
    return Admission(RunState.BLOCKED, blocked_on=reason.key, reasons=(reason,))


def held_by_cart(cart: CartId, name: str) -> Admission:
    """Block a run of a cart that is paused, or comes to an early end."""
    reason = Reason(
        gate=Gate.CART,
        message=f"its cart {name} lets nothing start",
        key=cart_key(cart),
        action=f"rota cart show {cart}",
    )
    return blocked(reason)


def held(run: RunId, actor: str) -> Admission:
    """Block a run that somebody holds."""
    reason = Reason(
        gate=Gate.HOLD,
        message=f"{actor} holds it",
        key=hold_key(run),
        action=f"rota run release {run}",
    )
    return blocked(reason)


def _following(rules: JobRules, missing: Sequence[Upstream]) -> Admission:
    reasons = tuple(_following_reason(rules, upstream) for upstream in missing)
    return Admission(
        RunState.BLOCKED,
        blocked_on=reasons[0].key,
        reasons=reasons,
        within=rules.after_within,
    )


def _following_reason(rules: JobRules, upstream: Upstream) -> Reason:
    if upstream.exists:
        message = f"{upstream.name} has not completed since {rules.name} was due before"
        action = f"rota job show {upstream.name}"
    else:
        message = f"there is no job {upstream.name}, which {rules.name} follows"
        action = f"rota job show {rules.name}"
    return Reason(
        gate=Gate.AFTER,
        message=message,
        key=after_key(rules.project, upstream.name),
        action=action,
    )


def _goes_before(other: ActiveRun, run: ActiveRun) -> bool:
    """Return whether a scheduled run has to wait for another one.

    A younger one that only waits lets it pass: what comes back from its back-off keeps its place.
    """
    if other.trigger is not Trigger.SCHEDULE:
        return False
    return other.seq < run.seq or other.state in SLOT_STATES


def _superseded(rules: JobRules, run: ActiveRun, others: Sequence[ActiveRun]) -> tuple[RunId, ...]:
    if run.is_caught_up or rules.overlap not in (Overlap.QUEUE_ONE, Overlap.CANCEL_PREVIOUS):
        return ()
    return tuple(
        other.id
        for other in others
        if other.state is RunState.BLOCKED and other.attempt == 0 and other.gives_way
    )


def _overlapping(
    rules: JobRules, run: ActiveRun, ahead: Sequence[ActiveRun], supersedes: tuple[RunId, ...]
) -> Admission:
    is_cancelling = rules.overlap is Overlap.CANCEL_PREVIOUS and not run.is_caught_up
    stopped = [other.id for other in ahead if other.seq < run.seq and other.gives_way]
    return Admission(
        RunState.BLOCKED,
        blocked_on=job_key(rules.job_id),
        reasons=(_overlap_reason(rules),),
        supersedes=supersedes,
        cancels=tuple(stopped) if is_cancelling else (),
    )


def _concurrent(rules: JobRules, active: Sequence[ActiveRun]) -> Admission:
    if free_slots(rules, active) > 0:
        return QUEUED
    return Admission(
        RunState.BLOCKED,
        blocked_on=job_key(rules.job_id),
        reasons=(_concurrency_reason(rules),),
    )


def _in_turn(rules: JobRules, backfill: BackfillRules, active: Sequence[ActiveRun]) -> Admission:
    if backfill_room(rules, backfill, active):
        return QUEUED
    reasons = []
    if _in_flight(backfill, active) >= backfill.max_parallel:
        reasons.append(turn_reason(rules, backfill))
    if free_slots(rules, active) <= 0:
        reasons.append(_concurrency_reason(rules))
    # One key for both limits: who waits for its turn never stands before a live run of its job.
    key = backfill_key(backfill.id)
    return Admission(RunState.BLOCKED, blocked_on=key, reasons=tuple(reasons))


# The messages name no other run: they stay true while the runs ahead come and go.
def _overlap_reason(rules: JobRules) -> Reason:
    return Reason(
        gate=Gate.OVERLAP,
        message=f"another scheduled run of {rules.name} is active (overlap: {rules.overlap})",
        key=job_key(rules.job_id),
        action=f"rota run list --active --job {rules.name}",
    )


def _concurrency_reason(rules: JobRules) -> Reason:
    return Reason(
        gate=Gate.MAX_CONCURRENCY,
        message=f"{rules.name} has no free slot (max_concurrency: {rules.max_concurrency})",
        key=job_key(rules.job_id),
        action=f"rota run list --active --job {rules.name}",
    )


def turn_reason(rules: JobRules, backfill: BackfillRules) -> Reason:
    """Explain why a run waits for others of its backfill."""
    return Reason(
        gate=Gate.BACKFILL,
        message=f"it is not its turn in the backfill of {rules.name} "
        f"(max_parallel: {backfill.max_parallel})",
        key=backfill_key(backfill.id),
        action=f"rota run list --active --where backfill:{backfill.id}",
    )


def waiting_reason(rules: JobRules, trigger: Trigger) -> Reason:
    """Explain why a run still waits after the end of a pause."""
    if rules.goes_in_turn(trigger):
        return _overlap_reason(rules)
    return _concurrency_reason(rules)


def releasable(
    rules: JobRules, waiting: Sequence[ActiveRun], active: Sequence[ActiveRun]
) -> list[RunId]:
    """Select the runs that wait on their job and may go now, in their order.

    `waiting` are the BLOCKED ones by age, `active` all others that are active.
    """
    if rules.closed is not None:
        return []
    free = free_slots(rules, active)
    scheduled = [run for run in active if run.trigger is Trigger.SCHEDULE]
    released: list[RunId] = []
    for run in waiting:
        if len(released) >= free:
            break
        if rules.goes_in_turn(run.trigger):
            if any(_goes_before(other, run) for other in scheduled):
                continue
            scheduled.append(run._replace(state=RunState.QUEUED))
        released.append(run.id)
    return released


def backfill_room(rules: JobRules, backfill: BackfillRules, active: Sequence[ActiveRun]) -> int:
    """Return how many more runs of a backfill may go now, by its own limit and that of the job."""
    if rules.closed is not None:
        return 0
    room = min(backfill.max_parallel - _in_flight(backfill, active), free_slots(rules, active))
    return max(0, int(room))


def _in_flight(backfill: BackfillRules, active: Sequence[ActiveRun]) -> int:
    return sum(1 for run in active if run.backfill == backfill.id and run.state in SLOT_STATES)


def free_slots(rules: JobRules, active: Sequence[ActiveRun]) -> float:
    """Return how many more runs of a job its `max_concurrency` lets go now."""
    if rules.max_concurrency is None:
        return float("inf")
    return rules.max_concurrency - sum(1 for run in active if run.state in SLOT_STATES)
