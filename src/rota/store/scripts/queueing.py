"""The line of runs: entering it, and leaving it without an attempt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rota.domain.ids import RunId
from rota.domain.states import LEASED_STATES, WAITING_STATES, Cause, RunState
from rota.store.script import Many, Row, Script, query
from rota.store.scripts.fitting import fitting
from rota.store.scripts.keys.admitting import admit, ask_of, promise
from rota.store.scripts.keys.waiting import wait_for_keys
from rota.store.scripts.lines import line_of
from rota.store.tx import Tx


@dataclass(frozen=True, slots=True)
class EndOfWait:
    """Why runs end that nobody has begun."""

    state: RunState
    cause: str
    actor: str = "scheduler"


def enqueue(tx: Tx, rows: Sequence[Row]) -> Script[None]:
    """Waiting runs that passed the gates of their jobs, and now come to those of shared keys.

    What no worker could ever take does not get there.
    """
    rows = yield from fitting(tx, rows)
    asks = [ask_of(row) for row in rows if row["keys"] is not None]
    short = (yield from admit(tx.now, asks)) if asks else {}
    if short:
        held = {row["seq"]: short[row["id"]] for row in rows if row["id"] in short}
        yield from wait_for_keys(held)
        yield tx.record("run.blocked", list(short), actor="scheduler")
        tx.effects.keys = True
    yield from let_through(tx, [row for row in rows if row["id"] not in short])


def let_through(tx: Tx, rows: Sequence[Row]) -> Script[None]:
    """Waiting runs that passed every gate."""
    if not rows:
        return
    yield Many("queue_run", [(tx.now, row["id"]) for row in rows])
    yield from promise([ask_of(row) for row in rows if row["keys"] is not None])
    yield tx.record("run.queued", [row["id"] for row in rows], actor="scheduler")
    for row in rows:
        tx.effects.queued(line_of(row), row["id"], row["seq"])


def end_waiting(tx: Tx, runs: Sequence[RunId], end: EndOfWait) -> Script[None]:
    """End runs without an attempt; those that wait no more are left alone."""
    rows = yield query("runs_to_change", ids=runs)
    waiting = [row for row in rows if row["state"] in WAITING_STATES]
    if not waiting:
        return
    ids = [row["id"] for row in waiting]
    yield Many("end_waiting_run", [(end.state, end.cause, tx.now, run) for run in ids])
    yield tx.record("run.finished", ids, actor=end.actor, state=end.state, cause=end.cause)
    tx.effects.ends.update((row["job"], end.state) for row in waiting)
    tx.effects.lines.leave(row["chain"] for row in waiting)
    tx.effects.carts |= any(row["cart"] for row in waiting)
    tx.effects.keys |= any(row["keys"] for row in waiting)


def cancel(tx: Tx, runs: Sequence[RunId], actor: str) -> Script[dict[RunId, str]]:
    """Cancel what waits, ask what is live to stop. Returns the jobs of the runs it concerned."""
    rows = yield query("runs_to_change", ids=runs)
    waiting = [row for row in rows if row["state"] in WAITING_STATES]
    live = [row for row in rows if row["state"] in LEASED_STATES]
    if waiting:
        ids = [RunId(row["id"]) for row in waiting]
        end = EndOfWait(RunState.CANCELLED, Cause.CANCELLED, actor)
        yield from end_waiting(tx, ids, end)
    yield from ask_to_stop(tx, [row for row in live if row["cancel_at"] is None], actor)
    return {RunId(row["id"]): row["job_id"] for row in (*waiting, *live)}


def ask_to_stop(tx: Tx, live: Sequence[Row], actor: str) -> Script[None]:
    """Tell the workers of live runs, given by id and session, that somebody wants them to end."""
    if not live:
        return
    ids = [row["id"] for row in live]
    yield query("request_cancel", ids=ids, now=tx.now, actor=actor)
    yield tx.record("run.cancel_requested", ids, actor=actor)
    tx.effects.sessions.update(row["session"] for row in live)
