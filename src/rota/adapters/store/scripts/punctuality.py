"""Lateness: runs that missed their objective, and runs too late to start at all."""

from __future__ import annotations

from rota.adapters.store.script import Rows, Script, query
from rota.adapters.store.scripts.effects import Effects, record
from rota.adapters.store.scripts.queueing import EndOfWait, end_waiting
from rota.domain.cause import Cause
from rota.domain.ids import RunId
from rota.domain.states import RunState

_BATCH = 500


def too_late(now: int) -> Script[Rows]:
    """Runs that may not start any more, with their jobs."""
    return (yield query("dropped_runs", now=now, limit=_BATCH))


def drop_late(now: int, late: Rows, effects: Effects) -> Script[set[str]]:
    """Miss what is too late, under the gates of its jobs; returns these."""
    if late:
        runs = [RunId(row["id"]) for row in late]
        yield from end_waiting(now, runs, EndOfWait(RunState.MISSED, Cause.TOO_LATE), effects)
    return {row["job_id"] for row in late}


def judge_lateness(now: int) -> Script[int]:
    """Tell which runs did not start within their objective, each once; returns how many."""
    rows = yield query("judge_lateness", now=now, limit=_BATCH)
    late = [row for row in rows if row["is_late"]]
    if late:
        jobs = sorted({row["job"] for row in late})
        yield record("run.late", now, [row["id"] for row in late], actor="scheduler", jobs=jobs)
    return len(rows)
