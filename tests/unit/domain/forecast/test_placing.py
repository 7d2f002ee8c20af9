"""When runs of the time ahead start."""

from __future__ import annotations

from math import inf

import pytest

from rota.domain.forecast.ahead import JOB_GATE, WORKER_GATE, RunAhead, Setting
from rota.domain.forecast.expansion import CartAhead, Following, Sequels, first_items
from rota.domain.forecast.placing import Program, place
from rota.domain.ids import CartId
from rota.domain.keys import Counted, KeyKind, key_of
from tests.unit.domain.forecast.builders import job, runs, setting, starts, workers

LICENCE = key_of(KeyKind.RESOURCE, "default", "licence")


def test_runs_start_when_they_can_and_wait_for_a_slot() -> None:
    coming = runs(job(seconds=10.0), 0.0, 1.0, 2.0)

    place(Program([], coming), setting(2), 100.0)

    assert starts(coming) == [0.0, 1.0, 10.0]
    assert [run.waits_for for run in coming] == ["", "", WORKER_GATE]


def test_what_is_under_way_keeps_its_slot_to_its_end() -> None:
    known = job(seconds=10.0)
    going = RunAhead(known, -4.0, -4.0, 10.0, start_at=-4.0, worker="default-0")
    coming = runs(known, 0.0)

    place(Program([going], coming), setting(1), 100.0)

    assert starts(coming) == [6.0]


def test_a_job_keeps_its_own_runs_back_while_slots_are_free() -> None:
    coming = runs(job(seconds=10.0, limit=1), 0.0, 1.0)

    place(Program([], coming), setting(5), 100.0)

    assert starts(coming) == [0.0, 10.0]
    assert coming[1].waits_for == JOB_GATE


@pytest.mark.parametrize("is_plain", [True, False])
def test_what_goes_on_elsewhere_keeps_its_jobs_limit_but_no_slot(is_plain: bool) -> None:
    known = job("a", limit=1, is_plain=is_plain)
    outside = RunAhead(known, 0.0, 0.0, 10.0, start_at=-4.0, worker="leaving")
    coming = [*runs(known, 0.0), *runs(job("b", seconds=6.0, is_plain=is_plain), 0.0)]

    found = place(Program([], coming, outside=[outside]), setting(1), 100.0)

    assert starts(coming) == [6.0, 0.0]
    assert found.runs == coming  # it is no load on these workers


def test_without_a_worker_nothing_starts() -> None:
    coming = runs(job(), 0.0)

    place(Program([], coming), setting(), 100.0)

    assert starts(coming) == [inf]


def test_where_two_lines_wait_the_order_of_service_decides() -> None:
    first = runs(job("a", seconds=10.0), 0.0)
    usual, urgent = job("b", seconds=10.0), job("c", seconds=10.0, priority=9)
    coming = first + runs(usual, 1.0) + runs(urgent, 2.0)

    place(Program([], coming), setting(1), 100.0)

    assert starts(coming) == [0.0, 20.0, 10.0]


def test_a_resource_of_the_worker_is_not_given_twice() -> None:
    hungry = job(seconds=10.0, shape='{"resources":{"memory":3000}}', is_plain=False)
    coming = runs(hungry, 0.0, 0.0)

    place(Program([], coming), Setting(workers(4, memory=4)), 100.0)

    assert starts(coming) == [0.0, 10.0]


def test_a_run_that_waits_for_a_shared_key_says_which() -> None:
    licensed = job(seconds=10.0, demands={LICENCE: 1}, is_plain=False)
    coming = runs(licensed, 0.0, 0.0)

    place(Program([], coming), Setting(workers(4), {LICENCE: Counted(1)}), 100.0)

    assert starts(coming) == [0.0, 10.0]
    assert coming[1].waits_for == LICENCE


def test_a_slot_is_enough_only_where_the_worker_could_fill_all_of_them() -> None:
    roomy, tight = Setting(workers(4, cpu=8)), Setting(workers(4, cpu=7))

    assert roomy.is_slot_enough("default", '{"resources":{"cpu":2000}}')
    assert not tight.is_slot_enough("default", '{"resources":{"cpu":2000}}')
    assert not roomy.is_slot_enough("default", '{"needs":{"site":"fra"}}')


@pytest.mark.parametrize("is_plain", [True, False], ids=["plain", "decided"])
class TestWhatFollows:
    def test_an_interval_from_completion_counts_from_the_end_of_each_run(
        self, is_plain: bool
    ) -> None:
        known = job(seconds=10.0, is_plain=is_plain)
        sequels = Sequels(again={known.id: lambda end: end + 60.0})

        placed = place(Program([], runs(known, 5.0), lambda: Following(sequels)), setting(1), 160.0)

        assert sorted(starts(placed.runs)) == [5.0, 75.0, 145.0, inf]  # the last comes later

    def test_a_job_that_follows_another_comes_with_its_end(self, is_plain: bool) -> None:
        upstream, follower = job("a", 10.0, is_plain=is_plain), job("b", 1.0)
        sequels = Sequels(followers={upstream.id: [follower]})

        placed = place(
            Program([], runs(upstream, 0.0, 3.0), lambda: Following(sequels)), setting(1), 100.0
        )

        ended = {run.job.name: run.start_at for run in placed.runs}
        assert ended == {"a": 10.0, "b": 21.0}

    def test_a_cart_goes_wave_by_wave_within_its_window(self, is_plain: bool) -> None:
        cart = CartId("c_1")
        item = job("item", seconds=10.0, cart=cart, is_plain=is_plain)
        ahead = CartAhead(cart, item, waves=(3, 2), window=2, wait=5.0)
        program = Program([], first_items(ahead, 0.0), lambda: Following(Sequels(carts=[ahead])))

        placed = place(program, setting(9), 100.0)

        assert sorted(starts(placed.runs)) == [0.0, 0.0, 10.0, 25.0, 25.0]

    def test_open_items_of_a_cart_are_of_its_present_wave(self, is_plain: bool) -> None:
        cart = CartId("c_1")
        item = job("item", seconds=10.0, cart=cart, is_plain=is_plain)
        ahead = CartAhead(cart, item, waves=(1, 1), window=1, open=1)
        going = RunAhead(item, -3.0, -3.0, 10.0, start_at=-3.0, worker="default-0")
        program = Program([going], [], lambda: Following(Sequels(carts=[ahead])))

        placed = place(program, setting(9), 100.0)

        assert sorted(starts(placed.runs)) == [-3.0, 7.0, 17.0]


@pytest.mark.parametrize("is_plain", [True, False])
def test_what_is_too_late_starts_never_and_keeps_nobody_waiting(is_plain: bool) -> None:
    coming = runs(job(seconds=10.0, is_plain=is_plain), 0.0, 1.0, 2.0, 3.0)
    coming[1].drop_at = 8.0
    coming[3].drop_at = 25.0

    place(Program([], coming), setting(1), 100.0)

    assert starts(coming) == [0.0, inf, 10.0, 20.0]
    assert (coming[1].wait, coming[1].waits_for) == (7.0, WORKER_GATE)


@pytest.mark.parametrize("is_plain", [True, False])
def test_what_is_dropped_frees_its_place_in_the_limit_of_its_job(is_plain: bool) -> None:
    limited, other = (job(name, seconds=10.0, limit=2, is_plain=is_plain) for name in "ab")
    going = runs(other, 0.0)
    late, next_one = runs(limited, 1.0, 2.0)
    late.drop_at = 5.0
    last = runs(limited, 3.0)

    place(Program([], [*going, late, next_one, *last]), setting(1), 100.0)

    assert starts([*going, late, next_one, *last]) == [0.0, inf, 10.0, 20.0]
