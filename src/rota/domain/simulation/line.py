"""A run in the world, and the line that it waits in."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from math import inf

from rota.domain.order import DEFAULT_EXPECTED_SECONDS, Chain
from rota.domain.shape import Demand
from rota.domain.shared_keys import Key
from rota.domain.simulation.model import SimRun


@dataclass(frozen=True, slots=True, eq=False)
class Sort:
    """Runs that are alike for every worker: of one shape and timeout."""

    shape: str
    demand: Demand
    timeout: float  # infinity: none
    pool_share: float  # the fraction of the pool that one of them is charged for


@dataclass(slots=True, eq=False)
class Entry:
    """A run in the world."""

    run: SimRun
    seq: int
    sort: Sort
    line: Line
    keys: Mapping[Key, int]  # what it takes of shared ones, in the order of the gates
    promised_until: float = -inf  # so long it keeps others from its keys while it is in the queue
    is_served: bool = False
    started_at: float = 0.0
    rate: float = 0.0  # what its line was charged for each second of it

    @property
    def expected(self) -> float:
        known = self.run.expected
        return DEFAULT_EXPECTED_SECONDS if known is None else known


@dataclass(slots=True, eq=False)
class Line:
    """A chain with the runs that wait in it, by sort and age."""

    chain: Chain  # as it began
    tag: float = 0.0
    waiting: dict[Sort, deque[Entry]] = field(default_factory=dict)  # no empty ones

    @property
    def place(self) -> float:
        """The lowest is served first."""
        return self.chain.place + self.tag

    def head(self, sorts: Collection[Sort]) -> Entry:
        """The oldest run of these sorts; there must be one."""
        heads = (runs[0] for sort, runs in self.waiting.items() if sort in sorts)
        return min(heads, key=_age)


def _age(entry: Entry) -> int:
    return entry.seq
