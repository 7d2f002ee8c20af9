"""Giving queued runs to a worker, in order of service."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from rota.adapters.store.rows import from_json
from rota.adapters.store.script import Many, Row, Script, query
from rota.adapters.store.scripts.effects import Effects, record
from rota.adapters.store.scripts.punctuality import drop_late
from rota.adapters.store.scripts.releasing import release_jobs
from rota.domain.order import DEFAULT_EXPECTED_SECONDS, Chain, allot, cost_of, oldest_slots
from rota.domain.shape import unmet
from rota.ports.work import Work


def claim(now: int, session_id: str, slots: int) -> Script[list[Work]]:
    """Up to `slots` runs for a session with a lease and room, each as a new attempt."""
    rows = yield query("session", id=session_id)
    if not rows or not _may_claim(rows[0], now):
        return []
    session = rows[0]
    [held] = yield query("count_held", session=session_id)
    slots = min(slots, session["slots"] - held["held"])
    if slots <= 0:
        return []
    dropped = yield from drop_late(now)
    yield from release_jobs(now, dropped, Effects())  # whoever waited is picked right here
    chains = yield query("active_chains", pool=session["pool"])
    if not chains:
        return []
    [pool] = yield query("pool_state", pool=session["pool"])
    capacity = 1 / pool["slots"]
    shapes = yield from _fitting_shapes(session)
    seqs = yield from _pick(session["pool"], chains, shapes, slots, pool["served"] or 0, capacity)
    if not seqs:
        return []
    claimed = yield query("claim_runs", seqs=seqs, session=session_id, now=now, capacity=capacity)
    yield from _charge(session["pool"], claimed, capacity)
    yield record("run.claimed", now, [row["id"] for row in claimed], actor=session_id)
    order = {seq: place for place, seq in enumerate(seqs)}
    return [_work(row) for row in sorted(claimed, key=lambda row: order[row["seq"]])]


def _may_claim(session: Row, now: int) -> bool:
    return session["alive"] and not session["stopping"] and session["expires_at"] > now


def _fitting_shapes(session: Row) -> Script[list[str]]:
    labels, functions = from_json(session["labels"]), set(from_json(session["functions"]))
    rows = yield query("shapes")
    return [row["id"] for row in rows if not unmet(row["id"], labels, functions)]


def _pick(
    pool: str,
    rows: Sequence[Row],
    shapes: Sequence[str],
    slots: int,
    served: int,
    capacity: float,
) -> Script[list[int]]:
    """Sequence numbers of the runs to claim, in order of service."""
    picked: dict[int, None] = {}
    oldest = oldest_slots(served, slots)
    if oldest:
        found = yield query("oldest_runs", pool=pool, shapes=shapes, limit=oldest)
        picked.update(dict.fromkeys(row["seq"] for row in found))
    chains = [Chain(row["id"], row["priority"], row["tag"], row["weight"]) for row in rows]
    cost = cost_of(DEFAULT_EXPECTED_SECONDS, capacity)
    while chains and len(picked) < slots:
        before = len(picked)
        exhausted = set()
        for chain, share in allot(chains, slots - before, cost):
            found = yield query("chain_heads", chain=chain, shapes=shapes, limit=share + before)
            fresh = [row["seq"] for row in found if row["seq"] not in picked][:share]
            picked.update(dict.fromkeys(fresh))
            if len(fresh) < share:
                exhausted.add(chain)
        chains = [chain for chain in chains if chain.id not in exhausted]
    return list(picked)


def _charge(pool: str, claimed: Sequence[Row], capacity: float) -> Script[None]:
    costs: dict[str, float] = defaultdict(float)
    for row in claimed:
        costs[row["chain"]] += cost_of(row["expected"], capacity)
    yield Many("charge_chain", [(cost, chain) for chain, cost in costs.items()])
    yield query("rest_chains", ids=costs)
    yield query("count_served", pool=pool, served=len(claimed))


def _work(row: Row) -> Work:
    return Work(
        run=row["id"],
        attempt=row["attempt"],
        job_id=row["job_id"],
        job_version=row["job_version"],
        due_at=row["due_at"],
        inputs=from_json(row["inputs"]),
        deadline_at=row["deadline_at"],
    )
