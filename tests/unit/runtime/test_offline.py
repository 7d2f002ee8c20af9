from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from rota.runtime import offline

START = datetime(2027, 3, 26, 12, tzinfo=UTC)


def test_file_is_checked_as_the_server_would() -> None:
    good = offline.check_file("jobs: [{name: a, steps: [{run: x}]}]", name="jobs", folder=Path())
    bad = offline.check_file("jobs: [{name: a, stepz: []}]", name="jobs", folder=Path())

    assert (good.is_valid, good.jobs) == (True, ("a",))
    assert not bad.is_valid
    assert any("stepz" in problem.message for problem in bad.problems)


def test_due_times_are_on_the_clocks_of_the_zone() -> None:
    explained = offline.explain(["30 2 * * *"], timezone="Europe/Berlin", after=START, count=2)

    assert explained.words == "every day at 02:30, Europe/Berlin"
    assert explained.kinds == ("fixed",)
    assert [due.at.isoformat() for due in explained.next] == [
        "2027-03-27T02:30:00+01:00",
        "2027-03-28T03:00:00+02:00",
    ]
    assert explained.next[1].remark == "02:30 does not exist, clocks go forward"
    assert "Sun 28 Mar" in explained.clock_changes[0].text


def test_interval_counts_from_the_time_it_is_asked_for() -> None:
    explained = offline.explain(["every 10s"], timezone="UTC", after=START, count=1)

    assert explained.next[0].at == START.replace(second=10)


def test_unknown_zone_is_told_even_with_a_time_on_its_clocks() -> None:
    with pytest.raises(offline.Invalid) as refused:
        offline.explain(["@daily"], timezone="Mars/Base", after="2027-03-26T12:00", count=1)

    assert "Mars/Base" in refused.value.problems[0].message


@pytest.mark.parametrize(("value", "zone"), [("Asia/Tokyo", "Asia/Tokyo"), (":UTC", "UTC")])
def test_host_s_zone_is_the_one_its_environment_names(
    monkeypatch: pytest.MonkeyPatch, value: str, zone: str
) -> None:
    monkeypatch.setenv("TZ", value)

    assert offline.host_timezone() == zone


@pytest.mark.parametrize(
    ("target", "zone"),
    [("/usr/share/zoneinfo/America/New_York", "America/New_York"), ("/srv/own", "UTC")],
)
def test_host_s_zone_is_the_one_its_clock_is_linked_to(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, target: str, zone: str
) -> None:
    link = tmp_path / "localtime"
    link.symlink_to(target)
    monkeypatch.delenv("TZ", raising=False)
    monkeypatch.setattr(offline, "_LOCAL_ZONE", link)

    assert offline.host_timezone() == zone


def test_crontab_of_a_user_runs_in_the_user_s_home(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))

    own = offline.import_crontab("0 3 * * * ./backup\n", timezone="UTC", system=False)
    shared = offline.import_crontab("0 3 * * * root ./backup\n", timezone="UTC", system=True)

    assert f"path: {tmp_path}" in own.text
    assert "path:" not in shared.text


def test_job_file_reads_back_unchanged() -> None:
    text = offline.job_file([{"name": "a", "steps": [{"run": "x"}]}])

    assert offline.check_file(text, name="jobs", folder=Path()).jobs == ("a",)
