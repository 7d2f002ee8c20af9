from __future__ import annotations

import pytest

from rota.domain.resources import MOST_UNITS, UNIT, format_amount, parse_amount


@pytest.mark.parametrize(
    ("written", "amount"),
    [
        (2, 2_000),
        (0.5, 500),
        (1.125, 1_125),
        ("0.001", 1),
        ("3.10", 3_100),
        ("4GiB", 4 * 1024**3 * UNIT),
        ("1.5 GB", 1_500_000_000 * UNIT),
        (0, 0),
        (MOST_UNITS, MOST_UNITS * UNIT),
    ],
)
def test_amounts_are_whole_thousandths(written: float | str, amount: int) -> None:
    assert parse_amount(written) == amount


@pytest.mark.parametrize(
    "written",
    [-1, 0.0005, "1e3", "", "many", "4 GiBs", float("nan"), float("inf"), MOST_UNITS + 1],
    ids=repr,
)
def test_what_is_no_amount_is_refused(written: float | str) -> None:
    with pytest.raises(ValueError, match=r"amount|more than"):
        parse_amount(written)


@pytest.mark.parametrize(
    ("name", "amount", "text"),
    [
        ("cpu", 2_000, "2"),
        ("cpu", 1_250, "1.25"),
        ("gpu", 1, "0.001"),
        ("memory", 4 * 1024**3 * UNIT, "4GiB"),
        ("memory", 500, "0.5"),
    ],
)
def test_amounts_read_back_as_they_are_shown(name: str, amount: int, text: str) -> None:
    assert format_amount(name, amount) == text
    assert parse_amount(text) == amount
