"""Ending what waited too long, and releasing what a lost wake-up forgot."""

from __future__ import annotations

from collections.abc import Sequence

from rota.domain.ids import RunId
from rota.domain.states import Cause, RunState
from rota.store.script import Script, query
from rota.store.scripts.carts.advancing import hold_carts_of, judge
from rota.store.scripts.gates import hold_gates
from rota.store.scripts.punctuality import drop_late, judge_lateness, too_late
from rota.store.scripts.queueing import EndOfWait, end_waiting
from rota.store.scripts.releasing import release_jobs
from rota.store.tx import Tx


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
    carts = yield from hold_carts_of(runs)
    yield from hold_gates(jobs)
    if runs:
        yield from end_waiting(tx, runs, EndOfWait(RunState.TIMED_OUT, Cause.DEADLINE))
        yield from judge(tx, carts, jobs)
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
