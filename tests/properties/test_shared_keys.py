"""Whatever is asked of a key and when, nobody gets more of it than its rule allows."""

from __future__ import annotations

from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from rota.domain.key_gates import BOOST, KeyGate, Waiter, Waiters, rank_of
from rota.domain.keys import SECOND, Bucket, Counted, KeyState, Rate

KEY = "rate:shop/s3-put"
RATES = st.builds(
    Rate,
    tokens=st.integers(1, 1_000),
    per=st.sampled_from([0.1, 1.0, 3.0, 60.0]),
    burst=st.integers(1, 100),
)
# Steps of the clock, also back: those of several nodes are never quite the same.
STEPS = st.lists(
    st.tuples(st.integers(-SECOND // 10, 2 * SECOND), st.integers(1, 5)), min_size=1, max_size=60
)


@given(RATES, STEPS)
def test_in_any_time_at_most_burst_and_rate_are_taken(
    rule: Rate, steps: list[tuple[int, int]]
) -> None:
    bucket, now, latest = None, 0, 0
    taken: list[tuple[int, int]] = []
    for step, amount in steps:
        now += step
        latest = max(latest, now)
        gate = KeyGate(now, {KEY: KeyState(rule, bucket=bucket)}, claims=True)
        if not gate.ask({KEY: amount}, (0, 0)):
            taken.append((latest, min(amount, int(rule.burst))))
            bucket = gate.buckets[KEY]

    for index, (first, _) in enumerate(taken):
        total = 0
        for at, amount in taken[index:]:
            total += amount
            allowed = rule.burst + rule.rate * (at - first) / SECOND
            assert total <= allowed * (1 + 1e-9) + 1e-6


@given(RATES, st.integers(0, 100), st.floats(0, 1), st.integers(0, 10 * SECOND))
def test_tokens_are_there_when_they_are_promised_and_not_before(
    rule: Rate, tokens: int, full: float, now: int
) -> None:
    bucket = Bucket(rule, rule.burst * full, at=0)
    tokens = min(tokens, int(rule.burst))

    ready = bucket.ready_at(tokens, now)

    assert bucket.has(tokens, ready)
    assert ready == now or not bucket.has(tokens, ready - 2)


@given(st.integers(1, 1_000), st.floats(1e9, 1e15), st.integers(0, 10**6 * SECOND))
def test_it_takes_few_looks_to_tell_the_end_of_the_deepest_debt(
    tokens: int, debt: float, now: int
) -> None:
    bucket = Bucket(Rate(tokens, 86_400.0, tokens), -debt, at=0)

    with patch.object(Bucket, "has", autospec=True, side_effect=Bucket.has) as looks:
        ready = bucket.ready_at(1, now)

    assert bucket.has(1, ready)
    assert looks.call_count < 100


@given(RATES, st.integers(0, 300))
def test_who_waits_goes_when_it_was_told_if_all_before_it_do(rule: Rate, ahead: int) -> None:
    gate = KeyGate(0, {KEY: KeyState(rule)})
    for age in range(ahead):
        gate.ask({KEY: 1}, (0, age))
    short = gate.ask({KEY: 1}, (0, ahead))
    told = (short[0].eligible_at if short else 0) or 0

    came = rule.burst + rule.rate * told / SECOND
    came_before = rule.burst + rule.rate * (told - 2 * ahead - 2) / SECOND
    assert came >= (ahead + 1) * (1 - 1e-9)
    assert told == 0 or came_before < ahead + 1


@given(
    st.integers(0, 20),
    st.lists(st.tuples(st.integers(1, 8), st.integers(0, 9)), max_size=40),
    st.booleans(),
)
def test_units_are_never_given_twice(total: int, asks: list[tuple[int, int]], claims: bool) -> None:
    gate = KeyGate(0, {KEY: KeyState(Counted(total))}, claims=claims)

    given_away = [
        min(amount, max(total, 1))
        for age, (amount, priority) in enumerate(asks)
        if not gate.ask({KEY: amount}, rank_of(priority, 0, age))
    ]

    assert sum(given_away) <= total


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(0, 9)), min_size=1, max_size=40))
def test_nobody_of_lower_rank_passes_the_first_who_waits(asks: list[tuple[int, int]]) -> None:
    first = rank_of(5, 0, 0)
    gate = KeyGate(0, {KEY: KeyState(Counted(1_000))}, {KEY: Waiters(first)})

    for age, (amount, priority) in enumerate(asks, start=1):
        rank = rank_of(priority, 0, age)
        assert bool(gate.ask({KEY: amount}, rank)) == (rank > first)


RUNS = st.builds(
    rank_of, st.integers(0, 9), st.integers(0, 600 * SECOND), st.integers(1, 1_000_000)
)


@given(st.integers(0, 9), st.integers(0, 9), st.integers(0, 600 * SECOND))
def test_a_higher_priority_passes_those_that_came_within_its_head_start(
    low: int, high: int, later: int
) -> None:
    waits, comes = rank_of(low, 0, 1), rank_of(high, later, 2)
    gate = KeyGate(0, {KEY: KeyState(Counted(1))}, {KEY: Waiters(waits)})

    passes = not gate.ask({KEY: 1}, comes)

    assert passes == (later < (high - low) * BOOST)


@given(RUNS, st.lists(st.builds(Waiter, RUNS, st.none() | st.integers(0, 99)), min_size=1))
def test_who_comes_goes_after_the_last_of_those_before_it(
    comes: tuple[int, int], known: list[Waiter]
) -> None:
    found = Waiters.before(comes, known)

    before = [each.eligible_at for each in sorted(known, key=lambda each: each.rank)]
    ahead = before[: sum(each.rank < comes for each in known)]
    assert found.first == min(each.rank for each in known)
    assert found.last_at == max((at for at in ahead if at is not None), default=None)
