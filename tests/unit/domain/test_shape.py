from __future__ import annotations

import pytest

from rota.domain.job import RunRules
from rota.domain.resources import SLOTS, UNIT, capacity_of
from rota.domain.shape import alone, demand_of, shape_of, unmet


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


def test_amounts_that_a_worker_lacks_are_told_as_people_write_them() -> None:
    resources = {"memory": 8 * 1024**3 * UNIT, "cpu": 500, "gpu": UNIT}
    shape = shape_of(RunRules("job", "default", resources=resources))

    lacks = unmet(shape, {}, (), capacity_of(2, {"cpu": 400, "gpu": UNIT}))

    assert lacks == ["0.5 cpu", "8GiB memory"]


def test_a_run_that_goes_alone_takes_all_slots_of_its_worker_and_asks_for_no_more_than_before() -> (
    None
):
    together = shape_of(RunRules("job", "default", needs={"a": "1"}, resources={"cpu": 500}))
    capacity = capacity_of(8, {"cpu": UNIT})
    shape = alone(together)

    demand = demand_of(shape)

    assert demand.on(capacity) == {SLOTS: 8 * UNIT, "cpu": 500}
    assert demand.resources == demand_of(together).on(capacity) == {SLOTS: UNIT, "cpu": 500}
    assert unmet(shape, {}, (), capacity) == unmet(together, {}, (), capacity) == ["label a=1"]
    assert alone(shape) == shape
