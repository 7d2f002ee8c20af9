"""Which worker a run is left to: one with room, which it fits better than the one that claims."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rota.domain.resources import Vector, best_fit, fits, tighter_fit

NAMES = ("slots", "cpu", "memory", "gpu")

rooms = st.dictionaries(st.sampled_from(NAMES), st.integers(0, 64_000), min_size=1)
demands = st.dictionaries(st.sampled_from(NAMES), st.integers(1, 8_000), min_size=1)
crews = st.dictionaries(st.sampled_from("abcdef"), rooms)


@given(demands, rooms, crews)
def test_a_run_is_left_only_to_who_has_room_for_it_and_fits_it_best(
    demand: Vector, here: Vector, others: dict[str, Vector]
) -> None:
    found = tighter_fit(demand, here, others)

    best = best_fit(demand, {"here": here, **others})  # the first of equals wins
    assert found == (None if best == "here" else best)
    assert found is None or fits(demand, others[found])


@given(demands, rooms)
def test_who_is_alone_leaves_nothing(demand: Vector, here: Vector) -> None:
    assert tighter_fit(demand, here, {}) is None


@given(demands, rooms, st.integers(1, 5), st.data())
def test_equal_workers_leave_nothing_to_each_other(
    demand: Vector, here: Vector, count: int, data: st.DataObject
) -> None:
    orders = st.permutations(list(here.items())).map(dict)  # as each of them writes its offer
    others = {number: data.draw(orders) for number in range(count)}

    assert tighter_fit(demand, here, others) is None


@given(demands, rooms, rooms)
def test_no_two_workers_leave_a_run_to_each_other(
    demand: Vector, one: Vector, other: Vector
) -> None:
    left = tighter_fit(demand, one, {"other": other}), tighter_fit(demand, other, {"one": one})

    assert None in left
