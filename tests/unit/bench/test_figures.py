from __future__ import annotations

import pytest

from bench.figures import (
    Comparison,
    Goal,
    Sample,
    at_least,
    at_least_times,
    at_most,
    at_most_times,
    drain_rate,
    percentile,
)


def comparison(
    rota: float, peer: float | None = None, goal: Goal | None = None, foreign_cores: float = 0.0
) -> Comparison:
    peer_sample = None if peer is None else Sample((peer,), "runs/s")
    return Comparison("P0", "work", Sample((rota,), "runs/s"), "", peer_sample, goal, foreign_cores)


@pytest.mark.parametrize(("percent", "expected"), [(50, 50), (99, 99), (100, 100), (0, 1)])
def test_percentile_is_a_value_that_was_measured(percent: float, expected: float) -> None:
    values = [float(value) for value in range(100, 0, -1)]

    assert percentile(values, percent) == expected


def test_percentile_of_one_value_is_that_value() -> None:
    assert percentile([7.0], 99) == 7.0


def test_drain_rate_leaves_out_the_first_tenth() -> None:
    slow_start = [float(second) for second in range(10)]
    steady = [10.0 + number * 0.01 for number in range(90)]

    assert drain_rate(steady + slow_start) == pytest.approx(100)


def test_sample_is_told_by_its_median_and_its_spread() -> None:
    sample = Sample((30.0, 10.0, 11.0), "ms")

    assert (sample.median, sample.low, sample.high) == (11.0, 10.0, 30.0)


def test_median_is_that_of_the_turns_that_nobody_disturbed() -> None:
    sample = Sample((10.0, 12.0), "ms", left_out=(900.0,))

    assert (sample.median, sample.high) == (11.0, 12.0)


def test_a_difference_is_judged_only_if_both_sides_are() -> None:
    quiet, disturbed = Sample((30.0, 40.0), "MB", left_out=(70.0,)), Sample((), "MB", (10.0,))

    assert quiet.less(Sample((10.0,), "MB")) == Sample((20.0, 30.0), "MB", left_out=(60.0,))
    assert not quiet.less(disturbed).is_judged
    assert not disturbed.less(quiet).is_judged


def test_ratio_is_rota_in_terms_of_the_peer() -> None:
    assert comparison(rota=300, peer=100).ratio == 3


def test_ratio_needs_a_peer_that_did_something() -> None:
    assert comparison(rota=300).ratio is None
    assert comparison(rota=300, peer=0).ratio is None


@pytest.mark.parametrize(
    ("rota", "peer", "goal", "shortfall"),
    [
        (200, 100, at_least_times(2), 0),
        (150, 100, at_least_times(2), 0.25),
        (150, 100, at_most_times(1.5), 0),
        (300, 100, at_most_times(1.5), 1),
        (6, None, at_most(5), 0.2),
        (900, None, at_least(1_000), 0.1),
        (4, None, at_most(5), -0.2),
    ],
)
def test_shortfall_is_a_share_of_the_limit(
    rota: float, peer: float | None, goal: Goal, shortfall: float
) -> None:
    assert comparison(rota, peer, goal).shortfall == pytest.approx(shortfall)


def test_without_a_target_nothing_is_missed() -> None:
    assert comparison(rota=1, peer=100).shortfall is None
