"""Backfills: due times of the past that are to run."""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime

from rota.domain.backfill import MAX_DUE_TIMES, Backfill, DueRun
from rota.domain.errors import Conflict
from rota.domain.ids import JobId, RunId, instant, micros, scheduled_run_id
from rota.domain.states import RunState, is_final
from rota.ports.records import Idempotency, LedgerEntry, NewRun, SubmittedBackfill
from rota.store.gates import lock_gates
from rota.store.rows import backfill_from, optional_micros, to_json
from rota.store.script import Many, Row, Rows, Script, query
from rota.store.submissions import draft, first_answer, insert_drafts
from rota.store.tx import Tx

_MOST_NAMED = 10  # runs beside one entry of the ledger


def submit(
    tx: Tx,
    backfill: Backfill,
    runs: Sequence[NewRun],
    idempotency: Idempotency | None = None,
) -> Script[SubmittedBackfill]:
    """Insert a backfill and its runs, or give the first answer to the caller's key again."""
    # The first lock of all, as in `submissions.submit`.
    answered = yield from first_answer(tx.now, idempotency, backfill.id)
    if answered is not None:
        [row] = yield query("select_backfills", ids=[answered])
        return SubmittedBackfill(backfill_from(row), is_repeat=True)
    yield from lock_gates([backfill.job_id])
    drafts = [draft(run, tx.now, backfill.id) for run in runs]
    # Under the gate: of two backfills the second one waits above, and sees the runs of the first.
    yield from _refuse_twice(backfill.job_id, {each.due_at for each in drafts})
    yield Many("insert_backfill", [_values(tx.now, backfill)])
    actor = backfill.created_by
    yield from insert_drafts(tx, drafts, actor=actor)
    facts = {"backfill": backfill.id, "runs": len(runs)}
    job = yield query("projects_of_jobs", ids=[backfill.job_id])
    tx.record_each("job.backfilled", job, actor=actor, **facts)
    return SubmittedBackfill(backfill)


def _refuse_twice(job: JobId, due: Collection[int]) -> Script[None]:
    """Two backfills asked for at the same moment must not run a due time side by side."""
    rows = (yield from _backfilled(job, min(due), max(due))) if due else ()
    taken = [row for row in rows if row["due_at"] in due and not is_final(row["state"])]
    if taken:
        raise Conflict(
            f"another backfill has taken {len(taken)} of these due times meanwhile",
            code="backfill_overlaps",
            hint="ask again: what is being backfilled is left out",
        )


def _values(now: int, backfill: Backfill) -> tuple[object, ...]:
    """Values for `insert_backfill`, in its order."""
    return (
        backfill.id,
        backfill.job_id,
        backfill.max_parallel,
        backfill.created_by,
        now,
        backfill.runs,
        optional_micros(backfill.first),
        optional_micros(backfill.last),
        to_json(backfill.skipped),
    )


def due_runs(job: JobId, due: Sequence[datetime]) -> Script[list[DueRun]]:
    """The runs of these due times by age; the ids of scheduled ones follow from the due times."""
    if not due:
        return []
    wanted = {micros(at) for at in due}
    scheduled = yield query("scheduled_due_runs", ids=[scheduled_run_id(job, at) for at in due])
    backfilled = yield from _backfilled(job, min(wanted), max(wanted))
    rows = [*scheduled, *(row for row in backfilled if row["due_at"] in wanted)]
    return [_due_run(row) for row in sorted(rows, key=lambda row: int(row["seq"]))]


def _due_run(row: Row) -> DueRun:
    return DueRun(RunId(row["id"]), instant(row["due_at"]), RunState(row["state"]))


def _backfilled(job: JobId, first: int, last: int, limit: int = sys.maxsize) -> Script[Rows]:
    return (yield query("backfilled_due_runs", job=job, first=first, last=last, limit=limit))


def with_backfills(job: JobId, entries: Sequence[LedgerEntry]) -> Script[list[LedgerEntry]]:
    """Name the runs that made up for entries of a ledger, whatever their order."""
    if not entries:
        return []
    by_time = sorted(entries, key=lambda entry: entry.first)
    firsts = [micros(entry.first) for entry in by_time]
    latest = max(micros(entry.last) for entry in entries)
    made_up: dict[datetime, list[RunId]] = defaultdict(list)  # by the first of an entry
    for row in (yield from _backfilled(job, firsts[0], latest, MAX_DUE_TIMES)):
        entry = by_time[bisect_right(firsts, row["due_at"]) - 1]
        if row["due_at"] <= micros(entry.last):  # else the schedule never had it
            made_up[entry.first].append(RunId(row["id"]))
    return [
        replace(entry, backfilled_by=tuple(made_up[entry.first][:_MOST_NAMED])) for entry in entries
    ]
