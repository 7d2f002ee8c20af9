"""Which values every part of Rota can carry."""

from __future__ import annotations

import math

import pytest

from rota.domain.run import MAX_DEPTH, why_not_portable


def nested(levels: int) -> object:
    value: object = 1
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    "value",
    [None, True, 2**63 - 1, -(2**63), 1.5, "é", {"a": [1, {"b": "c"}]}, nested(MAX_DEPTH)],
)
def test_ordinary_values_are_portable(value: object) -> None:
    assert why_not_portable(value) == ""


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        (2**63, "64 bits"),
        ({"id": 10**30}, "64 bits"),
        ([math.nan], "finite"),
        (-math.inf, "finite"),
        ("\ud800", "surrogate"),
        ({"\udfff": 1}, "surrogate"),
        (nested(MAX_DEPTH + 1), "deeper"),
        (nested(50_000), "deeper"),
    ],
)
def test_values_that_some_part_cannot_carry_are_told(value: object, complaint: str) -> None:
    assert complaint in why_not_portable(value)
