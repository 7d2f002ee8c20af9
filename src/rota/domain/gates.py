"""The gates a run passes before it is queued, each with a reason a person can act on.

Pure decisions over what the store read under its lock; the store applies them in the same
transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from rota.domain.ids import JobId, RunId
from rota.domain.run import Reason, Trigger
from rota.domain.spec import Overlap
from rota.domain.states import RunState

# A run in one of these holds a slot of its job: it may be executing now, or at any moment.
SLOT_STATES = frozenset(
    {RunState.QUEUED, RunState.CLAIMED, RunState.PROCESSING, RunState.UNKNOWN}
)


@dataclass(frozen=True, slots=True)
class JobRules:
    """What the gates need to know of a job."""

    job_id: JobId
    name: str
    overlap: Overlap
    max_concurrency: int | None
    is_paused: bool = False
    paused_until: datetime | None = None

    @property
    def is_gated(self) -> bool:
        """Whether its other runs can keep one of its runs from going."""
        return self.overlap is not Overlap.ALLOW or self.max_concurrency is not None


@dataclass(frozen=True, slots=True)
class ActiveRun:
    """A run of the job that is due and not final."""

    id: RunId
    seq: int  # age: the lower, the older
    state: RunState
    trigger: Trigger


@dataclass(frozen=True, slots=True)
class Admission:
    """What a run becomes, and what that does to others of its job."""

    state: RunState  # QUEUED, BLOCKED or SKIPPED
    cause: str = ""  # of SKIPPED
    blocked_on: str = ""  # first blocking key
    reasons: tuple[Reason, ...] = ()
    supersedes: tuple[RunId, ...] = ()  # waiting runs that become SKIPPED
    cancels: tuple[RunId, ...] = ()  # live runs that are asked to stop


QUEUED = Admission(RunState.QUEUED)


def job_key(job_id: JobId) -> str:
    """What a run waits on while its job has no room for it."""
    return f"job:{job_id}"


def pause_key(job_id: JobId) -> str:
    """What a run waits on while its job is paused."""
    return f"pause:{job_id}"


def admit(rules: JobRules, trigger: Trigger, seq: int, active: Sequence[ActiveRun]) -> Admission:
    """Pass a run through the gates of its job. `active` are the job's other active runs.

    Only older runs overlap it: one that comes back from its back-off goes before a newer one.
    """
    if rules.is_paused:
        return paused(rules)
    if trigger is Trigger.SCHEDULE and rules.overlap is not Overlap.ALLOW:
        admission = _overlapping(rules, [run for run in active if run.seq < seq])
        if admission is not None:
            return admission
    return _concurrent(rules, active)


def paused(rules: JobRules) -> Admission:
    """The answer of a paused job's gate."""
    reason = Reason(
        gate="pause",
        message=f"job {rules.name} is paused",
        key=pause_key(rules.job_id),
        eligible_at=rules.paused_until,
        action=f"rota job resume {rules.name}",
    )
    return Admission(RunState.BLOCKED, blocked_on=reason.key, reasons=(reason,))


def _overlapping(rules: JobRules, active: Sequence[ActiveRun]) -> Admission | None:
    scheduled = [run for run in active if run.trigger is Trigger.SCHEDULE]
    if not scheduled:
        return None
    if rules.overlap is Overlap.SKIP:
        return Admission(RunState.SKIPPED, cause="overlap")
    older = scheduled[0]
    reason = Reason(
        gate="overlap",
        message=f"run {older.id} of this job is still active (overlap: {rules.overlap})",
        key=job_key(rules.job_id),
        action=f"rota run show {older.id}",
    )
    waiting = tuple(run.id for run in scheduled if run.state is RunState.BLOCKED)
    live = tuple(run.id for run in scheduled if run.state is not RunState.BLOCKED)
    return Admission(
        RunState.BLOCKED,
        blocked_on=reason.key,
        reasons=(reason,),
        supersedes=() if rules.overlap is Overlap.QUEUE_ALL else waiting,
        cancels=live if rules.overlap is Overlap.CANCEL_PREVIOUS else (),
    )


def _concurrent(rules: JobRules, active: Sequence[ActiveRun]) -> Admission:
    limit = rules.max_concurrency
    running = sum(1 for run in active if run.state in SLOT_STATES)
    if limit is None or running < limit:
        return QUEUED
    reason = Reason(
        gate="max_concurrency",
        message=f"{running} of {limit} concurrent runs of {rules.name} are active",
        key=job_key(rules.job_id),
        action=f"rota run list --active --job {rules.name}",
    )
    return Admission(RunState.BLOCKED, blocked_on=reason.key, reasons=(reason,))


def releasable(
    rules: JobRules, waiting: Sequence[ActiveRun], active: Sequence[ActiveRun]
) -> list[RunId]:
    """Which of the runs that wait on their job may go now, in their order.

    `waiting` are the BLOCKED ones by age, `active` all others that are active.
    """
    if rules.is_paused:
        return []
    free = _free_slots(rules, active)
    is_exclusive = rules.overlap is not Overlap.ALLOW
    has_scheduled = any(run.trigger is Trigger.SCHEDULE for run in active)
    released: list[RunId] = []
    for run in waiting:
        if len(released) >= free:
            break
        if run.trigger is Trigger.SCHEDULE and is_exclusive:
            if has_scheduled:
                continue
            has_scheduled = True
        released.append(run.id)
    return released


def _free_slots(rules: JobRules, active: Sequence[ActiveRun]) -> float:
    if rules.max_concurrency is None:
        return float("inf")
    return rules.max_concurrency - sum(1 for run in active if run.state in SLOT_STATES)
