"""Jobs whose runs hold one another back."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from rota.domain.ids import JobId, instant
from rota.domain.lateness import LONGEST_WAIT, Congestion
from rota.domain.states import Cause
from rota.store.script import Script, query
from rota.store.tx import Tx

_PATIENCE = LONGEST_WAIT // LONGEST_WAIT.resolution


def congested_jobs(now: int) -> Script[dict[JobId, Congestion]]:
    """What was let go and is not final, of jobs where somebody may have to look."""
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
    begun = [JobId(row["id"]) for row in rows]
    for job in begun:
        seen = stuck[job]
        yield tx.record(
            "job.stuck",
            [job],
            actor="scheduler",
            waiting=seen.waiting,
            oldest_release_at=seen.oldest_release_at,
        )
    over = yield query("end_stuck", ids=congested)
    if over:
        yield tx.record("job.drained", [row["id"] for row in over], actor="scheduler")
    return begun
