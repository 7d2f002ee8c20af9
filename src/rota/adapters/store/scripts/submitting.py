"""New runs that people and programs asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rota.adapters.store.rows import from_json, to_json
from rota.adapters.store.script import Script, query
from rota.adapters.store.scripts.drafting import Draft, insert_drafts
from rota.adapters.store.scripts.effects import Effects
from rota.adapters.store.scripts.gates import hold_gates_to_submit
from rota.adapters.store.scripts.memory import Memory
from rota.adapters.store.scripts.rules import RulesBook
from rota.domain.errors import Conflict
from rota.domain.ids import BackfillId, RunId, micros
from rota.ports.records import Idempotency, NewRun, Submitted, Wakes


def submit(
    now: int,
    runs: Sequence[NewRun],
    idempotency: Idempotency | None,
    book: RulesBook,
    memory: Memory,
) -> Script[Submitted]:
    """Insert runs, or give the first answer again if the caller's key was seen before."""
    ids = tuple(run.id for run in runs)
    answered = yield from first_answer(now, idempotency, ids)
    if answered is not None:
        return Submitted(tuple(RunId(run) for run in answered), Wakes(), is_repeat=True)
    yield from hold_gates_to_submit({run.job_id for run in runs})
    effects = Effects(memory=memory)
    actor = runs[0].created_by if runs else ""
    yield from insert_drafts(now, [draft(run, now) for run in runs], book, effects, actor=actor)
    wakes = yield from effects.conclude()
    return Submitted(ids, wakes)


def first_answer(now: int, idempotency: Idempotency | None, answer: object) -> Script[Any]:
    """What the caller's key was answered before. None: nothing, so `answer` is remembered for it.

    Whoever comes with the same key at the same time waits here for the other's end.
    """
    if idempotency is None:
        return None
    key, digest = idempotency.key, idempotency.digest
    if (yield query("keep_answer", key=key, digest=digest, answer=to_json(answer), now=now)):
        return None
    [found] = yield query("find_answer", key=key)
    if found["digest"] != digest:
        raise Conflict(
            "this Idempotency-Key was used before with another request",
            code="idempotency_key_reused",
            hint="use a new key for a new request",
        )
    return from_json(found["answer"])


def draft(run: NewRun, now: int, backfill: BackfillId | None = None) -> Draft:
    """A run that somebody asked for, as it is inserted."""
    at = now if run.at is None else max(micros(run.at), now)
    return Draft(
        id=run.id,
        job_id=run.job_id,
        job_version=run.job_version,
        trigger=run.trigger,
        due_at=at if run.due_at is None else micros(run.due_at),
        release_at=at,
        created_by=run.created_by,
        priority=run.priority,
        inputs=None if run.inputs is None else to_json(run.inputs),
        retry_of=run.retry_of,
        backfill=backfill,
    )
