"""Runs that are UNKNOWN: probes that ask how they ended, and the end of the doubt.

A probe is inserted in the transaction that leaves its run UNKNOWN, and what it found out is taken
in one of its own, for the locks that need: in between, the probe has ended and keeps its answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta

from rota.domain.errors import Conflict, Invalid, NotFound
from rota.domain.ids import RunId, instant, new_run_ids
from rota.domain.job import RunRules
from rota.domain.probes import Answer, ProbeOf, Resolution, answer_of, resolution_of
from rota.domain.retry import backoff
from rota.domain.run import Trigger
from rota.domain.shape import probe_shape
from rota.domain.spec import Delivery
from rota.domain.states import RunState, is_final
from rota.store.gates import lock_gates_of_jobs
from rota.store.memory import shape_rows
from rota.store.releases import release_jobs
from rota.store.script import Many, Row, Script, query, shared_statements
from rota.store.tx import Tx, lock_carts, runs_ended
from rota.store.waits import cancel, leave_ends

_ACTOR = "probe"
_EXPECTED = 1.0  # seconds that a probe takes, for the order of service
_OF_PROBED = (  # what a probe has as its run has it
    *("project", "job_id", "job", "job_version", "due_at", "priority", "pool", "chain"),
    *("inputs", "created_by"),
)
_RESOLVED = (RunState.COMPLETED, RunState.FAILED, RunState.SCHEDULED)


def begin_probes(tx: Tx, lost: Sequence[tuple[Row, RunRules]]) -> Script[None]:
    """Have runs probed that have just become UNKNOWN, and are locked, as far as they can be."""
    rules = {row["id"]: each for row, each in lost if each.probe is not None}
    if not rules:
        return
    rows = yield query("runs_to_probe", ids=rules)
    ids = new_run_ids(instant(tx.now), len(rows))
    shapes = {row["id"]: probe_shape(rules[row["id"]], row["shape"]) for row in rows}
    yield Many("insert_shape", shape_rows(set(shapes.values())), exactly=False)
    yield Many(
        "insert_run",
        [
            _values(tx.now, run, row, shapes[row["id"]], rules[row["id"]])
            for run, row in zip(ids, rows, strict=True)
        ],
    )
    yield Many(
        "insert_probe",
        [(run, row["id"], row["attempt"]) for run, row in zip(ids, rows, strict=True)],
    )
    for run, row in zip(ids, rows, strict=True):
        tx.record_in(row["project"], "run.scheduled", [run], actor=_ACTOR, probes=row["id"])
    tx.effects.times = True


def _values(now: int, run: RunId, row: Row, shape: str, rules: RunRules) -> tuple[object, ...]:
    """Values for `insert_run`, in its order.

    What is not named is None: no gate, deadline, key or cart is the probe's own.
    """
    assert rules.probe is not None
    pause = backoff(rules.probe, 0, 0) // timedelta(microseconds=1)
    known = {
        **{name: row[name] for name in _OF_PROBED},
        "id": run,
        "trigger": Trigger.PROBE,
        "state": RunState.SCHEDULED,
        "cause": "",
        "release_at": now,
        "eligible_at": now + pause,
        "shape": shape,
        "delivery": Delivery.AT_LEAST_ONCE,
        "max_attempts": rules.probe.attempts,
        "expected": _EXPECTED,
        "created_at": now,
        "caught_up": 0,
    }
    return tuple(known.get(name) for name in shared_statements()["insert_run"].parameters)


def probes_of(claimed: Sequence[str]) -> Script[dict[int, Row]]:
    """The runs and attempts that probes among claimed runs ask about, by their position."""
    rows = {row["run_id"]: row for row in (yield query("probes_of_runs", ids=claimed))}
    return {at: rows[run] for at, run in enumerate(claimed) if run in rows}


def any_ended() -> Script[bool]:
    """Whether probes have ended whose answers are still to be taken."""
    return bool((yield query("any_ended_probe")))


def settle(tx: Tx, limit: int) -> Script[int]:
    """Take the answers of probes that have ended; returns how many probes these were.

    One that is not about the attempt that its run is UNKNOWN after comes too late: somebody was
    quicker, and it counts for nothing.
    """
    ended = yield query("ended_probes", limit=limit)
    answers = {
        RunId(row["probed"]): (row["attempt"], answer)
        for row in ended
        if (answer := answer_of(RunState(row["state"]), row["cause"])) is not None
    }
    if answers:
        yield from _take(tx, answers)
    if ended:
        yield query("settle_probes", ids=[row["run_id"] for row in ended])
    return len(ended)


def _take(tx: Tx, answers: Mapping[RunId, tuple[int, Answer]]) -> Script[None]:
    may_fail = [run for run, (_, answer) in answers.items() if answer is not Answer.COMPLETED]
    carts = yield from lock_carts(may_fail)
    gates = yield from lock_gates_of_jobs(answers)
    rows = yield query("runs_to_change", ids=answers)
    versions = yield from tx.rules.load({(row["job_id"], row["job_version"]) for row in rows})
    decided = []
    for row in rows:
        attempt, answer = answers[row["id"]]
        if row["state"] == RunState.UNKNOWN and row["attempt"] == attempt:
            resolution = resolution_of(
                answer,
                losses=row["losses"],
                max_losses=versions[row["job_id"], row["job_version"]].rules.max_losses,
                is_cancel_requested=row["cancel_at"] is not None,
            )
            decided.append((row, resolution))
    yield from _resolve(tx, decided, actor=_ACTOR)
    yield from runs_ended(tx, carts, gates)
    yield from release_jobs(tx, gates)


def resolve(tx: Tx, run: RunId, state: RunState, *, actor: str) -> Script[None]:
    """A person ends the doubt about an UNKNOWN run; what still asks about it need not."""
    if state not in _RESOLVED:
        raise Invalid(f"an unknown run cannot become {state.lower()}", code="bad_resolution")
    # As in `ends.finish`: only a bad end may have to pause the cart in this very transaction.
    carts = (yield from lock_carts([run])) if state is not RunState.COMPLETED else []
    gates = yield from lock_gates_of_jobs([run])
    asking = [
        RunId(row["run_id"])
        for row in (yield query("probes_about", run=run))
        if not is_final(RunState(row["state"]))
    ]
    rows = {row["id"]: row for row in (yield query("runs_to_change", ids=[run, *asking]))}
    if run not in rows:
        raise NotFound(f"no run {run}", code="run_not_found")
    found = rows[run]
    if found["state"] != RunState.UNKNOWN:
        raise Conflict(f"run {run} is {found['state'].lower()}, not unknown", code="not_unknown")
    cause = "resolved" if is_final(state) else ""
    yield from _resolve(tx, [(found, Resolution(state, cause))], actor=actor)
    if asking:
        yield from cancel(tx, asking, actor)
    yield from runs_ended(tx, carts, gates)
    yield from release_jobs(tx, gates)


def _resolve(tx: Tx, decided: Sequence[tuple[Row, Resolution]], *, actor: str) -> Script[None]:
    """Write what becomes of these runs, which are locked, and tell whom it concerns."""
    if not decided:
        return
    yield Many("resolve_runs", [_resolved(tx.now, row["id"], each) for row, each in decided])
    for resolution in sorted({each for _, each in decided}, key=repr):
        rows = [row for row, each in decided if each == resolution]
        told = {"state": resolution.state, "cause": resolution.cause}
        tx.record_each("run.resolved", rows, actor=actor, **told)
        tx.effects.times |= not is_final(resolution.state)
        tx.effects.carts |= any(row["cart"] is not None for row in rows)
        tx.effects.keys |= any(row["keys"] is not None for row in rows)
        if is_final(resolution.state):
            tx.effects.ends.update((row["job"], resolution.state) for row in rows)
            yield from leave_ends(tx, [row["id"] for row in rows])


def _resolved(now: int, run: str, resolution: Resolution) -> tuple[object, ...]:
    """Values for `resolve_runs`, in its order."""
    state = resolution.state
    is_over = is_final(state)
    eligible_at, ended_at = (None, now) if is_over else (now, None)
    return state, resolution.cause, eligible_at, ended_at, int(state is RunState.FAILED), run


def about(run: RunId) -> Script[list[ProbeOf]]:
    """The probes that asked about a run, the latest last."""
    rows = yield query("probes_about", run=run)
    return [
        ProbeOf(
            RunId(row["run_id"]),
            row["attempt"],
            RunState(row["state"]),
            answer_of(RunState(row["state"]), row["cause"]),
            row["tries"],
        )
        for row in rows
    ]


def probed_by(run: RunId) -> Script[RunId | None]:
    """The run that a probe asks about; None: this is no probe."""
    rows = yield query("probed_by", run=run)
    return RunId(rows[0]["probed"]) if rows else None
