"""The end of attempts: reported by their worker, or lost with it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from rota.domain.errors import StaleStream
from rota.domain.ids import instant, stable_fraction
from rota.domain.job import RunRules
from rota.domain.retry import Ending, Verdict, attempt_ended, goes_alone
from rota.domain.run import AttemptResult, OutputState
from rota.domain.spec import Delivery
from rota.domain.states import LEASED_STATES, RunState, is_final
from rota.ports.records import Finished
from rota.ports.work import Fence, Outcome
from rota.store.rows import optional_instant, optional_micros, to_json
from rota.store.script import Many, Row, Script, query
from rota.store.scripts.carts.advancing import hold_carts_of, judge
from rota.store.scripts.claiming import Wish, present, take
from rota.store.scripts.effects import Effects, record
from rota.store.scripts.gates import hold_free_gates, hold_gates_of
from rota.store.scripts.going_alone import set_apart
from rota.store.scripts.keys.charging import charge_output
from rota.store.scripts.memory import Memory
from rota.store.scripts.printing import settle_output
from rota.store.scripts.punctuality import too_late
from rota.store.scripts.rules import RulesBook
from rota.store.scripts.settling import Ended, settle

_RESULTS = frozenset(AttemptResult)


@dataclass(frozen=True, slots=True)
class _End:
    """An accepted end of an attempt."""

    row: Row
    outcome: Outcome
    verdict: Verdict
    started_at: int | None
    ended_at: int
    losses: int  # of the run, this one included
    is_set_apart: bool  # it goes on, but alone


def finish(
    now: int,
    session: str,
    outcomes: Sequence[Outcome],
    wish: Wish,
    book: RulesBook,
    memory: Memory,
) -> Script[Finished]:
    """End attempts a worker reports. What it reports more than once counts once."""
    effects = Effects(memory=memory)
    worker = yield from _waiting_worker(now, session, wish)
    overdue = (yield from too_late(now)) if worker else ()
    reports = {Fence(o.run, o.attempt): o for o in reversed(outcomes)}
    dropped = {row["job_id"] for row in overdue}
    carts = yield from hold_carts_of([o.run for o in outcomes if not _is_good(o)])
    gates = yield from hold_gates_of({fence.run for fence in reports}, dropped)
    rows = yield from _rows(reports.values())
    done = yield from _complete(now, session, reports.values(), gates, effects)
    rest = [outcome for fence, outcome in reports.items() if fence not in done]
    valid = [o for o in rest if _holds(rows.get(o.run), session, o)]
    yield from _end(now, session, valid, rows, book, gates, effects)
    done.update(Fence(o.run, o.attempt) for o in valid)
    yield from judge(now, carts, gates, effects)
    doubtful = [outcome for fence, outcome in reports.items() if fence not in done]
    late = yield from _late(now, session, doubtful)
    accepted = tuple(fence for fence in reports if fence not in late)
    works = (yield from take(now, worker, wish, overdue, effects)) if worker else []
    wakes = yield from effects.conclude()
    return Finished(accepted, tuple(late), wakes, tuple(works))


def finish_free(
    now: int, session: str, outcomes: Sequence[Outcome], book: RulesBook, memory: Memory
) -> Script[Finished]:
    """The same for ends that wait for no gate, and without new work; the others stay unanswered.

    The session is not locked, so that its renewals get through meanwhile.
    """
    yield from hold_carts_of([o.run for o in outcomes if not _is_good(o)])  # first, as always
    rows = yield query("gated_runs", ids={outcome.run for outcome in outcomes})
    gate_of = {row["id"]: row["gate_job"] for row in rows}
    free = yield from hold_free_gates(set(gate_of.values()))
    ready = [o for o in outcomes if o.run not in gate_of or gate_of[o.run] in free]
    return (yield from finish(now, session, ready, Wish(slots=0, stream=0), book, memory))


def _waiting_worker(now: int, session: str, wish: Wish) -> Script[Row | None]:
    if not wish.slots:
        return None
    try:
        return (yield from present(now, session, wish.stream))
    except StaleStream:
        return None  # its word counts, but only the server it talks to now may claim for it


def _complete(
    now: int,
    session: str,
    outcomes: Collection[Outcome],
    gates: Collection[str],
    effects: Effects,
) -> Script[set[Fence]]:
    """The short way, for attempts that ended well and have little to tell."""
    plain = sorted((o for o in outcomes if _is_plain(o)), key=lambda outcome: outcome.run)
    reports = [_report(now, outcome) for outcome in plain]
    if not reports:
        return set()
    rows = yield query("complete_runs", reports=to_json(reports), session=session)
    ends = [Ended._make(row) for row in rows]
    yield from settle(now, ends, gates, effects, actor=session)
    return {Fence(end.run, end.attempt) for end in ends}


def _is_good(outcome: Outcome) -> bool:
    return outcome.result == AttemptResult.COMPLETED


def _is_plain(outcome: Outcome) -> bool:
    return _is_good(outcome) and not (
        outcome.exit_code is not None
        or outcome.message
        or outcome.steps
        or outcome.output_bytes
        or outcome.max_memory_bytes
    )


def _report(now: int, outcome: Outcome) -> dict[str, object]:
    """What `complete_runs` has to know."""
    started_at = min(outcome.started_at, now) or None
    return {
        "id": outcome.run,
        "attempt": outcome.attempt,
        "started_at": started_at,
        "ended_at": max(started_at or 0, min(outcome.ended_at or now, now)),
        "outputs": None if outcome.outputs is None else to_json(outcome.outputs),
        "cpu_seconds": outcome.cpu_seconds,
    }


def _rows(outcomes: Collection[Outcome]) -> Script[dict[str, Row]]:
    """The runs of a report, all locked at once; nothing if the short way will do for them all."""
    if all(map(_is_plain, outcomes)):
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


def _late(now: int, session: str, outcomes: Sequence[Outcome]) -> Script[set[Fence]]:
    """Tell reports that were accepted before from those that came too late.

    The latter are kept, if the session ever held what it reports about.
    """
    if not outcomes:
        return set()
    results = yield from _results_of(session, {outcome.run for outcome in outcomes})
    late = {
        fence: outcome
        for outcome in outcomes
        if results.get(fence := Fence(outcome.run, outcome.attempt)) in (None, AttemptResult.LOST)
    }
    kept = {fence: outcome for fence, outcome in late.items() if fence in results}
    if kept:
        yield Many(
            "insert_late_result",
            [(o.run, o.attempt, session, now, o.result, o.message) for o in kept.values()],
            exactly=False,
        )
        yield record("run.late_result", now, [fence.run for fence in kept], actor=session)
    return set(late)


def _results_of(session: str, runs: set[str]) -> Script[dict[Fence, str | None]]:
    """How the attempts at these runs ended that the session holds or held."""
    latest = yield query("reported_runs", ids=runs)
    earlier = yield query("ended_attempts", ids=runs)
    attempts = [(r["id"], r["attempt"], r["session"], r["result"]) for r in latest]
    attempts += [(r["run_id"], r["number"], r["session"], r["result"]) for r in earlier]
    return {
        Fence(run, attempt): result
        for run, attempt, holder, result in attempts
        if holder == session
    }


@dataclass(frozen=True, slots=True)
class Loss:
    """Why attempts were lost."""

    message: str
    counts: bool  # towards quarantine: the run itself may be what killed its worker


VANISHED = Loss("its worker vanished", counts=True)
LEFT = Loss("its worker left", counts=False)
MISLAID = Loss("it never reached its worker", counts=False)


def lose(
    now: int,
    held: Sequence[Row],
    loss: Loss,
    book: RulesBook,
    effects: Effects,
    beside: Collection[str] = (),
) -> Script[None]:
    """Attempts whose worker is gone; `held` has run id, attempt and session.

    Those that have ended in another way meanwhile are left alone. Runs `beside` them, which the
    caller is going to change, are locked with them.
    """
    ids = [row["id"] for row in held]
    if not ids and not beside:
        return
    carts = yield from hold_carts_of(ids)
    gates = yield from hold_gates_of(ids)
    rows = {row["id"]: row for row in (yield query("runs_to_change", ids={*ids, *beside}))}
    arrived = yield query("sum_chunks", ids=ids)
    torn = {(row["run_id"], row["attempt"]): row for row in arrived}
    lost: dict[str, list[Outcome]] = defaultdict(list)
    for row in held:
        run = rows[row["id"]]
        outcome = _lost_outcome(now, row, run, loss, torn.get((row["id"], row["attempt"])))
        if _holds(run, row["session"], outcome):
            lost[row["session"]].append(outcome)
    for session, outcomes in sorted(lost.items()):
        yield from _end(now, session, outcomes, rows, book, gates, effects, loss)
    yield from judge(now, carts, gates, effects)


def _lost_outcome(now: int, held: Row, row: Row, loss: Loss, torn: Row | None) -> Outcome:
    return Outcome(
        run=held["id"],
        attempt=held["attempt"],
        result=AttemptResult.LOST,
        started_at=row["started_at"] or 0,
        ended_at=now,
        message=loss.message,
        output_bytes=torn["bytes"] if torn else 0,
        output_lines=torn["lines"] if torn else 0,
    )


def _end(
    now: int,
    session: str,
    outcomes: Sequence[Outcome],
    rows: dict[str, Row],
    book: RulesBook,
    gates: Collection[str],
    effects: Effects,
    loss: Loss = VANISHED,
) -> Script[None]:
    """Decide what becomes of the runs, write it, and settle what follows."""
    if not outcomes:
        return
    rules = yield from book.load({_ref(rows[outcome.run]) for outcome in outcomes})
    ends = [_decided(now, o, rows[o.run], rules[_ref(rows[o.run])].rules, loss) for o in outcomes]
    yield Many("end_attempt", [_values(end, session) for end in ends])
    yield from settle_output([o.run for o in outcomes if _output_state(o) is OutputState.PENDING])
    repeated = [end.row["seq"] for end in ends if not is_final(end.verdict.state)]
    if repeated:
        yield query("keep_attempts", seqs=repeated, now=now)
    yield from set_apart(end.row for end in ends if end.is_set_apart)
    yield from charge_output(now, [(end.row, end.outcome.output_bytes) for end in ends])
    yield from settle(now, [_ended(end) for end in ends], gates, effects, actor=session)


def _ref(row: Row) -> tuple[str, int]:
    return row["job_id"], row["job_version"]


def _decided(now: int, outcome: Outcome, row: Row, rules: RunRules, loss: Loss) -> _End:
    claimed_at = row["claimed_at"]
    started_at = _clamp(outcome.started_at, claimed_at, now)
    # Both are read from one clock: an estimate that is off moves them, but not their distance.
    shift = started_at - outcome.started_at if started_at and outcome.ended_at else 0
    ended_at = _clamp(outcome.ended_at + shift, started_at or claimed_at, now) or now
    ending = _ending(row, outcome, now, loss)
    fraction = stable_fraction(outcome.run, str(outcome.attempt))
    verdict = attempt_ended(ending, rules.retry, rules.max_losses, fraction)
    is_counted = ending.result is AttemptResult.LOST and loss.counts
    losses = row["losses"] + is_counted
    goes_on = not is_final(verdict.state)
    is_set_apart = is_counted and goes_on and goes_alone(losses, rules.max_losses)
    return _End(row, outcome, verdict, started_at, ended_at, losses, is_set_apart)


def _clamp(value: int, low: int, high: int) -> int | None:
    """A worker's estimate of the store's time, kept within what the store knows."""
    return None if value == 0 else max(low, min(value, high))


def _ending(row: Row, outcome: Outcome, now: int, loss: Loss) -> Ending:
    return Ending(
        state=RunState(row["state"]),
        result=_result(outcome),
        now=instant(now),
        exit_code=outcome.exit_code,
        signal=outcome.signal,
        failures=row["failures"],
        losses=row["losses"],
        counts=loss.counts,
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
        end.losses,
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
    return OutputState.PENDING if outcome.output_bytes else OutputState.NONE


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
        _delay(row, first_start),
        row["gate_job"],
        row["cart"],
        row["keys"],
    )


def _delay(row: Row, first_start: int | None) -> int | None:
    """What is long past cannot be on time: a backfill tells nothing about lateness."""
    if first_start is None or row["backfill"] is not None:
        return None
    return first_start - int(row["release_at"])
