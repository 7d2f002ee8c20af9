"""Blackouts around changes of clocks, compared with a walk over every minute."""

from __future__ import annotations

from functools import lru_cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.domain.calendars import Blackout, Calendar, compile_calendar
from tests.properties.clock_walk import DAY_MINUTES, EPOCH, MINUTE, clock_changes, local_clock
from tests.properties.window_walk import EXAMPLES, ZONES, Example, examples, walk

YEARS = range(2009, 2012)
COMPARED = 2 * DAY_MINUTES  # on each side of a change
WALKED = 5 * DAY_MINUTES


several = st.lists(examples(longest=300), min_size=1, max_size=3) | st.tuples(examples()).map(list)


@lru_cache(maxsize=len(ZONES))
def changes_of(zone: str) -> list[int]:
    return [change for change, _, _ in clock_changes(zone, YEARS)][-4:]


def blackout_of(zone: str, *windows: Example) -> Blackout:
    return compile_calendar(Calendar("walked", tuple(map(str, windows)), timezone=zone))


def assert_agrees(blackout: Blackout, change: int, *windows: Example) -> None:
    clock = local_clock(blackout.zone.name, change - WALKED, change + WALKED)
    compared = range(change - COMPARED, change + COMPARED)

    walked = {minute for window in windows for minute in walk(window, clock)}
    inside = [minute for minute in compared if blackout.is_inside(EPOCH + minute * MINUTE)]

    assert inside == sorted(walked.intersection(compared))


@pytest.mark.parametrize("zone", ZONES)
def test_windows_are_right_around_changes_of_clocks(zone: str) -> None:
    assert len(changes_of(zone)) >= 2

    for change in changes_of(zone):
        for window in EXAMPLES:
            assert_agrees(blackout_of(zone, window), change, window)


@given(st.sampled_from(ZONES), st.integers(0, 3), several)
def test_any_windows_are_right_around_changes_of_clocks(
    zone: str, index: int, windows: list[Example]
) -> None:
    changes = changes_of(zone)
    change = changes[index % len(changes)]

    assert_agrees(blackout_of(zone, *windows), change, *windows)
