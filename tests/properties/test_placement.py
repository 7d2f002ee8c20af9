"""Placement: never more than there is, all or nothing, and nobody in the way of a reservation."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from rota.domain.resources import Vector, fits, minus, total
from rota.domain.shape import Occupied, Placement, Verdict, room_opens_at

NAMES = ("cpu", "memory")
FOREVER = float("inf")


def vectors(least: int, most: int) -> st.SearchStrategy[dict[str, int]]:
    return st.fixed_dictionaries({name: st.integers(least, most) for name in NAMES})


@dataclass(frozen=True)
class Asked:
    """A run that asks for a place."""

    demand: Vector
    ends_at: float
    latest_end: float


@st.composite
def asking(draw: st.DrawFn) -> Asked:
    ends_at = draw(st.integers(1, 20))
    latest_end = draw(st.just(FOREVER) | st.integers(ends_at, 40).map(float))
    return Asked(draw(vectors(0, 2)), ends_at, latest_end)


@st.composite
def placements(draw: st.DrawFn) -> Placement:
    """A worker that holds attempts, whose ends are known."""
    capacity = draw(vectors(8, 16))
    held: list[Occupied] = []
    attempts = st.builds(Occupied, vectors(1, 5), st.integers(1, 30))
    for attempt in draw(st.lists(attempts, max_size=4)):
        if fits(total(each.demand for each in (*held, attempt)), capacity):
            held.append(attempt)
    return Placement(capacity, 0, held)


@st.composite
def reservations(draw: st.DrawFn) -> tuple[Placement, dict[str, int]]:
    """A worker, and what it would have for a run if others had ended."""
    placement = draw(placements())
    reserved = {name: draw(st.integers(0, most // 2)) for name, most in placement.capacity.items()}
    in_use = [name for name in NAMES if placement.free[name] < placement.capacity[name]]
    if in_use:
        name = draw(st.sampled_from(in_use))
        reserved[name] = draw(st.integers(placement.free[name] + 1, placement.capacity[name]))
    return placement, reserved


@given(placements(), st.lists(asking(), max_size=30), st.none() | vectors(1, 12))
def test_nobody_gets_more_than_there_is_or_less_than_he_asked_for(
    placement: Placement, runs: list[Asked], reserved: dict[str, int] | None
) -> None:
    if reserved is not None:
        placement.reserve(-1, reserved)
    for number, run in enumerate(runs):
        before = placement.free

        verdict = placement.offer(number, run.demand, run.ends_at, run.latest_end)

        taken = run.demand if verdict is Verdict.TAKEN else {}
        assert placement.free == minus(before, taken)
        assert fits(total(each.demand for each in placement.occupied), placement.capacity)
        assert (verdict is Verdict.TOO_LARGE) == (not fits(run.demand, placement.capacity))


@given(reservations(), st.lists(asking(), max_size=30))
def test_who_goes_before_a_reserved_run_does_not_delay_it(
    reservation: tuple[Placement, dict[str, int]], runs: list[Asked]
) -> None:
    placement, reserved = reservation
    promised = room_opens_at(reserved, placement.free, placement.occupied)
    lasting = [each.demand for each in placement.occupied if each.ends_at > promised]
    placement.reserve(-1, reserved)

    for number, run in enumerate(runs):
        if placement.offer(number, run.demand, run.ends_at, run.latest_end) is Verdict.TAKEN:
            lasting += [run.demand] if run.latest_end > promised else []

    assert fits(reserved, minus(placement.capacity, total(lasting)))


@given(reservations())
def test_a_reserved_run_goes_as_soon_as_there_is_room(
    reservation: tuple[Placement, dict[str, int]],
) -> None:
    placement, reserved = reservation
    is_free = fits(reserved, placement.free)
    placement.reserve(-1, reserved)

    verdict = placement.offer(-1, reserved, 1, FOREVER)

    assert verdict is (Verdict.TAKEN if is_free else Verdict.NO_ROOM)
    assert (placement.reservation is None) == is_free
