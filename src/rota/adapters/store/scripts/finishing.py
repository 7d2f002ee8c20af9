"""The end of attempts: reported by their worker, or lost with it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from rota.adapters.store.rows import optional_instant, optional_micros, to_json
from rota.adapters.store.script import Many, Row, Script, query
from rota.adapters.store.scripts.claiming import claim
from rota.adapters.store.scripts.effects import Effects, record
from rota.adapters.store.scripts.rules import RulesBook
from rota.adapters.store.scripts.settling import Ended, settle
from rota.domain.ids import instant, stable_fraction
from rota.domain.job import RunRules
from rota.domain.retry import Ending, Verdict, attempt_ended
from rota.domain.run import AttemptResult, OutputState
from rota.domain.spec import Delivery
from rota.domain.states import LEASED_STATES, RunState, is_final
from rota.ports.records import Finished
from rota.ports.work import Fence, Outcome

_RESULTS = frozenset(AttemptResult)


@dataclass(frozen=True, slots=True)
class _End:
    """An accepted end of an attempt."""

    row: Row
    outcome: Outcome
    verdict: Verdict
    started_at: int | None
    ended_at: int


def finish(
    now: int, session: str, outcomes: Sequence[Outcome], claim_slots: int, book: RulesBook
) -> Script[Finished]:
    """End attempts a worker reports. What it reports more than once counts once."""
    effects = Effects()
    reports = {Fence(o.run, o.attempt): o for o in reversed(outcomes)}
    done = yield from _complete(now, session, reports.values(), effects)
    rest = [outcome for fence, outcome in reports.items() if fence not in done]
    rows = yield from _rows(rest)
    valid = [o for o in rest if _holds(rows.get(o.run), session, o)]
    yield from _end(now, session, valid, rows, book, effects)
    done.update(Fence(o.run, o.attempt) for o in valid)
    doubtful = [outcome for fence, outcome in reports.items() if fence not in done]
    late = yield from _late(now, session, doubtful, rows)
    accepted = tuple(fence for fence in reports if fence not in late)
    claimed = (yield from claim(now, session, claim_slots)) if claim_slots else ()
    return Finished(accepted, tuple(late), effects.wakes(), tuple(claimed))


def _complete(
    now: int, session: str, outcomes: Collection[Outcome], effects: Effects
) -> Script[set[Fence]]:
    """The short way, for attempts that ended well and have little to tell."""
    reports = [_report(now, outcome) for outcome in outcomes if _is_plain(outcome)]
    if not reports:
        return set()
    rows = yield query("complete_runs", reports=to_json(reports), session=session)
    ends = [Ended._make(row) for row in rows]
    yield from settle(now, ends, effects, actor=session)
    return {Fence(end.run, end.attempt) for end in ends}


def _is_plain(outcome: Outcome) -> bool:
    return outcome.result == AttemptResult.COMPLETED and not (
        outcome.exit_code is not None
        or outcome.message
        or outcome.steps
        or outcome.output_bytes
        or outcome.max_memory_bytes
    )


def _report(now: int, outcome: Outcome) -> tuple[object, ...]:
    """Values for `complete_runs`, in its order."""
    started_at = min(outcome.started_at, now) or None
    return (
        outcome.run,
        outcome.attempt,
        started_at,
        max(started_at or 0, min(outcome.ended_at or now, now)),
        None if outcome.outputs is None else to_json(outcome.outputs),
        outcome.cpu_seconds,
    )


def _rows(outcomes: Sequence[Outcome]) -> Script[dict[str, Row]]:
    if not outcomes:
        return {}
    rows = yield query("runs_to_change", ids={outcome.run for outcome in outcomes})
    return {row["id"]: row for row in rows}


def _holds(row: Row | None, session: str, outcome: Outcome) -> bool:
    return (
        row is not None
        and row["session"] == session
        and row["attempt"] == outcome.attempt
        and row["state"] in LEASED_STATES
    )


def _late(
    now: int, session: str, outcomes: Sequence[Outcome], rows: dict[str, Row]
) -> Script[set[Fence]]:
    """Tell reports that were accepted before from those that came too late, and keep the latter."""
    if not outcomes:
        return set()
    earlier = yield query("ended_attempts", ids={outcome.run for outcome in outcomes})
    ended = [(r["run_id"], r["number"], r["session"], r["result"]) for r in earlier]
    ended += [(r["id"], r["attempt"], r["session"], r["result"]) for r in rows.values()]
    reported = {
        Fence(run, attempt)
        for run, attempt, holder, result in ended
        if holder == session and result not in (None, AttemptResult.LOST)
    }
    late = {Fence(o.run, o.attempt): o for o in outcomes if Fence(o.run, o.attempt) not in reported}
    known = {fence: outcome for fence, outcome in late.items() if fence.run in rows}
    if known:
        yield Many(
            "insert_late_result",
            [(o.run, o.attempt, session, now, o.result, o.message) for o in known.values()],
            exactly=False,
        )
        yield record("run.late_result", now, [fence.run for fence in known], actor=session)
    return set(late)


def lose(now: int, held: Sequence[Row], book: RulesBook, effects: Effects) -> Script[None]:
    """Attempts whose worker is gone; `held` has run id, attempt and session."""
    if not held:
        return
    ids = [row["id"] for row in held]
    rows = {row["id"]: row for row in (yield query("runs_to_change", ids=ids))}
    arrived = yield query("sum_chunks", ids=ids)
    torn = {(row["run_id"], row["attempt"]): row for row in arrived}
    for session in sorted({row["session"] for row in held}):
        outcomes = [
            _lost_outcome(rows[row["id"]], torn.get((row["id"], row["attempt"])), now)
            for row in held
            if row["session"] == session
        ]
        yield from _end(now, session, outcomes, rows, book, effects)


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


def _end(
    now: int,
    session: str,
    outcomes: Sequence[Outcome],
    rows: dict[str, Row],
    book: RulesBook,
    effects: Effects,
) -> Script[None]:
    """Decide what becomes of the runs, write it, and settle what follows."""
    if not outcomes:
        return
    rules = yield from book.load({_ref(rows[outcome.run]) for outcome in outcomes})
    ends = [_decided(now, o, rows[o.run], rules[_ref(rows[o.run])][0]) for o in outcomes]
    yield Many("end_attempt", [_values(end, session) for end in ends])
    repeated = [end.row["seq"] for end in ends if not is_final(end.verdict.state)]
    if repeated:
        yield query("keep_attempts", seqs=repeated, now=now)
    yield from settle(now, [_ended(end) for end in ends], effects, actor=session)


def _ref(row: Row) -> tuple[str, int]:
    return row["job_id"], row["job_version"]


def _decided(now: int, outcome: Outcome, row: Row, rules: RunRules) -> _End:
    claimed_at = row["claimed_at"]
    started_at = _clamp(outcome.started_at, claimed_at, now)
    ended_at = _clamp(outcome.ended_at, started_at or claimed_at, now) or now
    ending = _ending(row, outcome, now)
    fraction = stable_fraction(outcome.run, str(outcome.attempt))
    verdict = attempt_ended(ending, rules.retry, rules.max_losses, fraction)
    return _End(row, outcome, verdict, started_at, ended_at)


def _clamp(value: int, low: int, high: int) -> int | None:
    """A worker's estimate of the store's time, kept within what the store knows."""
    return None if value == 0 else max(low, min(value, high))


def _ending(row: Row, outcome: Outcome, now: int) -> Ending:
    return Ending(
        state=RunState(row["state"]),
        result=_result(outcome),
        now=instant(now),
        exit_code=outcome.exit_code,
        signal=outcome.signal,
        failures=row["failures"],
        losses=row["losses"],
        delivery=Delivery(row["delivery"]),
        is_cancel_requested=row["cancel_at"] is not None,
        deadline_at=optional_instant(row["deadline_at"]),
    )


def _result(outcome: Outcome) -> AttemptResult:
    """How it ended; a word that only a newer worker knows counts as a failure."""
    return AttemptResult(outcome.result) if outcome.result in _RESULTS else AttemptResult.FAILED


def _values(end: _End, session: str) -> tuple[object, ...]:
    """Values for `end_attempt`, in its order."""
    row, outcome, state, result = end.row, end.outcome, end.verdict.state, _result(end.outcome)
    is_failed = result in (AttemptResult.FAILED, AttemptResult.TIMED_OUT)
    return (
        state,
        end.verdict.cause,
        outcome.message,
        optional_micros(end.verdict.eligible_at),
        outcome.exit_code,
        outcome.signal,
        None if outcome.outputs is None else to_json(outcome.outputs),
        row["failures"] + is_failed,
        row["losses"] + (result is AttemptResult.LOST),
        end.started_at,
        row["first_started_at"] or end.started_at,
        end.ended_at if is_final(state) else None,
        result,
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


def _ended(end: _End) -> Ended:
    row, verdict = end.row, end.verdict
    first_start = row["first_started_at"] or end.started_at
    return Ended(
        row["id"],
        row["attempt"],
        row["job_id"],
        row["job"],
        row["chain"],
        row["capacity"],
        row["expected"],
        row["claimed_at"],
        end.started_at,
        end.ended_at,
        verdict.state,
        verdict.cause,
        None if first_start is None else first_start - row["release_at"],
    )
