"""Letting runs go that waited at a gate: they pass all gates again."""

from __future__ import annotations

from collections.abc import Sequence

from rota.domain.job import RunRules
from rota.domain.run import Trigger
from rota.domain.states import RunState
from rota.store.script import Many, Row, Script, query
from rota.store.tx import Tx


def pass_gates_again(
    tx: Tx,
    rows: Sequence[Row],
    *,
    actor: str = "scheduler",
) -> Script[None]:
    """BLOCKED runs, locked, come to the gates as if their time had just come."""
    versions = yield from tx.rules.load({(row["job_id"], row["job_version"]) for row in rows})
    values = []
    for row in rows:
        drop_at = _drop_at(row, versions[row["job_id"], row["job_version"]].rules)
        values.append((max(tx.now, row["release_at"], row["eligible_at"] or 0), drop_at, row["id"]))
    yield Many("let_run_go", values)
    yield tx.record("run.scheduled", [row["id"] for row in rows], actor=actor)
    tx.effects.times = True


def _drop_at(row: Row, rules: RunRules) -> int | None:
    """When it is too late to start; how long the run might wait where it was is over."""
    return row["late_at"] if rules.drops_late(Trigger(row["trigger"])) else None


def let_waiters_go(tx: Tx, key: str, limit: int) -> Script[int]:
    """The oldest runs that wait on a key pass the gates again; returns how many."""
    found = yield query("waiters", key=key, limit=limit)
    return (yield from let_runs_go(tx, [row["id"] for row in found], key))


def let_runs_go(tx: Tx, runs: Sequence[str], key: str) -> Script[int]:
    """The same for these runs, as far as they still wait on a key that begins so.

    Somebody may have held one since it was found.
    """
    if not runs:
        return 0
    rows = yield query("waiting_runs_to_change", ids=runs)
    waiting = [
        row
        for row in rows
        if row["state"] == RunState.BLOCKED and row["blocked_on"].startswith(key)
    ]
    if waiting:
        yield from pass_gates_again(tx, waiting)
    return len(waiting)
