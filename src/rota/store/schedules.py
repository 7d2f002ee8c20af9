"""Schedules: which are due, which wait, and how their due times were answered."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime

from rota.domain.errors import Conflict
from rota.domain.ids import JobId, RunId, instant, micros
from rota.domain.job import Job
from rota.domain.lateness import LONGEST_WAIT, Congestion
from rota.domain.states import Cause, RunState, seen_state
from rota.ports.records import Answered, DueSchedule, EndedWait, LedgerEntry, Rearmed
from rota.store.backfills import with_backfills
from rota.store.gates import LockGates
from rota.store.rows import job_from, optional_instant, optional_micros
from rota.store.script import Many, Row, Script, query
from rota.store.sessions import served_pools
from rota.store.tx import Tx

_PATIENCE = LONGEST_WAIT // LONGEST_WAIT.resolution


def moved_meanwhile(job: str) -> Conflict:
    """A change was prepared for a schedule that is no longer there."""
    return Conflict(f"job {job} fired meanwhile", code="schedule_moved", hint="try again")


def rearm(tx: Tx, rearmed: Sequence[Rearmed], locking: LockGates) -> Script[None]:
    """Give schedules their due time after a run that has ended; what moved meanwhile stays."""
    locked = yield from locking({each.job_id for each in rearmed})
    values = [
        (optional_micros(r.next_at), r.job_id, r.schedule_version)
        for r in rearmed
        if r.job_id in locked
    ]
    yield Many("rearm_schedule", values, exactly=False)
    tx.effects.times = True


def answered_to(answered: Sequence[Answered]) -> int:
    """The latest due time of these stretches; 0: there is none."""
    return max((micros(stretch.last) for stretch in answered), default=0)


def insert_unanswered(stretches: Iterable[tuple[JobId, Sequence[Answered]]]) -> Script[None]:
    """Record due times that got no run."""
    rows = [
        (
            job,
            optional_micros(s.previous),
            s.state,
            s.cause,
            micros(s.first),
            micros(s.last),
            s.count,
        )
        for job, answered in stretches
        for s in answered
    ]
    if rows:
        yield Many("insert_unanswered", rows)


def congested_jobs(now: int) -> Script[dict[JobId, Congestion]]:
    """Congestion of jobs whose runs were released and are not final: somebody may have to look."""
    rows = yield query("congested_jobs", now=now, long_ago=now - _PATIENCE)
    return {
        JobId(row["job_id"]): Congestion(
            row["waiting"],
            row["newest_cause"] == Cause.OVERLAP,
            instant(row["oldest_release_at"]),
            row["expected_seconds"],
        )
        for row in rows
    }


def mark_stuck(
    tx: Tx, stuck: Mapping[JobId, Congestion], congested: Collection[JobId]
) -> Script[list[JobId]]:
    """Begin an episode for each job that is stuck, and end those of jobs that are free again."""
    rows = yield query("begin_stuck", ids=stuck, now=tx.now)
    for row in rows:
        seen = stuck[row["id"]]
        tx.record_each(
            "job.stuck",
            [row],
            actor="scheduler",
            waiting=seen.waiting,
            oldest_release_at=seen.oldest_release_at,
        )
    over = yield query("end_stuck", ids=congested)
    if over:
        tx.record_each("job.drained", over, actor="scheduler")
    return [JobId(row["id"]) for row in rows]


def due_schedules(
    before: datetime, limit: int, shards: Collection[int]
) -> Script[list[DueSchedule]]:
    rows = yield query("due_schedules", before=micros(before), limit=limit, shards=shards)
    return [
        DueSchedule(
            job_id=JobId(row["job_id"]),
            next_at=instant(row["next_at"]),
            schedule_version=row["schedule_version"],
            job_version=row["job_version"],
            anchor=instant(row["anchor"]),
            shard=row["shard"],
        )
        for row in rows
    ]


def ended_waits(limit: int) -> Script[list[EndedWait]]:
    rows = yield query("ended_waits", limit=limit)
    return [
        EndedWait(
            job_id=JobId(row["job_id"]),
            schedule_version=row["schedule_version"],
            job_version=row["job_version"],
            anchor=instant(row["anchor"]),
            ended_at=instant(row["ended_at"]),
        )
        for row in rows
    ]


def ended_pauses(now: int, limit: int) -> Script[list[Job]]:
    rows = yield query("ended_pauses", now=now, limit=limit)
    return [job_from(row) for row in rows]


def next_pause_end(now: int) -> Script[datetime | None]:
    [row] = yield query("next_pause_end", now=now)
    return optional_instant(row["ends_at"])


def next_eligible_at() -> Script[datetime | None]:
    [row] = yield query("next_eligible")
    return optional_instant(row["eligible_at"])


def ledger(
    job: JobId, since: datetime, until: datetime, limit: int, *, newest_first: bool = False
) -> Script[list[LedgerEntry]]:
    bounds = {"job": job, "since": micros(since), "until": micros(until), "limit": limit}
    if newest_first:
        runs = yield query("select_newest_ledger_runs", **bounds)
        stretches = yield query("select_newest_unanswered", **bounds)
        backfilled = yield query("select_newest_backfilled_due_times", **bounds)
    else:
        runs = yield query("select_ledger_runs", **bounds)
        stretches = yield query("select_unanswered", **bounds)
        backfilled = yield query("select_backfilled_due_times", **bounds)
    served = yield from served_pools()
    entries = [_answered_by(run, served) for run in (*runs, *backfilled)]
    entries += [
        LedgerEntry(
            instant(s["first"]), instant(s["last"]), s["count"], s["state"], s["cause"], None
        )
        for s in stretches
    ]
    entries = sorted(entries, key=lambda entry: entry.first, reverse=newest_first)
    return (yield from with_backfills(job, entries[:limit]))


def _answered_by(run: Row, served: Collection[str]) -> LedgerEntry:
    """A due time that has a run."""
    due_at = instant(run["due_at"])
    state = seen_state(RunState(run["state"]), is_served=run["pool"] in served)
    return LedgerEntry(due_at, due_at, 1, state, run["cause"], RunId(run["id"]))
