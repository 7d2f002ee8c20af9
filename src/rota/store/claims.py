"""Giving queued runs to a worker, in order of service."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any

import msgspec

from rota.domain.errors import StaleStream
from rota.domain.ids import SessionId
from rota.domain.order import cost_of_all, entitled
from rota.domain.resources import HTTP_SLOTS, UNIT, Vector
from rota.domain.run import Trigger
from rota.domain.shape import WORKER, demand_of, unmet
from rota.ports.records import Claimed, Room
from rota.ports.work import Fence, WorkBatch
from rota.store.gates import lock_free_gates
from rota.store.keys import take_keys
from rota.store.memory import capacity_in
from rota.store.placement import Picked, Queue, Wanted, asks_for_resources, by_seq, pick, place
from rota.store.probes import probes_of
from rota.store.releases import release_jobs
from rota.store.rows import by_kind, from_json, offered_from
from rota.store.script import Row, Rows, Script, query
from rota.store.tx import Tx
from rota.store.waits import drop_late, late_in_queue

_PROBE = str(Trigger.PROBE)
_ROUNDS = 3  # looks at the queue in one claim
_seq, _expected = itemgetter("seq"), itemgetter("expected")


@dataclass(frozen=True, slots=True)
class Wish:
    """A request of a server for work for one of its workers."""

    slots: int
    stream: int  # in which it believes the worker to be connected to it
    runs: Sequence[str] = ()  # those a ticket named


def claim(
    tx: Tx, session: SessionId, slots: int, stream: int = 1, runs: Sequence[str] = ()
) -> Script[Claimed]:
    """Up to so many runs for a session with room, each as a new attempt."""
    found = yield from present(tx, session, stream)
    if found is None:
        return Claimed(WorkBatch())
    batch = yield from _take_in_time(tx, found, Wish(slots, stream, runs))
    return Claimed(batch, frozenset(tx.effects.left))


def present(tx: Tx, session_id: str, stream: int) -> Script[Row | None]:
    """A session with a lease, which does not end before the transaction."""
    # Claims of one worker wait for one another at an advisory lock beside its row, and only keep
    # the row from ending. A claim with hundreds of ends takes as long as the machine lets it, and a
    # renewal that waited for it would come too late: the guardian would kill a busy worker.
    rows = yield query("claiming_session", id=session_id)
    if not rows or not _may_claim(rows[0], tx.now):
        return None
    if rows[0]["stream"] != stream:
        raise StaleStream(f"the worker of session {session_id} has connected anew")
    return rows[0]


def free_worker(tx: Tx, room: Room) -> Script[Row | None]:
    """The session with that room, if it is present and nobody else is about to change it."""
    # A due step does not wait for a worker: if its session is locked, others get the runs.
    rows = yield query("free_session", id=room.session)
    session = next((row for row in rows if row["stream"] == room.stream), None)
    return session if session is not None and _may_claim(session, tx.now) else None


def fill(tx: Tx, session: Row, room: Room) -> Script[WorkBatch]:
    """Claim what waits once the rest of the transaction is done, as far as there is room."""
    if not tx.effects.pools.get(session["pool"]):
        return WorkBatch()
    return (yield from _take_in_time(tx, session, Wish(room.slots, room.stream)))


def _take_in_time(tx: Tx, session: Row, wish: Wish) -> Script[WorkBatch]:
    """Runs for a session that is present, without those that are too late by now."""
    late = yield from late_in_queue(tx.now)
    locked = yield from lock_free_gates({row["job_id"] for row in late})
    late = [row for row in late if row["job_id"] in locked]
    return (yield from take(tx, session, wish, late))


def take(tx: Tx, session: Row, wish: Wish, late: Rows) -> Script[WorkBatch]:
    """Runs for a session that is present, once those that are too `late` are out of the way."""
    dropped = yield from drop_late(tx, late)
    yield from release_jobs(tx, dropped)  # whoever waited is picked right here
    claimed, served = list[Row](), _Served()
    for _ in range(_ROUNDS):
        rest = replace(wish, slots=wish.slots - len(claimed), runs=() if claimed else wish.runs)
        served = yield from _serve(tx, session, rest)
        claimed += served.claimed
        if not served.refused:  # whoever lost a shared key to another leaves room for the next
            break
    if served.wanted is not None:
        yield from served.wanted.keep(tx.now, served.going)
    return (yield from _batch(claimed))


@dataclass(frozen=True, slots=True)
class _Served:
    """One look at the queue for a session."""

    claimed: Rows = ()  # of `claim_runs`, in the order of service
    going: Collection[int] = ()  # their sequence numbers
    refused: int = 0  # runs that had their turn but did not get a shared key
    wanted: Wanted | None = None  # None: nobody asks for resources


def _serve(tx: Tx, session: Row, wish: Wish) -> Script[_Served]:
    queue = yield from _queue(tx, session, wish)
    if queue is None:
        return _Served()
    wanted = None
    if any(map(asks_for_resources, queue.shapes)):
        picked, wanted = yield from place(tx, session, queue)
    else:
        picked = yield from pick(tx, queue)
    going = yield from _with_keys(tx, picked)
    claimed = (yield from _give(tx, session, queue, going)) if going else ()
    return _Served(claimed, going.keys(), len(picked) - len(going), wanted)


def _may_claim(session: Row, now: int) -> bool:
    return session["alive"] and not session["stopping"] and session["expires_at"] > now


def _queue(tx: Tx, session: Row, wish: Wish) -> Script[Queue | None]:
    """The queue that the session may choose from; None: it gets nothing."""
    leased = yield from tx.memory.leased(session)
    capacity = capacity_in(session)
    slots = min(wish.slots, capacity.get(HTTP_SLOTS, 0) // UNIT + session["slots"] - leased["held"])
    if slots <= 0 or leased["draining"]:
        return None
    chains = yield from tx.effects.chains.serving(session["pool"])
    if not chains:
        return None
    [pool] = yield query("pool_state", pool=session["pool"])
    shapes = yield from _fitting_shapes(session, capacity)
    if not any(HTTP_SLOTS in demand_of(shape).resources for shape in shapes):
        slots = min(slots, session["slots"] - leased["held"])
        if slots <= 0:
            return None
    look = yield from tx.memory.look(tx.now, [c.id for c in chains], tx.effects.chains.returned)
    return Queue(
        pool=session["pool"],
        slots=slots,
        served=(pool["served"] or 0) + tx.effects.served[session["pool"]],
        chains=entitled(chains),
        shapes=shapes,
        totals=from_json(pool["totals"]) or capacity,
        look=look,
        named=wish.runs,
    )


def _fitting_shapes(session: Row, capacity: Vector) -> Script[list[str]]:
    """The demands that the worker could ever meet."""
    labels = {**from_json(session["labels"]), WORKER: session["worker"]}
    functions = set(from_json(session["functions"]))
    rows = yield query("shapes", worker=session["worker"])
    offers = offered_from(session["offers"])
    return [row["id"] for row in rows if not unmet(row["id"], labels, functions, capacity, offers)]


def _with_keys(tx: Tx, picked: Picked) -> Script[Picked]:
    """Those that get the shared keys they need; the others wait for them from now on."""
    keyed = [row for row in picked.values() if row["keys"] is not None]
    if not keyed:
        return picked
    granted = yield from take_keys(tx, keyed)
    return {seq: row for seq, row in picked.items() if row["keys"] is None or seq in granted}


def _give(tx: Tx, session: Row, queue: Queue, going: Picked) -> Script[Rows]:
    claimed: dict[int, Row] = {}
    for rate, seqs in queue.by_rate(going).items():
        rows = yield query(
            "claim_runs", seqs=seqs, capacity=rate, session=session["id"], now=tx.now
        )
        found = by_seq(rows)
        claimed |= found
        given = going if len(found) == len(going) else {seq: going[seq] for seq in found}
        for chain, picked in by_kind(given.values(), itemgetter("chain")).items():
            tx.effects.chains.charge(chain, cost_of_all(map(_expected, picked), rate))
            tx.memory.claimed(session, chain, list(map(_seq, picked)))
            tx.effects.chains.leave({chain} & queue.look.whole)
    in_order = [claimed[seq] for seq in going if seq in claimed]
    ids = list(map(itemgetter("id"), in_order))
    tx.record_quietly("run.claimed", in_order, actor=session["id"])
    tx.effects.served[queue.pool] += len(ids)
    tx.effects.claimed(ids)
    return in_order


def _batch(rows: Rows) -> Script[WorkBatch]:
    """The columns of `claim_runs`: no run has an object of its own.

    Probes are told what identifies the runs that they ask about.
    """
    if not rows:
        return WorkBatch()
    columns = map(list, zip(*rows, strict=True))
    _, runs, numbers, ids, versions, due_at, deadlines, inputs, carts, items, *others, _ = columns
    handles, commits, triggers = others
    refs = list(zip(ids, versions, strict=True))
    jobs = {job: place for place, job in enumerate(dict.fromkeys(refs))}
    batch = WorkBatch(
        runs,
        numbers,
        due_at,
        list(jobs),
        [jobs[ref] for ref in refs] if len(jobs) > 1 else [],
        _sparse(inputs),
        _sparse(deadlines),
        {at: (cart, items[at]) for at, cart in _sparse(carts).items()},
        _sparse(handles),
        _sparse(commits),
    )
    return (yield from _with_probed(batch)) if _PROBE in triggers else batch


def _with_probed(batch: WorkBatch) -> Script[WorkBatch]:
    """Add to a claim the runs and attempts that the probes among them ask about."""
    rows = yield from probes_of(batch.runs)
    carts = {at: (row["cart"], row["item"]) for at, row in rows.items() if row["cart"]}
    commits = {at: row["source_commit"] for at, row in rows.items() if row["source_commit"]}
    return msgspec.structs.replace(
        batch,
        carts=batch.carts | carts,
        commits=batch.commits | commits,
        probes={at: Fence(row["probed"], row["attempt"]) for at, row in rows.items()},
    )


def _sparse(column: list[Any]) -> dict[int, Any]:
    """Return what a column has, by position: most columns have nothing."""
    if column.count(None) == len(column):
        return {}
    return {at: value for at, value in enumerate(column) if value is not None}
