"""Runs that wait: entering the queue, passing the gates again, ending without an attempt."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from operator import itemgetter

from rota.domain.external import EXTERNAL_SESSION
from rota.domain.following import FOLLOWED_STATES
from rota.domain.gates import Admission, Gate
from rota.domain.ids import RunId
from rota.domain.run import Trigger
from rota.domain.shape import worker_of
from rota.domain.states import LEASED_STATES, WAITING_STATES, Cause, RunState
from rota.store.gates import Kind
from rota.store.keys import admit, ask_of, promise, wait_for_keys
from rota.store.memory import Crews, PoolShape
from rota.store.rows import by_kind, cart_rules_from, reasons_to
from rota.store.script import Many, Row, Rows, Script, change, query
from rota.store.tx import Tx

_BATCH = 500
_WORKER = f"{Gate.WORKER}:"  # what the keys of runs begin with that no worker could take


@dataclass(frozen=True, slots=True)
class EndOfWait:
    """Why runs end that nobody has begun."""

    state: RunState
    cause: str
    actor: str = "scheduler"


def enqueue(tx: Tx, rows: Sequence[Row], counting: Collection[Kind]) -> Script[None]:
    """Waiting runs that passed the gates of their jobs, and now come to those of shared keys.

    What no worker could ever take does not get there. Those of the kinds `counting` are counted at
    the gates of their jobs once they are in the queue.
    """
    rows = yield from fitting(tx, rows)
    asks = [ask_of(row) for row in rows if row["keys"] is not None]
    short = (yield from admit(tx.now, asks)) if asks else {}
    if short:
        held = [row for row in rows if row["id"] in short]
        yield from wait_for_keys({row["seq"]: short[row["id"]] for row in held})
        tx.record_each("run.blocked", held, actor="scheduler")
        tx.effects.keys = True
        rows = [row for row in rows if row["id"] not in short]
    yield from let_through(tx, rows, counting)


def let_through(tx: Tx, rows: Sequence[Row], counting: Collection[Kind]) -> Script[None]:
    """Queue waiting runs that passed every gate: a set, however many there are."""
    if not rows:
        return
    seqs: dict[bool, list[int]] = {True: [], False: []}  # by whether they count
    for row in rows:
        seqs[(row["job_id"], row["trigger"]) in counting].append(row["seq"])
    for counts, each in seqs.items():
        if each:
            yield change("queue_runs", len(each), now=tx.now, counts=int(counts), seqs=each)
    yield from promise([ask_of(row) for row in rows if row["keys"] is not None])
    tx.record_each("run.queued", rows, actor="scheduler")
    tx.effects.returned(rows)


def end_waiting(tx: Tx, runs: Sequence[RunId], end: EndOfWait) -> Script[None]:
    """End runs without an attempt; those that wait no more are left alone."""
    rows = yield query("runs_to_change", ids=runs)
    waiting = [row for row in rows if row["state"] in WAITING_STATES]
    if not waiting:
        return
    ids = [row["id"] for row in waiting]
    yield Many("end_waiting_run", [(end.state, end.cause, tx.now, run) for run in ids])
    tx.record_each("run.finished", waiting, actor=end.actor, state=end.state, cause=end.cause)
    tx.effects.ends.update((row["job"], end.state) for row in waiting)
    tx.effects.chains.leave(row["chain"] for row in waiting)
    tx.effects.carts |= any(row["cart"] for row in waiting)
    tx.effects.keys |= any(row["keys"] for row in waiting)
    if end.state in FOLLOWED_STATES:
        yield from leave_ends(tx, ids)


def leave_ends(tx: Tx, runs: Sequence[str]) -> Script[None]:
    """Leave the ends of runs for the jobs that follow such."""
    if runs and (yield query("leave_ends", ids=runs)):
        tx.effects.followed = True


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
    """Tell workers that somebody wants live runs, by id, project and session, to end."""
    if not live:
        return
    ids = [row["id"] for row in live]
    yield query("request_cancel", ids=ids, now=tx.now, actor=actor)
    tx.record_each("run.cancel_requested", live, actor=actor)
    tx.effects.sessions.update(row["session"] for row in live)
    external = [row["id"] for row in live if row["session"] == EXTERNAL_SESSION]
    if external:
        yield query("look_at_external", ids=external, now=tx.now)


def fitting(tx: Tx, rows: Sequence[Row]) -> Script[Sequence[Row]]:
    """Those of these waiting runs that a worker could take; the others wait for one."""
    unfit = yield from tx.memory.crews.unfit(tx.now, set(map(_pool_shape, rows)))
    if not unfit:
        return rows
    yield from _block(tx, [row for row in rows if _pool_shape(row) in unfit], unfit)
    return [row for row in rows if _pool_shape(row) not in unfit]


def _pool_shape(row: Row) -> PoolShape:
    return row["pool"], row["shape"]


def is_stranded(admission: Admission, shape: str) -> bool:
    """Whether a run that is admitted so waits for the one worker that its shape is for."""
    waits = admission.blocked_on.startswith(_WORKER)
    return waits and bool(worker_of(shape))


def bound_waits(tx: Tx, stranded: Sequence[tuple[str, str]]) -> Script[None]:
    """Bound the waits for workers that begin now, of runs with their carts, as these say."""
    if not stranded:
        return
    rows = yield query("rules_of_carts", ids={cart for _, cart in stranded})
    within = {row["id"]: cart_rules_from(row["rules"]).within for row in rows}
    bounds = [
        (tx.now + span // timedelta(microseconds=1), run)
        for run, cart in stranded
        if (span := within[cart]) is not None
    ]
    if bounds:
        yield Many("bound_wait", bounds)


def strand(tx: Tx, limit: int) -> Script[int]:
    """Items that are queued for a worker which has gone wait for it; returns how many."""
    rows = yield query("stranded_runs", limit=limit)
    unfit = yield from Crews().unfit(tx.now, set(map(_pool_shape, rows)))
    stranded = [row for row in rows if _pool_shape(row) in unfit]  # others came back meanwhile
    if stranded:
        yield from _block(tx, stranded, unfit)
        tx.effects.chains.leave(row["chain"] for row in stranded)
    return len(stranded)


def _block(tx: Tx, rows: Sequence[Row], unfit: Mapping[PoolShape, Admission]) -> Script[None]:
    yield Many("block_run", [_values(unfit[_pool_shape(row)], row) for row in rows])
    of_carts = [row for row in rows if row["cart"] is not None]
    stranded = [row for row in of_carts if is_stranded(unfit[_pool_shape(row)], row["shape"])]
    yield from bound_waits(tx, [(row["id"], row["cart"]) for row in stranded])
    news = [row for row in rows if row["state"] != RunState.BLOCKED]
    if news:
        tx.record_each("run.blocked", news, actor="scheduler")


def _values(admission: Admission, row: Row) -> tuple[str, str | None, str]:
    """For `block_run`, in its order."""
    return admission.blocked_on, reasons_to(admission.reasons), row["id"]


def pass_gates_again(
    tx: Tx,
    rows: Sequence[Row],
    *,
    actor: str = "scheduler",
) -> Script[None]:
    """BLOCKED runs, locked, come to the gates as if their time had just come."""
    versions = yield from tx.rules.load({(row["job_id"], row["job_version"]) for row in rows})
    seqs: dict[bool, list[int]] = {True: [], False: []}  # by whether they are dropped when late
    for row in rows:
        rules = versions[row["job_id"], row["job_version"]].rules
        seqs[rules.drops_late(Trigger(row["trigger"]))].append(row["seq"])
    for drops, each in seqs.items():
        if each:
            yield change("let_runs_go", len(each), now=tx.now, drops=int(drops), seqs=each)
    tx.record_each("run.scheduled", rows, actor=actor)
    tx.effects.times = True


def let_waiters_go(tx: Tx, key: str, limit: int) -> Script[int]:
    """The oldest runs that wait on a key pass the gates again; returns how many."""
    found = yield query("waiters", key=key, limit=limit)
    return (yield from let_runs_go(tx, [row["id"] for row in found], key))


def let_all_go(tx: Tx, key: str) -> Script[int]:
    """Reopen a gate: all runs that wait on its key pass the gates again; returns how many."""
    gone = 0
    # Until nobody is found: a page is short, too, if somebody held some of its runs meanwhile.
    while page := (yield from let_waiters_go(tx, key, _BATCH)):
        gone += page
    return gone


def let_runs_go(tx: Tx, runs: Sequence[str], key: str) -> Script[int]:
    """Let these runs pass the gates again, as far as they still wait on a key that begins so.

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


def too_late(now: int) -> Script[Rows]:
    """Runs that may not start any more, with their jobs."""
    return (yield query("dropped_runs", now=now, limit=_BATCH))


def late_in_queue(now: int) -> Script[Rows]:
    """Those of them that claims would find. What no worker could take is left to the sweep."""
    late = yield from too_late(now)
    return [row for row in late if not is_for_worker(row)]


def drop_late(tx: Tx, late: Rows) -> Script[set[str]]:
    """Miss what is too late, under the gates of its jobs; returns these."""
    runs: dict[Cause, list[RunId]] = defaultdict(list)
    for row in late:
        runs[_cause(row)].append(RunId(row["id"]))
    for cause, missed in runs.items():
        yield from end_waiting(tx, missed, EndOfWait(RunState.MISSED, cause))
    return {row["job_id"] for row in late}


def is_for_worker(row: Row) -> bool:
    """Whether a run waits for a worker that could take it."""
    return (row["blocked_on"] or "").startswith(_WORKER)


def _cause(row: Row) -> Cause:
    """Why it may not start any more: its objective, or the end of a wait that is bounded."""
    if is_for_worker(row):
        return Cause.NO_WORKER
    return Cause.TOO_LATE if row["drop_at"] == row["late_at"] else Cause.DEPENDENCY


def end_of_wait(release_at: int, admission: Admission) -> int | None:
    """When a run is missed that a gate holds; None: it may wait for ever."""
    if admission.within is None:
        return None
    return release_at + admission.within // timedelta(microseconds=1)


def earliest(one: int | None, other: int | None) -> int | None:
    """The first of those that are known."""
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)


def judge_lateness(tx: Tx) -> Script[int]:
    """Tell which runs did not start within their objective, each once; returns how many."""
    rows = yield query("judge_lateness", now=tx.now, limit=_BATCH)
    late = [row for row in rows if row["is_late"]]
    for same in by_kind(late, itemgetter("project")).values():
        jobs = sorted({row["job"] for row in same})
        tx.record_each("run.late", same, actor="scheduler", jobs=jobs)
    return len(rows)
