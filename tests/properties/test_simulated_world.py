"""Who goes first, shown in the simulated world over many seeds: shares, priority, room, limits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import count, islice
from math import ceil, inf
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rota.domain.keys import Counted, KeyRule, Rate
from rota.domain.order import BOOST_SECONDS, OLDEST_EVERY
from rota.domain.resources import UNIT
from rota.domain.shape import alone, demand_of
from rota.domain.simulation import SimRun, World
from tests.properties.simulated import ACTUAL, EXPECTED, Ledger, OneSlot, shape, worker

SEEDS = range(16)
SIZES = (0.5, 1, 2, 4)  # cpus
LENGTHS = {"p/a": (5, 35), "p/b": (10, 60), "p/c": (1, 30)}  # seconds, by user


def backlog(share: str, runs: int, *, seconds: float = 10.0, at: float = 0.0) -> list[SimRun]:
    return [
        SimRun(f"{share}-{number}", share, at, seconds, share=share, expected=seconds)
        for number in range(runs)
    ]


def endless(random: Random, cpus: int, until: float) -> list[SimRun]:
    """More work of every size for every user than the workers can do in that time."""
    runs: list[SimRun] = []
    for user, (least, most) in LENGTHS.items():
        for size in SIZES:
            number = int(cpus * until * 0.6 / (size * (least + most) / 2))
            for _ in range(number):
                seconds = random.uniform(least, most)
                run = SimRun(f"{len(runs)}", user, 0.0, seconds, share=user, expected=10.0)
                runs.append(replace(run, shape=shape(cpu=size)))
    random.shuffle(runs)
    return runs


@pytest.mark.parametrize("seed", SEEDS)
def test_endless_work_is_divided_by_weight(seed: int) -> None:
    until, workers = 2_000.0, [worker(f"w{n}", slots=16, cpu=8) for n in range(4)]
    ledger = Ledger(workers)

    runs = endless(Random(seed), 32, until)
    World(workers, weights={"p/c": 2.0}).simulate(runs, until, ledger)

    got: Counter[str] = Counter()
    for start in ledger.starts:
        cpu = demand_of(start.run.shape).resources["cpu"]
        got[start.run.share] += round(cpu * min(start.run.seconds, until - start.at))
    parts = {share: amount / got.total() for share, amount in got.items()}
    assert parts == {
        "p/a": pytest.approx(0.25, rel=0.03),
        "p/b": pytest.approx(0.25, rel=0.03),
        "p/c": pytest.approx(0.50, rel=0.03),
    }
    assert got.total() > 0.95 * 32 * UNIT * until


@pytest.mark.parametrize("seed", SEEDS)
def test_a_newcomers_first_run_starts_next(seed: int) -> None:
    random, workers = Random(seed), [worker()]
    runs = endless(random, 4, 500.0)
    newcomer = SimRun("new", "new", 200.0, 1.0, share="p/new")
    ledger = Ledger(workers)

    World(workers).simulate([*(replace(run, shape="") for run in runs), newcomer], 300.0, ledger)

    before = sum(start.at <= 200.0 for start in ledger.starts)
    # But for a slot that is the oldest run's, and one of the line with which it stands level.
    assert ledger.place_of("new") - before <= 2


@pytest.mark.parametrize("seed", SEEDS)
def test_ten_thousand_runs_of_one_user_delay_anothers_first_by_one_turn(seed: int) -> None:
    at, workers = Random(seed).uniform(1, 2_000), [worker()]
    first = SimRun("first", "first", at, 5.0, share="p/b")
    ledger = Ledger(workers)

    World(workers).simulate([*backlog("p/a", 10_000), first], at + 100, ledger)

    assert ledger.start_of("first") - at <= 10.0  # the length of what was running
    before = sum(start.at <= at for start in ledger.starts)
    assert ledger.place_of("first") - before <= 4  # the slots that became free at that instant


def test_priority_9_overtakes_a_queue_of_100000_at_once() -> None:
    workers, ledger = [worker()], Ledger([worker()])
    urgent = SimRun("urgent", "urgent", 12.0, 1.0, share="p/a", priority=9)

    World(workers).simulate([*backlog("p/a", 100_000), urgent], 25.0, ledger)

    assert ledger.start_of("urgent") == 20.0
    assert ledger.place_of("urgent") == 8  # two rounds of four slots had started


@pytest.mark.parametrize("seed", SEEDS)
def test_the_lowest_priority_is_served_within_the_stated_bound(seed: int) -> None:
    random = Random(seed)
    slots, older = random.randrange(1, 5), random.randrange(20)
    workers = [worker(slots=slots)]
    ledger = Ledger(workers)

    World(workers).simulate(islice(_flood(random, slots, older), 3_000), inf, ledger)

    assert ledger.place_of("humble") - slots < OLDEST_EVERY * (older + 1)


def _flood(random: Random, slots: int, older: int) -> Iterator[SimRun]:
    """A humble run behind some others, then urgent ones faster than they can be served."""
    yield from backlog("p/going", slots)
    yield from (replace(run, priority=9) for run in backlog("p/older", older))
    yield SimRun("humble", "humble", 0.0, 1.0, share="p/humble", priority=0)
    for number in count():
        seconds = random.uniform(0.5, 1.5)
        yield SimRun(f"{number}", "urgent", number / 10, seconds, share="p/urgent", priority=9)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_lowest_priority_gets_a_key_after_the_greatest_head_start(seed: int) -> None:
    random, head_start = Random(seed), 9 * BOOST_SECONDS
    workers = [worker(slots=4)]
    ledger = Ledger(workers)
    urgent = [
        SimRun(f"{at}", "urgent", float(at), random.uniform(1.0, 1.2), priority=9)
        for at in range(600)
    ]
    humble = SimRun("humble", "humble", 0.5, 1.0, share="p/humble", priority=0)

    runs = [
        replace(run, demands={"resource:p/lock": 1}) for run in (urgent[0], humble, *urgent[1:])
    ]
    World(workers, {"resource:p/lock": Counted(1)}).simulate(runs, inf, ledger)

    came_before = 0.5 + head_start
    assert ledger.place_of("humble") == ceil(came_before)
    assert ledger.start_of("humble") <= 1.2 * ceil(came_before)


@pytest.mark.parametrize("demand", [shape(memory=8), alone("")], ids=["large", "alone"])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_large_run_starts_within_its_reservation_while_small_ones_stream_past(
    seed: int, demand: str
) -> None:
    random, longest = Random(seed), 20.0
    workers = [worker(f"w{n}", slots=8, memory=8) for n in range(3)]
    ledger = Ledger(workers)
    small = [
        SimRun(f"{n}", "small", n / 5, random.uniform(5, longest), shape=shape(memory=1))
        for n in range(2_000)
    ]
    small = [replace(run, timeout=longest, expected=longest) for run in small]
    large = SimRun("large", "large", 100.0, 5.0, shape=demand, share="p/large")

    runs = sorted([*small, large], key=lambda run: run.arrives_at)
    World(workers).simulate(runs, 300.0, ledger)

    waited = ledger.start_of("large") - 100.0
    assert 0 < waited <= 2 * longest
    assert sum(100.0 < start.at < 100.0 + waited for start in ledger.starts) > waited / 2


def test_a_rate_limit_holds_in_every_window_and_says_when() -> None:
    rule = Rate(10, 1.0, 10)
    workers = [worker(slots=100)]
    ledger = Ledger(workers)
    runs = [replace(run, demands={"rate:p/s3": 1}) for run in backlog("p/a", 100, seconds=0.05)]

    World(workers, {"rate:p/s3": rule}).simulate(runs, inf, ledger)

    times = [start.at for start in ledger.starts]
    assert len(times) == 100
    for first, begin in enumerate(times):
        for number, end in enumerate(times[first:], 1):
            assert number <= rule.burst + rule.rate * (end - begin) + 1e-6
    promised = {
        start.run.id: start.at for start in ledger.starts if start.run.id in ledger.eligible
    }
    assert len(promised) == 90
    assert promised == pytest.approx(ledger.eligible, abs=1e-5)


AMOUNTS = st.sampled_from([0.5, 1, 2, 4])
RULES: dict[str, KeyRule] = {"resource:p/lock": Counted(1), "resource:p/licence": Counted(3)}


@st.composite
def runs(draw: st.DrawFn) -> list[SimRun]:
    """Runs of all sorts, which three workers of 4 cpus and 8 of memory can do."""
    made, at = [], 0.0
    for number in range(draw(st.integers(1, 40))):
        at += draw(st.sampled_from([0.0, 0.0, 1.0, 5.0]))
        needs = draw(st.sampled_from([{}, {"cpu": draw(AMOUNTS)}, {"memory": 2 * draw(AMOUNTS)}]))
        run = SimRun(
            id=f"{number}",
            job="job",
            arrives_at=at,
            seconds=draw(st.sampled_from([0.5, 1.0, 3.0, 10.0])),
            priority=draw(st.sampled_from([0, 5, 9])),
            share=draw(st.sampled_from(["p/a", "p/b", "q"])),
            shape=shape(**needs) if needs else "",
            timeout=draw(st.sampled_from([None, 10.0])),
            expected=draw(st.sampled_from([None, 2.0])),
            demands=draw(
                st.sampled_from([{}, {}, *({key: 1} for key in RULES), dict.fromkeys(RULES, 1)])
            ),
        )
        if draw(st.integers(0, 4)) == 4:
            run = replace(run, shape=alone(run.shape))
        made.append(replace(run, group="few", limit=2) if draw(st.booleans()) else run)
    return made


@settings(max_examples=3 * settings().max_examples // 2)
@given(runs())
def test_nobody_has_more_than_there_is_and_everybody_is_served(runs: list[SimRun]) -> None:
    workers = [worker(f"w{n}", slots=2, cpu=4, memory=8) for n in range(3)]
    ledger = Ledger(workers, RULES)

    World(workers, RULES).simulate(runs, inf, ledger)

    assert ledger.ends.keys() == {run.id for run in runs}


LINES = st.lists(
    st.tuples(st.sampled_from(["p/a", "p/b", "q/a", "r"]), st.sampled_from([4, 5, 6])),
    min_size=1,
    max_size=60,
)


@given(LINES)
def test_lines_are_served_as_the_order_of_service_says(lines: list[tuple[str, int]]) -> None:
    weights = {"p/b": 2.0, "q": 3.0}
    runs = [
        SimRun(f"{n}", "job", 0.0, ACTUAL, share=share, priority=priority, expected=EXPECTED)
        for n, (share, priority) in enumerate(lines)
    ]
    workers = [worker(slots=1)]
    ledger = Ledger(workers)

    World(workers, weights=weights).simulate(runs, inf, ledger)

    assert [start.run.id for start in ledger.starts] == OneSlot(weights).serve_all(runs)
