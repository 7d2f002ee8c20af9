"""The end of attempts, reported by their worker or lost with it, and what follows from it."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple

import msgspec

from rota.domain.errors import StaleStream
from rota.domain.following import may_be_followed
from rota.domain.ids import instant, stable_fraction
from rota.domain.job import RunRules
from rota.domain.order import cost_of_all
from rota.domain.probes import probe_ended
from rota.domain.retry import Ending, Verdict, attempt_ended, goes_alone
from rota.domain.run import AttemptResult, OutputState, Trigger
from rota.domain.spec import Delivery, Retry
from rota.domain.states import LEASED_STATES, RunState, is_final
from rota.ports.records import Finished
from rota.ports.work import EndBatch, Fence, Outcome, Report, WorkBatch
from rota.store.chains import pool_of
from rota.store.claims import Wish, present, take
from rota.store.gates import lock_free_gates, lock_gates_of
from rota.store.keys import charge_output
from rota.store.notes import steps_of_lost
from rota.store.placement import set_apart
from rota.store.probes import begin_probes
from rota.store.releases import release_jobs
from rota.store.rows import by_kind, from_json, optional_instant, optional_micros, to_json
from rota.store.runs import settle_output
from rota.store.script import Columns, LookAgain, Many, Row, Rows, Script, query
from rota.store.tx import Tx, lock_carts, runs_ended
from rota.store.waits import late_in_queue, leave_ends

_RESULTS = frozenset(AttemptResult)
_MEMORY = 0.2  # weight of the newest duration in a job's moving average
_WORD = re.compile(r"[a-z][a-z0-9_ -]{0,39}")  # what a worker may give as a cause
_kind_in = itemgetter(*range(6))  # see `_Kind`


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


def finish(tx: Tx, session: str, report: Report, wish: Wish) -> Script[Finished]:
    """End attempts a worker reports. What it reports more than once counts once."""
    # Its room is filled last, but sessions come first in the order of locks.
    worker = yield from _waiting_worker(tx, session, wish)
    overdue = (yield from late_in_queue(tx.now)) if worker else ()
    ends, outcomes = _each_once(report)
    runs = {*ends.runs, *(outcome.run for outcome in outcomes)}
    dropped = {row["job_id"] for row in overdue}
    # In the order of locks: carts, gates, then all runs at once.
    carts = yield from lock_carts([o.run for o in outcomes if not _is_good(o)])
    gates = yield from lock_gates_of(runs, dropped)
    rows = (yield from _rows(runs)) if outcomes else {}
    doubtful = yield from _complete(tx, session, ends, gates)
    valid = [o for o in outcomes if _counts(rows.get(o.run), session, o)]
    yield from end_attempts(tx, session, valid, rows, gates)
    yield from runs_ended(tx, carts, gates)
    if len(valid) < len(outcomes):
        known = {outcome.fence for outcome in valid}
        doubtful += [outcome for outcome in outcomes if outcome.fence not in known]
    refused = (yield from _late(tx, session, doubtful)) if doubtful else ()
    claimed = (yield from take(tx, worker, wish, overdue)) if worker else WorkBatch()
    return Finished(tuple(refused), claimed=claimed)


def finish_free(tx: Tx, session: str, report: Report) -> Script[Finished]:
    """End attempts whose gates are free, without new work; the others are to be reported again.

    The session is not locked, so that its renewals get through meanwhile.
    """
    ends, outcomes = report.ends, report.outcomes
    yield from lock_carts([o.run for o in outcomes if not _is_good(o)])  # first, as always
    rows = yield query("gated_runs", ids={*ends.runs, *(o.run for o in outcomes)})
    free = yield from lock_free_gates({row["gate_job"] for row in rows})
    busy = {row["id"] for row in rows if row["gate_job"] not in free}
    ready = Report(
        ends.part([at for at, run in enumerate(ends.runs) if run not in busy]),
        tuple(outcome for outcome in outcomes if outcome.run not in busy),
    )
    finished = yield from finish(tx, session, ready, Wish(slots=0, stream=0))
    again = dict.fromkeys(fence for fence in report.fences() if fence.run in busy)
    return replace(finished, again=tuple(again))


def _each_once(report: Report) -> tuple[EndBatch, list[Outcome]]:
    """Keep what is said first about each attempt. Ends are sorted: so their runs are locked."""
    ends = _sorted(report.ends)
    if not report.outcomes and all(ends.started_at) and all(ends.ended_at):
        return ends, []
    first: dict[Fence, Outcome | None] = dict.fromkeys(ends.fences())
    timed = []
    for at, fence in enumerate(ends.fences()):
        if ends.started_at[at] and ends.ended_at[at]:
            timed.append(at)
        else:  # the short way is for those that know both
            first[fence] = _outcome(ends, at)
    for outcome in report.outcomes:
        first.setdefault(outcome.fence, outcome)
    return ends.part(timed), [outcome for outcome in first.values() if outcome is not None]


def _sorted(ends: EndBatch) -> EndBatch:
    """By run, each attempt once."""
    order = sorted(range(len(ends)), key=ends.runs.__getitem__)
    if len(set(ends.runs)) < len(ends):
        order = list({(ends.runs[at], ends.numbers[at]): at for at in reversed(order)}.values())
        order.reverse()
    is_sorted = len(order) == len(ends) and order == list(range(len(ends)))
    return ends if is_sorted else ends.part(order)


def _outcome(ends: EndBatch, at: int) -> Outcome:
    return Outcome(
        ends.runs[at],
        ends.numbers[at],
        AttemptResult.COMPLETED,
        ends.started_at[at],
        ends.ended_at[at],
        outputs=from_json(ends.outputs.get(at)),
        cpu_seconds=ends.cpu_micros[at] / 1e6,
    )


def _waiting_worker(tx: Tx, session: str, wish: Wish) -> Script[Row | None]:
    if not wish.slots:
        return None
    try:
        return (yield from present(tx, session, wish.stream))
    except StaleStream:
        return None  # its word counts, but only the server it talks to now may claim for it


def _complete(
    tx: Tx, session: str, ends: EndBatch, gates: Collection[str]
) -> Script[list[Outcome]]:
    """The short way, for attempts that completed and have no more to tell.

    Returns those that the session does not hold.
    """
    if not ends:
        return []
    columns = _columns(tx.now, ends)
    rows = yield Columns("complete_runs", columns, {"session": session, "now": tx.now})
    yield from settle(tx, _groups(rows, RunState.COMPLETED), gates, actor=session)
    if len(rows) == len(ends):
        return []
    done = {(row["id"], row["attempt"]) for row in rows}
    fences = zip(ends.runs, ends.numbers, strict=True)
    return [_outcome(ends, at) for at, fence in enumerate(fences) if fence not in done]


def _columns(now: int, ends: EndBatch) -> dict[str, Sequence[object]]:
    """Columns for `complete_runs`."""
    started_at, ended_at = (
        [min(at, now) for at in column] if max(column) > now else column
        for column in (ends.started_at, ends.ended_at)
    )
    outputs = map(ends.outputs.get, range(len(ends))) if ends.outputs else ()
    return {
        "id": ends.runs,
        "number": ends.numbers,
        "started_at": started_at,
        "ended_at": ended_at,
        "cpu_micros": ends.cpu_micros,
        "outputs": list(outputs),
    }


def _is_good(outcome: Outcome) -> bool:
    return outcome.result == AttemptResult.COMPLETED


def _rows(runs: Collection[str]) -> Script[dict[str, Row]]:
    """The runs of a report, all locked at once."""
    return {row["id"]: row for row in (yield query("runs_to_change", ids=runs))}


def _is_leased(row: Row | None, session: str, outcome: Outcome) -> bool:
    return (
        row is not None
        and row["session"] == session
        and row["attempt"] == outcome.number
        and row["state"] in LEASED_STATES
    )


def _counts(row: Row | None, session: str, outcome: Outcome) -> bool:
    """Whether what a worker reports counts: it has the attempt, and its credential is good."""
    return row is not None and not row["barred"] and _is_leased(row, session, outcome)


def _late(tx: Tx, session: str, outcomes: Sequence[Outcome]) -> Script[set[Fence]]:
    """Tell reports that were accepted before from those that came too late.

    The latter are kept, if the session ever had leased what it reports about.
    """
    latest = yield query("reported_runs", ids={outcome.run for outcome in outcomes})
    results = yield from _results_of(session, latest)
    # LOST is what the store writes once it has given an attempt up: this report came after that.
    late = {
        fence: outcome
        for outcome in outcomes
        if results.get(fence := outcome.fence) in (None, AttemptResult.LOST)
    }
    kept = {fence: outcome for fence, outcome in late.items() if fence in results}
    if kept:
        yield Many(
            "insert_late_result",
            [(o.run, o.number, session, tx.now, o.result, o.message) for o in kept.values()],
            exactly=False,
        )
        runs = {fence.run for fence in kept}
        tx.record_each("run.late_result", [r for r in latest if r["id"] in runs], actor=session)
    return set(late)


def _results_of(session: str, latest: Rows) -> Script[dict[Fence, str | None]]:
    """How the attempts at these runs ended that the session has or had leased."""
    earlier = yield query("ended_attempts", ids=[row["id"] for row in latest])
    attempts = [(r["id"], r["attempt"], r["session"], r["result"]) for r in latest]
    attempts += [(r["run_id"], r["number"], r["session"], r["result"]) for r in earlier]
    return {
        Fence(run, attempt): result
        for run, attempt, holder, result in attempts
        if holder == session
    }


def foreign(session: str, fences: Sequence[Fence]) -> Script[list[Fence]]:
    """Those of these attempts that the session never had leased."""
    latest = yield query("reported_runs", ids={fence.run for fence in fences})
    own = yield from _results_of(session, latest)
    return [fence for fence in fences if fence not in own]


@dataclass(frozen=True, slots=True)
class Loss:
    """Why attempts were lost."""

    message: str
    counts: bool  # towards quarantine: the run itself may be what killed its worker
    sets_apart: bool = True  # what lost workers again and again goes alone


VANISHED = Loss("its worker vanished", counts=True)
LEFT = Loss("its worker left", counts=False)
MISLAID = Loss("it never reached its worker", counts=False)
UNTOLD = Loss("its worker could not report its end", counts=True)
SILENT = Loss("another system did not report in time", counts=True, sets_apart=False)


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
    steps = yield from steps_of_lost(ids)
    lost: dict[str, list[Outcome]] = defaultdict(list)
    for row in leased:
        run = rows[row["id"]]
        outcome = _lost_outcome(tx.now, row, run, loss, torn.get((row["id"], row["attempt"])))
        outcome = msgspec.structs.replace(outcome, steps=steps.get(outcome.fence, ()))
        if _is_leased(run, row["session"], outcome):
            lost[row["session"]].append(outcome)
    for session, outcomes in sorted(lost.items()):
        yield from end_attempts(tx, session, outcomes, rows, gates, loss)
    yield from runs_ended(tx, carts, gates)


def _lost_outcome(now: int, leased: Row, row: Row, loss: Loss, torn: Row | None) -> Outcome:
    return Outcome(
        run=leased["id"],
        number=leased["attempt"],
        result=AttemptResult.LOST,
        started_at=row["started_at"] or 0,
        ended_at=now,
        message=loss.message,
        output_bytes=torn["bytes"] if torn else 0,
        output_lines=torn["lines"] if torn else 0,
    )


def end_attempts(
    tx: Tx,
    session: str,
    outcomes: Sequence[Outcome],
    rows: Mapping[str, Row],
    gates: Collection[str],
    loss: Loss = VANISHED,
    *,
    actor: str = "",
) -> Script[None]:
    """Decide what becomes of runs, whose rows are locked, write it, and settle what follows."""
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
    unknown = [end.row for end in ends if end.verdict.state is RunState.UNKNOWN]
    yield from begin_probes(tx, [(row, rules[_ref(row)].rules) for row in unknown])
    yield from settle(tx, _decided_groups(ends), gates, actor=actor or session)


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
    if row["trigger"] == Trigger.PROBE:
        policy = rules.probe or Retry()
        verdict = probe_ended(ending, policy, rules.max_losses, fraction)
    else:
        verdict = attempt_ended(ending, rules.retry, rules.max_losses, fraction)
    is_counted = ending.result is AttemptResult.LOST and loss.counts
    losses = row["losses"] + is_counted
    goes_on = not is_final(verdict.state)
    is_set_apart = (
        is_counted and loss.sets_apart and goes_on and goes_alone(losses, rules.max_losses)
    )
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
        has_handle=bool(row["has_handle"]),
        cause=outcome.cause if _WORD.fullmatch(outcome.cause) else "",
    )


def _result(outcome: Outcome) -> AttemptResult:
    """How it ended; a word that only a newer worker knows counts as a failure."""
    return AttemptResult(outcome.result) if outcome.result in _RESULTS else AttemptResult.FAILED


def _values(end: _End, session: str) -> tuple[object, ...]:
    """Values for `end_attempt`, in its order."""
    row, outcome, state = end.row, end.outcome, end.verdict.state
    is_good = state is RunState.COMPLETED  # a probe whose exit code is its answer, too
    result = AttemptResult.COMPLETED if is_good else _result(outcome)
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


class _Kind(NamedTuple):
    """Common part of ends that are settled as one, as the first columns of `complete_runs`."""

    project: str
    job_id: str
    job: str
    chain: str
    capacity: float  # fraction of the pool they were charged for
    gate: str | None  # the job at whose gate they count


@dataclass(frozen=True, slots=True)
class _Group:
    """Attempts of one kind that have ended in the same way, in columns."""

    kind: _Kind
    state: RunState  # of their runs now
    cause: str
    runs: Sequence[str]
    attempts: Sequence[int]
    expected: Sequence[float]  # seconds
    seconds: Sequence[float]
    delays: Sequence[int | None]  # microseconds to the first start; None: no start, or a backfill
    carts: Sequence[str | None]
    keys: Sequence[str | None]  # shared ones that they held
    are_probes: bool = False  # they ask about other runs, and count for nothing in their job


def _groups(rows: Sequence[Any], state: RunState, cause: str = "") -> list[_Group]:
    """Ends in rows such as those of `complete_runs`.

    Workers tell the ends of probes one by one: among the rows of that statement there are none.
    """
    return [_group(_Kind(*k), state, cause, ends) for k, ends in by_kind(rows, _kind_in).items()]


def _group(kind: _Kind, state: RunState, cause: str, rows: Sequence[Any]) -> _Group:
    columns = islice(zip(*rows, strict=True), len(kind), None)
    runs, attempts, expected, durations, delays, carts, keys = columns
    seconds = [duration / 1e6 for duration in durations]
    return _Group(kind, state, cause, runs, attempts, expected, seconds, delays, carts, keys)


def _decided_groups(ends: Iterable[_End]) -> list[_Group]:
    verdicts = by_kind(
        ends, lambda end: (end.verdict.state, end.verdict.cause, end.row["trigger"] == "probe")
    )
    return [
        replace(group, are_probes=are_probes) if are_probes else group
        for (state, cause, are_probes), same in verdicts.items()
        for group in _groups([_row(end) for end in same], state, cause)
    ]


def _row(end: _End) -> tuple[object, ...]:
    """An end as `complete_runs` returns it."""
    row = end.row
    began_at = end.started_at or row["claimed_at"]
    return (
        row["project"],
        row["job_id"],
        row["job"],
        row["chain"],
        row["capacity"],
        row["gate_job"],
        row["id"],
        row["attempt"],
        row["expected"],
        end.ended_at - began_at,
        _delay(row, row["first_started_at"] or end.started_at),
        row["cart"],
        row["keys"],
    )


def _delay(row: Row, first_start: int | None) -> int | None:
    """Microseconds from release to start; None for a backfill, which cannot be on time."""
    if first_start is None or row["backfill"] is not None:
        return None
    return first_start - int(row["release_at"])


def settle(tx: Tx, groups: Sequence[_Group], gates: Collection[str], *, actor: str) -> Script[None]:
    """Correct what ended attempts were charged, learn from them, and wake who waited for them.

    `gates` are the jobs whose gates are locked: those that may have to let others go.
    """
    if not groups:
        return
    # Which gates are needed was read before the runs were locked: a limit set since then adds one.
    if not {group.kind.gate for group in groups} <= {None, *gates}:
        raise LookAgain("a job got a limit before its run was locked")
    tx.effects.keys |= any(any(group.keys) for group in groups)
    _correct_charges(tx, groups)
    _learn_durations(tx, groups)
    for (state, cause), same in by_kind(groups, attrgetter("state", "cause")).items():
        for project, its in by_kind(same, attrgetter("kind.project")).items():
            _tell(tx, project, (state, cause), its, actor)
        if is_final(state):
            _count(tx, same)
            tx.effects.followed |= any(group.are_probes for group in same)
        tx.effects.times |= state is RunState.SCHEDULED
    yield from _wake_jobs(tx, groups)
    yield from release_jobs(tx, gates)


def _count(tx: Tx, final: Sequence[_Group]) -> None:
    """Each run counts once, at its end."""
    for group in final:
        if group.are_probes:
            continue
        tx.effects.ends[group.kind.job, group.state] += len(group.runs)
        tx.effects.carts |= any(group.carts)
        delays = [delay / 1e6 for delay in group.delays if delay is not None]
        tx.effects.started(pool_of(group.kind.chain), delays)


def _wake_jobs(tx: Tx, groups: Sequence[_Group]) -> Script[None]:
    """Schedules that count from the end of a run, and jobs that follow others."""
    groups = [group for group in groups if not group.are_probes]
    if not groups:
        return
    awaited = yield query("awaited_jobs", ids={group.kind.job_id for group in groups})
    tx.effects.times |= any(row["waits"] for row in awaited)
    followed = {row["job_id"]: row["followed"] for row in awaited if row["followed"]}
    if followed:
        done = [g for g in groups if may_be_followed(followed.get(g.kind.job_id), g.state)]
        yield from leave_ends(tx, [run for group in done for run in group.runs])


def _correct_charges(tx: Tx, groups: Sequence[_Group]) -> None:
    """Correct charges: what was charged at the claim was only expected."""
    for group in groups:
        capacity = group.kind.capacity
        charged, cost = (cost_of_all(each, capacity) for each in (group.expected, group.seconds))
        tx.effects.chains.charge(group.kind.chain, cost - charged)


def _learn_durations(tx: Tx, groups: Sequence[_Group]) -> None:
    durations: dict[str, list[float]] = defaultdict(list)
    for group in groups:
        if group.state is RunState.COMPLETED and not group.are_probes:
            durations[group.kind.job_id] += group.seconds
    for job, seconds in sorted(durations.items()):
        mean, keep = sum(seconds) / len(seconds), (1 - _MEMORY) ** len(seconds)
        tx.effects.learned.append((mean, keep, job))


def _tell(
    tx: Tx, project: str, end: tuple[RunState, str], groups: Sequence[_Group], actor: str
) -> None:
    state, cause = end
    tx.record_in(
        project,
        "run.finished" if is_final(state) else f"run.{state.lower()}",
        [run for group in groups for run in group.runs],
        actor=actor,
        state=state,
        cause=cause,
        attempts=[attempt for group in groups for attempt in group.attempts],
    )
