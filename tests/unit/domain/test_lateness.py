from __future__ import annotations

from math import inf

import pytest

from rota.domain.lateness import DELAY_BOUNDS, Bucket, Lateness, histogram, lateness_of


def test_percentiles_are_delays_that_were_measured() -> None:
    delays = [float(number) for number in range(100, 0, -1)]

    assert lateness_of(delays) == Lateness(100, 50.0, 95.0, 99.0)


def test_one_delay_is_every_percentile() -> None:
    assert lateness_of([7.0]) == Lateness(1, 7.0, 7.0, 7.0)


def test_no_delay_has_no_percentiles() -> None:
    assert lateness_of([]) is None


@pytest.mark.parametrize(
    ("delay", "bound"), [(0.0, 0.01), (0.01, 0.01), (0.011, 0.025), (1e6, inf), (-0.1, 0.01)]
)
def test_a_delay_counts_below_the_next_bound(delay: float, bound: float) -> None:
    assert histogram([delay]) == {bound: Bucket(1, delay)}


def test_delays_of_one_bound_are_counted_and_added_up() -> None:
    assert histogram([0.25, 0.5, 0.375, 20.0]) == {
        0.25: Bucket(1, 0.25),
        0.5: Bucket(2, 0.875),
        30: Bucket(1, 20.0),
    }


def test_bounds_grow_and_leave_nothing_out() -> None:
    assert list(DELAY_BOUNDS) == sorted(set(DELAY_BOUNDS))
    assert DELAY_BOUNDS[-1] == inf
