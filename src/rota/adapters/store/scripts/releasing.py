"""Letting runs go that waited: for their time, for a slot of their job, for the end of a pause."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from rota.adapters.store.rows import reasons_to
from rota.adapters.store.script import Many, Row, Script, query
from rota.adapters.store.scripts.effects import Effects, record
from rota.adapters.store.scripts.gatekeeper import Gatekeeper, active_run, job_rules
from rota.adapters.store.scripts.punctuality import drop_late, judge_lateness
from rota.adapters.store.scripts.queueing import cancel, end_waiting, enqueue
from rota.domain.gates import (
    ActiveRun,
    JobRules,
    job_key,
    pause_key,
    paused,
    releasable,
    waiting_reason,
)
from rota.domain.ids import JobId, RunId
from rota.domain.run import Trigger
from rota.domain.states import RunState
from rota.ports.store import Released, Wakes

_PAGE = 200


def release_eligible(now: int, limit: int) -> Script[Released]:
    """Runs whose time or back-off has come pass the gates."""
    rows = yield query("eligible_runs", now=now, limit=limit)
    if not rows:
        return Released(0, Wakes())
    effects = Effects()
    gatekeeper = Gatekeeper()
    yield from gatekeeper.load(now, {r["job_id"] for r in rows}, leave_out=[r["id"] for r in rows])
    going: list[Row] = []
    blocked: list[tuple[str, str | None, str]] = []
    skipped: list[RunId] = []
    for row in sorted(rows, key=lambda row: row["seq"]):  # by age: the older goes before
        admission = gatekeeper.admit(row["job_id"], _candidate(row))
        if admission.state is RunState.QUEUED:
            going.append(row)
        elif admission.state is RunState.BLOCKED:
            blocked.append((admission.blocked_on, reasons_to(admission.reasons), row["id"]))
        else:
            skipped.append(RunId(row["id"]))
    yield from enqueue(now, going, effects)
    if blocked:
        yield Many("block_run", blocked)
        yield record("run.blocked", now, [run for _, _, run in blocked], actor="scheduler")
    if skipped:
        yield from end_waiting(now, skipped, RunState.SKIPPED, "overlap", "scheduler")
    yield from apply_side_effects(now, gatekeeper, effects, "scheduler")
    return Released(len(rows), effects.wakes())


def _candidate(row: Row) -> ActiveRun:
    return ActiveRun(
        RunId(row["id"]), row["seq"], RunState.SCHEDULED, Trigger(row["trigger"]), row["attempt"]
    )


def apply_side_effects(
    now: int, gatekeeper: Gatekeeper, effects: Effects, actor: str
) -> Script[None]:
    """End superseded runs, stop cancelled ones, and let go who waited for those."""
    if gatekeeper.superseded:
        yield from end_waiting(now, gatekeeper.superseded, RunState.SKIPPED, "superseded", actor)
    if gatekeeper.to_cancel:
        stopped = yield from cancel(now, gatekeeper.to_cancel, effects, actor)
        yield from release_jobs(now, set(stopped.values()), effects)


def release_jobs(now: int, jobs: Collection[str], effects: Effects) -> Script[int]:
    """Let runs go that waited for a slot of these jobs."""
    released = 0
    if jobs:
        for row in (yield query("waited_jobs", ids=jobs)):
            released += yield from _release(now, job_rules(row), effects)
    return released


def _release(now: int, gate: JobRules, effects: Effects) -> Script[int]:
    if gate.is_paused:
        return 0
    rows = yield query("active_runs", ids=[gate.job_id], now=now)
    active = [active_run(row) for row in rows if row["state"] != RunState.BLOCKED]
    going: list[Row] = []
    page: Sequence[Row] = ()
    while True:
        after = page[-1]["seq"] if page else 0
        page = yield query("waiting_runs", key=job_key(gate.job_id), after=after, limit=_PAGE)
        free = set(releasable(gate, [active_run(row) for row in page], active))
        going += [row for row in page if row["id"] in free]
        active += [_queued(row) for row in page if row["id"] in free]
        if len(page) < _PAGE or not free:
            break
    yield from enqueue(now, going, effects)
    return len(going)


def _queued(row: Row) -> ActiveRun:
    return ActiveRun(RunId(row["id"]), row["seq"], RunState.QUEUED, Trigger(row["trigger"]))


def hold_job(now: int, job: JobId) -> Script[None]:
    """A job is paused: what was queued, or waited for a slot, now waits for the pause's end."""
    [row] = yield query("job_gates", ids=[job])
    admission = paused(job_rules(row))
    key, reasons = admission.blocked_on, reasons_to(admission.reasons)
    held = yield query("block_queued_runs", job=job, key=key, reasons=reasons)
    if held:
        yield query("rest_chains", ids={run["chain"] for run in held})
        yield record("run.blocked", now, [run["id"] for run in held], actor="scheduler")
    for old_key in (job_key(job), key):  # what an earlier pause holds waits for the end of this one
        yield from _move_waiters(old_key, key, dict.fromkeys(Trigger, reasons))


def unhold_job(now: int, job: JobId, effects: Effects) -> Script[None]:
    """A pause is over: what it held waits for a slot like any other, and goes if there is one."""
    [row] = yield query("job_gates", ids=[job])
    gate = job_rules(row)
    reasons = {trigger: reasons_to((waiting_reason(gate, trigger),)) for trigger in Trigger}
    yield from _move_waiters(pause_key(job), job_key(job), reasons)
    yield from release_jobs(now, [job], effects)


def _move_waiters(old_key: str, key: str, reasons: dict[Trigger, str | None]) -> Script[None]:
    for trigger in (Trigger.SCHEDULE, Trigger.MANUAL):
        yield query(
            "move_waiters",
            old_key=old_key,
            key=key,
            reasons=reasons[trigger],
            is_scheduled=int(trigger is Trigger.SCHEDULE),
        )


def sweep(now: int, limit: int, after: str) -> Script[tuple[Released, str]]:
    """End what passed its deadline and release what a lost wake-up forgot.

    Looks at `limit` keys past `after`, and returns where the next sweep goes on.
    """
    effects = Effects()
    overdue = yield query("overdue_runs", now=now, limit=limit)
    if overdue:
        runs = [RunId(row["id"]) for row in overdue]
        yield from end_waiting(now, runs, RunState.TIMED_OUT, "deadline", "scheduler")
    dropped = yield from drop_late(now)
    judged = yield from judge_lateness(now)
    rows = yield query("waited_keys", after=after, limit=limit)
    keys = [row["key"] for row in rows]
    jobs = {key.split(":", 1)[1] for key in keys} | {row["job_id"] for row in overdue} | dropped
    released = yield from release_jobs(now, jobs, effects)
    count = released + len(overdue) + len(dropped) + judged
    return Released(count, effects.wakes()), keys[-1] if len(keys) == limit else ""
