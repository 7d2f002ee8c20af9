"""New runs that people and programs asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rota.domain.errors import Conflict
from rota.domain.ids import BackfillId, RunId, micros
from rota.ports.records import Idempotency, NewRun, Submitted, SubmittedRun
from rota.store.rows import run_from, to_json
from rota.store.script import Script, query
from rota.store.scripts.answering import Asked, first_answers
from rota.store.scripts.drafting import Draft, insert_drafts
from rota.store.scripts.gates import hold_gates_to_submit
from rota.store.tx import Tx


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """Runs that somebody asks for, all or none."""

    runs: Sequence[NewRun]
    idempotency: Idempotency | None

    @property
    def ids(self) -> tuple[RunId, ...]:
        return tuple(run.id for run in self.runs)


def submit(tx: Tx, requests: Sequence[Request]) -> Script[list[Submitted | Conflict]]:
    """Insert the runs of each request, or give its first answer again if its key was seen before.

    One whose key was used for something else is refused by itself; anything else that is wrong
    with one of them fails them all.
    """
    answers = yield from _answered(tx.now, requests)
    new = [request for request in requests if request not in answers]
    yield from _insert(tx, [run for each in new for run in each.runs])
    answers |= {each: Submitted(each.ids) for each in new}
    return [answers[request] for request in requests]


def submit_and_show(tx: Tx, requests: Sequence[Request]) -> Script[list[SubmittedRun | Conflict]]:
    """The same for requests of one run each, with how that stands then."""
    answers = yield from submit(tx, requests)
    ids = [answer.runs[0] for answer in answers if isinstance(answer, Submitted)]
    found = {row["id"]: run_from(row) for row in (yield query("show_runs", ids=ids))}
    return [
        answer
        if isinstance(answer, Conflict)
        else SubmittedRun(found.get(answer.runs[0]), answer.is_repeat)
        for answer in answers
    ]


def _answered(now: int, requests: Sequence[Request]) -> Script[dict[Request, Submitted | Conflict]]:
    keyed = {each: Asked(each.idempotency, each.ids) for each in requests if each.idempotency}
    if not keyed:
        return {}
    found = yield from first_answers(now, list(keyed.values()))
    return {
        each: answer if isinstance(answer, Conflict) else _repeated(answer)
        for each, answer in zip(keyed, found, strict=True)
        if answer is not None
    }


def _repeated(runs: Sequence[str]) -> Submitted:
    return Submitted(tuple(RunId(run) for run in runs), is_repeat=True)


def _insert(tx: Tx, runs: Sequence[NewRun]) -> Script[None]:
    if not runs:
        return
    yield from hold_gates_to_submit({run.job_id for run in runs})
    yield from insert_drafts(tx, [draft(run, tx.now) for run in runs])


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
