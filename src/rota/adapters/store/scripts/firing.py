"""New runs from schedules that are due."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rota.adapters.store.rows import optional_micros, reasons_to
from rota.adapters.store.script import Many, Script, query
from rota.adapters.store.scripts.drafting import Draft, insert_drafts
from rota.adapters.store.scripts.effects import Effects, record
from rota.adapters.store.scripts.rules import RulesBook
from rota.domain.ids import JobId, micros, scheduled_run_id
from rota.domain.run import Trigger
from rota.ports.records import Fired, Firing, Rearmed, Unanswered


def fire(now: int, firings: Sequence[Firing], book: RulesBook) -> Script[Fired]:
    """Insert the runs that are due and advance their schedules."""
    accepted = yield from _current(now, firings)
    effects = Effects()
    drafts = yield from _unknown(draft for firing in accepted for draft in _drafts(firing))
    yield from insert_drafts(now, drafts, book, effects, actor="scheduler")
    yield Many("advance_schedule", [_advance(firing) for firing in accepted])
    yield from insert_unanswered((firing.job_id, firing.unanswered) for firing in accepted)
    finished = [firing.job_id for firing in accepted if firing.finishes_job]
    if finished:
        yield query("finish_jobs", ids=finished, now=now)
        yield record("job.finished", now, finished, actor="scheduler")
    return Fired(
        accepted=frozenset(firing.job_id for firing in accepted),
        wakes=effects.wakes(),
        run_count=len(drafts),
    )


def _current(now: int, firings: Sequence[Firing]) -> Script[list[Firing]]:
    """Those whose time has come and whose schedule stands where they think, one for each job."""
    rows = yield query("claimed_schedules", ids={firing.job_id for firing in firings})
    stands = {row["job_id"]: (row["next_at"], row["version"]) for row in rows}
    accepted = []
    for firing in firings:
        claimed = micros(firing.claimed_next_at), firing.schedule_version
        if claimed[0] <= now and stands.get(firing.job_id) == claimed:
            accepted.append(firing)
            del stands[firing.job_id]
    return accepted


def _unknown(drafts: Iterable[Draft]) -> Script[list[Draft]]:
    """Leave out due times that have a run: an edit may lead a schedule over them again."""
    wanted = {draft.id: draft for draft in drafts}
    for row in (yield query("known_runs", ids=wanted)):
        del wanted[row["id"]]
    return list(wanted.values())


def _drafts(firing: Firing) -> Iterable[Draft]:
    for planned in firing.runs:
        yield Draft(
            id=scheduled_run_id(firing.job_id, planned.due_at),
            job_id=firing.job_id,
            job_version=firing.job_version,
            trigger=Trigger.SCHEDULE,
            due_at=micros(planned.due_at),
            release_at=micros(planned.release_at),
            created_by="scheduler",
            reasons=reasons_to((planned.reason,)) if planned.reason else None,
        )


def _advance(firing: Firing) -> tuple[int | None, int, str, int, int]:
    return (
        optional_micros(firing.next_at),
        int(firing.waits),
        firing.job_id,
        micros(firing.claimed_next_at),
        firing.schedule_version,
    )


def rearm(rearmed: Sequence[Rearmed]) -> Script[None]:
    """Give schedules their due time after a run that has ended; what moved meanwhile stays."""
    values = [(optional_micros(r.next_at), r.job_id, r.schedule_version) for r in rearmed]
    yield Many("rearm_schedule", values, exactly=False)


def insert_unanswered(stretches: Iterable[tuple[JobId, Sequence[Unanswered]]]) -> Script[None]:
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
        for job, unanswered in stretches
        for s in unanswered
    ]
    if rows:
        yield Many("insert_unanswered", rows, exactly=False)
