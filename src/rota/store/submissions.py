"""New runs that people and programs ask for; the same key and body get the first answer again."""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias

from rota.domain.errors import Conflict, NotFound
from rota.domain.following import INPUT_CAUSE
from rota.domain.gates import QUEUED, Admission
from rota.domain.ids import BackfillId, CartId, RunId, micros
from rota.domain.job import RunRules
from rota.domain.key_gates import rank_of, reasons_of
from rota.domain.keys import Asker, Demands, Shortage
from rota.domain.order import DEFAULT_EXPECTED_SECONDS, LEAST_CHARGED_SECONDS, share_key
from rota.domain.run import Trigger
from rota.domain.shape import shape_of
from rota.domain.states import RunState, is_final
from rota.ports.records import Idempotency, NewRun, Submitted, SubmittedRun
from rota.store.chains import ChainKey, known_chain
from rota.store.gates import Gatekeeper, lock_gates_to_submit
from rota.store.keys import Ask, ForAll, admit, declared_for_all, promise, wanted_by
from rota.store.limits import refuse_beyond_quota
from rota.store.memory import PoolShape, Ref, VersionRules, shape_rows
from rota.store.releases import apply_side_effects
from rota.store.rows import from_json, reasons_to, run_from, to_json
from rota.store.script import Many, Row, Script, query
from rota.store.tx import Tx
from rota.store.waits import bound_waits, earliest, end_of_wait, is_stranded

_FOR_LATER = Admission(RunState.SCHEDULED)
_NOT_HANDED = Admission(RunState.FAILED, cause=INPUT_CAUSE)
_BY_THE_JOB = frozenset({Trigger.SCHEDULE, Trigger.AFTER})  # nobody asks for these one by one
_ON_DEMAND = frozenset({Trigger.MANUAL, Trigger.RETRY, Trigger.BACKFILL})
_PatternKey: TypeAlias = tuple[str, int, int | None, str]  # job, version, priority, user


class Draft(NamedTuple):
    """A run about to be inserted. A tuple, as thousands are made in one transaction."""

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
    backfill: BackfillId | None = None
    reasons: str | None = None  # why it is for later
    is_caught_up: bool = False
    cart: CartId | None = None
    item: str | None = None  # its key in the cart
    follows: RunId | None = None  # the run whose completion it answers
    previous_due: int | None = None  # the due time before its own
    needs: str | None = None  # labels over those of its job
    failure: str = ""  # what it was not handed of the run that it follows: it never starts


class _Pattern(NamedTuple):
    """The part that runs of one user, job version and priority have in common."""

    version: VersionRules
    chain: ChainKey
    expected: float
    user: str
    takes_keys: bool


class _Entry(NamedTuple):
    draft: Draft
    pattern: _Pattern
    admission: Admission
    demands: Demands | None  # what it takes of shared keys; None: nothing
    shape: str
    eligible_at: int | None = None  # when the key it waits for can be had; None: nobody knows


def insert_drafts(tx: Tx, drafts: Sequence[Draft], *, actor: str = "") -> Script[None]:
    """Pass new runs through the gates and insert them, in the name of who asked for each.

    Or of `actor`, without whom nothing may be among them that takes the place of another run.
    """
    if not drafts:
        return
    gatekeeper = Gatekeeper()
    backfills = {draft.backfill for draft in drafts if draft.backfill is not None}
    yield from gatekeeper.load(
        tx.now, {(draft.job_id, draft.trigger) for draft in drafts}, backfills=backfills
    )
    versions = yield from tx.rules.load(
        {(draft.job_id, draft.job_version) for draft in drafts}, gatekeeper.jobs.values()
    )
    for_all = yield from declared_for_all(gatekeeper.jobs)
    keys = [_key(draft, gatekeeper.jobs) for draft in drafts]
    patterns = {key: _pattern(key, versions, gatekeeper.jobs, for_all) for key in set(keys)}
    entries = [
        _Entry(
            draft,
            pattern,
            _admit(tx.now, draft, gatekeeper),
            _demands(draft, pattern, for_all),
            # Thousands have the shape of their job, and need no call each for that.
            pattern.version.shape if draft.needs is None else _shape(draft.needs, pattern),
        )
        for draft, pattern in zip(drafts, map(patterns.__getitem__, keys), strict=True)
    ]
    # Locks the keys of quotas: the gates of these jobs are locked, and no others may be any more.
    if for_all:
        yield from refuse_beyond_quota(_submitted(entries), for_all)
    entries = yield from _ask_for_workers(tx, entries)
    entries = yield from _ask_for_keys(tx, entries)
    shapes = {entry.shape for entry in entries}
    yield Many("insert_shape", shape_rows(shapes), exactly=False)
    yield Many("insert_run", [_row(tx.now, entry, gatekeeper) for entry in entries])
    yield from bound_waits(tx, _stranded(entries))
    yield from promise([_ask(tx.now, entry) for entry in entries if _may_take_keys(entry)])
    _enter_chains(tx, entries)
    _tell(tx, entries, actor)
    yield from apply_side_effects(tx, gatekeeper, actor)


def _ask_for_workers(tx: Tx, entries: Sequence[_Entry]) -> Script[list[_Entry]]:
    """Block runs that no worker could ever take, until one comes that could."""
    going = {_pool_shape(entry) for entry in entries if entry.admission.state is RunState.QUEUED}
    unfit = yield from tx.memory.crews.unfit(tx.now, going)
    if not unfit:
        return list(entries)
    return [
        entry._replace(admission=unfit[_pool_shape(entry)])
        if entry.admission.state is RunState.QUEUED and _pool_shape(entry) in unfit
        else entry
        for entry in entries
    ]


def _pool_shape(entry: _Entry) -> PoolShape:
    return entry.pattern.chain.pool, entry.shape


def _shape(needs: str, pattern: _Pattern) -> str:
    """The shape of a run that has needs of its own."""
    return shape_of(pattern.version.rules, from_json(needs))


def _stranded(entries: Sequence[_Entry]) -> list[tuple[str, str]]:
    """Runs of carts that begin to wait for the one worker that each is for; with their carts."""
    return [
        (entry.draft.id, entry.draft.cart)
        for entry in entries
        if entry.draft.cart is not None and is_stranded(entry.admission, entry.shape)
    ]


def _enter_chains(tx: Tx, entries: Sequence[_Entry]) -> None:
    for entry in entries:
        if entry.admission.state is RunState.QUEUED:
            tx.effects.queued(entry.pattern.chain, entry.draft.id)
    tx.effects.times |= any(e.admission.state is RunState.SCHEDULED for e in entries)


def _key(draft: Draft, jobs: Mapping[str, Row]) -> _PatternKey:
    user = draft.created_by
    if draft.trigger in _BY_THE_JOB and draft.job_id in jobs:
        user = jobs[draft.job_id]["created_by"]
    return draft.job_id, draft.job_version, draft.priority, user


def _pattern(
    key: _PatternKey,
    versions: Mapping[Ref, VersionRules],
    jobs: Mapping[str, Row],
    for_all: ForAll,
) -> _Pattern:
    job, number, priority, user = key
    version = versions.get((job, number))
    if version is None or jobs[job]["deleted_at"] is not None:
        raise NotFound(f"no job {job} of version {number}", code="job_not_found")
    rules = version.rules
    share = share_key(rules.project, user, rules.share)
    chain = known_chain(rules.pool, rules.priority if priority is None else priority, share)
    expected = _expected_seconds(rules, jobs[job]["expected_seconds"])
    return _Pattern(version, chain, expected, user, version.takes_keys or rules.project in for_all)


def _expected_seconds(rules: RunRules, average: float | None) -> float:
    if average is not None:
        return max(average, LEAST_CHARGED_SECONDS)
    if rules.expect is not None:
        return max(rules.expect.total_seconds(), LEAST_CHARGED_SECONDS)
    return DEFAULT_EXPECTED_SECONDS


def _admit(now: int, draft: Draft, gatekeeper: Gatekeeper) -> Admission:
    if draft.failure:
        return _NOT_HANDED
    is_due = draft.release_at <= now
    if is_due and gatekeeper.gates[draft.job_id].lets_any_go(draft.trigger):
        return QUEUED
    run = gatekeeper.new_run(draft.id, draft.trigger, draft.backfill, draft.is_caught_up)
    if is_due:
        return gatekeeper.admit(draft.job_id, run, draft.previous_due)
    # Spread, jitter and calendars move its release only: it counts at the gate once it is due.
    if draft.due_at <= now:
        gatekeeper.remember(draft.job_id, run, RunState.SCHEDULED)
    return _FOR_LATER


def _row(now: int, entry: _Entry, gatekeeper: Gatekeeper) -> tuple[object, ...]:
    """Values for `insert_run`, in its order."""
    draft, pattern, admission = entry.draft, entry.pattern, entry.admission
    version, chain = pattern.version, pattern.chain
    rules, state = version.rules, admission.state
    is_punctual = draft.backfill is None  # what is long past cannot be late
    deadline_at = _after(draft.due_at, version.deadline) if is_punctual else None
    late_at = _after(draft.release_at, version.objective) if is_punctual else None
    late_drop_at = late_at if rules.drops_late(draft.trigger) else None
    counts = gatekeeper.gates[draft.job_id].counts(draft.trigger, state)
    return (
        draft.id,
        rules.project,
        draft.job_id,
        rules.name,
        draft.job_version,
        draft.trigger,
        state,
        admission.cause,
        draft.due_at,
        draft.release_at,
        draft.release_at if state is RunState.SCHEDULED else entry.eligible_at,
        deadline_at,
        late_at,
        earliest(late_drop_at, end_of_wait(draft.release_at, admission)),
        chain.priority,
        chain.pool,
        chain.id,
        entry.shape,
        rules.delivery,
        rules.retry.attempts,
        pattern.expected,
        admission.blocked_on or None,
        draft.reasons if admission is _FOR_LATER else reasons_to(admission.reasons),
        draft.inputs,
        draft.created_by,
        now,
        now if state is RunState.QUEUED else None,
        now if is_final(state) else None,
        draft.retry_of,
        draft.job_id if counts else None,
        draft.backfill,
        int(draft.is_caught_up),
        draft.cart,
        draft.item,
        draft.follows,
        draft.previous_due,
        None if entry.demands is None else to_json(entry.demands),
        version.timeout,
    )


def _after(instant: int, span: int | None) -> int | None:
    return None if span is None else instant + span


def _demands(draft: Draft, pattern: _Pattern, for_all: ForAll) -> Demands | None:
    if not pattern.takes_keys:
        return None
    rules = pattern.version.rules
    given = from_json(draft.inputs) if rules.exclusive_by else None
    return wanted_by(Asker(rules, pattern.user, given or {}), for_all)


def _submitted(entries: Sequence[_Entry]) -> Counter[str]:
    """How many runs somebody asks for, by project."""
    asked = [entry for entry in entries if entry.draft.trigger in _ON_DEMAND]
    return Counter(entry.pattern.version.rules.project for entry in asked)


def _ask_for_keys(tx: Tx, entries: list[_Entry]) -> Script[list[_Entry]]:
    """Block runs that are short of a shared key."""
    asks = [_ask(tx.now, entry, age) for age, entry in enumerate(entries) if _may_take_keys(entry)]
    if not asks:
        return entries
    short = yield from admit(tx.now, asks)
    tx.effects.keys |= bool(short)
    return [_short_of(entry, short.get(entry.draft.id)) for entry in entries]


def _short_of(entry: _Entry, short: Sequence[Shortage] | None) -> _Entry:
    if short is None:
        return entry
    key, reasons = short[0].key, reasons_of(short)
    blocked = replace(entry.admission, state=RunState.BLOCKED, blocked_on=key, reasons=reasons)
    return entry._replace(admission=blocked, eligible_at=short[0].eligible_at)


def _may_take_keys(entry: _Entry) -> bool:
    return entry.demands is not None and entry.admission.state is RunState.QUEUED


def _ask(now: int, entry: _Entry, age: int = 0) -> Ask:
    """Runs that have no number yet are younger than all others."""
    rank = rank_of(entry.pattern.chain.priority, now, sys.maxsize // 2 + age)
    return Ask(entry.draft.id, entry.demands or {}, rank)


def _tell(tx: Tx, entries: Sequence[_Entry], actor: str) -> None:
    """Events and tallies of what was inserted."""
    groups: dict[tuple[str, RunState, str, str], list[_Entry]] = defaultdict(list)
    for entry in entries:
        project, by = entry.pattern.version.rules.project, actor or entry.draft.created_by
        groups[project, entry.admission.state, entry.admission.cause, by].append(entry)
    for (project, state, cause, by), group in groups.items():
        ids = [entry.draft.id for entry in group]
        if is_final(state):
            tx.record_in(project, "run.finished", ids, actor=by, state=state, cause=cause)
            tx.effects.ends.update((entry.pattern.version.rules.name, state) for entry in group)
        else:
            tx.record_in(project, f"run.{state.lower()}", ids, actor=by)


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
