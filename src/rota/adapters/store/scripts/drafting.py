"""Inserting runs, in the state that the gates give them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from rota.adapters.store.rows import reasons_to
from rota.adapters.store.script import Many, Row, Script
from rota.adapters.store.scripts.effects import Effects, record
from rota.adapters.store.scripts.gatekeeper import Gatekeeper
from rota.adapters.store.scripts.lines import Line
from rota.adapters.store.scripts.releasing import apply_side_effects
from rota.adapters.store.scripts.rules import Ref, RulesBook, VersionRules
from rota.domain.errors import NotFound
from rota.domain.gates import Admission
from rota.domain.ids import BackfillId, CartId, RunId
from rota.domain.job import RunRules
from rota.domain.order import DEFAULT_EXPECTED_SECONDS, LEAST_CHARGED_SECONDS
from rota.domain.run import Trigger
from rota.domain.spec import Late
from rota.domain.states import RunState, is_final

_FOR_LATER = Admission(RunState.SCHEDULED)


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


class _Pattern(NamedTuple):
    """What runs of one job version and priority have in common."""

    version: VersionRules
    line: Line
    expected: float


class _Entry(NamedTuple):
    draft: Draft
    pattern: _Pattern
    admission: Admission


def insert_drafts(
    now: int, drafts: Sequence[Draft], book: RulesBook, effects: Effects, *, actor: str
) -> Script[None]:
    """Pass new runs through the gates and insert them."""
    if not drafts:
        return
    versions = yield from book.load({(draft.job_id, draft.job_version) for draft in drafts})
    gatekeeper = Gatekeeper()
    backfills = {draft.backfill for draft in drafts if draft.backfill is not None}
    yield from gatekeeper.load(now, {draft.job_id for draft in drafts}, backfills=backfills)
    patterns = {key: _pattern(key, versions, gatekeeper.jobs) for key in map(_key, drafts)}
    entries = [_Entry(d, patterns[_key(d)], _admit(now, d, gatekeeper)) for d in drafts]
    shapes = {pattern.version.shape for pattern in patterns.values()}
    yield Many("insert_shape", [(shape,) for shape in sorted(shapes)], exactly=False)
    yield Many("insert_run", [_row(now, entry, gatekeeper) for entry in entries])
    _enter_lines(entries, effects)
    yield from _tell(now, entries, effects, actor)
    yield from apply_side_effects(now, gatekeeper, effects, actor)


def _enter_lines(entries: Sequence[_Entry], effects: Effects) -> None:
    for entry in entries:
        if entry.admission.state is RunState.QUEUED:
            effects.queued(entry.pattern.line, entry.draft.id)
    effects.times |= any(e.admission.state is RunState.SCHEDULED for e in entries)


def _key(draft: Draft) -> tuple[str, int, int | None]:
    return draft.job_id, draft.job_version, draft.priority


def _pattern(
    key: tuple[str, int, int | None],
    versions: Mapping[Ref, VersionRules],
    jobs: Mapping[str, Row],
) -> _Pattern:
    job, number, priority = key
    version = versions.get((job, number))
    if version is None or jobs[job]["deleted_at"] is not None:
        raise NotFound(f"no job {job} of version {number}", code="job_not_found")
    line = version.line if priority is None else replace(version.line, priority=priority)
    return _Pattern(version, line, _expected_seconds(version.rules, jobs[job]["expected_seconds"]))


def _expected_seconds(rules: RunRules, average: float | None) -> float:
    if average is not None:
        return max(average, LEAST_CHARGED_SECONDS)
    if rules.expect is not None:
        return max(rules.expect.total_seconds(), LEAST_CHARGED_SECONDS)
    return DEFAULT_EXPECTED_SECONDS


def _admit(now: int, draft: Draft, gatekeeper: Gatekeeper) -> Admission:
    run = gatekeeper.new_run(draft.id, draft.trigger, draft.backfill, draft.is_caught_up)
    if draft.release_at <= now:
        return gatekeeper.admit(draft.job_id, run)
    if draft.due_at <= now:
        gatekeeper.remember(draft.job_id, run, RunState.SCHEDULED)
    return _FOR_LATER


def _row(now: int, entry: _Entry, gatekeeper: Gatekeeper) -> tuple[object, ...]:
    """Values for `insert_run`, in its order."""
    draft, (version, line, expected), admission = entry
    rules, state = version.rules, admission.state
    is_punctual = draft.backfill is None  # what is long past cannot be late
    deadline_at = _after(draft.due_at, version.deadline) if is_punctual else None
    late_at = _after(draft.release_at, version.objective) if is_punctual else None
    counts = gatekeeper.counts_at_gate(draft.job_id, draft.trigger, state)
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
        draft.release_at if state is RunState.SCHEDULED else None,
        deadline_at,
        late_at,
        late_at if _is_dropped_when_late(draft, rules) else None,
        line.priority,
        line.pool,
        line.id,
        version.shape,
        rules.delivery,
        rules.retry.attempts,
        expected,
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
    )


def _after(instant: int, span: int | None) -> int | None:
    return None if span is None else instant + span


def _is_dropped_when_late(draft: Draft, rules: RunRules) -> bool:
    """What a person asked for is never dropped."""
    return rules.late is Late.DROP and draft.trigger is Trigger.SCHEDULE


def _tell(now: int, entries: Sequence[_Entry], effects: Effects, actor: str) -> Script[None]:
    """Events and tallies of what was inserted."""
    groups: dict[tuple[RunState, str], list[_Entry]] = defaultdict(list)
    for entry in entries:
        groups[entry.admission.state, entry.admission.cause].append(entry)
    for (state, cause), group in groups.items():
        ids = [entry.draft.id for entry in group]
        if is_final(state):
            yield record("run.finished", now, ids, actor=actor, state=state, cause=cause)
            effects.ends.update((entry.pattern.version.rules.name, state) for entry in group)
        else:
            yield record(f"run.{state.lower()}", now, ids, actor=actor)
