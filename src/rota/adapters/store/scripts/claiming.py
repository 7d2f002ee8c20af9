"""Giving queued runs to a worker, in order of service."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rota.adapters.store.rows import from_json
from rota.adapters.store.script import Row, Rows, Script, query
from rota.adapters.store.scripts.effects import Effects, record
from rota.adapters.store.scripts.gates import hold_free_gates
from rota.adapters.store.scripts.memory import Look, Memory
from rota.adapters.store.scripts.punctuality import drop_late, too_late
from rota.adapters.store.scripts.releasing import release_jobs
from rota.domain.errors import StaleStream
from rota.domain.order import DEFAULT_EXPECTED_SECONDS, Chain, allot, cost_of, oldest_slots
from rota.domain.shape import unmet
from rota.ports.records import Room
from rota.ports.work import Work


@dataclass(frozen=True, slots=True)
class Wish:
    """What a server wants for a worker."""

    slots: int
    stream: int  # in which it believes the worker to be connected to it
    runs: Sequence[str] = ()  # those a ticket named


def claim(now: int, session_id: str, wish: Wish, memory: Memory) -> Script[list[Work]]:
    """Up to as many runs as wished for a session with room, each as a new attempt."""
    session = yield from present(now, session_id, wish.stream)
    if session is None:
        return []
    effects = Effects(memory=memory)
    works = yield from _take_in_time(now, session, wish, effects)
    yield from effects.conclude()
    return works


def present(now: int, session_id: str, stream: int) -> Script[Row | None]:
    """A session with a lease, which does not end before the transaction."""
    rows = yield query("session", id=session_id)
    if not rows or not _may_claim(rows[0], now):
        return None
    if rows[0]["stream"] != stream:
        raise StaleStream(f"the worker of session {session_id} has connected anew")
    return rows[0]


def free_worker(now: int, room: Room) -> Script[Row | None]:
    """The session with that room, if it is present and nobody else is about to change it."""
    rows = yield query("free_session", id=room.session)
    session = next((row for row in rows if row["stream"] == room.stream), None)
    return session if session is not None and _may_claim(session, now) else None


def fill(now: int, session: Row, room: Room, effects: Effects) -> Script[list[Work]]:
    """What waits once the rest of the transaction is done, as far as there is room."""
    if not effects.pools.get(session["pool"]):
        return []
    return (yield from _take_in_time(now, session, Wish(room.slots, room.stream), effects))


def _take_in_time(now: int, session: Row, wish: Wish, effects: Effects) -> Script[list[Work]]:
    """Runs for a session that is present, without those that are too late by now."""
    late = yield from too_late(now)
    held = yield from hold_free_gates({row["job_id"] for row in late})
    late = [row for row in late if row["job_id"] in held]
    return (yield from take(now, session, wish, late, effects))


def take(now: int, session: Row, wish: Wish, late: Rows, effects: Effects) -> Script[list[Work]]:
    """Runs for a session that is present, once those that are too `late` are out of the way."""
    held = yield from effects.memory.held(session)
    slots = min(wish.slots, session["slots"] - held["held"])
    if slots <= 0 or held["draining"]:
        return []
    dropped = yield from drop_late(now, late, effects)
    yield from release_jobs(now, dropped, effects)  # whoever waited is picked right here
    chains = yield from effects.lines.serving(session["pool"])
    if not chains:
        return []
    [pool] = yield query("pool_state", pool=session["pool"])
    capacity = 1 / pool["slots"]
    shapes = yield from _fitting_shapes(session)
    named = yield from _named(session["pool"], wish.runs, shapes, slots)
    look = yield from effects.memory.look(now, [c.id for c in chains], effects.lines.returned)
    line = _Line(session["pool"], slots, pool["served"] or 0, capacity, look)
    seqs = yield from _pick(line, chains, shapes, named, effects)
    if not seqs:
        return []
    claimed = yield query(
        "claim_runs", seqs=seqs, session=session["id"], now=now, capacity=capacity
    )
    yield record("run.claimed", now, [row["id"] for row in claimed], actor=session["id"])
    effects.memory.claimed(session, claimed)
    _charge(line, claimed, effects)
    order = {seq: place for place, seq in enumerate(seqs)}
    return [_work(row) for row in sorted(claimed, key=lambda row: order[row["seq"]])]


def _may_claim(session: Row, now: int) -> bool:
    return session["alive"] and not session["stopping"] and session["expires_at"] > now


def _fitting_shapes(session: Row) -> Script[list[str]]:
    labels, functions = from_json(session["labels"]), set(from_json(session["functions"]))
    rows = yield query("shapes")
    return [row["id"] for row in rows if not unmet(row["id"], labels, functions)]


@dataclass(frozen=True, slots=True)
class _Line:
    """The runs of a pool, from the view of a worker."""

    pool: str
    slots: int  # free places of the worker
    served: int
    capacity: float
    look: Look


def _named(
    pool: str, runs: Sequence[str], shapes: Sequence[str], slots: int
) -> Script[dict[int, None]]:
    """Sequence numbers of the runs that a ticket named, as far as they can be had."""
    if not runs:
        return {}
    found = yield query("named_runs", ids=runs, pool=pool, shapes=shapes, limit=slots)
    return dict.fromkeys(row["seq"] for row in found)


def _pick(
    line: _Line,
    chains: list[Chain],
    shapes: Sequence[str],
    named: dict[int, None],
    effects: Effects,
) -> Script[list[int]]:
    """Sequence numbers of the runs to claim: those named, then in order of service."""
    picked, slots = dict(named), line.slots
    oldest = oldest_slots(line.served, slots - len(picked))
    if oldest and len(chains) > 1:  # a single line has that order
        lines = line.look.as_json()
        found = yield query("oldest_runs", lines=lines, shapes=shapes, limit=oldest)
        picked.update(dict.fromkeys(row["seq"] for row in found))
    cost = cost_of(DEFAULT_EXPECTED_SECONDS, line.capacity)
    while chains and len(picked) < slots:
        before = len(picked)
        exhausted = set()
        for chain, share in allot(chains, slots - before, cost):
            first, limit = line.look.firsts[chain], share + before
            found = yield query("chain_heads", chain=chain, first=first, shapes=shapes, limit=limit)
            fresh = [row["seq"] for row in found if row["seq"] not in picked][:share]
            picked.update(dict.fromkeys(fresh))
            if len(fresh) < share:
                exhausted.add(chain)
        effects.lines.leave(exhausted & line.look.whole)
        chains = [chain for chain in chains if chain.id not in exhausted]
    return list(picked)


def _charge(line: _Line, claimed: Sequence[Row], effects: Effects) -> None:
    for row in claimed:
        effects.lines.charge(row["chain"], cost_of(row["expected"], line.capacity))
    effects.lines.leave({row["chain"] for row in claimed} & line.look.whole)
    effects.served[line.pool] += len(claimed)
    effects.claimed(row["id"] for row in claimed)


def _work(row: Row) -> Work:
    return Work(
        run=row["id"],
        attempt=row["attempt"],
        job_id=row["job_id"],
        job_version=row["job_version"],
        due_at=row["due_at"],
        inputs=from_json(row["inputs"]),
        deadline_at=row["deadline_at"],
        cart=row["cart"],
        item=row["item"],
    )
