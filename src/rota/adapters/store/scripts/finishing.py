"""The end of attempts: reported by their worker, or lost with it."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rota.adapters.store.rows import optional_instant, optional_micros, to_json
from rota.adapters.store.script import Many, Row, Script, query
from rota.adapters.store.scripts.queueing import Effects, count_ends, record, release_jobs
from rota.adapters.store.scripts.rules import RulesBook
from rota.domain.ids import instant
from rota.domain.job import RunRules
from rota.domain.retry import SUCCEEDED, Ending, Verdict, attempt_ended
from rota.domain.run import AttemptResult, OutputState
from rota.domain.spec import Delivery
from rota.domain.states import LEASED_STATES, RunState, is_final
from rota.ports.store import Finished
from rota.ports.work import Fence, Outcome

_MEMORY = 0.2  # weight of the newest duration in a job's moving average


@dataclass(frozen=True, slots=True)
class _End:
    """An accepted end of an attempt."""

    row: Row
    outcome: Outcome
    verdict: Verdict
    started_at: int | None
    ended_at: int


def finish(now: int, session: str, outcomes: Sequence[Outcome], book: RulesBook) -> Script[Finished]:
    """End attempts a worker reports."""
    rows = yield query("runs_to_change", ids=[outcome.run for outcome in outcomes])
    by_id = {row["id"]: row for row in rows}
    valid, doubtful = [], []
    seen: set[str] = set()
    for outcome in outcomes:
        is_valid = outcome.run not in seen and _holds(by_id.get(outcome.run), session, outcome)
        (valid if is_valid else doubtful).append(outcome)
        seen.add(outcome.run)
    effects = Effects()
    ends = yield from _decide(now, valid, by_id, book)
    yield from _end(now, session, ends, book, effects)
    repeated, fenced = yield from _sort_out(now, session, doubtful, rows)
    accepted = tuple(Fence(outcome.run, outcome.attempt) for outcome in valid)
    return Finished(accepted + repeated, fenced, effects.wakes())


def _holds(row: Row | None, session: str, outcome: Outcome) -> bool:
    return (
        row is not None
        and row["session"] == session
        and row["attempt"] == outcome.attempt
        and row["state"] in LEASED_STATES
    )


def _sort_out(
    now: int, session: str, outcomes: Sequence[Outcome], rows: Sequence[Row]
) -> Script[tuple[tuple[Fence, ...], tuple[Fence, ...]]]:
    """Tell reports that were accepted before from those that came too late."""
    if not outcomes:
        return (), ()
    earlier = yield query("ended_attempts", ids=[outcome.run for outcome in outcomes])
    ended = [(r["run_id"], r["number"], r["session"], r["result"]) for r in earlier]
    ended += [(r["id"], r["attempt"], r["session"], r["result"]) for r in rows]
    reported = {
        Fence(run, attempt)
        for run, attempt, holder, result in ended
        if holder == session and result not in (None, AttemptResult.LOST)
    }
    fences = [(Fence(outcome.run, outcome.attempt), outcome) for outcome in outcomes]
    late = [(fence, outcome) for fence, outcome in fences if fence not in reported]
    if late:
        yield Many(
            "insert_late_result",
            [(o.run, o.attempt, session, now, o.result, o.message) for _, o in late],
            exactly=False,
        )
        yield record("run.late_result", now, [fence.run for fence, _ in late], actor=session)
    repeated = tuple(fence for fence, _ in fences if fence in reported)
    return repeated, tuple(fence for fence, _ in late)


def lose(now: int, held: Sequence[Row], book: RulesBook, effects: Effects) -> Script[None]:
    """Attempts whose worker is gone; `held` has run id, attempt and session."""
    if not held:
        return
    ids = [row["id"] for row in held]
    rows = yield query("runs_to_change", ids=ids)
    by_id = {row["id"]: row for row in rows}
    arrived = yield query("sum_chunks", ids=ids)
    torn = {(row["run_id"], row["attempt"]): row for row in arrived}
    by_session: dict[str, list[Outcome]] = defaultdict(list)
    for row in held:
        outcome = _lost_outcome(by_id[row["id"]], torn.get((row["id"], row["attempt"])), now)
        if _holds(by_id[row["id"]], row["session"], outcome):
            by_session[row["session"]].append(outcome)
    for session, outcomes in by_session.items():
        ends = yield from _decide(now, outcomes, by_id, book)
        yield from _end(now, session, ends, book, effects)


def _lost_outcome(row: Row, torn: Row | None, now: int) -> Outcome:
    return Outcome(
        run=row["id"],
        attempt=row["attempt"],
        result=AttemptResult.LOST,
        started_at=row["started_at"] or 0,
        ended_at=now,
        message="its worker vanished",
        output_bytes=torn["bytes"] if torn else 0,
        output_lines=torn["lines"] if torn else 0,
    )


def _decide(
    now: int, outcomes: Sequence[Outcome], rows: dict[str, Row], book: RulesBook
) -> Script[list[_End]]:
    rules = yield from book.load({_ref(rows[outcome.run]) for outcome in outcomes})
    return [
        _decided(now, outcome, rows[outcome.run], rules[_ref(rows[outcome.run])][0])
        for outcome in outcomes
    ]


def _ref(row: Row) -> tuple[str, int]:
    return row["job_id"], row["job_version"]


def _decided(now: int, outcome: Outcome, row: Row, rules: RunRules) -> _End:
    claimed_at = row["claimed_at"]
    started_at = _clamp(outcome.started_at, claimed_at, now)
    ended_at = _clamp(outcome.ended_at, started_at or claimed_at, now) or now
    if outcome.result == AttemptResult.COMPLETED:
        verdict = SUCCEEDED  # nothing to weigh: by far the most frequent end
    else:
        verdict = attempt_ended(_ending(row, outcome, now), rules.retry, rules.max_losses, random.random())
    return _End(row, outcome, verdict, started_at, ended_at)


def _ending(row: Row, outcome: Outcome, now: int) -> Ending:
    return Ending(
        state=RunState(row["state"]),
        result=AttemptResult(outcome.result),
        now=instant(now),
        exit_code=outcome.exit_code,
        signal=outcome.signal,
        failures=row["failures"],
        losses=row["losses"],
        delivery=Delivery(row["delivery"]),
        is_cancel_requested=row["cancel_at"] is not None,
        deadline_at=optional_instant(row["deadline_at"]),
    )


def _clamp(value: int, low: int, high: int) -> int | None:
    """A worker's estimate of the store's time, kept within what the store knows."""
    return None if value == 0 else max(low, min(value, high))


def _end(
    now: int, session: str, ends: Sequence[_End], book: RulesBook, effects: Effects
) -> Script[None]:
    """Write ended attempts, correct what they were charged, and wake who waited for them."""
    if not ends:
        return
    yield Many("end_attempt", [_values(end, session) for end in ends])
    repeated = [end.row["seq"] for end in ends if not is_final(end.verdict.state)]
    if repeated:
        yield query("keep_attempts", seqs=repeated, now=now)
        effects.times = True
    yield from _correct_charges(ends)
    yield from _learn_durations(ends)
    yield from count_ends(
        (end.row["job"], end.verdict.state) for end in ends if is_final(end.verdict.state)
    )
    yield from _record_ends(now, ends, session)
    yield from release_jobs(now, {end.row["job_id"] for end in ends}, book, effects)


def _values(end: _End, session: str) -> tuple[object, ...]:
    """Values for `end_attempt`, in its order."""
    row, outcome, state = end.row, end.outcome, end.verdict.state
    is_failed = outcome.result in (AttemptResult.FAILED, AttemptResult.TIMED_OUT)
    return (
        state,
        end.verdict.cause,
        outcome.message,
        optional_micros(end.verdict.eligible_at),
        outcome.exit_code,
        outcome.signal,
        None if outcome.outputs is None else to_json(outcome.outputs),
        row["failures"] + is_failed,
        row["losses"] + (outcome.result == AttemptResult.LOST),
        end.started_at,
        row["first_started_at"] or end.started_at,
        end.ended_at if is_final(state) else None,
        outcome.result,
        to_json(outcome.steps) if outcome.steps else None,
        outcome.cpu_seconds,
        outcome.max_memory_bytes,
        outcome.output or None,
        _output_state(outcome),
        outcome.output_bytes,
        outcome.output_lines,
        int(outcome.truncated),
        row["seq"],
        row["attempt"],
        session,
    )


def _output_state(outcome: Outcome) -> OutputState:
    if outcome.result == AttemptResult.LOST:
        return OutputState.TORN
    if outcome.output:
        return OutputState.INLINE
    return OutputState.STORED if outcome.output_bytes else OutputState.NONE


def _correct_charges(ends: Sequence[_End]) -> Script[None]:
    """What was charged was expected; the truth acts on what still waits."""
    corrections: dict[str, float] = defaultdict(float)
    for end in ends:
        expected = end.row["expected"]
        fraction = end.row["cost"] / expected if expected else 0.0
        corrections[end.row["chain"]] += fraction * (_seconds(end) - expected)
    yield Many("charge_chain", [(cost, chain) for chain, cost in corrections.items()])


def _seconds(end: _End) -> float:
    return (end.ended_at - (end.started_at or end.row["claimed_at"])) / 1e6


def _learn_durations(ends: Sequence[_End]) -> Script[None]:
    durations: dict[str, list[float]] = defaultdict(list)
    for end in ends:
        if end.outcome.result == AttemptResult.COMPLETED:
            durations[end.row["job_id"]].append(_seconds(end))
    if not durations:
        return
    rows = yield query("job_flags", ids=durations)
    updates = []
    for row in rows:
        seconds = durations[row["id"]]
        mean = sum(seconds) / len(seconds)
        old = row["expected_seconds"]
        keep = (1 - _MEMORY) ** len(seconds)
        updates.append((mean if old is None else old * keep + mean * (1 - keep), row["id"]))
    yield Many("set_expected_seconds", updates)


def _record_ends(now: int, ends: Iterable[_End], session: str) -> Script[None]:
    groups: dict[tuple[RunState, str], list[_End]] = defaultdict(list)
    for end in ends:
        groups[end.verdict.state, end.verdict.cause].append(end)
    for (state, cause), group in groups.items():
        kind = "run.finished" if is_final(state) else f"run.{state.lower()}"
        yield record(
            kind,
            now,
            [end.row["id"] for end in group],
            actor=session,
            state=state,
            cause=cause,
            attempts=[end.row["attempt"] for end in group],
        )
