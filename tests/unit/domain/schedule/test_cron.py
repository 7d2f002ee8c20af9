from __future__ import annotations

import re
from dataclasses import replace

import pytest

from rota.domain.schedule import Kind
from rota.domain.schedule.cron import MAX_TERMS, Cron, parse_cron
from tests.unit.domain.schedule.builders import timetable, upcoming


def cron(text: str, key: str = "j_test") -> Cron:
    return parse_cron(text, key)


@pytest.mark.parametrize(
    ("field", "minutes"),
    [
        ("5", (5,)),
        ("1-4", (1, 2, 3, 4)),
        ("3,1,3", (1, 3)),
        ("*/20", (0, 20, 40)),
        ("10-30/10", (10, 20, 30)),
        ("50/4", (50, 54, 58)),
        ("58-2", (0, 1, 2, 58, 59)),
        ("55-5/5", (0, 5, 55)),
        ("*/59", (0, 59)),
        ("*/60", (0,)),
        ("*/90", (0,)),
        ("*/123456", (0,)),
        ("10-30/60", (10,)),
        ("50/60", (50,)),
    ],
)
def test_terms_stand_for_values(field: str, minutes: tuple[int, ...]) -> None:
    assert cron(f"{field} * * * *").minutes == minutes


@pytest.mark.parametrize(
    ("expression", "due"),
    [
        ("0 */24 * * *", ["01-31 00:00:00", "02-01 00:00:00"]),
        ("*/60 * * * *", ["01-30 13:00:00", "01-30 14:00:00"]),
        ("*/60 * * * * *", ["01-30 12:01:00", "01-30 12:02:00"]),
        ("0 0 */31 * *", ["02-01 00:00:00", "03-01 00:00:00"]),
        ("0 0 */32 * *", ["02-01 00:00:00", "03-01 00:00:00"]),
        ("0 0 1 */12 *", ["01-01 00:00:00", "01-01 00:00:00"]),
        ("0 0 1 */13 *", ["01-01 00:00:00", "01-01 00:00:00"]),
        ("0 0 * * */7", ["02-01 00:00:00", "02-08 00:00:00"]),
        ("0 0 * * */8", ["02-01 00:00:00", "02-08 00:00:00"]),
    ],
)
def test_a_step_past_the_end_of_any_field_leaves_its_first_value(
    expression: str, due: list[str]
) -> None:
    found = upcoming("2026-01-30 12:00", timetable(expression), 2)

    assert [time.partition("-")[2] for time in found] == due


def test_fields_have_their_places_in_each_form() -> None:
    four, five, six = cron("1 2 3 4"), cron("2 3 4 5 6"), cron("1 2 3 4 5 6")

    assert (four.seconds, four.minutes, four.hours) == ((1,), (2,), (3,))
    assert (five.seconds, five.minutes, five.hours) == ((0,), (2,), (3,))
    assert (six.seconds, six.minutes, six.hours) == ((1,), (2,), (3,))
    assert five.days == six.days
    assert [four.has_seconds, five.has_seconds, six.has_seconds] == [True, False, True]


@pytest.mark.parametrize(
    ("expression", "due"),
    [
        ("0 0 * * 0", ["2026-02-01", "2026-02-08", "2026-02-15"]),
        ("0 0 * * 7", ["2026-02-01", "2026-02-08", "2026-02-15"]),
        ("0 0 * * sat-sun", ["2026-01-31", "2026-02-01", "2026-02-07"]),
        ("0 0 * * 5-7", ["2026-01-31", "2026-02-01", "2026-02-06"]),
        ("0 0 * * FRI-MON", ["2026-01-31", "2026-02-01", "2026-02-02"]),
        ("0 0 1 NOV-FEB *", ["2026-02-01", "2026-11-01", "2026-12-01"]),
        ("0 0 L * *", ["2026-01-31", "2026-02-28", "2026-03-31"]),
        ("0 0 L-3 * *", ["2026-02-25", "2026-03-28", "2026-04-27"]),
        ("0 0 L-1W * *", ["2026-02-27", "2026-03-30", "2026-04-29"]),
        ("0 0 L-1W 5,8 *", ["2026-05-29", "2026-08-31", "2027-05-31"]),
        ("0 0 L-28W 2 *", ["2028-02-01", "2032-02-02", "2036-02-01"]),
        ("0 0 1,L * *", ["2026-01-31", "2026-02-01", "2026-02-28"]),
        ("0 0 LW * *", ["2026-02-27", "2026-03-31", "2026-04-30"]),
        ("0 0 15W * *", ["2026-02-16", "2026-03-16", "2026-04-15"]),
        ("0 0 1W * *", ["2026-02-02", "2026-03-02", "2026-04-01"]),
        ("0 0 1W 8 *", ["2026-08-03", "2027-08-02", "2028-08-01"]),
        ("0 0 31W * *", ["2026-03-31", "2026-05-29", "2026-07-31"]),
        ("0 0 * * 5#2", ["2026-02-13", "2026-03-13", "2026-04-10"]),
        ("0 0 * * MON#5", ["2026-03-30", "2026-06-29", "2026-08-31"]),
        ("0 0 * * 5L", ["2026-02-27", "2026-03-27", "2026-04-24"]),
        ("0 0 ? * MON", ["2026-02-02", "2026-02-09", "2026-02-16"]),
        ("0 0 29 2 *", ["2028-02-29", "2032-02-29", "2036-02-29"]),
        ("0 0 29 2 */7", ["2032-02-29", "2060-02-29", "2088-02-29"]),
        ("0 0 * * friday", ["2026-02-06", "2026-02-13", "2026-02-20"]),
        ("0 0 * * Saturday-Sunday", ["2026-01-31", "2026-02-01", "2026-02-07"]),
        ("0 0 * * FRIDAY#2", ["2026-02-13", "2026-03-13", "2026-04-10"]),
        ("0 0 * * fridayL", ["2026-02-27", "2026-03-27", "2026-04-24"]),
        ("0 0 1 january,may *", ["2026-05-01", "2027-01-01", "2027-05-01"]),
        ("0 0 0 1 * ? *", ["2026-02-01", "2026-03-01", "2026-04-01"]),
        ("0 0 0 ? * MON ?", ["2026-02-02", "2026-02-09", "2026-02-16"]),
        ("@weekly", ["2026-02-01", "2026-02-08", "2026-02-15"]),
        ("@monthly", ["2026-02-01", "2026-03-01", "2026-04-01"]),
        ("@Yearly", ["2027-01-01", "2028-01-01", "2029-01-01"]),
        ("@annually", ["2027-01-01", "2028-01-01", "2029-01-01"]),
        ("@midnight", ["2026-01-31", "2026-02-01", "2026-02-02"]),
    ],
)
def test_dates_are_those_of_vixie_and_quartz(expression: str, due: list[str]) -> None:
    found = upcoming("2026-01-30 12:00", timetable(expression))

    assert found == [f"{date} 00:00:00" for date in due]


def test_minutely_is_every_minute() -> None:
    assert cron("@minutely") == replace(cron("* * * * *"), text="@MINUTELY")


def test_restricted_day_and_weekday_mean_either() -> None:
    found = upcoming("2026-06-01 12:00", timetable("0 0 13 * FRI"), 3)

    assert found == ["2026-06-05 00:00:00", "2026-06-12 00:00:00", "2026-06-13 00:00:00"]


def test_a_day_field_that_starts_with_a_star_is_not_restricted() -> None:
    found = upcoming("2026-06-01 12:00", timetable("0 0 */2 * FRI"), 2)

    assert found == ["2026-06-05 00:00:00", "2026-06-19 00:00:00"]


@pytest.mark.parametrize(
    ("expression", "kind"),
    [
        ("30 2 * * *", Kind.FIXED),
        ("0-59 2 * * *", Kind.FIXED),
        ("* 30 2 * * *", Kind.FIXED),
        ("H H * * *", Kind.FIXED),
        ("@daily", Kind.FIXED),
        ("*/15 2 * * *", Kind.ELAPSED),
        ("30 * * * *", Kind.ELAPSED),
        ("0 2 * *", Kind.ELAPSED),
        ("@hourly", Kind.ELAPSED),
    ],
)
def test_a_star_in_front_of_minute_or_hour_makes_it_elapsed(expression: str, kind: Kind) -> None:
    assert timetable(expression).kinds == (kind,)


def test_hashed_values_are_stable_for_a_job_and_differ_between_jobs() -> None:
    minutes = {key: cron("H * * * *", key).minutes for key in map(str, range(50))}

    assert minutes == {key: cron("H * * * *", key).minutes for key in minutes}
    assert len(set(minutes.values())) > 20


def test_hashed_values_stay_in_their_range() -> None:
    for key in map(str, range(200)):
        assert 10 <= cron("H(10-19) * * * *", key).minutes[0] <= 19
        first, second, third = cron("H(0-29)/10 * * * *", key).minutes
        assert first < 10
        assert (second, third) == (first + 10, first + 20)
        assert cron("H/30 * * * *", key).minutes[1] < 60


@pytest.mark.parametrize(
    ("expression", "complaint"),
    [
        ("60 * * * *", "minute 60 does not exist (0–59)"),
        ("0 25 * * *", "hour 25 does not exist (0–23)"),
        ("0 0 0 * *", "day 0 does not exist (1–31)"),
        ("0 0 32 * *", "day 32 does not exist (1–31)"),
        ("0 0 * 13 *", "month 13 does not exist (1–12 or JAN–DEC)"),
        ("0 0 * MAI *", 'month "MAI" does not exist (1–12 or JAN–DEC)'),
        ("0 0 * * 8", "weekday 8 does not exist (0–7 or SUN–SAT)"),
        ("61 0 0 * * *", "second 61 does not exist (0–59)"),
        ("-5 * * * *", 'minute "-5" is half a range: write first-last (0–59)'),
        ("0 9- * * *", 'hour "9-" is half a range: write first-last (0–23)'),
        ("/2 * * * *", 'minute "/2" has nothing before the slash: write "*/2"'),
        ("0 0 * * ſun", 'weekday "ſun" does not exist (0–7 or SUN–SAT)'),
        ("0 0 * * frı", 'weekday "frı" does not exist (0–7 or SUN–SAT)'),
        ("0 0 * ſep *", 'month "ſep" does not exist (1–12 or JAN–DEC)'),
        ("0 0 * * frid", 'weekday "frid" does not exist (0–7 or SUN–SAT)'),
        ("1.5 * * * *", 'minute "1.5" does not exist (0–59)'),
        ("٣ * * * *", 'minute "٣" does not exist (0–59)'),
        ("1,,2 * * * *", 'minute "1,,2" has an empty term'),
        ("*/0 * * * *", "minute step 0 never moves on"),
        ("*/x * * * *", 'minute step "x" is not a number'),
        ("? * * * *", 'minute "?" does not exist (0–59)'),
        ("H(5) * * * *", "write H or H(first-last)"),
        ("H(9-5) * * * *", "the range of H must ascend"),
        ("0 0 * * L", "5L is the last Friday"),
        ("0 0 * * 5#6", "a month has at most 5 of each"),
        ("0 0 * * FRI#L", 'weekday "FRI#L": the last one is written FRIL'),
        ("0 0 L-0 * *", 'day "L-0": the last day is L'),
        ("0 0 L-0W * *", 'day "L-0W": the last day is LW'),
        ("0 0 29-L * *", 'day "29-L": write 29-31, days that a month does not have are left out'),
        ("0 0 30 2 *", "never due: no date is day 30 of month 2"),
        ("0 0 31 2,4,6,9,11 *", "never due: no date is day 31 of month 2,4,6,9,11"),
        ("0 0 31W 2 ?", "never due: no date is day 31W of month 2"),
        ("0 0 LW * */7", "never due: no date is day LW of month * on weekday */7"),
        ("* * *", "3 fields: cron has 5"),
        ("* * * * * * * *", "8 fields: cron has 5"),
        ("0 0 12 * * ? 2027", 'year "2027": no field stands for the year'),
        ("0 0 12 * * ? 2027-2030", "bound the schedule by starts and ends"),
        ("0 12 * * * 2027", 'year "2027": no field stands for the year'),
        ("@reboot", "trigger the job instead"),
        ("@nightly", "not one of @yearly"),
    ],
)
def test_a_wrong_expression_is_refused_with_the_reason(expression: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=re.escape(complaint)):
        cron(expression)


def test_an_impossible_day_is_fine_if_a_weekday_can_stand_for_it() -> None:
    found = upcoming("2026-01-30 12:00", timetable("0 0 30 2 MON"), 1)

    assert found == ["2026-02-02 00:00:00"]


def test_endless_expressions_are_refused() -> None:
    with pytest.raises(ValueError, match="at most 1000"):
        cron("1," * 600 + "1 * * * *")
    with pytest.raises(ValueError, match=f"200 terms, at most {MAX_TERMS}"):
        cron(",".join(["1"] * 196) + " * * * *")


def test_every_value_of_every_field_may_be_written_out() -> None:
    lists = [range(60), range(60), range(24), range(1, 32), range(1, 13), range(7)]

    assert len(cron(" ".join(",".join(map(str, values)) for values in lists)).minutes) == 60


def test_a_hashed_day_exists_in_every_month() -> None:
    for key in map(str, range(100)):
        assert len(upcoming("2026-01-31 23:59", timetable("0 0 H 2 *", key=key), 3)) == 3
