"""Whoever needs several keys gets its turn, however many others want one of them."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.domain.key_gates import rank_of
from rota.domain.keys import SECOND, Counted, KeyRule, Rate
from rota.domain.simulation import SimRun, World
from tests.properties.simulated import Ledger, worker

LONGEST = 8.0  # seconds for which a run has its keys, or a bucket takes to fill up
LOCKS = ("resource:p/a", "resource:p/b", "resource:p/c")
RULES: dict[str, KeyRule] = {
    **dict.fromkeys(LOCKS, Counted(1)),
    "resource:p/licence": Counted(3),
    "rate:p/mail": Rate(1, 2.0, 4),
}


def rank(run: SimRun) -> tuple[int, int]:
    return rank_of(run.priority, round(run.arrives_at * SECOND), int(run.id))


def served(runs: list[SimRun]) -> dict[str, float]:
    """When each run starts, where only keys are short."""
    workers = [worker(slots=len(runs))]
    ledger = Ledger(workers, RULES)
    World(workers, RULES).simulate(runs, inf, ledger)
    return {start.run.id: start.at for start in ledger.starts}


def late(runs: list[SimRun], starts: dict[str, float]) -> Iterator[SimRun]:
    """Those that wait for longer than they have keys and once more, times the longest.

    That counts from when the last of those has started that go before them.
    """
    ranked = sorted(runs, key=rank)
    for place, run in enumerate(ranked):
        start = starts[run.id]
        before = [starts[each.id] for each in ranked[:place] if each.arrives_at <= start]
        bound = max([run.arrives_at, *before]) + (len(run.demands) + 1) * LONGEST
        if start > bound + 1e-3:
            yield run


@pytest.mark.parametrize("keys", [1, 2, 3])
@pytest.mark.parametrize("seed", range(4))
def test_a_run_of_some_keys_gets_its_turn_among_endless_runs_of_one(seed: int, keys: int) -> None:
    random = Random(seed)
    each_second = [(float(at), lock) for at in range(200) for lock in LOCKS]
    ones = [
        SimRun(f"{number}", "one", at, random.uniform(1.5, LONGEST), demands={lock: 1})
        for number, (at, lock) in enumerate(each_second)
    ]
    few = SimRun("600", "few", 0.5, 1.0, demands=dict.fromkeys(LOCKS[:keys], 1))

    runs = [*ones[: len(LOCKS)], few, *ones[len(LOCKS) :]]
    starts = served(runs)

    assert starts["600"] <= 0.5 + (keys + 1) * LONGEST
    assert len(starts) == len(runs)


def crowd(random: Random) -> list[SimRun]:
    """Runs that come faster than they can be served, most of which want one key of a few."""
    keys, at, made = random.sample(sorted(RULES), 3), 0.0, []
    for number in range(120):
        at += random.uniform(0.0, 1.5)
        wanted = random.sample(keys, random.choice([1, 1, 1, 1, 2, 3]))
        demands = {key: 1 if key in LOCKS else random.randint(1, 3) for key in wanted}
        seconds, priority = random.uniform(0.3, LONGEST), random.choice([5, 5, 5, 6])
        made.append(SimRun(f"{number}", "job", at, seconds, priority=priority, demands=demands))
    return made


@given(st.integers(0, 2**32))
def test_everybody_goes_within_the_bound_after_those_before_it(seed: int) -> None:
    runs = crowd(Random(seed))

    starts = served(runs)

    assert len(starts) == len(runs)
    assert not list(late(runs, starts))
