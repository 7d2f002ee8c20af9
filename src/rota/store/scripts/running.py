"""What people do to runs, and what runs tell while they go."""

from __future__ import annotations

from collections.abc import Sequence

from rota.domain.errors import Conflict, Invalid, NotFound
from rota.domain.ids import RunId
from rota.domain.states import RunState, is_final
from rota.ports.work import Progress
from rota.store.rows import to_json
from rota.store.script import Many, Script, query
from rota.store.scripts.carts.advancing import hold_carts_of, judge
from rota.store.scripts.following_jobs import leave_ends
from rota.store.scripts.gates import hold_gates_of_jobs
from rota.store.scripts.queueing import cancel
from rota.store.scripts.releasing import release_jobs
from rota.store.tx import Tx

_RESOLUTION_CAUSES = {
    RunState.COMPLETED: "resolved",
    RunState.FAILED: "resolved",
    RunState.SCHEDULED: "",
}


def cancel_runs(tx: Tx, runs: Sequence[RunId], *, actor: str) -> Script[frozenset[RunId]]:
    """Cancel what waits, ask what is live to stop."""
    yield from hold_gates_of_jobs(runs)
    concerned = yield from cancel(tx, runs, actor)
    yield from release_jobs(tx, set(concerned.values()))
    return frozenset(concerned)


def resolve(tx: Tx, run: RunId, state: RunState, *, actor: str) -> Script[None]:
    """A person ends the doubt about an UNKNOWN run."""
    if state not in _RESOLUTION_CAUSES:
        raise Invalid(f"an unknown run cannot become {state.lower()}", code="bad_resolution")
    carts = (yield from hold_carts_of([run])) if state is not RunState.COMPLETED else []
    gates = yield from hold_gates_of_jobs([run])
    rows = yield query("runs_to_change", ids=[run])
    if not rows:
        raise NotFound(f"no run {run}", code="run_not_found")
    if rows[0]["state"] != RunState.UNKNOWN:
        raise Conflict(f"run {run} is {rows[0]['state'].lower()}, not unknown", code="not_unknown")
    is_final_now = is_final(state)
    values = (
        state,
        _RESOLUTION_CAUSES[state],
        None if is_final_now else tx.now,
        tx.now if is_final_now else None,
        int(state is RunState.FAILED),
        run,
    )
    yield Many("resolve_run", [values])
    yield tx.record("run.resolved", [run], actor=actor, state=state)
    tx.effects.times = not is_final_now
    tx.effects.carts = rows[0]["cart"] is not None
    tx.effects.keys = rows[0]["keys"] is not None
    if is_final_now:
        tx.effects.ends[rows[0]["job"], state] += 1
    if state is RunState.COMPLETED:
        awaited = yield query("awaited_jobs", ids=[rows[0]["job_id"]])
        yield from leave_ends(tx, [run] if any(row["is_followed"] for row in awaited) else [])
    yield from judge(tx, carts, gates)
    yield from release_jobs(tx, [rows[0]["job_id"]])


def record_progress(tx: Tx, session: str, items: Sequence[Progress]) -> Script[None]:
    """How far runs are; what is stale is ignored."""
    values = [
        (
            to_json({"done": item.done, "total": item.total, "message": item.message}),
            item.run,
            item.attempt,
            session,
        )
        for item in sorted(items, key=lambda item: item.run)
    ]
    yield Many("set_progress", values, exactly=False)
