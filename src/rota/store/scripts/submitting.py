"""New runs that people and programs asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rota.domain.errors import Conflict
from rota.domain.ids import BackfillId, RunId, micros
from rota.ports.records import Idempotency, NewRun, Submitted, SubmittedRun, Wakes
from rota.store.rows import run_from, to_json
from rota.store.script import Script, query
from rota.store.scripts.answering import Asked, first_answers
from rota.store.scripts.drafting import Draft, insert_drafts
from rota.store.scripts.effects import Effects
from rota.store.scripts.gates import hold_gates_to_submit
from rota.store.scripts.memory import Memory
from rota.store.scripts.rules import RulesBook


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """Runs that somebody asks for, all or none."""

    runs: Sequence[NewRun]
    idempotency: Idempotency | None

    @property
    def ids(self) -> tuple[RunId, ...]:
        return tuple(run.id for run in self.runs)


def submit(
    now: int, requests: Sequence[Request], book: RulesBook, memory: Memory
) -> Script[list[Submitted | Conflict]]:
    """Insert the runs of each request, or give its first answer again if its key was seen before.

    One whose key was used for something else is refused by itself; anything else that is wrong
    with one of them fails them all.
    """
    answers = yield from _answered(now, requests)
    new = [request for request in requests if request not in answers]
    wakes = yield from _insert(now, [run for each in new for run in each.runs], book, memory)
    answers |= {each: Submitted(each.ids, _of_its_own(each, wakes)) for each in new}
    return [answers[request] for request in requests]


def submit_and_show(
    now: int, requests: Sequence[Request], book: RulesBook, memory: Memory
) -> Script[list[SubmittedRun | Conflict]]:
    """The same for requests of one run each, with how that stands then."""
    answers = yield from submit(now, requests, book, memory)
    ids = [answer.runs[0] for answer in answers if isinstance(answer, Submitted)]
    found = {row["id"]: run_from(row) for row in (yield query("show_runs", ids=ids))}
    return [
        answer
        if isinstance(answer, Conflict)
        else SubmittedRun(found.get(answer.runs[0]), answer.wakes, answer.is_repeat)
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
    return Submitted(tuple(RunId(run) for run in runs), Wakes(), is_repeat=True)


def _insert(now: int, runs: Sequence[NewRun], book: RulesBook, memory: Memory) -> Script[Wakes]:
    if not runs:
        return Wakes()
    yield from hold_gates_to_submit({run.job_id for run in runs})
    effects = Effects(memory=memory)
    yield from insert_drafts(now, [draft(run, now) for run in runs], book, effects)
    return (yield from effects.conclude())


def _of_its_own(request: Request, wakes: Wakes) -> Wakes:
    """What one caller is to announce: the others name their runs themselves."""
    own = frozenset(request.ids)
    pools = {
        pool: tuple(run for run in runs if run in own)
        for pool, runs in wakes.pools.items()
        if not runs or not own.isdisjoint(runs)
    }
    return replace(wakes, pools=pools)


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
