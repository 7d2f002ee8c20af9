"""Lateness: runs that missed their objective, and runs too late to start at all."""

from __future__ import annotations

from collections import defaultdict
from datetime import timedelta

from rota.domain.gates import Admission
from rota.domain.ids import RunId
from rota.domain.states import Cause, RunState
from rota.store.script import Row, Rows, Script, query
from rota.store.scripts.queueing import EndOfWait, end_waiting
from rota.store.tx import Tx

_BATCH = 500


def too_late(now: int) -> Script[Rows]:
    """Runs that may not start any more, with their jobs."""
    return (yield query("dropped_runs", now=now, limit=_BATCH))


def drop_late(tx: Tx, late: Rows) -> Script[set[str]]:
    """Miss what is too late, under the gates of its jobs; returns these."""
    runs: dict[Cause, list[RunId]] = defaultdict(list)
    for row in late:
        runs[_cause(row)].append(RunId(row["id"]))
    for cause, missed in runs.items():
        yield from end_waiting(tx, missed, EndOfWait(RunState.MISSED, cause))
    return {row["job_id"] for row in late}


def _cause(row: Row) -> Cause:
    """Why it may not start any more: its objective, or the end of its wait for another job."""
    return Cause.TOO_LATE if row["drop_at"] == row["late_at"] else Cause.DEPENDENCY


def end_of_wait(release_at: int, admission: Admission) -> int | None:
    """When a run is missed that a gate holds; None: it may wait for ever."""
    if admission.within is None:
        return None
    return release_at + admission.within // timedelta(microseconds=1)


def earliest(one: int | None, other: int | None) -> int | None:
    """The first of those that are known."""
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)


def judge_lateness(tx: Tx) -> Script[int]:
    """Tell which runs did not start within their objective, each once; returns how many."""
    rows = yield query("judge_lateness", now=tx.now, limit=_BATCH)
    late = [row for row in rows if row["is_late"]]
    if late:
        jobs = sorted({row["job"] for row in late})
        yield tx.record("run.late", [row["id"] for row in late], actor="scheduler", jobs=jobs)
    return len(rows)
