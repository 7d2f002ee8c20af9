"""The order of service as people see it: weights of shares, and the places of runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from rota.domain.ids import RunId, instant
from rota.domain.key_gates import BOOST
from rota.domain.order import (
    Chain,
    QueuedChain,
    activation_tag,
    cost_of,
    entitled,
    group_of,
    share_of,
    tags_of,
)
from rota.domain.resources import Vector, dominant_share
from rota.domain.shape import demand_of
from rota.ports.forecasts import ChainState, Place, Reserved, ShareWeight
from rota.store.chains import chain_from
from rota.store.keys import rank_in
from rota.store.rows import from_json
from rota.store.script import Row, Rows, Script, lock, query
from rota.store.tx import Tx


def share_weights() -> Script[list[ShareWeight]]:
    rows = yield query("share_weights")
    return [
        ShareWeight(row["share"], row["weight"], row["updated_by"], instant(row["updated_at"]))
        for row in rows
    ]


def set_weight(tx: Tx, share: str, weight: float, *, actor: str) -> Script[None]:
    """Set a weight; it counts from the next claim on, also for chains to come."""
    yield query("set_share_weight", share=share, weight=weight, actor=actor, now=tx.now)
    # Chains have a copy, which claims read; those to come take theirs when they are activated.
    ids = [row["id"] for row in (yield query("chains_of_share", share=share))]
    if ids:
        yield lock("chains", ids=ids)
        is_group = int(group_of(share) == share)
        yield query("weigh_chains", ids=ids, share=share, weight=weight, is_group=is_group)
    tx.record("share.weighted", [share], actor=actor, weight=weight)


def add_shares(tx: Tx, shares: Sequence[str], actor: str) -> Script[None]:
    """Shares that nobody has weighed yet get the weight that all have."""
    for share in sorted(shares):
        if (yield query("add_share", share=share, actor=actor, now=tx.now)):
            tx.record("share.weighted", [share], actor=actor, weight=1.0)


def chains_of_pool(pool: str) -> Script[list[ChainState]]:
    """The active ones with the weights that count among them, the others with their own."""
    rows = yield query("chains_of_pool", pool=pool)
    active = entitled([chain_from(row) for row in rows if row["active"]])
    weights = {chain.id: chain.weight for chain in active}
    return [
        ChainState(
            share=row["share"],
            priority=row["priority"],
            tag=row["tag"],
            weight=weights[row["id"]] if row["active"] else row["weight"],
            is_active=bool(row["active"]),
        )
        for row in rows
    ]


def place_of(now: int, run: RunId) -> Script[Place | None]:
    """None: it does not wait."""
    rows = yield query("waiting_run", run=run)
    if not rows:
        return None
    [row] = rows
    pool = yield from _pool(row)
    own, chains = yield from _chains(row, pool)
    queued = pool.queued
    return Place(
        share=share_of(row["chain"]),
        shape=row["shape"],
        cost=cost_of(row["expected"], pool.share_of(row["shape"])),
        chain=own,
        chains=chains,
        in_chain=sum(each["older"] for each in queued if each["chain"] == row["chain"]),
        older=sum(each["older"] for each in queued),
        used=pool.used_by(share_of(row["chain"])),
        keys=from_json(row["keys"]) or {},
        blocked_on=row["blocked_on"] or "",
        before=(yield from _before(row)),
        reservation=(yield from _reservation(now, row["pool"])),
    )


@dataclass(frozen=True, slots=True)
class _Pool:
    chains: Rows
    queued: Rows
    going: Rows
    totals: Vector
    _shares: dict[str, float] = field(default_factory=dict)

    def share_of(self, shape: str) -> float:
        """The part of the pool that a run of this shape takes."""
        if shape not in self._shares:
            self._shares[shape] = dominant_share(demand_of(shape).resources, self.totals)
        return self._shares[shape]

    def used_by(self, share: str) -> float:
        mine = (row for row in self.going if share_of(row["chain"]) == share)
        return sum((row["runs"] * self.share_of(row["shape"]) for row in mine), 0.0)

    def costs(self) -> Mapping[str, tuple[int, float]]:
        """How many runs wait in each chain, and what all of them cost."""
        sums: dict[str, tuple[int, float]] = defaultdict(lambda: (0, 0.0))
        for row in self.queued:
            runs, cost = sums[row["chain"]]
            mean = cost_of(row["expected"] / row["runs"], self.share_of(row["shape"]))
            sums[row["chain"]] = runs + row["runs"], cost + row["runs"] * mean
        return sums


def _pool(row: Row) -> Script[_Pool]:
    chains = yield query("chains_of_pool", pool=row["pool"])
    active = [chain["id"] for chain in chains if chain["active"]]
    queued = (yield query("queued_in_chains", chains=active, seq=row["seq"])) if active else ()
    going = yield query("going_in_pool", pool=row["pool"])
    [state] = yield query("pool_state", pool=row["pool"])
    return _Pool(chains, queued, going, from_json(state["totals"]) or {})


def _chains(row: Row, pool: _Pool) -> Script[tuple[Chain, tuple[QueuedChain, ...]]]:
    """The chain of a run and the others with runs, with the weights that count among them."""
    active = [chain_from(each) for each in pool.chains if each["active"]]
    if row["chain"] not in {chain.id for chain in active}:
        active.append((yield from _starting(row, pool.chains, active)))
    costs = pool.costs()
    counting = entitled(active)
    [own] = [chain for chain in counting if chain.id == row["chain"]]
    others = [chain for chain in counting if chain is not own and chain.id in costs]
    return own, tuple(_queued(chain, *costs[chain.id]) for chain in others)


def _queued(chain: Chain, runs: int, cost: float) -> QueuedChain:
    return QueuedChain(chain, runs, cost / runs)


def _starting(row: Row, known: Iterable[Row], active: list[Chain]) -> Script[Chain]:
    """A chain without runs, as it would start again."""
    found = next((chain_from(each) for each in known if each["id"] == row["chain"]), None)
    if found is None:
        share = share_of(row["chain"])
        weights = {each["share"]: each["weight"] for each in (yield query("share_weights"))}
        group = group_of(share)
        own, together = weights.get(share, 1.0), weights.get(group, 1.0)
        found = Chain(row["chain"], row["priority"], 0.0, own, group, together)
    return replace(found, tag=activation_tag(found.tag, tags_of(active, found.priority)))


def _before(row: Row) -> Script[int]:
    if not row["blocked_on"]:
        return 0
    if row["keys"] is None:
        [found] = yield query("waiting_before", key=row["blocked_on"], seq=row["seq"])
    else:
        place, seq = rank_in(row)
        [found] = yield query(
            "key_waiting_before", key=row["blocked_on"], boost=BOOST, place=place, seq=seq
        )
    return int(found["runs"])


def _reservation(now: int, pool: str) -> Script[Reserved | None]:
    rows = yield query("kept_free", pool=pool, now=now)
    if not rows:
        return None
    [row] = rows
    return Reserved(RunId(row["id"]), row["worker"], instant(row["expires_at"]), row["project"])
