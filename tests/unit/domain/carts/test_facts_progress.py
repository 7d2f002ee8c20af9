from __future__ import annotations

from datetime import timedelta

import pytest

from rota.domain.carts.facts import Pace, eta

MINUTE = timedelta(minutes=1)


def test_a_wave_takes_as_many_rounds_as_its_window_needs() -> None:
    assert eta(Pace(MINUTE, window=4), [9]) == 3 * MINUTE


def test_waves_follow_one_another_with_the_wait_between() -> None:
    assert eta(Pace(MINUTE, window=10, wait=5 * MINUTE), [1, 5, 20]) == (1 + 5 + 1 + 5 + 2) * MINUTE


def test_no_more_go_at_once_than_the_workers_have_room_for() -> None:
    assert eta(Pace(MINUTE, window=10, slots=2), [10]) == 5 * MINUTE


def test_waves_that_are_over_take_no_time() -> None:
    pace = Pace(MINUTE, window=1, wait=MINUTE)

    assert eta(pace, [0, 0, 2]) == eta(pace, [2]) == 2 * MINUTE


@pytest.mark.parametrize("pace", [Pace(None, window=4), Pace(MINUTE, window=4, slots=0)])
def test_nobody_can_tell_without_durations_or_workers(pace: Pace) -> None:
    assert eta(pace, [1]) is None


def test_nothing_left_takes_no_time_even_if_nothing_is_known() -> None:
    assert eta(Pace(None, window=4), [0, 0]) == timedelta(0)
