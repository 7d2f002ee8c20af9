from __future__ import annotations

import pytest

from bench.contest import Plan, Result, Turn, is_taken_again, sample_of
from bench.figures import Sample

QUIET, BUSY = 0.1, 0.3  # cores that others use

FULL = Plan()


@pytest.mark.parametrize(
    ("foreign", "again"),
    [
        ([], True),
        ([QUIET], False),
        ([BUSY], True),
        ([BUSY, BUSY], True),
        ([BUSY, QUIET], False),
        ([BUSY, BUSY, BUSY], False),
    ],
)
def test_a_disturbed_turn_is_taken_again_but_not_for_ever(
    foreign: list[float], again: bool
) -> None:
    assert is_taken_again(foreign, FULL) is again


def test_a_quick_plan_takes_each_turn_once() -> None:
    assert not is_taken_again([BUSY], Plan(is_quick=True))


def test_disturbed_turns_are_left_out_of_the_sample() -> None:
    result = Result((Turn({"rate": 10}, QUIET), Turn({"rate": 3}, BUSY), Turn({"rate": 12}, QUIET)))

    assert result.sample("rate", "runs/s") == Sample((10, 12), "runs/s", left_out=(3,))
    assert result.foreign_cores == QUIET


def test_where_all_turns_are_disturbed_nothing_is_judged() -> None:
    result = Result((Turn({"rate": 3}, BUSY), Turn({"rate": 4}, 2 * BUSY)))

    assert not result.sample("rate", "runs/s").is_judged
    assert result.foreign_cores == 2 * BUSY


def test_what_one_turn_measured_several_times_is_left_out_as_a_whole() -> None:
    assert sample_of((1, 2), "ms", QUIET) == Sample((1, 2), "ms")
    assert sample_of((1, 2), "ms", BUSY) == Sample((), "ms", left_out=(1, 2))
