from __future__ import annotations

import pytest

from rota.domain.carts.definition import Order, Share, parse_share
from rota.domain.carts.intake import wave_of_each, wave_sizes, waves_in_words


def shares(*texts: str) -> list[Share]:
    return [parse_share(text) for text in texts]


def test_serial_items_go_one_by_one() -> None:
    assert list(wave_of_each(Order.SERIAL, 4)) == [1, 2, 3, 4]


def test_parallel_items_go_all_at_once() -> None:
    assert list(wave_of_each(Order.PARALLEL, 4)) == [1, 1, 1, 1]


def test_groups_of_one_size_leave_the_rest_for_the_last() -> None:
    assert list(wave_of_each(Order.GROUPS, 5, shares("2"))) == [1, 1, 2, 2, 3]


@pytest.mark.parametrize(
    ("total", "ramp", "sizes"),
    [
        (1000, ["1", "5", "20", "10%"], [1, 5, 20, *[100] * 9, 74]),
        (15, ["1", "10%"], [1, *[2] * 7]),  # rounded up
        (3, ["0.1%"], [1, 1, 1]),  # at least one
        (3, ["0"], [1, 1, 1]),
        (4, ["1", "5", "20"], [1, 3]),  # over before the ramp is
        (5, ["100%"], [5]),
        (0, ["5"], []),
    ],
)
def test_a_ramp_grows_and_repeats_its_last_size(
    total: int, ramp: list[str], sizes: list[int]
) -> None:
    assert list(wave_sizes(Order.GROUPS, total, shares(*ramp))) == sizes


@pytest.mark.parametrize("order", [Order.SERIAL, Order.PARALLEL])
def test_nothing_has_no_waves(order: Order) -> None:
    assert list(wave_sizes(order, 0)) == []


def test_explicit_numbers_are_not_made_up() -> None:
    with pytest.raises(ValueError, match="at the items"):
        wave_of_each(Order.EXPLICIT, 4)


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ([1, 5, 20, *[100] * 9, 74], "1, 5, 20, 100 × 9, 74"),
        ([1] * 1000, "1 × 1000"),
        ([7], "7"),
        ([], ""),
        ([*range(1, 9)], "1, 2, 3, 4, 5, 6, 7, 8"),
        ([*range(1, 40), 40, 40], "1, 2, 3, 4, 5, 6, …, 40 × 2 (41 waves)"),
    ],
)
def test_equal_waves_are_told_together_and_many_are_cut_short(sizes: list[int], words: str) -> None:
    assert waves_in_words(sizes) == words
