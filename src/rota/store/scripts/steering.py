"""Single runs that wait: held, let go, moved to another line."""

from __future__ import annotations

from rota.domain.errors import Conflict, NotFound
from rota.domain.gates import held, hold_key
from rota.domain.ids import RunId
from rota.domain.states import WAITING_STATES, RunState
from rota.ports.records import Wakes
from rota.store.rows import reasons_to
from rota.store.script import Many, Row, Script, query
from rota.store.scripts.effects import Effects, record
from rota.store.scripts.gates import hold_gates_of_jobs
from rota.store.scripts.letting_go import pass_gates_again
from rota.store.scripts.lines import Line, line_of
from rota.store.scripts.releasing import release_jobs
from rota.store.scripts.rules import RulesBook


def hold(now: int, run: RunId, actor: str) -> Script[Wakes]:
    """A waiting run goes nowhere from here on; others get its slot, not its place in its job."""
    row = yield from _waiting(run)
    if row["blocked_on"] == hold_key(run):
        return Wakes()
    admission, effects = held(run, actor), Effects()
    yield Many("hold_run", [(admission.blocked_on, reasons_to(admission.reasons), run)])
    yield record("run.held", now, [run], actor=actor)
    if row["state"] != RunState.BLOCKED:
        yield record("run.blocked", now, [run], actor=actor)
    effects.keys = row["keys"] is not None
    if row["state"] == RunState.QUEUED:
        effects.lines.leave([row["chain"]])
        yield from release_jobs(now, [row["job_id"]], effects)
    return (yield from effects.conclude())


def let_go(now: int, run: RunId, actor: str, book: RulesBook) -> Script[Wakes]:
    """The end of such a hold."""
    row = yield from _waiting(run)
    if row["blocked_on"] != hold_key(run):
        raise Conflict(
            f"nobody holds run {run}", code="run_not_held", hint=f"rota run show {run} tells why"
        )
    effects = Effects()
    yield record("run.let_go", now, [run], actor=actor)
    yield from pass_gates_again(now, [row], book, effects, actor=actor)
    return (yield from effects.conclude())


def set_priority(now: int, run: RunId, priority: int, actor: str) -> Script[Wakes]:
    """A waiting run stands in another line, where it is as old as before."""
    row = yield from _waiting(run)
    before, effects = line_of(row), Effects()
    line = Line(before.pool, priority, before.share)
    yield Many("set_priority", [(priority, line.id, run)])
    yield record(
        "run.prioritised", now, [run], actor=actor, priority=priority, before=before.priority
    )
    effects.keys = row["keys"] is not None  # who waits for them goes by priority
    if row["state"] == RunState.QUEUED:
        effects.lines.leave([before.id])
        effects.queued(line, run, row["seq"])
    return (yield from effects.conclude())


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
