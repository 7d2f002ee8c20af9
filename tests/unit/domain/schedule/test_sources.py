"""Counting due times costs no more after a long outage than after a short one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.domain.schedule.sources import Interval, Intervals, distinct_intervals
from tests.unit.domain.schedule.builders import ANCHOR, problems_of, timetable, utc

intervals = st.builds(Interval, st.integers(1, 12), st.integers(0, 20))


def due_times(interval: Interval, through: int) -> set[int]:
    return set(range(interval.anchor, through + 1, interval.length))


@given(st.lists(intervals, min_size=1, max_size=5), st.integers(-5, 60), st.integers(0, 80))
def test_several_intervals_have_as_many_due_times_as_a_walk_finds(
    several: list[Interval], after: int, span: int
) -> None:
    through = after + span
    walked = {due for each in several for due in due_times(each, through) if due > after}

    assert Intervals(distinct_intervals(several)).count(after, through) == len(walked)


@given(intervals, intervals)
def test_two_intervals_meet_where_both_are_due(one: Interval, other: Interval) -> None:
    meeting = one.meet(other)

    both = due_times(one, 500) & due_times(other, 500)
    assert both == (due_times(meeting, 500) if meeting else set())


def test_a_century_of_three_dense_intervals_takes_no_walk() -> None:
    table = timetable("100ms", "150ms", "*/5 0 1 1 *", "250ms")

    count = table.count(ANCHOR, utc("2126-01-01 00:00"))

    assert count > 20_000_000_000


@pytest.mark.parametrize(
    "expressions",
    [
        ["* * * * * *", "1s"],
        ["100ms", "*/10 * * * * *"],
    ],
)
def test_what_takes_long_to_tell_apart_is_refused(expressions: list[str]) -> None:
    [problem] = problems_of(*expressions)

    assert "due very often" in problem.message


def test_many_intervals_that_have_little_in_common_are_refused() -> None:
    [problem] = problems_of(*(f"{100 + n}ms" for n in range(20)))

    assert problem.message.startswith(
        "20 intervals of which none is a multiple of another: at most 8"
    )


def test_multiples_of_one_interval_are_one() -> None:
    assert timetable(*(f"{n}s" for n in range(1, 40))).count(ANCHOR, ANCHOR) == 0
