"""Releasing runs that waited: for their time, for a slot of their job, for the end of a pause."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import TypeAlias

from rota.domain.gates import (
    ActiveRun,
    Admission,
    BackfillRules,
    JobRules,
    backfill_key,
    backfill_room,
    free_slots,
    is_closing,
    job_behind,
    job_key,
    pause_key,
    releasable,
    turn_reason,
    waiting_reason,
)
from rota.domain.ids import BackfillId, JobId, RunId
from rota.domain.run import Reason, Trigger
from rota.domain.shape import worker_of
from rota.domain.states import Cause, RunState
from rota.store.gates import (
    Gatekeeper,
    Kind,
    LockGates,
    active_run,
    backfill_rules,
    job_rules,
    kinds_of,
    lock_gates,
    other_run,
)
from rota.store.memory import Crews
from rota.store.rows import reasons_to
from rota.store.script import Many, Query, Row, Script, query
from rota.store.tx import Tx, lock_carts, runs_ended, share_gates
from rota.store.waits import (
    EndOfWait,
    cancel,
    drop_late,
    end_of_wait,
    end_waiting,
    enqueue,
    is_for_worker,
    judge_lateness,
    let_all_go,
    let_waiters_go,
    strand,
    too_late,
)

# What those that pass do next; some of their kinds count at the gates of their jobs.
Enter: TypeAlias = Callable[[Tx, Sequence[Row], Collection[Kind]], Script[None]]
_PAGE = 200


def release_eligible(tx: Tx, limit: int, locking: LockGates) -> Script[int]:
    """Runs whose time or back-off has come pass the gates."""
    concerned = yield query("eligible_jobs", now=tx.now, limit=limit)
    locked = yield from _lock_gates(concerned, locking)
    found = (yield query("eligible_runs", now=tx.now, limit=limit)) if concerned else ()
    return (yield from _release_locked(tx, found, locked))


def any_unfit() -> Script[bool]:
    """Whether runs wait for a worker that could ever take them, or have to, as theirs has gone."""
    if (yield query("unfit_keys")):
        return True
    return bool((yield query("any_stranded")))


def release_fitting(tx: Tx, limit: int, locking: LockGates) -> Script[int]:
    """Runs for which a worker has come pass the gates; at most `limit` of each demand.

    Items whose own worker has gone begin to wait for it.
    """
    stranded = yield from strand(tx, limit)
    keys = {(row["pool"], row["shape"]): row["key"] for row in (yield query("unfit_keys"))}
    unfit = yield from Crews().unfit(tx.now, keys)  # as it is, whatever anybody remembers
    fits = sorted(keys.keys() - unfit.keys())
    met = [keys[demand] for demand in fits if not worker_of(demand[1])]
    concerned: list[Row] = []
    for key in met:
        concerned += yield query("jobs_of_waiters", key=key, limit=limit)
    locked = yield from _lock_gates(concerned, locking)
    found: list[Row] = []
    for key in met:
        found += yield query("waiters_to_release", key=key, limit=limit)
    released = yield from _release_locked(tx, found, locked)
    for demand in fits:
        if worker_of(demand[1]):  # how long it may wait there ends with the wait
            released += yield from let_waiters_go(tx, keys[demand], limit)
    return stranded + released


@dataclass(frozen=True, slots=True)
class _Locked:
    """Jobs and carts whose gates a transaction has locked."""

    jobs: Collection[str]
    carts: Collection[str | None]

    def cover(self, row: Row) -> bool:
        return row["job_id"] in self.jobs and row["cart"] in self.carts


def _lock_gates(concerned: Sequence[Row], locking: LockGates) -> Script[_Locked]:
    """Lock the gates that runs are about to come to, given by job and cart."""
    carts = {row["cart"] for row in concerned} - {None}
    # A pause of a cart waits for this transaction, and then finds what it has queued.
    if carts:
        yield from share_gates(carts)
    jobs = yield from locking({row["job_id"] for row in concerned})
    return _Locked(jobs, {None, *carts})


def _release_locked(tx: Tx, found: Sequence[Row], locked: _Locked) -> Script[int]:
    """Runs that were read under the gates pass these.

    They were looked for before, to know which gates there are: somebody may have cancelled or
    released some meanwhile, and a run whose gates are not locked is left for the next look.
    """
    rows = [row for row in found if locked.cover(row)]
    if rows:
        by_age = sorted(rows, key=itemgetter("seq"))  # the older goes before
        yield from pass_gates(tx, by_age, enqueue)
    return len(rows)


def pass_gates(tx: Tx, rows: Sequence[Row], enter: Enter) -> Script[None]:
    """Runs that wait come to the gates of their jobs in this order; those that pass `enter`."""
    gatekeeper = Gatekeeper()
    kinds = kinds_of(rows)
    yield from gatekeeper.load(
        tx.now,
        kinds,
        leave_out=[row["id"] for row in rows],
        backfills={row["backfill"] for row in rows if row["backfill"] is not None},
        carts={row["cart"] for row in rows if row["cart"] is not None},
    )
    gates = gatekeeper.gates
    free = {(job, trigger) for job, trigger in kinds if gates[job].lets_any_go(trigger)}
    going: list[Row] = []
    blocked: list[tuple[Row, Admission]] = []
    skipped: dict[str, list[RunId]] = defaultdict(list)  # by cause
    for row in rows:
        is_closed = row["cart"] in gatekeeper.closed_carts
        if not is_closed and (row["job_id"], row["trigger"]) in free:
            going.append(row)
            continue
        admission = gatekeeper.admit(row["job_id"], active_run(row), row["previous_due"])
        if admission.state is RunState.QUEUED:
            going.append(row)
        elif admission.state is RunState.BLOCKED:
            blocked.append((row, admission))
        else:
            skipped[admission.cause].append(RunId(row["id"]))
    yield from enter(tx, going, {kind for kind in kinds if _counts(gates[kind[0]], kind)})
    if blocked:
        yield from _block(tx, blocked)
    for cause, runs in skipped.items():
        yield from end_waiting(tx, runs, EndOfWait(RunState.SKIPPED, cause))
    yield from apply_side_effects(tx, gatekeeper, "scheduler")


def _block(tx: Tx, blocked: Sequence[tuple[Row, Admission]]) -> Script[None]:
    values = [(a.blocked_on, reasons_to(a.reasons), row["id"]) for row, a in blocked]
    yield Many("block_run", values)
    bounds = [(end_of_wait(row["release_at"], a), row["id"]) for row, a in blocked if a.within]
    if bounds:
        yield Many("bound_wait", bounds)
    tx.record_each("run.blocked", [row for row, _ in blocked], actor="scheduler")


def apply_side_effects(tx: Tx, gatekeeper: Gatekeeper, actor: str) -> Script[None]:
    """End superseded runs, stop cancelled ones, and let go who waited for those."""
    if gatekeeper.superseded:
        end = EndOfWait(RunState.SKIPPED, Cause.SUPERSEDED, actor)
        yield from end_waiting(tx, gatekeeper.superseded, end)
    if gatekeeper.to_cancel:
        stopped = yield from cancel(tx, gatekeeper.to_cancel, actor)
        yield from release_jobs(tx, set(stopped.values()))


def release_jobs(tx: Tx, jobs: Collection[str]) -> Script[int]:
    """Let runs go that waited for a slot of these jobs, or for their turn in a backfill of them.

    The transaction has locked the gates of these jobs.
    """
    released = 0
    if jobs:
        rows = yield query("waited_jobs", ids=jobs)
        for gate in job_rules(rows, tx.now).values():
            released += yield from _release(tx, gate)
    return released


def _release(tx: Tx, gate: JobRules) -> Script[int]:
    if gate.closed is not None:
        return 0
    rows = yield query("occupying_runs", ids=[gate.job_id], now=tx.now)
    active = [other_run(row) for row in rows]
    going = yield from _free_of_job(gate, active)
    going += yield from _next_of_backfills(gate, active)
    yield from enqueue(tx, going, {kind for kind in kinds_of(going) if _counts(gate, kind)})
    return len(going)


def _counts(gate: JobRules, kind: Kind) -> bool:
    """Whether runs of this kind count at the gate of their job while they are in the queue."""
    return gate.counts(kind[1], RunState.QUEUED)


def _free_of_job(gate: JobRules, active: list[ActiveRun]) -> Script[list[Row]]:
    """Runs that waited for a slot and have one now; they become part of `active`.

    Those that no schedule asked for are looked at again by themselves: however many due times
    wait for one another, they wait for a slot only.
    """
    going = yield from _free_among("waiting_runs", gate, active)
    is_limited = gate.max_concurrency is not None
    if is_limited and gate.goes_in_turn(Trigger.SCHEDULE) and free_slots(gate, active) > 0:
        going += yield from _free_among("waiting_triggered_runs", gate, active)
    return going


def _free_among(waiting: str, gate: JobRules, active: list[ActiveRun]) -> Script[list[Row]]:
    going: list[Row] = []
    page: Sequence[Row] = ()
    while True:
        after = page[-1]["seq"] if page else 0
        # Each page is held against all that go: it is as long as they are many, so that the work
        # grows with them, not with their square.
        limit = _PAGE + len(going)
        page = yield query(waiting, key=job_key(gate.job_id), after=after, limit=limit)
        free = _free_in_page(gate, page, active)
        going += free
        counting = {kind for kind in kinds_of(free) if _counts(gate, kind)}
        active += [_queued(r) for r in free if (r["job_id"], r["trigger"]) in counting]
        if len(page) < limit or not free:
            return going


def _free_in_page(gate: JobRules, page: Sequence[Row], active: Sequence[ActiveRun]) -> list[Row]:
    if all(gate.lets_any_go(trigger) for _, trigger in kinds_of(page)):
        return list(page)
    gone = {run.id for run in active}
    candidates = [active_run(row) for row in page if row["id"] not in gone]
    free = set(releasable(gate, candidates, active))
    return [row for row in page if row["id"] in free]


def _next_of_backfills(gate: JobRules, active: list[ActiveRun]) -> Script[list[Row]]:
    """Runs of the job's backfills that go now: they take the slots that others leave them."""
    going: list[Row] = []
    for backfill in (yield from _waited_backfills(gate.job_id)):
        room = backfill_room(gate, backfill, active)
        if room:
            key = backfill_key(backfill.id)
            rows = yield query("waiting_runs", key=key, after=0, limit=room)
            going += rows
            active += [_queued(row) for row in rows]
    return going


def _waited_backfills(job: JobId) -> Script[list[BackfillRules]]:
    rows = yield query("waited_backfills", job=job)
    return [backfill_rules(row) for row in rows]


def _queued(row: Row) -> ActiveRun:
    return active_run(row)._replace(state=RunState.QUEUED)


def block_job(tx: Tx, job: JobId) -> Script[None]:
    """Block runs of a paused job that were queued or waited for a slot."""
    closed = (yield from _rules_of(tx, job)).closed
    assert closed is not None, "a job is blocked that no gate closes"
    key, reasons = closed.key, (closed,)
    blocked = yield query("block_queued_runs", job=job, key=key, reasons=reasons_to(reasons))
    if blocked:
        tx.record_each("run.blocked", blocked, actor="scheduler")
        tx.effects.chains.leave(run["chain"] for run in blocked)
    for trigger in (Trigger.SCHEDULE, Trigger.MANUAL):
        yield _move_waiters(job_key(job), key, reasons, trigger)
    for backfill in (yield from _waited_backfills(job)):
        yield _move_waiters(backfill_key(backfill.id), key, reasons, backfill=backfill.id)
    yield query("tell_waiters", key=key, reasons=reasons_to(reasons))


def unblock_job(tx: Tx, job: JobId) -> Script[None]:
    """End a pause: what it blocked waits for a slot like any other, and goes if there is one."""
    gate, old_key = (yield from _rules_of(tx, job)), pause_key(job)
    if gate.after or gate.closed is not None:  # the gates after that of the pause
        yield from let_all_go(tx, old_key)
    for trigger in (Trigger.SCHEDULE, Trigger.MANUAL):
        yield _move_waiters(old_key, job_key(job), (waiting_reason(gate, trigger),), trigger)
    for row in (yield query("paused_backfills", key=old_key)):
        backfill = backfill_rules(row)
        reasons = (turn_reason(gate, backfill),)
        yield _move_waiters(old_key, backfill_key(backfill.id), reasons, backfill=backfill.id)
    yield from release_jobs(tx, [job])


def _rules_of(tx: Tx, job: JobId) -> Script[JobRules]:
    rows = yield query("job_gates", ids=[job])
    return job_rules(rows, tx.now)[job]


def _move_waiters(
    old_key: str,
    key: str,
    reasons: tuple[Reason, ...],
    trigger: Trigger = Trigger.BACKFILL,
    backfill: str = "",
) -> Query:
    """Let runs wait on another key; which ones, schedule or not and of which backfill, is given."""
    return query(
        "move_waiters",
        old_key=old_key,
        key=key,
        reasons=reasons_to(reasons),
        is_scheduled=int(trigger is Trigger.SCHEDULE),
        backfill=backfill,
    )


def sweep(tx: Tx, limit: int, after: str) -> Script[tuple[int, str]]:
    """End what passed its deadline and release what a lost wake-up forgot.

    Looks at `limit` keys past `after`, and returns where the next sweep goes on.
    """
    overdue = yield query("overdue_runs", now=tx.now, limit=limit)
    late = yield from too_late(tx.now)
    rows = yield query("waited_keys", after=after, limit=limit)
    keys = [row["key"] for row in rows]
    jobs = yield from _jobs_behind(keys)
    jobs |= {row["job_id"] for row in (*overdue, *late)}
    runs = [RunId(row["id"]) for row in overdue]
    # All that is needed is collected first: carts and gates are locked once, in this order.
    carts = yield from lock_carts([*runs, *(row["id"] for row in late if is_for_worker(row))])
    yield from lock_gates(jobs)
    if runs:
        yield from end_waiting(tx, runs, EndOfWait(RunState.TIMED_OUT, Cause.DEADLINE))
    dropped = yield from drop_late(tx, late)
    yield from runs_ended(tx, carts, jobs)
    judged = yield from judge_lateness(tx)
    released = yield from _reopen(tx, [key for key in keys if is_closing(key)], limit)
    released += yield from release_jobs(tx, jobs)
    count = released + len(overdue) + len(dropped) + judged
    return count, keys[-1] if len(keys) == limit else ""


def _reopen(tx: Tx, keys: Sequence[str], limit: int) -> Script[int]:
    """Let runs go that wait at a gate which closes their job no more; gates of jobs are locked.

    Past `limit` runs the other keys are left to the next sweep: the transaction has locks.
    """
    if not keys:
        return 0
    jobs = {job for key in keys if (job := job_behind(key))}
    rows = yield query("job_gates", ids=jobs)
    closed = {gate.closed.key for gate in job_rules(rows, tx.now).values() if gate.closed}
    released = 0
    for key in keys:
        if key not in closed and released < limit:
            released += yield from let_all_go(tx, key)
    return released


def _jobs_behind(keys: Sequence[str]) -> Script[set[str]]:
    """The jobs that keys of waiting runs are about."""
    jobs: set[str] = {job for key in keys if (job := job_behind(key))}
    prefix = backfill_key(BackfillId(""))
    backfills = [key.removeprefix(prefix) for key in keys if key.startswith(prefix)]
    if backfills:
        jobs |= {row["job_id"] for row in (yield query("select_backfills", ids=backfills))}
    return jobs
