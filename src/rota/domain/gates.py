"""Gates that a run passes before it is queued, each with a reason a person can act on.

Pure decisions over what the store read under its lock; the store applies them in the same
transaction.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from rota.domain.ids import BackfillId, CartId, JobId, RunId
from rota.domain.run import Reason, Trigger
from rota.domain.spec import DEFAULT_PROJECT, Overlap
from rota.domain.states import Cause, RunState


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


AFTER = "after:"  # what the keys of upstreams begin with
# A run in one of these has a slot of its job: it may be executing now, or at any moment.
SLOT_STATES = frozenset({RunState.QUEUED, RunState.CLAIMED, RunState.PROCESSING, RunState.UNKNOWN})


@dataclass(frozen=True, slots=True)
class JobRules:
    """Rules of a job that its gates need."""

    job_id: JobId
    name: str
    overlap: Overlap
    max_concurrency: int | None
    is_paused: bool = False
    paused_until: datetime | None = None
    project: str = DEFAULT_PROJECT
    after: tuple[str, ...] = ()  # names of jobs that its due runs wait for
    after_within: timedelta | None = None  # how long; None: for ever

    @property
    def is_gated(self) -> bool:
        """Return whether its other runs can keep one of its runs from going."""
        return self.overlap is not Overlap.ALLOW or self.max_concurrency is not None

    def lets_any_go(self, trigger: Trigger) -> bool:
        """Return whether runs of this kind go at once, however many there are."""
        takes_turns = trigger is Trigger.SCHEDULE or trigger is Trigger.BACKFILL
        return not takes_turns and self.max_concurrency is None and not self.is_paused


@dataclass(frozen=True, slots=True)
class BackfillRules:
    """Rules of a backfill that its gate needs."""

    id: BackfillId
    max_parallel: int


@dataclass(frozen=True, slots=True)
class ActiveRun:
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
    return f"pause:{job_id}"


def backfill_key(backfill: BackfillId) -> str:
    """Return the key that a run waits on until it is its turn in its backfill."""
    return f"backfill:{backfill}"


def cart_key(cart: CartId) -> str:
    """Return the key that a run waits on while its cart is paused or ends early."""
    return f"cart:{cart}"


def hold_key(run: RunId) -> str:
    """Return the key that a held run waits on."""
    return f"hold:{run}"


def after_key(project: str, upstream: str) -> str:
    """Return the key that a due run waits on until a job that it follows has completed."""
    return f"{AFTER}{project}/{upstream}"


def worker_key(pool: str, shape: str) -> str:
    """Return the key that runs of one shape wait on while no worker of their pool fits them."""
    return f"worker:{pool}/{hashlib.blake2b(shape.encode(), digest_size=8).hexdigest()}"


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
    if rules.is_paused:
        return paused(rules)
    if backfill is not None:
        return _in_turn(rules, backfill, active)
    if not active and not missing:
        return QUEUED
    supersedes: tuple[RunId, ...] = ()
    if _is_exclusive(rules, run.trigger):
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


def paused(rules: JobRules) -> Admission:
    """Block a run at the gate of a paused job."""
    reason = Reason(
        gate="pause",
        message=f"job {rules.name} is paused",
        key=pause_key(rules.job_id),
        eligible_at=rules.paused_until,
        action=f"rota job resume {rules.name}",
    )
    return Admission(RunState.BLOCKED, blocked_on=reason.key, reasons=(reason,))


def held_by_cart(cart: CartId, name: str) -> Admission:
    """Block a run of a cart that is paused, or comes to an early end."""
    reason = Reason(
        gate="cart",
        message=f"its cart {name} lets nothing start",
        key=cart_key(cart),
        action=f"rota cart show {cart}",
    )
    return Admission(RunState.BLOCKED, blocked_on=reason.key, reasons=(reason,))


def held(run: RunId, actor: str) -> Admission:
    """Block a run that somebody holds."""
    reason = Reason(
        gate="hold",
        message=f"{actor} holds it",
        key=hold_key(run),
        action=f"rota run release {run}",
    )
    return Admission(RunState.BLOCKED, blocked_on=reason.key, reasons=(reason,))


def without_worker(pool: str, shape: str, lacks: Collection[str]) -> Admission:
    """Block a run that no worker could ever take.

    `lacks` is what the worker that comes nearest has not.
    """
    reason = Reason(
        gate="worker",
        message=f"no worker of pool {pool} could ever take it: missing {', '.join(lacks)}",
        key=worker_key(pool, shape),
        action="rota worker list",
    )
    return Admission(RunState.BLOCKED, blocked_on=reason.key, reasons=(reason,))


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
        gate="after",
        message=message,
        key=after_key(rules.project, upstream.name),
        action=action,
    )


def _is_exclusive(rules: JobRules, trigger: Trigger) -> bool:
    return trigger is Trigger.SCHEDULE and rules.overlap is not Overlap.ALLOW


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
    if _free_slots(rules, active) > 0:
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
    if _free_slots(rules, active) <= 0:
        reasons.append(_concurrency_reason(rules))
    # One key for both limits: who waits for its turn never stands before a live run of its job.
    key = backfill_key(backfill.id)
    return Admission(RunState.BLOCKED, blocked_on=key, reasons=tuple(reasons))


# The messages name no other run: they stay true while the runs ahead come and go.
def _overlap_reason(rules: JobRules) -> Reason:
    return Reason(
        gate="overlap",
        message=f"another scheduled run of {rules.name} is active (overlap: {rules.overlap})",
        key=job_key(rules.job_id),
        action=f"rota run list --active --job {rules.name}",
    )


def _concurrency_reason(rules: JobRules) -> Reason:
    return Reason(
        gate="max_concurrency",
        message=f"{rules.name} has no free slot (max_concurrency: {rules.max_concurrency})",
        key=job_key(rules.job_id),
        action=f"rota run list --active --job {rules.name}",
    )


def turn_reason(rules: JobRules, backfill: BackfillRules) -> Reason:
    """Explain why a run waits for others of its backfill."""
    return Reason(
        gate="backfill",
        message=f"it is not its turn in the backfill of {rules.name} "
        f"(max_parallel: {backfill.max_parallel})",
        key=backfill_key(backfill.id),
        action=f"rota run list --active --where backfill:{backfill.id}",
    )


def waiting_reason(rules: JobRules, trigger: Trigger) -> Reason:
    """Explain why a run still waits after the end of a pause."""
    if _is_exclusive(rules, trigger):
        return _overlap_reason(rules)
    return _concurrency_reason(rules)


def releasable(
    rules: JobRules, waiting: Sequence[ActiveRun], active: Sequence[ActiveRun]
) -> list[RunId]:
    """Select the runs that wait on their job and may go now, in their order.

    `waiting` are the BLOCKED ones by age, `active` all others that are active.
    """
    if rules.is_paused:
        return []
    free = _free_slots(rules, active)
    scheduled = [run for run in active if run.trigger is Trigger.SCHEDULE]
    released: list[RunId] = []
    for run in waiting:
        if len(released) >= free:
            break
        if _is_exclusive(rules, run.trigger):
            if any(_goes_before(other, run) for other in scheduled):
                continue
            scheduled.append(replace(run, state=RunState.QUEUED))
        released.append(run.id)
    return released


def backfill_room(rules: JobRules, backfill: BackfillRules, active: Sequence[ActiveRun]) -> int:
    """Return how many more runs of a backfill may go now, by its own limit and that of the job."""
    if rules.is_paused:
        return 0
    room = min(backfill.max_parallel - _in_flight(backfill, active), _free_slots(rules, active))
    return max(0, int(room))


def _in_flight(backfill: BackfillRules, active: Sequence[ActiveRun]) -> int:
    return sum(1 for run in active if run.backfill == backfill.id and run.state in SLOT_STATES)


def _free_slots(rules: JobRules, active: Sequence[ActiveRun]) -> float:
    if rules.max_concurrency is None:
        return float("inf")
    return rules.max_concurrency - sum(1 for run in active if run.state in SLOT_STATES)
