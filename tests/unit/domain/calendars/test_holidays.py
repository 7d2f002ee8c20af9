from __future__ import annotations

import sys

import pytest

from rota.domain.calendars import Holidays, in_words
from tests.unit.domain.calendars.builders import blackout, closed, end, errors_of
from tests.unit.domain.schedule.builders import utc

BAVARIA = Holidays("DE", "BY")


@pytest.fixture
def _package() -> None:
    pytest.importorskip("holidays", reason="the extra `holidays` is not installed")


def test_without_the_package_holidays_are_refused_with_what_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "holidays", None)

    assert errors_of("Sat", holidays=BAVARIA) == [
        "holidays  holidays need a package that is not installed — pip install rota[holidays]"
    ]


@pytest.mark.usefixtures("_package")
def test_holidays_are_whole_days_of_the_zone() -> None:
    bavaria = blackout(holidays=BAVARIA, timezone="Europe/Berlin")

    assert closed("2026-12-20", bavaria, 2) == [
        "2026-12-25 00:00 – 2026-12-27 00:00",
        "2027-01-01 00:00 – 2027-01-02 00:00",
    ]


@pytest.mark.usefixtures("_package")
def test_a_subdivision_has_holidays_of_its_own() -> None:
    epiphany = utc("2026-01-06 12:00")

    assert blackout(holidays=BAVARIA).is_inside(epiphany)
    assert not blackout(holidays=Holidays("DE")).is_inside(epiphany)


@pytest.mark.usefixtures("_package")
def test_holidays_and_windows_are_one_blackout() -> None:
    """3 April 2026 is Good Friday, 6 April Easter Monday."""
    calendar = blackout("Sat,Sun", holidays=BAVARIA)

    assert end("2026-04-03 10:00", calendar) == "2026-04-07 00:00:00"
    assert in_words(calendar) == (
        "all day on Saturday and Sunday; all day on public holidays of DE (BY), UTC:"
        " due times inside are skipped"
    )


@pytest.mark.usefixtures("_package")
@pytest.mark.parametrize(
    ("holidays", "error"),
    [
        (
            Holidays("XX"),
            'holidays.country  there are no holidays of a country "XX"'
            " — write two capital letters such as DE",
        ),
        (
            Holidays("HolidayBase"),
            'holidays.country  there are no holidays of a country "HolidayBase"'
            " — write two capital letters such as DE",
        ),
        (
            Holidays("DE", "BYX"),
            'holidays.subdivision  DE has no subdivision "BYX" — did you mean "BY"?',
        ),
    ],
    ids=str,
)
def test_unknown_holidays_are_refused(holidays: Holidays, error: str) -> None:
    assert errors_of("Sat", holidays=holidays) == [error]
