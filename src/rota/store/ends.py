"""The end of attempts, reported by their worker or lost with it, and what follows from it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rota.domain.errors import StaleStream
from rota.domain.ids import instant, stable_fraction
from rota.domain.job import RunRules
from rota.domain.lateness import bound_of
from rota.domain.order import cost_of
from rota.domain.retry import Ending, Verdict, attempt_ended, goes_alone
from rota.domain.run import AttemptResult, OutputState
from rota.domain.shape import alone, demand_of
from rota.domain.spec import Delivery
from rota.domain.states import FINAL_STATES, LEASED_STATES, RunState, is_final
from rota.ports.records import Finished
from rota.ports.work import Fence, Outcome
from rota.store.chains import pool_of
from rota.store.claims import Wish, present, take
from rota.store.dependencies import leave_ends
from rota.store.gates import lock_free_gates, lock_gates_of
from rota.store.keys import charge_output
from rota.store.releases import release_jobs
from rota.store.rows import optional_instant, optional_micros, to_json
from rota.store.runs import settle_output
from rota.store.script import LookAgain, Many, Row, Script, lock, query
from rota.store.tx import Tx, lock_carts, runs_ended
from rota.store.waits import too_late

_RESULTS = frozenset(AttemptResult)
_MEMORY = 0.2  # weight of the newest duration in a job's moving average


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
    tx: Tx,
    session: str,
    outcomes: Sequence[Outcome],
    wish: Wish,
) -> Script[Finished]:
    """End attempts a worker reports. What it reports more than once counts once."""
    worker = yield from _waiting_worker(tx, session, wish)
    overdue = (yield from too_late(tx.now)) if worker else ()
    reports = {Fence(o.run, o.attempt): o for o in reversed(outcomes)}
    dropped = {row["job_id"] for row in overdue}
    # In the order of locks: carts, gates, then all runs at once.
    carts = yield from lock_carts([o.run for o in outcomes if not _is_good(o)])
    gates = yield from lock_gates_of({fence.run for fence in reports}, dropped)
    rows = yield from _rows(reports.values())
    done = yield from _complete(tx, session, reports.values(), gates)
    rest = [outcome for fence, outcome in reports.items() if fence not in done]
    valid = [o for o in rest if _is_leased(rows.get(o.run), session, o)]
    yield from _end(tx, session, valid, rows, gates)
    done.update(Fence(o.run, o.attempt) for o in valid)
    yield from runs_ended(tx, carts, gates)
    doubtful = [outcome for fence, outcome in reports.items() if fence not in done]
    late = yield from _late(tx, session, doubtful)
    accepted = tuple(fence for fence in reports if fence not in late)
    works = (yield from take(tx, worker, wish, overdue)) if worker else []
    return Finished(accepted, tuple(late), tuple(works))


def finish_free(tx: Tx, session: str, outcomes: Sequence[Outcome]) -> Script[Finished]:
    """End attempts whose gates are free, without new work; the others stay unanswered.

    The session is not locked, so that its renewals get through meanwhile.
    """
    yield from lock_carts([o.run for o in outcomes if not _is_good(o)])  # first, as always
    rows = yield query("gated_runs", ids={outcome.run for outcome in outcomes})
    gate_of = {row["id"]: row["gate_job"] for row in rows}
    free = yield from lock_free_gates(set(gate_of.values()))
    ready = [o for o in outcomes if o.run not in gate_of or gate_of[o.run] in free]
    return (yield from finish(tx, session, ready, Wish(slots=0, stream=0)))


def _waiting_worker(tx: Tx, session: str, wish: Wish) -> Script[Row | None]:
    if not wish.slots:
        return None
    try:
        return (yield from present(tx, session, wish.stream))
    except StaleStream:
        return None  # its word counts, but only the server it talks to now may claim for it


def _complete(
    tx: Tx,
    session: str,
    outcomes: Collection[Outcome],
    gates: Collection[str],
) -> Script[set[Fence]]:
    """The short way, for attempts that ended well and have little to tell."""
    plain = sorted((o for o in outcomes if _is_plain(o)), key=lambda outcome: outcome.run)
    reports = [_report(tx.now, outcome) for outcome in plain]
    if not reports:
        return set()
    rows = yield query("complete_runs", reports=to_json(reports), session=session)
    ends = [Ended._make(row) for row in rows]
    yield from settle(tx, ends, gates, actor=session)
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
    """A row for `complete_runs`."""
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


def _is_leased(row: Row | None, session: str, outcome: Outcome) -> bool:
    return (
        row is not None
        and row["session"] == session
        and row["attempt"] == outcome.attempt
        and row["state"] in LEASED_STATES
    )


def _late(tx: Tx, session: str, outcomes: Sequence[Outcome]) -> Script[set[Fence]]:
    """Tell reports that were accepted before from those that came too late.

    The latter are kept, if the session ever had leased what it reports about.
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
            [(o.run, o.attempt, session, tx.now, o.result, o.message) for o in kept.values()],
            exactly=False,
        )
        yield tx.record("run.late_result", [fence.run for fence in kept], actor=session)
    return set(late)


def _results_of(session: str, runs: set[str]) -> Script[dict[Fence, str | None]]:
    """How the attempts at these runs ended that the session has or had leased."""
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
    tx: Tx,
    leased: Sequence[Row],
    loss: Loss,
    beside: Collection[str] = (),
) -> Script[None]:
    """Attempts whose worker is gone; `leased` has run id, attempt and session.

    Those that have ended in another way meanwhile are left alone. Runs `beside` them, which the
    caller is going to change, are locked with them.
    """
    ids = [row["id"] for row in leased]
    if not ids and not beside:
        return
    carts = yield from lock_carts(ids)
    gates = yield from lock_gates_of(ids)
    rows = {row["id"]: row for row in (yield query("runs_to_change", ids={*ids, *beside}))}
    arrived = yield query("sum_chunks", ids=ids)
    torn = {(row["run_id"], row["attempt"]): row for row in arrived}
    lost: dict[str, list[Outcome]] = defaultdict(list)
    for row in leased:
        run = rows[row["id"]]
        outcome = _lost_outcome(tx.now, row, run, loss, torn.get((row["id"], row["attempt"])))
        if _is_leased(run, row["session"], outcome):
            lost[row["session"]].append(outcome)
    for session, outcomes in sorted(lost.items()):
        yield from _end(tx, session, outcomes, rows, gates, loss)
    yield from runs_ended(tx, carts, gates)


def _lost_outcome(now: int, leased: Row, row: Row, loss: Loss, torn: Row | None) -> Outcome:
    return Outcome(
        run=leased["id"],
        attempt=leased["attempt"],
        result=AttemptResult.LOST,
        started_at=row["started_at"] or 0,
        ended_at=now,
        message=loss.message,
        output_bytes=torn["bytes"] if torn else 0,
        output_lines=torn["lines"] if torn else 0,
    )


def _end(
    tx: Tx,
    session: str,
    outcomes: Sequence[Outcome],
    rows: dict[str, Row],
    gates: Collection[str],
    loss: Loss = VANISHED,
) -> Script[None]:
    """Decide what becomes of the runs, write it, and settle what follows."""
    if not outcomes:
        return
    rules = yield from tx.rules.load({_ref(rows[outcome.run]) for outcome in outcomes})
    ends = [
        _decided(tx.now, o, rows[o.run], rules[_ref(rows[o.run])].rules, loss) for o in outcomes
    ]
    yield Many("end_attempt", [_values(end, session) for end in ends])
    yield from settle_output([o.run for o in outcomes if _output_state(o) is OutputState.PENDING])
    repeated = [end.row["seq"] for end in ends if not is_final(end.verdict.state)]
    if repeated:
        yield query("keep_attempts", seqs=repeated, now=tx.now)
    yield from set_apart(end.row for end in ends if end.is_set_apart)
    yield from charge_output(tx.now, [(end.row, end.outcome.output_bytes) for end in ends])
    yield from settle(tx, [_ended(end) for end in ends], gates, actor=session)


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
    """Microseconds from release to start; None for a backfill, which cannot be on time."""
    if first_start is None or row["backfill"] is not None:
        return None
    return first_start - int(row["release_at"])


class Ended(NamedTuple):
    """An attempt that has ended. A tuple, as thousands are made in one transaction."""

    run: str
    attempt: int
    job_id: str
    job: str
    chain: str
    capacity: float  # fraction of the pool it was charged for
    expected: float  # seconds
    claimed_at: int
    started_at: int | None
    ended_at: int
    state: str  # of the run now
    cause: str
    delay: int | None  # microseconds from release to first start; None: no start, or a backfill
    gate: str | None  # the job at whose gate the run counts
    cart: str | None
    keys: str | None  # shared ones that it held

    @property
    def seconds(self) -> float:
        return (self.ended_at - (self.started_at or self.claimed_at)) / 1e6


def settle(tx: Tx, ends: Sequence[Ended], gates: Collection[str], *, actor: str) -> Script[None]:
    """Correct what ended attempts were charged, learn from them, and wake who waited for them.

    `gates` are the jobs whose gates are locked: those that may have to let others go.
    """
    if not ends:
        return
    # Which gates are needed was read before the runs were locked: a limit set since then adds one.
    if not {end.gate for end in ends} <= {None, *gates}:
        raise LookAgain("a job got a limit before its run was locked")
    tx.effects.keys |= any(end.keys for end in ends)
    _correct_charges(tx, ends)
    _count_delays(tx, ends)
    yield from _learn_durations(ends)
    groups: dict[tuple[str, str], list[Ended]] = defaultdict(list)
    for end in ends:
        groups[end.state, end.cause].append(end)
    for (state, cause), group in groups.items():
        yield _tell(tx, RunState(state), cause, group, actor)
        if is_final(RunState(state)):
            tx.effects.ends.update((end.job, state) for end in group)
            tx.effects.carts |= any(end.cart for end in group)
    tx.effects.times |= any(state == RunState.SCHEDULED for state, _ in groups)
    yield from _wake_jobs(tx, ends)
    yield from release_jobs(tx, gates)


def _wake_jobs(tx: Tx, ends: Sequence[Ended]) -> Script[None]:
    """Schedules that count from the end of a run, and jobs that follow others."""
    awaited = yield query("awaited_jobs", ids={end.job_id for end in ends})
    tx.effects.times |= any(row["waits"] for row in awaited)
    followed = {row["job_id"] for row in awaited if row["is_followed"]}
    if followed:
        runs = [e.run for e in ends if e.job_id in followed and e.state == RunState.COMPLETED]
        yield from leave_ends(tx, runs)


def _correct_charges(tx: Tx, ends: Sequence[Ended]) -> None:
    """Correct charges: what was charged at the claim was only expected."""
    for end in ends:
        charged = cost_of(end.expected, end.capacity)
        tx.effects.chains.charge(end.chain, cost_of(end.seconds, end.capacity) - charged)


def _learn_durations(ends: Sequence[Ended]) -> Script[None]:
    durations: dict[str, list[float]] = defaultdict(list)
    for end in ends:
        if end.state == RunState.COMPLETED:
            durations[end.job_id].append(end.seconds)
    if not durations:
        return
    rows = yield query("expected_durations", ids=durations)
    updates = []
    for row in rows:
        seconds, old = durations[row["id"]], row["expected_seconds"]
        mean = sum(seconds) / len(seconds)
        keep = (1 - _MEMORY) ** len(seconds)
        updates.append((mean if old is None else old * keep + mean * (1 - keep), row["id"]))
    # Skips jobs that somebody else has locked: an average is not worth waiting for, and to wait for
    # a job here would be out of order.
    yield Many("set_expected_seconds", updates, exactly=False)


def _count_delays(tx: Tx, ends: Sequence[Ended]) -> None:
    """Each run counts once, at its end."""
    for end in ends:
        if end.delay is not None and end.state in FINAL_STATES:
            delay = end.delay / 1e6
            tx.effects.delays[pool_of(end.chain), bound_of(delay)].append(delay)


def _tell(tx: Tx, state: RunState, cause: str, group: Sequence[Ended], actor: str) -> Many:
    return tx.record(
        "run.finished" if is_final(state) else f"run.{state.lower()}",
        [end.run for end in group],
        actor=actor,
        state=state,
        cause=cause,
        attempts=[end.attempt for end in group],
    )


def set_apart(runs: Iterable[Row]) -> Script[None]:
    """Let runs go alone from their next attempt on: they have lost workers again and again."""
    seqs: dict[str, list[int]] = defaultdict(list)
    for run in runs:
        seqs[alone(run["shape"])].append(run["seq"])
    if not seqs:
        return
    yield Many("keep_shape", [(shape,) for shape in sorted(seqs)])
    for shape in sorted(seqs):
        yield query("set_shape", shape=shape, seqs=seqs[shape])


def forget_lone_shapes() -> Script[None]:
    """Forget shapes of runs that went alone, so that claims need not place runs one by one."""
    shapes = [row["id"] for row in (yield query("shapes"))]
    lone = sorted(shape for shape in shapes if demand_of(shape).is_alone)
    if lone:
        yield lock("shapes", ids=lone)
        yield query("forget_shapes", ids=lone)
