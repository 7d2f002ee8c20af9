from __future__ import annotations

import pytest

from rota.domain.order import (
    BOOST_SECONDS,
    LEAST_CHARGED_SECONDS,
    OLDEST_EVERY,
    Chain,
    PoolTags,
    activation_tag,
    allot,
    cost_of,
    oldest_slots,
)


def test_the_chain_that_was_served_least_comes_first() -> None:
    assert allot([Chain("a", 5, 10.0), Chain("b", 5, 9.0)], 1, 1.0) == [("b", 1)]


def test_priority_is_a_head_start() -> None:
    high, low = Chain("high", 6, BOOST_SECONDS - 1), Chain("low", 5, 0.0)

    assert allot([high, low], 1, 1.0) == [("high", 1)]


def test_priority_is_no_wall() -> None:
    high, low = Chain("high", 6, BOOST_SECONDS + 1), Chain("low", 5, 0.0)

    assert allot([high, low], 1, 1.0) == [("low", 1)]


def test_a_weight_of_two_gives_twice_the_share() -> None:
    shares = dict(allot([Chain("a", 5, 0.0, weight=2.0), Chain("b", 5, 0.0)], 30, 1.0))

    assert shares == {"a": 20, "b": 10}


@pytest.mark.parametrize("chains", [[], [Chain("a", 5, 0.0)]])
def test_no_slots_are_no_shares(chains: list[Chain]) -> None:
    assert allot(chains, 0, 1.0) == []


def test_a_lone_chain_gets_everything() -> None:
    assert allot([Chain("a", 5, 0.0)], 7, 1.0) == [("a", 7)]


def test_a_newcomer_starts_level_with_the_least_served_of_its_priority() -> None:
    assert activation_tag(0.0, PoolTags(40.0, 10.0, 90.0)) == 40.0


def test_the_first_of_its_priority_starts_level_with_the_pool() -> None:
    assert activation_tag(0.0, PoolTags(None, 10.0, 90.0)) == 10.0


def test_in_a_pool_at_rest_everybody_starts_level_with_the_most_served() -> None:
    assert activation_tag(0.0, PoolTags(None, None, 90.0)) == 90.0


def test_what_a_chain_owes_is_not_forgotten() -> None:
    assert activation_tag(50.0, PoolTags(40.0, 10.0, 90.0)) == 50.0


def test_the_first_chain_of_all_starts_at_nothing() -> None:
    assert activation_tag(0.0, PoolTags(None, None, None)) == 0.0


def test_even_the_shortest_run_costs_something() -> None:
    assert cost_of(0.0, 0.5) == LEAST_CHARGED_SECONDS / 2
    assert cost_of(8.0, 0.25) == 2.0


def test_every_sixteenth_place_is_for_the_oldest_however_claims_are_cut() -> None:
    one_by_one = sum(oldest_slots(served, 1) for served in range(10 * OLDEST_EVERY))

    assert one_by_one == oldest_slots(0, 10 * OLDEST_EVERY) == 10
