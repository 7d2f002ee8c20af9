"""Whose turn it is before a run's own, in the order of service."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rota.domain.order import OLDEST_EVERY, Chain, PoolTags


@dataclass(frozen=True, slots=True)
class QueuedLine:
    """A line and the runs that wait in it."""

    chain: Chain
    queued: int
    cost: float  # of one of its runs, in pool-seconds: the mean


def turns_before(
    own: Chain, in_line: int, cost: float, others: Iterable[QueuedLine]
) -> dict[str, int]:
    """How many runs of each line are served before one with `in_line` runs before it in its own.

    Lines are served as `order.allot` does it, their weights being those that count. A slot that
    goes to the oldest run comes on top.
    """
    place = own.place + in_line * cost / own.weight
    before = {own.id: in_line}
    for line in others:
        step = line.cost / line.chain.weight
        turns = (place - line.chain.place) / step
        # Of two lines at the same place the one with the lower id is served.
        served = math.floor(turns) + 1 if line.chain.id < own.id else math.ceil(turns)
        before[line.chain.id] = min(max(served, 0), line.queued)
    return before


def tags_of(chains: Sequence[Chain], priority: int) -> PoolTags:
    """How far these active lines have got."""
    tags = [chain.tag for chain in chains]
    same = [chain.tag for chain in chains if chain.priority == priority]
    return PoolTags(min(same, default=None), min(tags, default=None), max(tags, default=None))


def latest_turn(older: int) -> int:
    """With which of the next slots that the pool fills a run goes at the latest, if it fits."""
    return OLDEST_EVERY * (older + 1)
