from __future__ import annotations

from rota.domain.resources import (
    best_fit,
    dominant_share,
    fits,
    lacking,
    minus,
    plus,
    tighter_fit,
    total,
)


class TestFitting:
    def test_all_of_a_demand_is_needed_at_once(self) -> None:
        room = {"cpu": 2000, "memory": 500}

        assert fits({"cpu": 2000, "memory": 500}, room)
        assert not fits({"cpu": 1000, "memory": 501}, room)

    def test_what_nobody_offers_is_not_there(self) -> None:
        assert lacking({"cpu": 1, "gpu": 1}, {"cpu": 1}) == ["gpu"]

    def test_what_is_taken_and_given_back_adds_up(self) -> None:
        room = {"cpu": 1000}

        taken = minus(minus(room, {"cpu": 100}), {"cpu": 200})

        assert plus(plus(taken, {"cpu": 200}), {"cpu": 100}) == room

    def test_sum_of_many_has_every_name(self) -> None:
        assert total([{"cpu": 1}, {"cpu": 2, "gpu": 3}]) == {"cpu": 3, "gpu": 3}


class TestDominantShare:
    def test_is_that_of_the_scarcest(self) -> None:
        assert dominant_share({"cpu": 1000, "memory": 3000}, {"cpu": 4000, "memory": 4000}) == 0.75

    def test_nothing_takes_more_than_everything(self) -> None:
        assert dominant_share({"cpu": 8000}, {"cpu": 4000}) == 1.0

    def test_of_an_unknown_capacity_is_everything(self) -> None:
        assert dominant_share({"gpu": 1000}, {"cpu": 4000}) == 1.0


class TestBestFit:
    def test_small_demand_leaves_the_large_room_whole(self) -> None:
        rooms = {"large": {"memory": 64_000}, "small": {"memory": 4_000}}

        assert best_fit({"memory": 1_000}, rooms) == "small"
        assert best_fit({"memory": 8_000}, rooms) == "large"

    def test_demand_that_fits_nowhere_has_no_place(self) -> None:
        assert best_fit({"gpu": 1}, {"only": {"memory": 1}}) is None

    def test_first_of_equals_wins(self) -> None:
        assert best_fit({"cpu": 1}, {"a": {"cpu": 2}, "b": {"cpu": 2}}) == "a"

    def test_the_order_in_which_workers_write_their_offers_does_not_matter(self) -> None:
        demand = {"slots": 1_000, "memory": 1_000}
        here = {"slots": 5_000, "memory": 9_000, "gpu": 5_000, "cpu": 6_000}
        other = {"slots": 5_000, "gpu": 5_000, "cpu": 6_000, "memory": 9_000}

        assert tighter_fit(demand, here, {"other": other}) is None
