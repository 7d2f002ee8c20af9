"""Chains of one pool in a simulation: which waiting run is served next.

The decisions are those of `rota.domain.order`, which ranks all chains anew for every claim. A
simulation may serve years of runs, so here ranks are kept from one claim to the next, in
heaps whose outdated members are dropped when they come up. Runs that are alike for every worker (a
`Sort`) are kept together, so that a claim looks at sorts and not at runs.
"""

from __future__ import annotations

import heapq
from bisect import bisect
from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import inf
from operator import attrgetter

from rota.domain.keys import Key
from rota.domain.order import (
    DEFAULT_EXPECTED_SECONDS,
    Chain,
    PoolTags,
    activation_tag,
    cost_of,
    entitled,
    group_of,
    oldest_slots,
)
from rota.domain.shape import Demand
from rota.domain.simulation.model import SimRun


@dataclass(frozen=True, slots=True, eq=False)
class Sort:
    """Group of runs that are alike for every worker: of one shape and timeout."""

    shape: str
    demand: Demand
    timeout: float  # infinity: none
    pool_share: float  # the fraction of the pool that one of them is charged for


@dataclass(slots=True, eq=False)
class Entry:
    """Run in the world."""

    run: SimRun
    seq: int
    sort: Sort
    ranked: RankedChain
    keys: Mapping[Key, int]  # what it takes of shared ones, in the order of the gates
    promised_until: float = -inf  # so long it keeps others from its keys while it is in the queue
    is_served: bool = False
    is_queued: bool = False  # it passed its gates, and waits in its chain
    started_at: float = 0.0
    rate: float = 0.0  # what its chain was charged for each second of it

    @property
    def expected(self) -> float:
        known = self.run.expected
        return DEFAULT_EXPECTED_SECONDS if known is None else known


@dataclass(slots=True, eq=False)
class RankedChain:
    """Chain with the runs that wait in it, by sort and age."""

    chain: Chain  # as it began
    tag: float = 0.0
    waiting: dict[Sort, deque[Entry]] = field(default_factory=dict)  # no empty ones

    @property
    def place(self) -> float:
        """Rank among chains; the lowest is served first."""
        return self.chain.place + self.tag

    def head(self, sorts: Collection[Sort]) -> Entry:
        """Return the oldest run of these sorts; there must be one."""
        heads = (runs[0] for sort, runs in self.waiting.items() if sort in sorts)
        return min(heads, key=_age)


def _age(entry: Entry) -> int:
    return entry.seq


_NOTHING = 1e-9  # of a weight, but for rounding


@dataclass(slots=True)
class _Crowd:
    """Waiting runs of a sort, whatever their chain."""

    by_age: deque[Entry] = field(default_factory=deque)  # those served linger, but the first
    by_rank: list[tuple[float, str]] = field(default_factory=list)  # place and name of chains


class RankedChains:
    """Chains of a pool."""

    def __init__(self, weights: Mapping[str, float]) -> None:
        self._weights = weights
        self._chains: dict[str, RankedChain] = {}
        self._active: dict[str, RankedChain] = {}
        self._crowds: dict[Sort, _Crowd] = {}  # no empty ones
        self._by_tag: dict[int, list[tuple[float, str]]] = {}  # names of chains, of each priority
        self._group_weights: dict[tuple[int, str], float] = {}  # sums over active chains
        self._greatest: float | None = None  # tag of all chains; None: to be looked for
        self._served = 0

    @property
    def waiting(self) -> Collection[Sort]:
        """Sorts of which runs wait."""
        return self._crowds.keys()

    def chain_of(self, priority: int, share: str) -> RankedChain:
        name = f"{priority}/{share}"
        ranked = self._chains.get(name)
        if ranked is None:
            group = group_of(share)
            weight, group_weight = self._weights.get(share, 1.0), self._weights.get(group, 1.0)
            ranked = RankedChain(Chain(name, priority, 0.0, weight, group, group_weight))
            self._chains[name] = ranked
        return ranked

    def enter(self, entry: Entry) -> None:
        """Add a waiting run."""
        ranked, sort = entry.ranked, entry.sort
        crowd = self._crowds.get(sort)
        if crowd is None:
            crowd = self._crowds[sort] = _Crowd()
        _insert(entry, crowd.by_age)
        if not ranked.waiting:
            self._activate(ranked)
        queue = ranked.waiting.get(sort)
        if queue is None:
            queue = ranked.waiting[sort] = deque()
            heapq.heappush(crowd.by_rank, (ranked.place, ranked.chain.id))
        _insert(entry, queue)

    def next(self, sorts: Collection[Sort]) -> Entry | None:
        """Return the run that is served next, among the waiting runs of these sorts."""
        crowds = [(sort, self._crowds[sort]) for sort in sorts if sort in self._crowds]
        if not crowds:
            return None
        if len(self._active) > 1 and oldest_slots(self._served, 1):
            return min((crowd.by_age[0] for _, crowd in crowds), key=lambda entry: entry.seq)
        _, name = min(self._first(sort, crowd) for sort, crowd in crowds)
        return self._chains[name].head(sorts)

    def take(self, entry: Entry) -> None:
        """Serve a run and charge its chain."""
        entry.rate = entry.sort.pool_share / self._entitled(entry.ranked.chain)
        self._served += 1
        self.leave(entry)
        self._charge(entry.ranked, cost_of(entry.expected, entry.rate))

    def leave(self, entry: Entry) -> None:
        """Remove a waiting run."""
        ranked, sort = entry.ranked, entry.sort
        entry.is_served = True
        self._leave_crowd(sort)
        queue = ranked.waiting[sort]
        queue.remove(entry)  # the first, but where an older one has come since
        if not queue:
            del ranked.waiting[sort]
        if not ranked.waiting:
            self._rest(ranked)

    def correct(self, entry: Entry) -> None:
        """Correct the charge of a run, which was an estimate, to what it took."""
        charged = cost_of(entry.expected, entry.rate)
        actual = cost_of(entry.run.seconds, entry.rate)
        if actual != charged:
            self._charge(entry.ranked, actual - charged)

    def _leave_crowd(self, sort: Sort) -> None:
        by_age = self._crowds[sort].by_age
        while by_age and by_age[0].is_served:
            by_age.popleft()
        if not by_age:
            del self._crowds[sort]

    def _charge(self, ranked: RankedChain, cost: float) -> None:
        before = ranked.tag
        ranked.tag += cost
        if self._greatest is not None:
            if ranked.tag >= self._greatest:
                self._greatest = ranked.tag
            elif before == self._greatest:
                self._greatest = None
        if ranked.waiting:
            self._rank(ranked)

    def _rank(self, ranked: RankedChain) -> None:
        name, place = ranked.chain.id, ranked.place
        heapq.heappush(self._by_tag.setdefault(ranked.chain.priority, []), (ranked.tag, name))
        for sort in ranked.waiting:
            heapq.heappush(self._crowds[sort].by_rank, (place, name))

    def _first(self, sort: Sort, crowd: _Crowd) -> tuple[float, str]:
        """Return the best-ranked chain that has such runs."""
        ranks = crowd.by_rank
        while True:
            place, name = ranks[0]
            ranked = self._chains[name]
            if sort in ranked.waiting and ranked.place == place:
                return ranks[0]
            heapq.heappop(ranks)

    def _activate(self, ranked: RankedChain) -> None:
        chain = ranked.chain
        ranked.tag = activation_tag(ranked.tag, self._tags(chain.priority))
        self._active[chain.id] = ranked
        key = chain.priority, chain.group
        self._group_weights[key] = self._group_weights.get(key, 0.0) + chain.weight
        self._rank(ranked)

    def _rest(self, ranked: RankedChain) -> None:
        chain = ranked.chain
        del self._active[chain.id]
        self._group_weights[chain.priority, chain.group] -= chain.weight
        if not self._active:
            self._group_weights.clear()
            self._by_tag.clear()

    def _entitled(self, chain: Chain) -> float:
        """Return its weight among the active chains."""
        others = self._group_weights[chain.priority, chain.group] - chain.weight
        return _entitled_beside(chain.weight, chain.group_weight, others)

    def _tags(self, priority: int) -> PoolTags:
        if not self._active:
            return PoolTags(None, None, self._greatest_tag())
        leasts = {each: self._least_tag(each) for each in self._by_tag}
        least = min(tag for tag in leasts.values() if tag is not None)
        return PoolTags(leasts.get(priority), least, None)

    def _least_tag(self, priority: int) -> float | None:
        heap = self._by_tag[priority]
        while heap:
            tag, name = heap[0]
            ranked = self._active.get(name)
            if ranked is not None and ranked.tag == tag:
                return tag
            heapq.heappop(heap)
        return None

    def _greatest_tag(self) -> float:
        if self._greatest is None:
            self._greatest = max(ranked.tag for ranked in self._chains.values())
        return self._greatest


def _insert(entry: Entry, by_age: deque[Entry]) -> None:
    """Insert at the end, unless the run waited for a key while younger ones were queued."""
    if not by_age or by_age[-1].seq < entry.seq:
        by_age.append(entry)
    elif entry.seq < by_age[0].seq:
        by_age.appendleft(entry)
    else:
        by_age.insert(bisect(by_age, entry.seq, key=attrgetter("seq")), entry)


@lru_cache(maxsize=10_000)
def _entitled_beside(weight: float, group_weight: float, others: float) -> float:
    """Return the weight that counts of a chain beside others of its group, taken as one."""
    chain = Chain("", 0, 0.0, weight, "group", group_weight)
    rest = [replace(chain, weight=others)] if others > _NOTHING else []
    return entitled([chain, *rest])[0].weight
