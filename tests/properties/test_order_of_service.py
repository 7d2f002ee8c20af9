"""Order of service: shares by weight, newcomers next, no hoarded credit, nobody waits for ever."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.domain.order import (
    OLDEST_EVERY,
    Chain,
    PoolTags,
    activation_tag,
    allot,
    cost_of,
    entitled,
    oldest_slots,
)

COST = 1.0
WEIGHTS = st.lists(st.sampled_from([0.5, 1.0, 2.0, 4.0]), min_size=2, max_size=6)


@dataclass
class Pool:
    """A pool in memory: chains with a backlog, served one slot at a time."""

    chains: dict[str, Chain] = field(default_factory=dict)
    waiting: Counter[str] = field(default_factory=Counter)
    served: Counter[str] = field(default_factory=Counter)

    def submit(self, name: str, count: int, *, priority: int = 5, weight: float = 1.0) -> None:
        if not self.waiting[name]:
            known = self.chains.get(name, Chain(name, priority, 0.0, weight))
            self.chains[name] = replace(known, tag=activation_tag(known.tag, self._tags(priority)))
        self.waiting[name] += count

    def _tags(self, priority: int) -> PoolTags:
        active = [chain for name, chain in self.chains.items() if self.waiting[name]]
        same = [chain.tag for chain in active if chain.priority == priority]
        return PoolTags(
            min(same, default=None),
            min((chain.tag for chain in active), default=None),
            max((chain.tag for chain in self.chains.values()), default=None),
        )

    def next(self) -> str:
        active = [chain for name, chain in self.chains.items() if self.waiting[name]]
        [(name, _)] = allot(active, 1, COST)
        return name

    def serve(self, name: str = "") -> str:
        name = name or self.next()
        chain = self.chains[name]
        self.chains[name] = replace(chain, tag=chain.tag + COST / chain.weight)
        self.waiting[name] -= 1
        self.served[name] += 1
        return name


@given(WEIGHTS)
def test_shares_converge_to_weights_under_backlog(weights: list[float]) -> None:
    pool = Pool()
    for number, weight in enumerate(weights):
        pool.submit(f"chain {number}", 10_000, weight=weight)

    for _ in range(1_000):
        pool.serve()

    for number, weight in enumerate(weights):
        expected = 1_000 * weight / sum(weights)
        assert pool.served[f"chain {number}"] == pytest.approx(expected, abs=weight + 1)


@given(WEIGHTS, st.integers(1, 400))
def test_one_claim_for_many_slots_shares_like_many_claims(weights: list[float], slots: int) -> None:
    pool = Pool()
    for number, weight in enumerate(weights):
        pool.submit(f"chain {number}", 10_000, weight=weight)
    at_once = dict(allot(list(pool.chains.values()), slots, COST))

    for _ in range(slots):
        pool.serve()

    assert at_once == dict(pool.served)


@given(st.integers(1, 500), st.integers(1, 5))
def test_a_newcomers_first_run_is_next(backlog: int, others: int) -> None:
    pool = Pool()
    for number in range(others):
        pool.submit(f"old {number}", backlog + 1)
    for _ in range(backlog):
        pool.serve()

    pool.submit("new", 1)

    # "Next" is up to a tie: each chain that stands level may go once before it.
    assert "new" in [pool.serve() for _ in range(others + 1)]


@given(st.integers(1, 300), st.integers(1, 300))
def test_credit_is_not_hoarded(worked: int, rounds: int) -> None:
    pool = Pool()
    pool.submit("busy", worked)
    for _ in range(worked):
        pool.serve()
    pool.submit("idle until now", 10_000)
    pool.submit("busy", 10_000)
    pool.served.clear()

    for _ in range(rounds):
        pool.serve()

    assert abs(pool.served["busy"] - pool.served["idle until now"]) <= 1


@given(st.integers(1, 2_000))
def test_an_old_pool_gives_no_more_head_start_than_a_new_one(age: int) -> None:
    pool = Pool()
    pool.submit("low", age + 10_000, priority=5)
    for _ in range(age):
        pool.serve()

    pool.submit("high", 10_000, priority=6)
    first_low = next(turn for turn in range(100) if pool.serve() == "low")

    assert 25 <= first_low <= 35  # one step of priority: 30 pool-seconds


@given(st.lists(st.integers(1, 70), min_size=1, max_size=60), st.integers(0, 15))
def test_the_oldest_run_waits_for_sixteen_slots_for_each_one_older(
    claims: list[int], older: int
) -> None:
    served = taken = 0
    for slots in claims:
        taken += oldest_slots(served, slots)
        served += slots

    assert (taken > older) == (served >= OLDEST_EVERY * (older + 1))


USERS = st.lists(st.sampled_from([0.5, 1.0, 2.0, 4.0]), min_size=1, max_size=4)  # their weights
SIZES = st.lists(st.tuples(st.floats(0.1, 10), st.floats(0.01, 0.5)), min_size=1, max_size=8)


@given(st.lists(st.tuples(st.sampled_from([1.0, 2.0]), USERS), min_size=1, max_size=3), SIZES)
def test_resource_time_is_shared_by_weight_of_projects_and_then_of_their_users(
    projects: list[tuple[float, list[float]]], sizes: list[tuple[float, float]]
) -> None:
    lines = [
        Chain(f"p{p}/u{u}", 5, 0.0, weight, f"p{p}", of_project)
        for p, (of_project, users) in enumerate(projects)
        for u, weight in enumerate(users)
    ]
    chains = {chain.id: chain for chain in entitled(lines)}
    used: defaultdict[str, float] = defaultdict(float)
    turns: Counter[str] = Counter()

    for _ in range(2_000):
        [(name, _)] = allot(list(chains.values()), 1, COST)
        seconds, part = sizes[turns[name] % len(sizes)]  # mixed, as those of everybody
        cost = cost_of(seconds, part)
        chain = chains[name]
        chains[name] = replace(chain, tag=chain.tag + cost / chain.weight)
        used[name] += cost
        turns[name] += 1

    everything, weights = sum(used.values()), sum(of_project for of_project, _ in projects)
    for line in lines:
        users = sum(each.weight for each in lines if each.group == line.group)
        expected = line.group_weight / weights * line.weight / users
        assert used[line.id] / everything == pytest.approx(expected, abs=0.03)


ARRIVALS = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 3)), min_size=1, max_size=8)


@given(st.integers(0, 4), ARRIVALS)
def test_a_run_waits_no_longer_than_stated_whatever_comes_meanwhile(
    older: int, arriving: list[tuple[int, int]]
) -> None:
    pool = Pool()
    lines: dict[str, list[int]] = {"0": list(range(older + 1))}  # ours is the last of them
    pool.submit("0", older + 1, priority=0)
    coming = itertools.count(older + 1)

    for served, (priority, count) in zip(
        range(OLDEST_EVERY * (older + 1)), itertools.cycle(arriving), strict=False
    ):
        pool.submit(str(priority), count, priority=priority)
        lines.setdefault(str(priority), []).extend(itertools.islice(coming, count))
        waiting = {name: runs for name, runs in lines.items() if runs}
        if not waiting:
            break
        oldest = min(waiting, key=lambda name: waiting[name][0])
        name = pool.serve(oldest if oldest_slots(served, 1) else "")
        lines[name].pop(0)

    assert older not in lines["0"]
