"""Builders for simulated worlds, and an observer that checks them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from rota.domain.keys import Counted, Key, KeyRule
from rota.domain.order import (
    Chain,
    PoolTags,
    activation_tag,
    allot,
    cost_of,
    entitled,
    group_of,
    oldest_slots,
)
from rota.domain.resources import SLOTS, UNIT, Vector, plus
from rota.domain.shape import demand_of, unmet
from rota.domain.simulation import Observer, SimRun, SimWorker, Start

EXPECTED, ACTUAL = 7.0, 20.0  # seconds of the runs in a `OneSlot`


def worker(name: str = "w", *, slots: int = 4, **amounts: int) -> SimWorker:
    capacity = {each: amount * UNIT for each, amount in amounts.items()}
    return SimWorker(name, "default", {**capacity, SLOTS: slots * UNIT})


def shape(**amounts: float) -> str:
    return json.dumps({"resources": {name: int(each * UNIT) for name, each in amounts.items()}})


class Ledger(Observer):
    """Keeps starts and ends, and sees to it that nobody ever has more than there is."""

    def __init__(
        self, workers: Iterable[SimWorker], rules: Mapping[Key, KeyRule] | None = None
    ) -> None:
        self._workers = {each.name: each for each in workers}
        self._rules = rules or {}
        self._used: dict[str, Vector] = {}
        self._held: Counter[str] = Counter()
        self.starts: list[Start] = []
        self.ends: dict[str, float] = {}
        self.eligible: dict[str, float] = {}

    def on_blocked(self, run: SimRun, key: Key, at: float, eligible_at: float | None) -> None:
        if eligible_at is not None:
            self.eligible.setdefault(run.id, eligible_at)

    def on_start(self, run: SimRun, worker: str, at: float) -> None:
        assert at >= run.arrives_at
        self.starts.append(Start(run, worker, at))
        self._change(run, worker, 1)
        place = self._workers[worker]
        assert not unmet(run.shape, place.labels, place.functions)
        assert all(place.capacity[name] >= it for name, it in self._used[worker].items())
        for key, rule in self._rules.items():
            assert not isinstance(rule, Counted) or self._held[key] <= rule.total
        assert run.limit is None or self._held[run.group] <= run.limit

    def on_end(self, run: SimRun, worker: str, at: float) -> None:
        self.ends[run.id] = at
        self._change(run, worker, -1)

    def _change(self, run: SimRun, worker: str, sign: int) -> None:
        taken = demand_of(run.shape).on(self._workers[worker].capacity)
        demand = {name: sign * amount for name, amount in taken.items()}
        self._used[worker] = plus(self._used.get(worker, {}), demand)
        self._held[run.group] += sign
        for key, amount in run.demands.items():
            self._held[key] += sign * amount

    def place_of(self, run: str) -> int:
        """How many started before it."""
        return [start.run.id for start in self.starts].index(run)

    def start_of(self, run: str) -> float:
        return self.starts[self.place_of(run)].at


@dataclass
class OneSlot:
    """One slot, filled again and again by the functions that the scheduler calls."""

    weights: Mapping[str, float]
    chains: dict[str, Chain] = field(default_factory=dict)
    waiting: dict[str, list[SimRun]] = field(default_factory=dict)
    served: list[str] = field(default_factory=list)

    def serve_all(self, runs: list[SimRun]) -> list[str]:
        """The ids in order, if the first run starts at once and the others wait for it."""
        self._enter(runs[0])
        charged = self._serve()
        for run in runs[1:]:
            self._enter(run)
        while any(self.waiting.values()):
            name, rate = charged
            self._charge(name, cost_of(ACTUAL, rate) - cost_of(EXPECTED, rate))
            charged = self._serve()
        return self.served

    def _enter(self, run: SimRun) -> None:
        name = f"{run.priority}/{run.share}"
        if not self.waiting.get(name):
            known = self.chains.get(name) or self._new_chain(name, run)
            tags = self._tags(run.priority)
            self.chains[name] = replace(known, tag=activation_tag(known.tag, tags))
        self.waiting.setdefault(name, []).append(run)

    def _new_chain(self, name: str, run: SimRun) -> Chain:
        group = group_of(run.share)
        weight, group_weight = self.weights.get(run.share, 1.0), self.weights.get(group, 1.0)
        return Chain(name, run.priority, 0.0, weight, group, group_weight)

    def _tags(self, priority: int) -> PoolTags:
        active = self._active()
        return PoolTags(
            min((each.tag for each in active if each.priority == priority), default=None),
            min((each.tag for each in active), default=None),
            max((each.tag for each in self.chains.values()), default=None),
        )

    def _active(self) -> list[Chain]:
        return [chain for name, chain in self.chains.items() if self.waiting.get(name)]

    def _serve(self) -> tuple[str, float]:
        """The chain whose run it was, and what it is charged a second."""
        active = entitled(self._active())
        name = allot(active, 1, 1.0)[0][0]
        if len(active) > 1 and oldest_slots(len(self.served), 1):
            name = min((each.id for each in active), key=lambda name: int(self.waiting[name][0].id))
        self.served.append(self.waiting[name].pop(0).id)
        rate = 1 / next(each.weight for each in active if each.id == name)
        self._charge(name, cost_of(EXPECTED, rate))
        return name, rate

    def _charge(self, name: str, cost: float) -> None:
        chain = self.chains[name]
        self.chains[name] = replace(chain, tag=chain.tag + cost)
