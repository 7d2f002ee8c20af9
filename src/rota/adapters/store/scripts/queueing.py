"""The line of runs: entering it, and leaving it without an attempt."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rota.adapters.store.script import Many, Row, Script, query
from rota.adapters.store.scripts.effects import Effects, count_ends, record
from rota.domain.ids import RunId
from rota.domain.order import PoolTags, activation_tag
from rota.domain.states import LEASED_STATES, WAITING_STATES, RunState


@dataclass(frozen=True, slots=True)
class Line:
    """The chain a run waits in."""

    pool: str
    priority: int
    share: str

    @property
    def id(self) -> str:
        return f"{self.pool}/{self.priority}/{self.share}"


def line_of(row: Row) -> Line:
    """The chain of an existing run."""
    return Line(row["pool"], row["priority"], row["chain"].split("/", 2)[2])


def pool_of(chain: str) -> str:
    """The pool whose workers a chain waits for."""
    return chain.split("/", 1)[0]


def activate(lines: Iterable[Line]) -> Script[None]:
    """Chains that got runs take part in the order of service again."""
    wanted = {line.id: line for line in lines}
    rows = yield query("chains", ids=wanted)
    known = {row["id"]: row for row in rows}
    for chain_id, line in wanted.items():
        row = known.get(chain_id)
        if row is not None and row["active"]:
            continue
        [tags] = yield query("pool_tags", pool=line.pool, priority=line.priority)
        others = PoolTags(tags["least_of_priority"], tags["least"], tags["greatest"])
        yield query(
            "activate_chain",
            id=chain_id,
            pool=line.pool,
            priority=line.priority,
            share=line.share,
            tag=activation_tag(0.0 if row is None else row["tag"], others),
        )


def enqueue(now: int, rows: Sequence[Row], effects: Effects) -> Script[None]:
    """Waiting runs that passed every gate."""
    if not rows:
        return
    yield Many("queue_run", [(now, row["id"]) for row in rows])
    yield from activate(line_of(row) for row in rows)
    yield record("run.queued", now, [row["id"] for row in rows], actor="scheduler")
    effects.pools.update(row["pool"] for row in rows)


def end_waiting(
    now: int, runs: Sequence[RunId], state: RunState, cause: str, actor: str
) -> Script[None]:
    """End runs without an attempt; those that wait no more are left alone."""
    rows = yield query("runs_to_change", ids=runs)
    waiting = [row for row in rows if row["state"] in WAITING_STATES]
    if not waiting:
        return
    ids = [row["id"] for row in waiting]
    yield Many("end_waiting_run", [(state, cause, now, run) for run in ids])
    yield from count_ends((row["job"], state) for row in waiting)
    yield query("rest_chains", ids={row["chain"] for row in waiting})
    yield record("run.finished", now, ids, actor=actor, state=state, cause=cause)


def cancel(
    now: int, runs: Sequence[RunId], effects: Effects, actor: str
) -> Script[dict[RunId, str]]:
    """Cancel what waits, ask what is live to stop. Returns the jobs of the runs it concerned."""
    rows = yield query("runs_to_change", ids=runs)
    waiting = [row for row in rows if row["state"] in WAITING_STATES]
    live = [row for row in rows if row["state"] in LEASED_STATES]
    if waiting:
        ids = [RunId(row["id"]) for row in waiting]
        yield from end_waiting(now, ids, RunState.CANCELLED, "cancelled", actor)
    yield from _ask_to_stop(now, [row for row in live if row["cancel_at"] is None], effects, actor)
    return {RunId(row["id"]): row["job_id"] for row in (*waiting, *live)}


def _ask_to_stop(now: int, live: Sequence[Row], effects: Effects, actor: str) -> Script[None]:
    if not live:
        return
    ids = [row["id"] for row in live]
    yield query("request_cancel", ids=ids, now=now, actor=actor)
    yield record("run.cancel_requested", now, ids, actor=actor)
    effects.sessions.update(row["session"] for row in live)
