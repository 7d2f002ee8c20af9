from __future__ import annotations

import pytest

from rota.domain.schedule import Kind, describe, is_one_off
from rota.domain.spec import IntervalFrom, Schedule
from tests.unit.domain.schedule.builders import problems_of, timetable, upcoming


@pytest.mark.parametrize(
    ("words", "expression"),
    [
        ("every day at 02:00", "0 2 * * *"),
        ("Every Day at 2:00", "0 2 * * *"),
        ("at 02:00", "0 2 * * *"),
        ("every day at 02:30:15 UTC", "15 30 2 * * *"),
        ("every day at 02:00, 02:20 and 02:40", "0,20,40 2 * * *"),
        ("every day at 02:15, 02:45, 14:15 and 14:45", "15,45 2,14 * * *"),
        ("at 02:30 on Monday to Friday, UTC", "30 2 * * 1-5"),
        ("at 02:30 on mon and fri", "30 2 * * 1,5"),
        ("at 02:30 on Monday, Friday", "30 2 * * 1,5"),
        ("every day at 03:07 in January to March", "7 3 * 1-3 *"),
        ("at 00:00 on days 1 to 7 of May", "0 0 1-7 5 *"),
        ("at 00:00 on days 1 and 15 of the month or on Monday", "0 0 1,15 * MON"),
        ("at 00:00 on days 1, 11, 21 and 31 of the month if also on Monday", "0 0 */10 * 1"),
        (
            "at 00:00 on days 1 and 15, the last day and the last workday of May",
            "0 0 1,15,L,LW 5 *",
        ),
        ("at 00:00 on the last day but 3 of the month", "0 0 L-3 * *"),
        ("at 00:00 on the workday nearest day 15 of the month", "0 0 15W * *"),
        ("at 00:00 on the workday nearest the last day but 2 of the month", "0 0 L-2W * *"),
        ("at 00:00 on Monday in May and on the second Friday of May", "0 0 * 5 1,5#2"),
        ("at 00:00 on the second Friday and the last Monday of the month", "0 0 * * 5#2,1L"),
        ("every 15 minutes on Sunday", "*/15 * * * SUN"),
        ("every minute in May", "* * * 5 *"),
        ("every 15 minutes from 09:00 to 17:45", "*/15 9-17 * * *"),
        ("every 15 minutes from 22:00 to 02:45", "*/15 22-2 * * *"),
        ("every 10 seconds from 09:00:00 to 17:59:50", "*/10 * 9-17 * * *"),
        ("every hour from 09:30 to 17:30", "30 9-17 * * *"),
        ("every hour at :00", "0 * * * *"),
        ("every 2 hours at :15 and :45", "15,45 */2 * * *"),
        ("every hour at :02:00", "0 2 * *"),
        ("every minute at second 10 and 30", "10,30 * * * * *"),
        ("whenever the clock shows minute 0, hour 0 to 2, 22 and 23", "0 22-2 * * *"),
        ("whenever the clock shows second 5, minute 0 and 7, hour 2, 5 and 8", "5 0,7 2-9/3 * * *"),
    ],
)
def test_words_are_read_as_the_expression_that_they_are_printed_for(
    words: str, expression: str
) -> None:
    read, written = timetable(words), timetable(expression)

    assert describe(read) == describe(written)
    assert upcoming("2026-01-30 12:00", read, 30) == upcoming("2026-01-30 12:00", written, 30)


@pytest.mark.parametrize(
    ("words", "length"),
    [
        ("every 5 minutes", "5m"),
        ("every 10 seconds", "10s"),
        ("EVERY 10 SECONDS UTC", "10s"),
        ("every hour", "1h"),
        ("every day", "24h"),
        ("every week", "1w"),
        ("every 5 min", "5m"),
        ("every 1 hour 30 minutes", "1h30m"),
        ("1 hour 30 minutes", "1h30m"),
        ("every 1.5 hours", "90m"),
        ("every 200 milliseconds", "200ms"),
        ("every 100 milliseconds 500 microseconds", "100.5ms"),
        ("every 1 second 1 microsecond", "1000.001ms"),
        ("@every 5m", "5m"),
        ("@every 1h30m10s", "1h30m10s"),
    ],
)
def test_amounts_in_words_are_intervals(words: str, length: str) -> None:
    assert timetable(words) == timetable(length)
    assert timetable(words).kinds == (Kind.INTERVAL,)


def test_an_interval_in_words_may_count_from_the_end_of_a_run() -> None:
    table = timetable("every 5 minutes", interval_from=IntervalFrom.COMPLETION)

    assert describe(table) == "5 minutes after the previous run ends"


def test_a_single_time_in_words_is_that_time() -> None:
    table = timetable("once at 2026-06-01 22:00, Europe/Berlin", timezone="Europe/Berlin")

    assert upcoming("2026-01-01", table) == ["2026-06-01 20:00:00"]
    assert is_one_off(Schedule(("once at 2026-06-01 22:00 UTC",)))


@pytest.mark.parametrize(
    "text",
    [
        "CRON_TZ=Europe/London 23 5 * * *",
        "TZ=Europe/London 23 5 * * *",
        "every day at 05:23, Europe/London",
    ],
)
def test_a_zone_in_an_expression_must_be_that_of_the_schedule(text: str) -> None:
    (problem,) = problems_of(text)

    assert "names the zone Europe/London, but the schedule is in UTC" in problem.message
    assert "timezone: Europe/London" in problem.message
    assert describe(timetable(text, timezone="Europe/London")) == (
        "every day at 05:23, Europe/London"
    )


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("at noon", '"noon" is not a time of day such as 02:30'),
        ("at :05", "not a schedule in words"),
        ("every Monday at 09:00", '"at 09:00 on Monday to Friday"'),
        ("every hour on Monday", "not a schedule in words"),
        ("every hour at :05 and 02:05", "no single expression has these times"),
        ("every day at 25:00", "hour 25 does not exist (0–23)"),
        ("every day at 02:00 on Monday", '"every day" is not "on Monday"'),
        ("at 02:00 and 02:00:30", "no single expression has these times"),
        ("at 02:00 on 5", 'numbers are days: write "on day 5"'),
        ("at 02:00 on Monday and on 5", 'numbers are days: write "on day 5"'),
        ("at 02:00 on H", '"H" is neither a number nor a name'),
        ("at 02:00 on */2", '"*/2" is neither a number nor a name'),
        ("whenever the clock shows minute H, hour *", '"*" is neither a number nor a name'),
        ("at 02:00 on weekdays", 'weekday "weekdays" does not exist'),
        ("at 02:00 and 14:30", "no single expression has these times alone: write a list"),
        ("at 02:00 on day 30 of February", "never due"),
        ("at 02:00 on day 1 or on day 3", "days or weekdays are listed once"),
        ("at 02:00 on day 1 and Monday", 'write "or on"'),
        ("at 02:00 on day 1 of May or on Monday in June", "in the same months"),
        ("every 15 minutes from 09:00 to 17:00", "write from 09:00 to 17:45"),
        ("every 10 seconds from 09:00 to 17:59", "write from 09:00:00 to 17:59:50"),
        ("every hour from 09:30 to 17:00", "every hour from 09:30 ends with 17:30"),
        ("every 7 minutes on Sunday", "7 does not divide an hour"),
        ("every 0 minutes on Sunday", "0 does not divide an hour"),
        ("every 5 hours at :00", "5 does not divide a day"),
        ("every blue moon", '"blue moon" is not a duration'),
        ("every 5", '"5" has no unit'),
        ("every day at 00:00; every 10 seconds, UTC", "write them as a list"),
        ("every 10 seconds, until 2026-03-01 12:30", "write ends: TIME"),
        ("every day at 00:00 UTC, from 2026-02-01 00:00", "write starts: TIME"),
        ("every day at 00:00 UTC, the first time only", "write run_once: true"),
        ("5 minutes after the previous run ends", "write interval_from: completion"),
        ("every day at 02:00, Mars/Olympus", "there is no time zone"),
        ("at " + "02:00, " * 500 + "02:00", "characters, at most 1000 are read"),
        ("@every", "@minutely or @every 5m"),
        ("@every 50ms", "the smallest interval is 100ms"),
    ],
)
def test_words_that_mean_no_single_schedule_are_refused_with_the_reason(
    words: str, complaint: str
) -> None:
    (problem,) = problems_of(words)

    assert complaint in problem.message
    assert len(problem.message) < 300
