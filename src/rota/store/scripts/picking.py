"""Which queued runs a worker gets, in order of service."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from rota.domain.order import DEFAULT_EXPECTED_SECONDS, Chain, allot, cost_of, oldest_slots
from rota.domain.resources import ONE_SLOT, Vector, dominant_share
from rota.domain.shape import demand_of
from rota.store.script import Row, Rows, Script, query
from rota.store.scripts.memory import Look
from rota.store.tx import Tx

Picked: TypeAlias = dict[int, Row]  # runs by sequence number, in the order that they were picked


@dataclass(frozen=True, slots=True)
class Queue:
    """The runs of a pool, from the view of a worker with free slots."""

    pool: str
    slots: int  # that may be filled
    served: int  # by the pool so far
    chains: Sequence[Chain]  # with the weights that count among them
    shapes: Sequence[str]  # what could ever fit the worker
    totals: Vector  # what all workers of the pool offer
    look: Look
    named: Sequence[str] = ()  # runs that a ticket named
    _shares: dict[str, float] = field(default_factory=dict)  # of the pool, by shape

    def by_rate(self, picked: Picked) -> Mapping[float, Sequence[int]]:
        """These runs by what a second of them costs their line."""
        weights = {chain.id: chain.weight for chain in self.chains}
        found: defaultdict[float, list[int]] = defaultdict(list)
        for seq, row in picked.items():
            found[self.share_of(row["shape"]) / weights.get(row["chain"], 1.0)].append(seq)
        return found

    @property
    def slot_cost(self) -> float:
        """What a run costs that asks for nothing but a slot, if nobody knows how long it takes."""
        return cost_of(DEFAULT_EXPECTED_SECONDS, dominant_share(ONE_SLOT, self.totals))

    def share_of(self, shape: str) -> float:
        """The part of the pool that a run of this shape takes."""
        if shape not in self._shares:
            self._shares[shape] = dominant_share(demand_of(shape).resources, self.totals)
        return self._shares[shape]


def pick(tx: Tx, queue: Queue) -> Script[Picked]:
    """Runs that ask for nothing but a slot: every 16th the oldest, those named, then by line."""
    picked = by_seq((yield from oldest_runs(queue, queue.shapes)))
    picked |= by_seq((yield from named_runs(queue, queue.slots - len(picked))))
    chains = list(queue.chains)
    while chains and len(picked) < queue.slots:
        before = len(picked)
        exhausted = set()
        for chain, share in allot(chains, queue.slots - before, queue.slot_cost):
            first, limit = queue.look.firsts[chain], share + before
            found = yield query(
                "chain_heads", chain=chain, first=first, shapes=queue.shapes, limit=limit
            )
            fresh = [row for row in found if row["seq"] not in picked][:share]
            picked |= by_seq(fresh)
            if len(fresh) < share:
                exhausted.add(chain)
        tx.effects.lines.leave(exhausted & queue.look.whole)
        chains = [chain for chain in chains if chain.id not in exhausted]
    return picked


def by_seq(rows: Rows) -> Picked:
    return {row["seq"]: row for row in rows}


def named_runs(queue: Queue, limit: int) -> Script[Rows]:
    """The runs that a ticket named, as far as they can be had."""
    if not queue.named or not limit:
        return ()
    return (
        yield query(
            "named_runs", ids=queue.named, pool=queue.pool, shapes=queue.shapes, limit=limit
        )
    )


def oldest_runs(queue: Queue, shapes: Sequence[str]) -> Script[Rows]:
    """The oldest runs of these shapes, as many as have a slot of their own: see `domain.order`."""
    limit = oldest_slots(queue.served, queue.slots)
    has_that_order = len(queue.chains) == 1 and not queue.named
    if not limit or has_that_order:
        return ()
    lines = queue.look.as_json()
    return (yield query("oldest_runs", lines=lines, shapes=shapes, limit=limit))
