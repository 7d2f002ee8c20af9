"""Single runs that wait: held, let go, moved to another line."""

from __future__ import annotations

from rota.domain.errors import Conflict, NotFound
from rota.domain.gates import held, hold_key
from rota.domain.ids import RunId
from rota.domain.states import WAITING_STATES, RunState
from rota.store.rows import reasons_to
from rota.store.script import Many, Row, Script, query
from rota.store.scripts.gates import hold_gates_of_jobs
from rota.store.scripts.letting_go import pass_gates_again
from rota.store.scripts.lines import Line, line_of
from rota.store.scripts.releasing import release_jobs
from rota.store.tx import Tx


def hold(tx: Tx, run: RunId, *, actor: str) -> Script[None]:
    """A waiting run goes nowhere from here on; others get its slot, not its place in its job."""
    row = yield from _waiting(run)
    if row["blocked_on"] == hold_key(run):
        return
    admission = held(run, actor)
    yield Many("hold_run", [(admission.blocked_on, reasons_to(admission.reasons), run)])
    yield tx.record("run.held", [run], actor=actor)
    if row["state"] != RunState.BLOCKED:
        yield tx.record("run.blocked", [run], actor=actor)
    tx.effects.keys = row["keys"] is not None
    if row["state"] == RunState.QUEUED:
        tx.effects.lines.leave([row["chain"]])
        yield from release_jobs(tx, [row["job_id"]])


def let_go(tx: Tx, run: RunId, *, actor: str) -> Script[None]:
    """The end of such a hold."""
    row = yield from _waiting(run)
    if row["blocked_on"] != hold_key(run):
        raise Conflict(
            f"nobody holds run {run}", code="run_not_held", hint=f"rota run show {run} tells why"
        )
    yield tx.record("run.let_go", [run], actor=actor)
    yield from pass_gates_again(tx, [row], actor=actor)


def set_priority(tx: Tx, run: RunId, priority: int, *, actor: str) -> Script[None]:
    """A waiting run stands in another line, where it is as old as before."""
    row = yield from _waiting(run)
    before = line_of(row)
    line = Line(before.pool, priority, before.share)
    yield Many("set_priority", [(priority, line.id, run)])
    yield tx.record(
        "run.prioritised", [run], actor=actor, priority=priority, before=before.priority
    )
    tx.effects.keys = row["keys"] is not None  # who waits for them goes by priority
    if row["state"] == RunState.QUEUED:
        tx.effects.lines.leave([before.id])
        tx.effects.queued(line, run, row["seq"])


def _waiting(run: RunId) -> Script[Row]:
    """A run that waits, locked with the gates of its job: whoever claims it waits, or was first."""
    yield from hold_gates_of_jobs([run])
    rows = yield query("waiting_runs_to_change", ids=[run])
    if not rows:
        raise NotFound(f"no run {run}", code="run_not_found", hint="rota run list shows them")
    if rows[0]["state"] not in WAITING_STATES:
        raise Conflict(
            f"run {run} is {rows[0]['state'].lower()}: it does not wait any more",
            code="run_not_waiting",
            hint=f"rota run show {run}",
        )
    return rows[0]
