from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from rota.domain.schedule import CatchUp, DueRange, Timetable, catch_up
from rota.domain.spec import IntervalFrom, Misfire, MisfirePolicy
from tests.unit.domain.schedule.builders import timetable, utc

GRACE = timedelta(seconds=5)
HOURLY = timetable("0 * * * *")


def at(hour: int, minute: int = 0) -> datetime:
    return utc("2026-01-01") + timedelta(hours=hour, minutes=minute)


def missed(first: int, last: int) -> DueRange:
    """Of an hourly schedule."""
    return DueRange(at(first), at(last), last - first + 1)


def caught_up(
    policy: MisfirePolicy, *, table: Timetable = HOURLY, now: datetime | None = None, **rule: Any
) -> CatchUp:
    """After an outage from 01:00 to 06:30."""
    misfire = Misfire(policy, **{"within": None, **rule})
    return catch_up(table, at(1), now or at(6, 30), misfire, grace=GRACE)


def test_nothing_happens_before_the_cursor() -> None:
    misfire = Misfire(MisfirePolicy.ALL)

    assert catch_up(HOURLY, at(1), at(0, 59), misfire, grace=GRACE) == CatchUp((), (), at(1))


def test_a_punctual_due_time_fires_whatever_the_policy() -> None:
    for policy in MisfirePolicy:
        result = caught_up(policy, now=at(1) + GRACE)

        assert result == CatchUp((at(1),), (), at(2))


def test_all_due_times_within_grace_fire() -> None:
    table = timetable("* * * * * *")
    now = at(1) + timedelta(seconds=3.5)

    result = catch_up(table, at(1), now, Misfire(MisfirePolicy.NONE), grace=GRACE)

    assert result.fire == tuple(at(1) + timedelta(seconds=n) for n in range(4))
    assert result.missed == ()


@pytest.mark.parametrize(
    ("policy", "fire", "missed_ranges"),
    [
        (MisfirePolicy.NONE, (), (missed(1, 6),)),
        (MisfirePolicy.FIRST, (1,), (missed(2, 6),)),
        (MisfirePolicy.LAST, (6,), (missed(1, 5),)),
        (MisfirePolicy.ALL, (1, 2, 3, 4, 5, 6), ()),
    ],
)
def test_the_policy_decides_which_late_ones_run(
    policy: MisfirePolicy, fire: tuple[int, ...], missed_ranges: tuple[DueRange, ...]
) -> None:
    result = caught_up(policy)

    assert (result.fire, result.missed) == (tuple(map(at, fire)), missed_ranges)
    assert result.next_at == at(7)


@pytest.mark.parametrize(
    ("policy", "fire", "missed_ranges"),
    [
        (MisfirePolicy.FIRST, (4,), (missed(1, 3), missed(5, 6))),
        (MisfirePolicy.LAST, (6,), (missed(1, 5),)),
        (MisfirePolicy.ALL, (4, 5, 6), (missed(1, 3),)),
    ],
)
def test_due_times_older_than_the_window_are_missed(
    policy: MisfirePolicy, fire: tuple[int, ...], missed_ranges: tuple[DueRange, ...]
) -> None:
    result = caught_up(policy, within=timedelta(hours=3))

    assert (result.fire, result.missed) == (tuple(map(at, fire)), missed_ranges)


def test_a_window_that_is_empty_runs_nothing() -> None:
    result = caught_up(MisfirePolicy.LAST, within=timedelta(minutes=10))

    assert result == CatchUp((), (missed(1, 6),), at(7))


def test_only_the_newest_run_if_there_are_too_many() -> None:
    result = caught_up(MisfirePolicy.ALL, max=2)

    assert (result.fire, result.missed) == ((at(5), at(6)), (missed(1, 4),))


def test_late_and_punctual_ones_fire_together_in_order() -> None:
    result = caught_up(MisfirePolicy.FIRST, now=at(4))

    assert result == CatchUp((at(1), at(4)), (missed(2, 3),), at(5))


def test_a_day_of_a_one_second_job_is_one_range() -> None:
    table = timetable("* * * * * *")
    now = at(25) + timedelta(milliseconds=500)

    result = catch_up(table, at(1), now, Misfire(MisfirePolicy.LAST), grace=timedelta(0))

    assert result.fire == (at(25),)
    assert result.missed == (DueRange(at(1), at(25) - timedelta(seconds=1), 86_400),)
    assert result.next_at == at(25) + timedelta(seconds=1)


def test_a_cursor_that_the_timetable_does_not_name_is_answered_too() -> None:
    result = catch_up(HOURLY, at(1, 30), at(3, 30), Misfire(MisfirePolicy.NONE), grace=GRACE)

    assert result == CatchUp((), (DueRange(at(1, 30), at(3), 3),), at(4))


def test_a_one_off_time_without_window_runs_however_late() -> None:
    table = timetable("2026-01-01T01:00")
    misfire = Misfire(MisfirePolicy.LAST, within=None)

    result = catch_up(table, at(1), at(10_000), misfire, grace=GRACE)

    assert (result.fire, result.missed, result.next_at) == ((at(1),), (), None)


class TestOneOffTimes:
    """Times that are written one by one, beside others."""

    table = timetable("2026-01-01T01:00", "2026-01-01T02:30", "0 * * * *")

    @pytest.mark.parametrize(
        ("policy", "chosen"), [(MisfirePolicy.FIRST, at(2)), (MisfirePolicy.LAST, at(6))]
    )
    def test_each_runs_and_the_policy_chooses_among_the_rest(
        self, policy: MisfirePolicy, chosen: datetime
    ) -> None:
        result = caught_up(policy, table=self.table)

        assert result.fire == tuple(sorted((at(1), at(2, 30), chosen)))
        assert sum(stretch.count for stretch in result.missed) == 4

    def test_they_do_not_count_among_those_that_are_caught_up(self) -> None:
        result = caught_up(MisfirePolicy.ALL, table=self.table, max=2)

        assert result.fire == (at(1), at(2, 30), at(5), at(6))

    def test_a_window_that_was_given_is_for_them_too(self) -> None:
        hours = timedelta(hours=4, minutes=10)

        result = caught_up(MisfirePolicy.LAST, table=self.table, one_off_within=hours)

        assert result.fire == (at(2, 30), at(6))

    def test_none_runs_none_of_them(self) -> None:
        assert caught_up(MisfirePolicy.NONE, table=self.table).fire == ()


class TestPromises:
    def test_all_that_is_caught_up_must_run(self) -> None:
        result = caught_up(MisfirePolicy.ALL, now=at(4))

        assert result.fire[-1] == at(4)
        assert result.promised == {at(1), at(2), at(3)}

    def test_the_newest_alone_is_a_run_like_any_other(self) -> None:
        assert caught_up(MisfirePolicy.LAST).promised == frozenset()

    def test_one_off_times_must_run(self) -> None:
        result = caught_up(MisfirePolicy.LAST, table=TestOneOffTimes.table)

        assert result.promised == {at(1), at(2, 30)}


class TestRunOnce:
    table = timetable("0 * * * *", run_once=True)

    @pytest.mark.parametrize("policy", sorted(set(MisfirePolicy) - {MisfirePolicy.NONE}))
    def test_the_first_due_time_runs_and_no_other_comes_to_be(self, policy: MisfirePolicy) -> None:
        assert caught_up(policy, table=self.table) == CatchUp((at(1),), (), None)

    def test_an_older_one_than_the_window_makes_way_for_the_next(self) -> None:
        result = caught_up(MisfirePolicy.LAST, table=self.table, within=timedelta(hours=3))

        assert result == CatchUp((at(4),), (missed(1, 3),), None)

    def test_it_goes_on_waiting_if_none_may_run(self) -> None:
        result = caught_up(MisfirePolicy.NONE, table=self.table)

        assert result == CatchUp((), (missed(1, 6),), at(7))

    def test_it_ends_after_a_punctual_run(self) -> None:
        result = caught_up(MisfirePolicy.NONE, table=self.table, now=at(1))

        assert result == CatchUp((at(1),), (), None)


class TestCompletion:
    table = timetable("1h", interval_from=IntervalFrom.COMPLETION)

    def test_only_the_cursor_is_due_and_the_next_waits_for_its_end(self) -> None:
        assert caught_up(MisfirePolicy.LAST, table=self.table) == CatchUp((at(1),), (), None)

    def test_a_missed_one_is_followed_by_an_interval_from_now(self) -> None:
        result = caught_up(MisfirePolicy.NONE, table=self.table)

        assert result == CatchUp((), (missed(1, 1),), at(7, 30))
