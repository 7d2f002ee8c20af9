"""The order of service: start-time fair queueing between share keys, priority as a head start.

Not runs but *chains* are ordered: (pool, priority, share key) with a virtual finish tag F; inside
a chain runs go by age. A chain's place is F − priority × boost; claiming a run moves F on by
cost / weight, so that a key with much work in flight falls back by itself.

Nobody waits for ever: every 16th slot that a pool fills goes to the oldest queued run that fits
there. With n runs older than itself, a run that fits the pool's workers is claimed with one of the
next 16 × (n + 1), whatever its priority and its share, and whatever comes meanwhile.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import repeat

BOOST_SECONDS = 30.0  # head start of one step of priority, in pool-seconds
DEFAULT_EXPECTED_SECONDS = 1.0
LEAST_CHARGED_SECONDS = 0.001  # handing a run out costs something too, however short it is
OLDEST_EVERY = 16  # every 16th slot goes to the oldest queued run: the bound on waiting


@dataclass(frozen=True, slots=True)
class Chain:
    """Chain of queued runs with the same pool, priority and share."""

    id: str  # see `chain_id`
    priority: int
    tag: float  # F, the virtual finish time, in pool-seconds
    weight: float = 1.0
    group: str = ""  # the share that it divides with other chains, as users do a project's
    group_weight: float = 1.0

    @property
    def place(self) -> float:
        """Rank among chains; the lowest is served first."""
        return self.tag - self.priority * BOOST_SECONDS


def share_key(project: str, user: str, share: str = "") -> str:
    """Return the share of a run: the named one, else that of the user inside the project."""
    return share or f"{project}/{user}"


def chain_id(pool: str, priority: int, share: str) -> str:
    """Return the id of a chain."""
    return f"{pool}/{priority}/{share}"


def share_of(chain: str) -> str:
    """Return the share in the id of a chain."""
    return chain.split("/", 2)[2]


def group_of(share: str) -> str:
    """Return the group of a share: its project's, else its own."""
    return share.split("/", 1)[0]


def entitled(chains: Sequence[Chain]) -> list[Chain]:
    """Return the chains with the weights that count among them.

    Chains of one group and priority divide the weight of the group by their own.
    """
    sums: dict[tuple[int, str], float] = {}
    for chain in chains:
        key = chain.priority, chain.group or chain.id
        sums[key] = sums.get(key, 0.0) + chain.weight
    weights = [
        chain.group_weight * chain.weight / sums[chain.priority, chain.group or chain.id]
        for chain in chains
    ]
    return [
        chain if chain.weight == weight else replace(chain, weight=weight)
        for chain, weight in zip(chains, weights, strict=True)
    ]


def allot(chains: Sequence[Chain], slots: int, cost: float) -> list[tuple[str, int]]:
    """Return how many runs each chain may give for `slots` free places, as (chain id, runs).

    Chains are served one run at a time, each moving its chain back by `cost` / weight. The list
    is in order of first service and leaves out chains that get nothing.
    """
    heap = [(chain.place, chain.id, cost / chain.weight) for chain in chains]
    heapq.heapify(heap)
    shares: dict[str, int] = {}
    if len(heap) == 1:
        return [(heap[0][1], slots)] if slots else []
    for _ in range(slots if heap else 0):
        place, chain, step = heap[0]
        shares[chain] = shares.get(chain, 0) + 1
        heapq.heapreplace(heap, (place + step, chain, step))
    return list(shares.items())


def oldest_slots(served: int, slots: int) -> int:
    """Return how many of the next `slots` go to the oldest run, after `served` so far."""
    return (served + slots) // OLDEST_EVERY - served // OLDEST_EVERY


@dataclass(frozen=True, slots=True)
class PoolTags:
    """Tags of the chains of a pool. None: there are no such chains."""

    least_of_priority: float | None  # of the active chains of one priority
    least: float | None  # of all active chains
    greatest: float | None  # of all chains, resting ones too


def activation_tag(tag: float, others: PoolTags) -> float:
    """Return F of a chain that becomes active: no credit is hoarded while it had nothing to run.

    V is the least F of the active chains of its priority, else of the pool; in a pool at rest it
    is the greatest F, so that whoever comes next starts level with the most served.
    """
    for floor in (others.least_of_priority, others.least, others.greatest):
        if floor is not None:
            return max(tag, floor)
    return tag


def cost_of(seconds: float, capacity: float) -> float:
    """Return the cost of a run of this length that takes a fraction of the pool's capacity."""
    return max(seconds, LEAST_CHARGED_SECONDS) * capacity


def cost_of_all(seconds: Iterable[float], capacity: float) -> float:
    """Return the cost of runs of these lengths, each of which takes that fraction."""
    return sum(map(max, seconds, repeat(LEAST_CHARGED_SECONDS))) * capacity


@dataclass(frozen=True, slots=True)
class QueuedChain:
    """Chain and the number of runs that wait in it."""

    chain: Chain
    queued: int
    cost: float  # of one of its runs, in pool-seconds: the mean


def turns_before(
    own: Chain, in_chain: int, cost: float, others: Iterable[QueuedChain]
) -> dict[str, int]:
    """Return how many runs of each chain are served before one that has `in_chain` runs before it.

    Chains are served as `order.allot` does it, their weights being those that count. A slot that
    goes to the oldest run comes on top.
    """
    place = own.place + in_chain * cost / own.weight
    before = {own.id: in_chain}
    for other in others:
        step = other.cost / other.chain.weight
        turns = (place - other.chain.place) / step
        # Of two chains at the same place the one with the lower id is served.
        served = math.floor(turns) + 1 if other.chain.id < own.id else math.ceil(turns)
        before[other.chain.id] = min(max(served, 0), other.queued)
    return before


def tags_of(chains: Sequence[Chain], priority: int) -> PoolTags:
    """Return how far these active chains have got."""
    tags = [chain.tag for chain in chains]
    same = [chain.tag for chain in chains if chain.priority == priority]
    return PoolTags(min(same, default=None), min(tags, default=None), max(tags, default=None))


def latest_turn(older: int) -> int:
    """Return by which of the pool's next slots a run goes at the latest, if it fits."""
    return OLDEST_EVERY * (older + 1)
