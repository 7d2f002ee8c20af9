"""Lateness: runs that missed their objective, and runs too late to start at all."""

from __future__ import annotations

from rota.adapters.store.script import Script, query
from rota.adapters.store.scripts.effects import record
from rota.adapters.store.scripts.queueing import end_waiting
from rota.domain.ids import RunId
from rota.domain.states import RunState

_BATCH = 500


def drop_late(now: int) -> Script[set[str]]:
    """Miss what may not start any more; returns the jobs concerned."""
    rows = yield query("dropped_runs", now=now, limit=_BATCH)
    if rows:
        runs = [RunId(row["id"]) for row in rows]
        yield from end_waiting(now, runs, RunState.MISSED, "too late", "scheduler")
    return {row["job_id"] for row in rows}


def judge_lateness(now: int) -> Script[int]:
    """Tell which runs did not start within their objective, each once; returns how many."""
    rows = yield query("judge_lateness", now=now, limit=_BATCH)
    late = [row for row in rows if row["is_late"]]
    if late:
        jobs = sorted({row["job"] for row in late})
        yield record("run.late", now, [row["id"] for row in late], actor="scheduler", jobs=jobs)
    return len(rows)
