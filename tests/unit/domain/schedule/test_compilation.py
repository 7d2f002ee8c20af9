from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from rota.domain.schedule import is_one_off, warnings
from rota.domain.schedule.zones import load_zone
from rota.domain.spec import Dst, Gap, IntervalFrom, Schedule
from tests.unit.domain.schedule.builders import problems_of, timetable, upcoming, utc


@pytest.mark.parametrize(
    ("expression", "complaint"),
    [
        ("0 25 * * *", '"0 25 * * *": hour 25 does not exist (0–23)'),
        ("", "nothing is written"),
        ("soon", 'not a schedule: write cron ("0 2 * * *")'),
        ("every soon", '"soon" is not a duration'),
        ("50ms", "the smallest interval is 100ms"),
        ("0s", "the smallest interval is 100ms"),
        ("2026-02-30T00:00", "not an ISO 8601 time"),
        ("10000-01-01T00:00Z", "outside the years 1970 to 9999"),
        ("1969-12-31T23:00Z", "outside the years 1970 to 9999"),
        ("9999-12-31T23:59:59-12:00", "outside the years 1970 to 9999"),
        ("0001-01-01T00:00+12:00", "outside the years 1970 to 9999"),
        ("x" * 100_000, "not a schedule"),
        ("* " * 100_000, "characters, at most 1000 are read"),
        ("\x00\x1b * * * *", r'minute "\x00\x1b" does not exist'),
    ],
)
def test_a_wrong_expression_is_named_with_the_reason(expression: str, complaint: str) -> None:
    (problem,) = problems_of(expression)

    assert complaint in problem.message
    assert problem.path == "schedule"
    assert len(problem.message) < 300


def test_every_problem_is_reported_at_once() -> None:
    problems = problems_of(
        "61 * * * *",
        "@daily",
        "soon",
        timezone="Mars/Base",
        starts=utc("2026-02-01"),
        ends=utc("2026-01-01"),
    )

    assert {problem.path for problem in problems} == {
        "schedule[0]",
        "schedule[2]",
        "timezone",
        "ends",
    }


def test_an_empty_list_is_refused() -> None:
    (problem,) = problems_of()

    assert problem.path == "schedule"
    assert "on demand" in problem.message


def test_a_very_long_list_is_refused() -> None:
    (problem,) = problems_of(*["@daily"] * 51)

    assert "51 expressions, at most 50" in problem.message


@pytest.mark.parametrize("expressions", [("@daily",), ("30s", "40s"), ("2026-06-01T00:00Z",)])
def test_completion_needs_one_interval(expressions: tuple[str, ...]) -> None:
    (problem,) = problems_of(*expressions, interval_from=IntervalFrom.COMPLETION)

    assert problem.path == "interval_from"


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("Europe/Berln", "did you mean Europe/Berlin?"),
        ("europe/berlin", "did you mean Europe/Berlin?"),
        ("New York", "did you mean America/New_York?"),
        ("CEST", "zones have the names of places, such as Europe/Berlin"),
        ("cest", "zones have the names of places, such as Europe/Berlin"),
        ("CST", "such as Asia/Shanghai or America/Chicago"),
        ("PDT", "such as America/Los_Angeles"),
        ("NEST", "write an IANA name"),
        ("est", "did you mean EST?"),
        ("GMT+1", "write an IANA name"),
        ("", "write an IANA name"),
        ("../../etc/passwd", "write an IANA name"),
        ("/etc/localtime", "write an IANA name"),
        ("Europe/../../etc/passwd", "write an IANA name"),
        ("localtime", "write an IANA name"),
        ("right/Europe/Berlin", "did you mean Europe/Berlin?"),
        ("Europe", "there is no time zone"),
        ("UTC\n", "there is no time zone"),
        ("a" * 100_000, "write an IANA name"),
    ],
)
def test_an_unknown_zone_is_refused_with_the_nearest_name(name: str, hint: str) -> None:
    (problem,) = problems_of("@daily", timezone=name)

    assert problem.path == "timezone"
    assert hint in problem.message
    assert len(problem.message) < 200


@pytest.mark.parametrize("name", ["../../etc/passwd", "/etc/passwd", "a/../../b", ".", "localtime"])
def test_a_name_that_is_no_zone_never_reaches_the_file_system(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: Any) -> None:
        raise AssertionError("looked up")

    monkeypatch.setattr("rota.domain.schedule.zones.ZoneInfo", refuse)

    with pytest.raises(ValueError, match="there is no time zone"):
        load_zone(name)


@pytest.mark.parametrize("text", ["30s", "every 30s", "EVERY 30 s", "PT30S", "0.5m", "30 s"])
def test_intervals_may_be_written_in_several_ways(text: str) -> None:
    found = upcoming("2026-01-01", timetable(text), 2)

    assert found == ["2026-01-01 00:00:30", "2026-01-01 00:01:00"]


def test_a_duration_in_words_is_no_cron_expression() -> None:
    assert upcoming("2026-01-01", timetable("1 h 30 m"), 1) == ["2026-01-01 01:30:00"]


@pytest.mark.parametrize(
    ("text", "due"),
    [
        ("2026-06-01T22:00", "2026-06-01 20:00:00"),
        ("2026-06-01 22:00", "2026-06-01 20:00:00"),
        ("2026-06-01t22:00z", "2026-06-01 22:00:00"),
        ("2026-06-01T22:00-05:00", "2026-06-02 03:00:00"),
        ("20260601T220000", "2026-06-01 20:00:00"),
        ("2026-06-02", "2026-06-01 22:00:00"),
        ("2026-03-29T02:30", "2026-03-29 01:00:00"),
        ("2026-10-25T02:30", "2026-10-25 00:30:00"),
    ],
)
def test_a_time_without_offset_is_local(text: str, due: str) -> None:
    assert upcoming("2026-01-01", timetable(text, timezone="Europe/Berlin")) == [due]


def test_a_time_that_never_comes_is_refused() -> None:
    skipped = problems_of("2026-03-29T02:30", timezone="Europe/Berlin", dst=Dst(gap=Gap.SKIP))
    missing_day = problems_of("2011-12-30T12:00", timezone="Pacific/Apia")

    assert "never comes" in skipped[0].message
    assert "never comes" in missing_day[0].message


def test_four_fields_are_accepted_with_a_warning() -> None:
    (warning,) = warnings(Schedule(("0 2 * *",)))

    assert warning.warning
    assert warning.message == (
        '"0 2 * *" has 4 fields: second minute hour day = every hour at :02:00.'
        ' For 02:00 daily: "0 2 * * *"'
    )


def test_a_warning_offers_only_what_is_valid() -> None:
    first, second = warnings(Schedule(("0 30 2 *", "@daily", "30 2 1 1")))

    assert first.message.endswith("= every day at 02:30:00.")
    assert first.path == "schedule[0]"
    assert second.message.endswith('For at 02:30 on day 1 of January: "30 2 1 1 *"')


@pytest.mark.parametrize(
    ("expression", "message", "hint"),
    [
        (
            "0 0 12 ? * 2-6 *",
            '"0 0 12 ? * 2-6 *" is at 12:00:00 on Tuesday to Saturday:'
            " weekday 1 is Monday, not Sunday as in Quartz",
            "write names: MON-FRI",
        ),
        ("0 9 ? * 1", '"0 9 ? * 1" is at 09:00 on Monday: weekday 1 is', "write names: SUN"),
        ("0 0 9 ? * 6#3", "on the third Saturday of the month", "write names: FRI#3"),
        ("0 0 9 ? * 6L", "on the last Saturday of the month", "write names: FRIL"),
        ("0 0 9 ? * 2/2", "on Tuesday, Thursday and Saturday", "write names: MON/2"),
        ("0 0 9 1 * 2,7 *", "on day 1 of the month or on Tuesday", "write names: MON,SAT"),
        (
            "*/90 * * * *",
            "step 90 is longer than the minute field, only its first value is left",
            "an interval counts regardless of the clock: every 90m",
        ),
        ("0 */36 * * *", "step 36 is longer than the hour field", "every 36h"),
        ("0 0 1 */13 *", "step 13 is longer than the month field", ""),
    ],
)
def test_what_other_schedulers_mean_otherwise_is_accepted_with_a_warning(
    expression: str, message: str, hint: str
) -> None:
    (warning,) = warnings(Schedule((expression,)))

    assert warning.warning
    assert message in warning.message
    assert hint in warning.hint
    assert bool(warning.hint) == bool(hint)


@pytest.mark.parametrize(
    "expression",
    [
        *("0 2 * * *", "0 0 2 * * *", "1 h 30 m", "@daily", "every day at 02:00", "H 2 * * 1-5"),
        *("0 0 12 ? * MON-FRI *", "0 0 12 1 * ? *", "0 9 ? * 0", "0 9 ? * */2", "0 9 * * 1"),
        *("*/60 * * * *", "0 */24 * * *", "0 0 */31 * *", "CRON_TZ=UTC 0 2 * *  *"),
    ],
)
def test_other_forms_bring_no_warning(expression: str) -> None:
    assert warnings(Schedule((expression,))) == []


def test_one_off_schedules_are_told_by_their_text() -> None:
    assert is_one_off(Schedule(("2026-06-01T00:00Z", "2026-06-02")))
    assert is_one_off(Schedule(("@daily",), run_once=True))
    assert not is_one_off(Schedule(("2026-06-01T00:00Z", "30s")))


def test_release_is_shifted_by_stable_amounts_below_spread_and_jitter() -> None:
    due_times = timetable("@hourly").upcoming(utc("2026-01-01"), 50)
    spread = timetable("@hourly", spread=timedelta(minutes=10))
    jitter = timetable("@hourly", jitter=timedelta(minutes=10))

    spread_shifts = {spread.release_at(due) - due for due in due_times}
    jitter_shifts = {jitter.release_at(due) - due for due in due_times}

    assert len(spread_shifts) == 1
    assert len(jitter_shifts) == 50
    for shift in spread_shifts | jitter_shifts:
        assert timedelta(0) <= shift < timedelta(minutes=10)
    assert [jitter.release_at(due) for due in due_times] == [
        timetable("@hourly", jitter=timedelta(minutes=10)).release_at(due) for due in due_times
    ]
