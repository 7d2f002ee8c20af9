from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from rota.domain.schedule.zones import ABBREVIATIONS, LAST_SECOND, Zone, load_zone
from tests.unit.domain.memory import bytes_kept_by
from tests.unit.domain.schedule.builders import local_times, timetable, utc


def second(text: str) -> int:
    return int(utc(text).timestamp())


def changes(zone: Zone, after: str, through: str) -> list[tuple[datetime, int]]:
    found = zone.changes(second(after), second(through))
    return [(datetime.fromtimestamp(p.start, tz=utc(after).tzinfo), p.shift) for p in found]


def test_changes_are_found_to_the_second() -> None:
    found = changes(load_zone("Europe/Berlin"), "2026-01-01", "2027-01-01")

    assert found == [(utc("2026-03-29 01:00"), 3600), (utc("2026-10-25 01:00"), -3600)]


def test_the_interval_of_changes_excludes_its_beginning_and_includes_its_end() -> None:
    zone = load_zone("Europe/Berlin")

    assert changes(zone, "2026-03-29 00:59:59", "2026-03-29 01:00") != []
    assert changes(zone, "2026-03-29 01:00", "2026-03-29 02:00") == []


def test_change_at_the_edge_of_what_is_loaded_at_once_is_found_once() -> None:
    """Periods are loaded in blocks; one ends on 1 January 2012, two days after this change."""
    found = changes(load_zone("Pacific/Apia"), "2011-12-28", "2012-03-01")

    assert found == [(utc("2011-12-30 10:00"), 86_400)]


def test_offsets_that_are_no_whole_minutes_are_kept() -> None:
    assert load_zone("Africa/Monrovia").period_at(second("1971-01-01")).offset == -2670


@pytest.mark.parametrize("name", ["UTC", "Etc/GMT-14", "Asia/Tokyo", "Europe/Berlin"])
def test_periods_join_without_a_break(name: str) -> None:
    zone = load_zone(name)

    period = zone.period_at(0)
    while period.end <= second("2040-01-01"):
        following = zone.period_at(period.end)
        assert following.start <= period.end < following.end
        assert following.offset - period.offset == (
            following.shift if following.start == period.end else 0
        )
        period = following


def test_the_last_second_has_a_period() -> None:
    for name in ("UTC", "Pacific/Kiritimati", "America/New_York"):
        period = load_zone(name).period_at(LAST_SECOND)

        assert period.start <= LAST_SECOND < period.end


def test_a_change_is_remembered_past_the_edge_of_what_is_loaded_at_once() -> None:
    """Periods are loaded in blocks; one ends at 17:23:12 UTC, inside this repeated hour."""
    table = timetable("55 2 * * *", timezone="Australia/Adelaide")

    assert local_times("2016-04-02 12:00", table, 2) == [
        "2016-04-03 02:55+10:30",
        "2016-04-04 02:55+09:30",
    ]


@pytest.mark.parametrize(
    ("zone", "name"),
    [(zone, name) for zone, names in ABBREVIATIONS.items() for name in names.split()],
)
def test_abbreviation_is_answered_with_a_zone_that_uses_it(zone: str, name: str) -> None:
    shown = {datetime(2026, month, 1, tzinfo=ZoneInfo(zone)).strftime("%Z") for month in (1, 7)}

    assert name in shown
    with pytest.raises(ValueError, match=zone):
        load_zone(name)


def test_many_years_are_visited_in_bounded_memory() -> None:
    zone = load_zone("America/Winnipeg")

    grown = bytes_kept_by(
        lambda: [zone.period_at(second(f"{year}-07-01")).offset for year in range(1970, 2600)]
    )

    assert grown < 200_000
    assert zone.period_at(second("2026-07-01")).offset == -5 * 3600
