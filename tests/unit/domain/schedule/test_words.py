from __future__ import annotations

import pytest

from rota.domain.schedule import describe
from rota.domain.spec import IntervalFrom
from tests.unit.domain.schedule.builders import timetable, utc


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("0 0 * * *", "every day at 00:00 UTC"),
        ("0 30 2 * * *", "every day at 02:30:00 UTC"),
        ("0 0,12 * * *", "every day at 00:00 and 12:00 UTC"),
        ("H 2 * * *", "every day at 02:34 UTC"),
        ("0 0 1-31 * 1", "every day at 00:00 UTC"),
        ("7 3 * 1-3 *", "every day at 03:07 in January to March, UTC"),
        ("30 2 * * 1-5", "at 02:30 on Monday to Friday, UTC"),
        ("0 0 * * 6,0", "at 00:00 on Saturday and Sunday, UTC"),
        ("0 0 * * 5-7", "at 00:00 on Friday to Sunday, UTC"),
        ("0 0 1,15 * MON", "at 00:00 on days 1 and 15 of the month or on Monday, UTC"),
        ("0 0 1-7 5 *", "at 00:00 on days 1 to 7 of May, UTC"),
        ("0 0 */10 * 1", "at 00:00 on days 1, 11, 21 and 31 of the month if also on Monday, UTC"),
        ("0 0 L 2 *", "at 00:00 on the last day of February, UTC"),
        ("0 0 L-3 * *", "at 00:00 on the last day but 3 of the month, UTC"),
        ("0 0 LW * *", "at 00:00 on the last workday of the month, UTC"),
        ("0 0 L-3W * *", "at 00:00 on the workday nearest the last day but 3 of the month, UTC"),
        ("0 */24 * * *", "every day at 00:00 UTC"),
        ("0 0 15W * *", "at 00:00 on the workday nearest day 15 of the month, UTC"),
        ("0 0 * * 5#2,1L", "at 00:00 on the second Friday and the last Monday of the month, UTC"),
        ("@yearly", "at 00:00 on day 1 of January, UTC"),
        ("* * * * *", "every minute"),
        ("* * * * * *", "every second"),
        ("*/10 * * * * *", "every 10 seconds"),
        ("10,30 * * * * *", "every minute at second 10 and 30 UTC"),
        ("*/15 * * * *", "every 15 minutes"),
        ("*/15 * * * SUN", "every 15 minutes on Sunday, UTC"),
        ("*/15 9-17 * * *", "every 15 minutes from 09:00 to 17:45 UTC"),
        ("* 9 * * *", "every minute from 09:00 to 09:59 UTC"),
        ("30 9-17 * * *", "every hour from 09:30 to 17:30 UTC"),
        ("@hourly", "every hour at :00 UTC"),
        ("15,45 * * * *", "every hour at :15 and :45 UTC"),
        ("0 2 * *", "every hour at :02:00 UTC"),
        ("0 */2 * * *", "every 2 hours at :00 UTC"),
        (
            "*/7 2-9/3 * * *",
            "whenever the clock shows"
            " minute 0, 7, 14, 21, 28, 35, 42, 49 and 56, hour 2, 5 and 8 UTC",
        ),
        ("0 22-2 * * *", "whenever the clock shows minute 0, hour 0 to 2, 22 and 23 UTC"),
        ("10s", "every 10 seconds"),
        ("1h", "every hour"),
        ("1h30m", "every 1 hour 30 minutes"),
        ("200ms", "every 200 milliseconds"),
        ("2026-06-01T22:00", "once at 2026-06-01 22:00 UTC"),
        ("2026-06-01T22:00:07.5", "once at 2026-06-01 22:00:07.500000 UTC"),
    ],
)
def test_expressions_are_put_into_words(expression: str, words: str) -> None:
    assert describe(timetable(expression)) == words


def test_another_zone_is_named() -> None:
    weekdays = timetable("30 2 * * 1-5", timezone="Europe/Berlin")
    once = timetable("2026-06-01T20:00Z", timezone="Europe/Berlin")

    assert describe(weekdays) == "at 02:30 on Monday to Friday, Europe/Berlin"
    assert describe(once) == "once at 2026-06-01 22:00, Europe/Berlin"


def test_several_expressions_and_limits_are_all_told() -> None:
    table = timetable(
        "@daily", "10s", starts=utc("2026-02-01"), ends=utc("2026-03-01 12:30"), run_once=True
    )

    assert describe(table) == (
        "every day at 00:00; every 10 seconds, UTC, from 2026-02-01 00:00,"
        " until 2026-03-01 12:30, the first time only"
    )


def test_completion_is_told() -> None:
    table = timetable("90s", interval_from=IntervalFrom.COMPLETION)

    assert describe(table) == "1 minute 30 seconds after the previous run ends"
