"""New runs that people and programs asked for."""

from __future__ import annotations

from collections.abc import Sequence

from rota.adapters.store.rows import from_json, to_json
from rota.adapters.store.script import Row, Script, query
from rota.adapters.store.scripts.drafting import Draft, insert_drafts
from rota.adapters.store.scripts.effects import Effects
from rota.adapters.store.scripts.rules import RulesBook
from rota.domain.errors import Conflict
from rota.domain.ids import RunId, micros
from rota.ports.store import Idempotency, NewRun, Submitted, Wakes


def submit(
    now: int, runs: Sequence[NewRun], idempotency: Idempotency | None, book: RulesBook
) -> Script[Submitted]:
    """Insert runs, or give the first answer again if the caller's key was seen before."""
    if idempotency is not None:
        found = yield query("find_idempotency", key=idempotency.key)
        if found:
            return _first_answer(found[0], idempotency)
    effects = Effects()
    actor = runs[0].created_by if runs else ""
    yield from insert_drafts(now, [_draft(run, now) for run in runs], book, effects, actor=actor)
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
