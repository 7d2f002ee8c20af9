"""Releasing runs that waited: for their time, for a slot of their job, for the end of a pause."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import TypeAlias

from rota.domain.gates import (
    ActiveRun,
    Admission,
    BackfillRules,
    JobRules,
    backfill_key,
    backfill_room,
    job_key,
    pause_key,
    paused,
    releasable,
    turn_reason,
    waiting_reason,
)
from rota.domain.ids import JobId, RunId
from rota.domain.run import Reason, Trigger
from rota.domain.states import Cause, RunState
from rota.store.gates import (
    Gatekeeper,
    LockGates,
    active_run,
    backfill_rules,
    job_rules,
    lock_gates,
    other_run,
)
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
    judge_lateness,
    let_waiters_go,
    too_late,
)

Enter: TypeAlias = Callable[[Tx, Sequence[Row]], Script[None]]
_PAGE = 200


def release_eligible(tx: Tx, limit: int, locking: LockGates) -> Script[int]:
    """Runs whose time or back-off has come pass the gates."""
    concerned = yield query("eligible_jobs", now=tx.now, limit=limit)
    if not concerned:
        return 0
    carts = {row["cart"] for row in concerned} - {None}
    if carts:
        yield from share_gates(carts)
    locked = yield from locking({row["job_id"] for row in concerned})
    # Read again, under the gates: somebody may have cancelled or released some meanwhile. A run of
    # a cart that was not shared above is left for the next look.
    found = yield query("eligible_runs", now=tx.now, limit=limit)
    rows = [row for row in found if row["job_id"] in locked and row["cart"] in {None, *carts}]
    by_age = sorted(rows, key=lambda row: row["seq"])  # the older goes before
    yield from pass_gates(tx, by_age, enqueue)
    return len(rows)


def pass_gates(tx: Tx, rows: Sequence[Row], enter: Enter) -> Script[None]:
    """Runs that wait come to the gates of their jobs in this order; those that pass `enter`."""
    gatekeeper = Gatekeeper()
    yield from gatekeeper.load(
        tx.now,
        {row["job_id"] for row in rows},
        leave_out=[row["id"] for row in rows],
        backfills={row["backfill"] for row in rows if row["backfill"] is not None},
        carts={row["cart"] for row in rows if row["cart"] is not None},
    )
    going: list[Row] = []
    blocked: list[tuple[Row, Admission]] = []
    skipped: dict[str, list[RunId]] = defaultdict(list)  # by cause
    for row in rows:
        admission = gatekeeper.admit(row["job_id"], active_run(row), row["previous_due"])
        if admission.state is RunState.QUEUED:
            going.append(row)
        elif admission.state is RunState.BLOCKED:
            blocked.append((row, admission))
        else:
            skipped[admission.cause].append(RunId(row["id"]))
    yield from enter(tx, going)
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
    yield tx.record("run.blocked", [row["id"] for row, _ in blocked], actor="scheduler")


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
        for row in (yield query("waited_jobs", ids=jobs)):
            released += yield from _release(tx, job_rules(row))
    return released


def _release(tx: Tx, gate: JobRules) -> Script[int]:
    if gate.is_paused:
        return 0
    rows = yield query("active_runs", ids=[gate.job_id], now=tx.now)
    others = map(other_run, rows)
    active = [run for run in others if run.state is not RunState.BLOCKED or run.is_held]
    going = yield from _free_of_job(gate, active)
    going += yield from _next_of_backfills(gate, active)
    yield from enqueue(tx, going)
    return len(going)


def _free_of_job(gate: JobRules, active: list[ActiveRun]) -> Script[list[Row]]:
    """Runs that waited for a slot and have one now; they become part of `active`.

    Those that no schedule asked for are looked at again by themselves: however many due times
    wait for one another, they wait for a slot only.
    """
    going = yield from _free_among("waiting_runs", gate, active)
    if gate.max_concurrency is not None:
        going += yield from _free_among("waiting_triggered_runs", gate, active)
    return going


def _free_among(waiting: str, gate: JobRules, active: list[ActiveRun]) -> Script[list[Row]]:
    going: list[Row] = []
    page: Sequence[Row] = ()
    while True:
        after = page[-1]["seq"] if page else 0
        page = yield query(waiting, key=job_key(gate.job_id), after=after, limit=_PAGE)
        gone = {run.id for run in active}
        candidates = [active_run(row) for row in page if row["id"] not in gone]
        free = set(releasable(gate, candidates, active))
        going += [row for row in page if row["id"] in free]
        active += [_queued(row) for row in page if row["id"] in free]
        if len(page) < _PAGE or not free:
            return going


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
    return replace(active_run(row), state=RunState.QUEUED)


def block_job(tx: Tx, job: JobId) -> Script[None]:
    """Block runs of a paused job that were queued or waited for a slot."""
    [row] = yield query("job_gates", ids=[job])
    admission = paused(job_rules(row))
    key, reasons = admission.blocked_on, admission.reasons
    blocked = yield query("block_queued_runs", job=job, key=key, reasons=reasons_to(reasons))
    if blocked:
        yield tx.record("run.blocked", [run["id"] for run in blocked], actor="scheduler")
        tx.effects.chains.leave(run["chain"] for run in blocked)
    for trigger in (Trigger.SCHEDULE, Trigger.MANUAL):
        yield _move_waiters(job_key(job), key, reasons, trigger)
    for backfill in (yield from _waited_backfills(job)):
        yield _move_waiters(backfill_key(backfill.id), key, reasons, backfill=backfill.id)
    yield query("tell_waiters", key=key, reasons=reasons_to(reasons))


def unblock_job(tx: Tx, job: JobId) -> Script[None]:
    """End a pause: what it blocked waits for a slot like any other, and goes if there is one."""
    [row] = yield query("job_gates", ids=[job])
    gate, old_key = job_rules(row), pause_key(job)
    if gate.after:  # the gate after that of the pause
        while (yield from let_waiters_go(tx, old_key, _PAGE)) == _PAGE:
            pass
    for trigger in (Trigger.SCHEDULE, Trigger.MANUAL):
        yield _move_waiters(old_key, job_key(job), (waiting_reason(gate, trigger),), trigger)
    for row in (yield query("paused_backfills", key=old_key)):
        backfill = backfill_rules(row)
        reasons = (turn_reason(gate, backfill),)
        yield _move_waiters(old_key, backfill_key(backfill.id), reasons, backfill=backfill.id)
    yield from release_jobs(tx, [job])


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
    carts = yield from lock_carts(runs)
    yield from lock_gates(jobs)
    if runs:
        yield from end_waiting(tx, runs, EndOfWait(RunState.TIMED_OUT, Cause.DEADLINE))
        yield from runs_ended(tx, carts, jobs)
    dropped = yield from drop_late(tx, late)
    judged = yield from judge_lateness(tx)
    released = yield from release_jobs(tx, jobs)
    count = released + len(overdue) + len(dropped) + judged
    return count, keys[-1] if len(keys) == limit else ""


def _jobs_behind(keys: Sequence[str]) -> Script[set[str]]:
    """The jobs that keys of waiting runs are about."""
    named = [key.split(":", 1) for key in keys]
    jobs = {name for kind, name in named if kind in ("job", "pause")}
    backfills = [name for kind, name in named if kind == "backfill"]
    if backfills:
        jobs |= {row["job_id"] for row in (yield query("select_backfills", ids=backfills))}
    return jobs
