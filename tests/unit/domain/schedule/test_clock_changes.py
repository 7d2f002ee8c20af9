from __future__ import annotations

import pytest

from rota.domain.schedule import clock_changes, clock_remark
from rota.domain.spec import Dst, Fold, Gap
from tests.unit.domain.schedule.builders import timetable, utc

SKIP_AND_BOTH = Dst(Gap.SKIP, Fold.BOTH)


@pytest.mark.parametrize(
    ("expression", "dst", "texts"),
    [
        (
            "30 2 * * *",
            Dst(),
            [
                "Sun 29 Mar 03:00 (02:30 does not exist, clocks go forward)",
                "Sun 25 Oct 02:30 once (comes twice, clocks go back)",
            ],
        ),
        (
            "0,20,40 2 * * *",
            SKIP_AND_BOTH,
            [
                "Sun 29 Mar no run at 02:00–02:40 (does not exist, clocks go forward)",
                "Sun 25 Oct 02:00–02:40 both times (comes twice, clocks go back)",
            ],
        ),
    ],
)
def test_the_next_changes_are_told_with_their_effect(
    expression: str, dst: Dst, texts: list[str]
) -> None:
    table = timetable(expression, timezone="Europe/Berlin", dst=dst)

    changes = clock_changes(table, utc("2026-01-01"))

    assert [change.text for change in changes] == texts
    assert [change.at for change in changes] == [utc("2026-03-29 01:00"), utc("2026-10-25 01:00")]


@pytest.mark.parametrize("expression", ["0 12 * * *", "0 3 * * *", "0 2 * * MON", "30s"])
def test_a_schedule_away_from_the_change_is_not_affected(expression: str) -> None:
    table = timetable(expression, timezone="Europe/Berlin")

    assert clock_changes(table, utc("2026-01-01")) == ()


@pytest.mark.parametrize("expression", ["*/30 * * * *", "15 * * * *", "* */1 * * *"])
def test_a_schedule_that_is_due_in_every_hour_notices_no_change(expression: str) -> None:
    table = timetable(expression, timezone="Europe/Berlin")

    assert clock_changes(table, utc("2026-01-01")) == ()
    assert clock_remark(table, utc("2026-10-25 00:30")) == ""


@pytest.mark.parametrize(
    ("expression", "span"), [("*/30 2 * * *", "02:00–02:30"), ("0 */2 * * *", "02:00")]
)
def test_an_elapsed_schedule_of_certain_hours_is_told(expression: str, span: str) -> None:
    table = timetable(expression, timezone="Europe/Berlin")

    first, second = clock_changes(table, utc("2026-01-01"))

    assert first.text == f"Sun 29 Mar no run at {span} (does not exist, clocks go forward)"
    assert second.text == f"Sun 25 Oct {span} both times (comes twice, clocks go back)"


def test_the_year_is_told_where_it_is_another() -> None:
    table = timetable("30 2 * * *", timezone="Europe/Berlin")

    [back, forward] = clock_changes(table, utc("2026-08-01"))

    assert back.text.startswith("Sun 25 Oct 02:30")
    assert forward.text.startswith("Sun 28 Mar 2027 03:00")


def test_each_expression_of_a_list_is_told() -> None:
    table = timetable("30 2 * * *", "45 2 * * *", "0 9 * * *", timezone="Europe/Berlin")

    (change,) = clock_changes(table, utc("2026-01-01"), limit=1)

    assert change.text == (
        "Sun 29 Mar 03:00 (02:30 does not exist, clocks go forward);"
        " Sun 29 Mar 03:00 (02:45 does not exist, clocks go forward)"
    )


def test_a_missing_day_is_told() -> None:
    table = timetable("30 2 * * *", timezone="Pacific/Apia")

    change = clock_changes(table, utc("2011-12-01"))[0]

    assert change.text == "Fri 30 Dec no run at 02:30 (does not exist, clocks go forward)"


@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo", "Etc/GMT+5"])
def test_zones_that_keep_their_clocks_have_no_changes(zone: str) -> None:
    assert clock_changes(timetable("@daily", timezone=zone), utc("2026-01-01")) == ()


@pytest.mark.parametrize(
    ("due", "remark"),
    [
        ("2026-03-28 01:30", ""),
        ("2026-03-29 01:00", "02:30 does not exist, clocks go forward"),
        ("2026-10-25 00:30", "02:30 comes twice, clocks go back: the first"),
        ("2026-10-25 01:30", "02:30 comes twice, clocks go back: the second"),
        ("2026-10-26 01:30", ""),
    ],
)
def test_an_odd_due_time_is_explained(due: str, remark: str) -> None:
    table = timetable("30 2 * * *", "@hourly", timezone="Europe/Berlin", dst=Dst(fold=Fold.BOTH))

    assert clock_remark(table, utc(due)) == remark
