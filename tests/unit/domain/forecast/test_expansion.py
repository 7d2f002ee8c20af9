"""Which due times start, and when: as firing itself would have it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from rota.domain.forecast.expansion import MOST_OF_ONE, Coming, Expanded, drop_overlapping, expand
from rota.domain.ids import instant
from rota.domain.spec import IntervalFrom, Overlap
from tests.unit.domain.calendars.builders import blackout
from tests.unit.domain.calendars.builders import waiting as shut
from tests.unit.domain.schedule.builders import timetable, utc

SECOND = 1_000_000
DAY = timedelta(days=1)
MIDNIGHT = utc("2026-01-05")  # a Monday


def coming(text: str, *blackouts: Any, **fields: Any) -> Coming:
    table = timetable(text, **fields)
    first = table.next_after(MIDNIGHT - timedelta(microseconds=1))
    assert first is not None
    return Coming(table, first, blackouts)


def clock(times: Any) -> list[str]:
    return [f"{instant(at):%H:%M}" for at in times]


def test_due_times_come_from_the_cursor_to_the_end() -> None:
    found = expand(coming("0 */6 * * *"), MIDNIGHT + DAY)

    assert clock(found.due) == ["00:00", "06:00", "12:00", "18:00", "00:00"]
    assert found.ready == found.due


def test_a_spread_moves_the_start_and_not_the_due_time() -> None:
    spread = coming("0 */6 * * *", spread=timedelta(hours=1))
    found = expand(spread, MIDNIGHT + DAY)

    delay = spread.table.spread_delay // timedelta(microseconds=1)
    assert delay > 0
    assert [ready - due for due, ready in zip(found.due, found.ready, strict=True)] == [delay] * 5


def test_a_calendar_rules_out_or_moves_what_lies_in_its_windows() -> None:
    closed = "Mon 05:00-13:00"

    skipping = expand(coming("0 */6 * * *", blackout(closed)), MIDNIGHT + DAY)
    waiting = expand(coming("0 */6 * * *", shut(closed)), MIDNIGHT + DAY)

    assert clock(skipping.due) == ["00:00", "18:00", "00:00"]
    assert clock(waiting.due) == ["00:00", "12:00", "18:00", "00:00"]  # 06:00 is made up for
    assert clock(waiting.ready) == ["00:00", "13:00", "18:00", "00:00"]


@pytest.mark.parametrize("fields", [{"run_once": True}, {"interval_from": IntervalFrom.COMPLETION}])
def test_only_the_first_is_known_where_the_next_depends_on_it(fields: dict[str, Any]) -> None:
    assert len(expand(coming("1h", **fields), MIDNIGHT + DAY).due) == 1


def test_a_dense_schedule_is_cut_where_it_gets_too_much() -> None:
    found = expand(coming("1s"), MIDNIGHT + DAY)

    assert found.is_cut
    assert abs(len(found.due) - MOST_OF_ONE) <= 1
    assert not expand(coming("30s"), MIDNIGHT + DAY).is_cut


@pytest.mark.parametrize(
    ("overlap", "left"),
    [
        (Overlap.SKIP, [0, 30, 60]),
        (Overlap.QUEUE_ONE, [0, 20, 40, 60]),  # those at 10, 30 and 50 are superseded
        (Overlap.QUEUE_ALL, [0, 10, 20, 30, 40, 50, 60]),
        (Overlap.ALLOW, [0, 10, 20, 30, 40, 50, 60]),
    ],
)
def test_due_times_that_find_a_run_going_come_to_what_the_rule_says(
    overlap: Overlap, left: list[int]
) -> None:
    times = [at * SECOND for at in range(0, 70, 10)]

    found = drop_overlapping(Expanded(times, times), overlap, 25.0)

    assert [at // SECOND for at in found.due] == left


def test_runs_that_end_in_time_are_all_kept() -> None:
    times = [at * SECOND for at in range(0, 70, 10)]

    assert list(drop_overlapping(Expanded(times, times), Overlap.SKIP, 10.0).due) == times
