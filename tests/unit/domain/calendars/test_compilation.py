from __future__ import annotations

import pytest

from rota.domain.calendars.compilation import MAX_WINDOWS
from tests.unit.domain.calendars.builders import blackout, errors_of


def test_all_problems_are_reported_at_once() -> None:
    assert errors_of("Satt", "Sun", "day 0", timezone="Europe/Berln") == [
        'timezone  there is no time zone "Europe/Berln": did you mean Europe/Berlin?',
        'windows[0]  "Satt": there is no weekday "Satt": did you mean Sat?',
        'windows[2]  "day 0": day 0 does not exist (1–31)',
    ]


def test_no_zone_leads_to_another_file() -> None:
    (error,) = errors_of("Sat", timezone="../../etc/passwd")

    assert error.startswith("timezone  there is no time zone")


def test_a_calendar_of_nothing_is_refused() -> None:
    assert errors_of() == ["neither windows nor holidays: there is nothing to keep free"]


def test_the_number_of_windows_is_bounded() -> None:
    assert errors_of(*["Sat"] * MAX_WINDOWS) == []
    assert errors_of(*["Sat"] * (MAX_WINDOWS + 1)) == ["windows  101 windows, at most 100 are read"]


@pytest.mark.parametrize(
    "windows",
    [
        ["daily"],
        ["Mon-Fri", "Sat-Sun"],
        ["daily 00:00-12:00", "daily 12:00-24:00"],
        ["daily 08:00-07:00", "daily 06:00-09:00"],
        ["2030-01-01/2033-12-31", "2034-01-01/2036-12-31"],
        ["2030-01-01/2034-12-28", "daily 00:00-23:00", "2034-12-29/2036-12-31"],
    ],
    ids=" and ".join,
)
def test_a_blackout_of_more_than_five_years_is_refused(windows: list[str]) -> None:
    assert errors_of(*windows) == [
        "windows  no run could start for five years or longer: disable the jobs instead"
    ]


def test_a_minute_a_day_is_enough_to_be_free() -> None:
    assert errors_of("daily 00:01-24:00", "2030-01-01/2033-12-31") == []


def test_a_day_that_a_zone_leaves_out_is_refused() -> None:
    (error,) = errors_of("2011-12-30", timezone="Pacific/Apia")

    assert error.endswith("never comes: clocks in Pacific/Apia are put forward past it")


def test_equal_calendars_are_compiled_once() -> None:
    assert blackout("Sat", timezone="Asia/Tokyo") is blackout("Sat", timezone="Asia/Tokyo")
