"""New runs: from schedules that are due, and from people and programs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rota.adapters.store.rows import from_json, optional_micros, reasons_to, to_json
from rota.adapters.store.script import Many, Row, Script, query
from rota.adapters.store.scripts.queueing import (
    Effects,
    Gatekeeper,
    Line,
    activate,
    apply_side_effects,
    deadline_of,
    enqueue,
    record,
)
from rota.adapters.store.scripts.rules import RulesBook
from rota.domain.errors import Conflict
from rota.domain.gates import Admission
from rota.domain.ids import JobId, RunId, micros, scheduled_run_id
from rota.domain.job import RunRules
from rota.domain.order import DEFAULT_EXPECTED_SECONDS
from rota.domain.run import Trigger
from rota.domain.states import RunState, is_final
from rota.ports.store import Fired, Firing, Idempotency, NewRun, Released, Submitted, Unanswered, Wakes


@dataclass(frozen=True, slots=True)
class Draft:
    """A run about to be inserted."""

    id: RunId
    job_id: str
    job_version: int
    trigger: Trigger
    due_at: int
    release_at: int
    created_by: str
    priority: int | None = None
    inputs: str | None = None
    retry_of: str | None = None


SCHEDULED_FOR_LATER = Admission(RunState.SCHEDULED)


def fire(now: int, firings: Sequence[Firing], book: RulesBook) -> Script[Fired]:
    """Insert the runs that are due and advance their schedules."""
    rows = yield query("claimed_schedules", ids=[firing.job_id for firing in firings])
    stands = {row["job_id"]: (row["next_at"], row["version"]) for row in rows}
    accepted = [firing for firing in firings if _is_current(firing, stands, now)]
    effects = Effects()
    drafts = [draft for firing in accepted for draft in _drafts(firing)]
    yield from insert_drafts(now, drafts, book, effects, actor="scheduler")
    yield Many("advance_schedule", [_advance(firing) for firing in accepted])
    yield from insert_unanswered((firing.job_id, firing.unanswered) for firing in accepted)
    finished = [firing.job_id for firing in accepted if firing.finishes_job]
    if finished:
        yield query("finish_jobs", ids=finished, now=now)
    return Fired(
        accepted=frozenset(firing.job_id for firing in accepted),
        wakes=effects.wakes(),
        run_count=len(drafts),
    )


def _is_current(firing: Firing, stands: dict[str, tuple[int, int]], now: int) -> bool:
    claimed = micros(firing.claimed_next_at)
    return claimed <= now and stands.get(firing.job_id) == (claimed, firing.schedule_version)


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
        )


def _advance(firing: Firing) -> tuple[int | None, str, int, int]:
    return (
        optional_micros(firing.next_at),
        firing.job_id,
        micros(firing.claimed_next_at),
        firing.schedule_version,
    )


def insert_unanswered(stretches: Iterable[tuple[JobId, Sequence[Unanswered]]]) -> Script[None]:
    """Record due times that got no run."""
    rows = [
        (job, micros(s.first), micros(s.last), s.count, s.state, s.cause)
        for job, unanswered in stretches
        for s in unanswered
    ]
    if rows:
        yield Many("insert_unanswered", rows, exactly=False)


def submit(now: int, runs: Sequence[NewRun], idempotency: Idempotency | None, book: RulesBook) -> Script[Submitted]:
    """Insert runs that people and programs asked for."""
    if idempotency is not None:
        found = yield query("find_idempotency", key=idempotency.key)
        if found:
            return _first_answer(found[0], idempotency)
    effects = Effects()
    drafts = [_draft(run, now) for run in runs]
    actor = runs[0].created_by if runs else ""
    yield from insert_drafts(now, drafts, book, effects, actor=actor)
    ids = tuple(run.id for run in runs)
    if idempotency is not None:
        yield query(
            "insert_idempotency",
            key=idempotency.key,
            digest=idempotency.digest,
            answer=to_json(ids),
            now=now,
        )
    return Submitted(ids, effects.wakes())


def _first_answer(row: Row, idempotency: Idempotency) -> Submitted:
    if row["digest"] != idempotency.digest:
        raise Conflict(
            "this Idempotency-Key was used before with another request",
            code="idempotency_key_reused",
            hint="use a new key for a new request",
        )
    return Submitted(tuple(RunId(run) for run in from_json(row["answer"])), Wakes(), is_repeat=True)


def _draft(run: NewRun, now: int) -> Draft:
    at = now if run.at is None else max(micros(run.at), now)
    return Draft(
        id=run.id,
        job_id=run.job_id,
        job_version=run.job_version,
        trigger=run.trigger,
        due_at=at,
        release_at=at,
        created_by=run.created_by,
        priority=run.priority,
        inputs=None if run.inputs is None else to_json(run.inputs),
        retry_of=run.retry_of,
    )


def insert_drafts(
    now: int, drafts: Sequence[Draft], book: RulesBook, effects: Effects, *, actor: str
) -> Script[None]:
    """Pass new runs through the gates and insert them in the state that gives."""
    if not drafts:
        return
    rules = yield from book.load((draft.job_id, draft.job_version) for draft in drafts)
    gatekeeper = Gatekeeper(book)
    yield from gatekeeper.load(now, {draft.job_id for draft in drafts})
    rows: list[tuple[object, ...]] = []
    lines: set[Line] = set()
    queued: dict[RunState, list[str]] = {}
    for draft in drafts:
        own, shape = rules[draft.job_id, draft.job_version]
        line = _line(draft, own)
        admission = SCHEDULED_FOR_LATER
        if draft.release_at <= now:
            admission = gatekeeper.admit(draft.id, draft.job_id, draft.trigger)
        expected = gatekeeper.flags[draft.job_id]["expected_seconds"]
        rows.append(_row(draft, own, shape, line, admission, expected, now))
        queued.setdefault(admission.state, []).append(draft.id)
        if admission.state is RunState.QUEUED:
            lines.add(line)
    yield Many("insert_shape", [(shape,) for shape in {row[15] for row in rows}], exactly=False)
    yield Many("insert_run", rows, exactly=False)
    if lines:
        yield from activate(lines)
        effects.pools.update(line.pool for line in lines)
    effects.times |= RunState.SCHEDULED in queued
    for state, ids in queued.items():
        yield record(_EVENT_KINDS[state], now, ids, actor=actor)
    yield from apply_side_effects(now, gatekeeper, effects, actor)


_EVENT_KINDS = {
    RunState.QUEUED: "run.queued",
    RunState.BLOCKED: "run.blocked",
    RunState.SCHEDULED: "run.scheduled",
    RunState.SKIPPED: "run.finished",
}


def _line(draft: Draft, rules: RunRules) -> Line:
    priority = rules.priority if draft.priority is None else draft.priority
    return Line(rules.pool, priority, rules.share or rules.project)


def _row(
    draft: Draft,
    rules: RunRules,
    shape: str,
    line: Line,
    admission: Admission,
    expected: float | None,
    now: int,
) -> tuple[object, ...]:
    """Values for `insert_run`, in its order."""
    if expected is None:
        expected = rules.expect.total_seconds() if rules.expect else DEFAULT_EXPECTED_SECONDS
    return (
        draft.id,
        rules.project,
        draft.job_id,
        rules.name,
        draft.job_version,
        draft.trigger,
        admission.state,
        admission.cause,
        draft.due_at,
        draft.release_at,
        draft.release_at if admission.state is RunState.SCHEDULED else None,
        deadline_of(rules, draft.due_at),
        line.priority,
        line.pool,
        line.id,
        shape,
        rules.delivery,
        rules.retry.attempts,
        expected,
        admission.blocked_on or None,
        reasons_to(admission.reasons),
        draft.inputs,
        draft.created_by,
        now,
        now if admission.state is RunState.QUEUED else None,
        now if is_final(admission.state) else None,
        draft.retry_of,
    )


def release_eligible(now: int, limit: int, book: RulesBook) -> Script[Released]:
    """Runs whose time or back-off has come pass the gates."""
    rows = yield query("eligible_runs", now=now, limit=limit)
    if not rows:
        return Released(0, Wakes())
    effects = Effects()
    gatekeeper = Gatekeeper(book)
    yield from gatekeeper.load(now, {r["job_id"] for r in rows}, leave_out=[r["id"] for r in rows])
    going, blocked, skipped = [], [], []
    for row in rows:
        admission = gatekeeper.admit(RunId(row["id"]), row["job_id"], Trigger(row["trigger"]), row["seq"])
        if admission.state is RunState.QUEUED:
            going.append(row)
        elif admission.state is RunState.BLOCKED:
            blocked.append((admission.blocked_on, reasons_to(admission.reasons), row["id"]))
        else:
            skipped.append((admission.state, admission.cause, now, row["id"]))
    yield from enqueue(now, going, effects)
    if blocked:
        yield Many("block_run", blocked)
        yield record("run.blocked", now, [run for _, _, run in blocked], actor="scheduler")
    if skipped:
        yield Many("end_waiting_run", skipped)
        yield record("run.finished", now, [row[3] for row in skipped], actor="scheduler")
    yield from apply_side_effects(now, gatekeeper, effects, "scheduler")
    return Released(len(rows), effects.wakes())
