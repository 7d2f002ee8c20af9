"""New runs that people and programs ask for; the same key and body get the first answer again."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from rota.domain.errors import Conflict
from rota.domain.ids import BackfillId, RunId, micros
from rota.ports.records import Idempotency, NewRun, Submitted, SubmittedRun
from rota.store.drafts import Draft, insert_drafts
from rota.store.gates import lock_gates_to_submit
from rota.store.rows import from_json, run_from, to_json
from rota.store.script import Script, query
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
    # The first lock of all: a second request with the same key waits here, before it locks a gate.
    answers = yield from _answered(tx.now, requests)
    new = [request for request in requests if request not in answers]
    yield from _insert(tx, [run for each in new for run in each.runs])
    answers |= {each: Submitted(each.ids) for each in new}
    return [answers[request] for request in requests]


def submit_and_show(tx: Tx, requests: Sequence[Request]) -> Script[list[SubmittedRun | Conflict]]:
    """Submit requests of one run each, and show these runs as they stand then."""
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
    yield from lock_gates_to_submit({run.job_id for run in runs})
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


@dataclass(frozen=True, slots=True)
class Asked:
    """A request, and what it is answered if it is the first of its key."""

    idempotency: Idempotency
    answer: object


def first_answer(now: int, idempotency: Idempotency | None, answer: object) -> Script[Any]:
    """The first answer to a caller's key. None: there was none, and `answer` is remembered for it.

    Whoever comes with the same key at the same time waits here for the other's end.
    """
    if idempotency is None:
        return None
    [found] = yield from first_answers(now, [Asked(idempotency, answer)])
    if isinstance(found, Conflict):
        raise found
    return found


def first_answers(now: int, requests: Sequence[Asked]) -> Script[list[Any]]:
    """First answers for several requests, of which any may be refused: that is its answer then."""
    first: dict[str, Asked] = {}
    for asked in requests:
        first.setdefault(asked.idempotency.key, asked)
    new = yield from _keep(now, first.values())
    known = {key: (first[key].idempotency.digest, first[key].answer) for key in new}
    if len(new) < len(first):
        for row in (yield query("find_answers", keys=sorted(first.keys() - new))):
            known[row["key"]] = (row["digest"], from_json(row["answer"]))
    return [
        None if key in new and asked is first[key] else _again(asked, *known[key])
        for asked in requests
        for key in [asked.idempotency.key]
    ]


def _keep(now: int, requests: Collection[Asked]) -> Script[set[str]]:
    """Remember the answers of those that are the first of their keys, which are returned."""
    answers = [
        {
            "key": asked.idempotency.key,
            "digest": asked.idempotency.digest,
            "answer": to_json(asked.answer),
        }
        for asked in requests
    ]
    rows = yield query("keep_answers", answers=to_json(answers), now=now)
    return {row["key"] for row in rows}


def _again(asked: Asked, digest: str, answer: object) -> object:
    if asked.idempotency.digest == digest:
        return answer
    return Conflict(
        "this Idempotency-Key was used before with another request",
        code="idempotency_key_reused",
        hint="use a new key for a new request",
    )
