from __future__ import annotations

import pytest

from rota.domain.job import RunRules
from rota.domain.shape import shape_of, unmet


def test_a_run_without_demands_fits_everybody() -> None:
    shape = shape_of(RunRules("job", "default"))

    assert shape == ""
    assert unmet(shape, {}, ()) == []


def test_equal_demands_have_one_shape_in_whatever_order_they_are_written() -> None:
    one = RunRules("one", "default", needs={"a": "1", "b": "2"})
    two = RunRules("two", "default", needs={"b": "2", "a": "1"})

    assert shape_of(one) == shape_of(two)


@pytest.mark.parametrize(
    ("labels", "functions", "lacks"),
    [
        ({"site": "fra"}, {"send"}, []),
        ({"site": "fra", "disk": "ssd"}, {"send", "receive"}, []),
        ({"site": "nyc"}, {"send"}, ["label site=fra"]),
        ({}, set(), ["label site=fra", "function send"]),
    ],
)
def test_a_worker_is_told_what_it_lacks(
    labels: dict[str, str], functions: set[str], lacks: list[str]
) -> None:
    shape = shape_of(RunRules("job", "default", needs={"site": "fra"}, function="send"))

    assert unmet(shape, labels, functions) == lacks
