"""What the commands tell of due times that come, are skipped, or were left out."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest

from rota.cli.job_views import span
from tests.unit.cli.console import Console
from tests.unit.cli.server import Server

BERLIN = """
jobs:
  - name: tidy
    schedule: "*/10 2 * * *"
    timezone: Europe/Berlin
    spread: 10m
    jitter: 90s
    steps: [{run: make tidy}]
"""
TICKING = "jobs: [{name: tidy, schedule: 100ms, steps: [{run: make tidy}]}]"


def closed_job(last: date) -> str:
    first = last - timedelta(days=30)
    return f"""
calendars: [{{name: moving, windows: ["{first}/{last}"]}}]
jobs: [{{name: tidy, schedule: "0 2 * * *", calendars: [moving], steps: [{{run: make tidy}}]}}]
"""


def today(server: Server) -> date:
    return server.do(server.engine.store.now()).date()


def test_job_page_tells_type_zone_release_and_clock_changes(rota: Console, server: Server) -> None:
    server.define(BERLIN)

    page = rota("job", "show", "tidy").out

    assert ["type", "elapsed"] in [line.split() for line in page.split("\n")]
    assert "after the due time (spread), up to 1 m 30 s later (jitter)" in page
    assert page.count("\n  clocks: Sun ") == 2
    [line] = [line for line in page.split("\n") if line.startswith("next")]
    assert line.endswith((" +01:00)", " +02:00)"))
    assert " UTC (its clocks: " in line
    [zone] = [line for line in page.split("\n") if line.startswith("time zone")]
    assert zone.endswith("Europe/Berlin; times are shown in UTC")


def test_job_page_of_a_reader_on_the_jobs_clocks_has_one_zone(
    rota: Console, server: Server
) -> None:
    server.define(BERLIN)
    due = datetime.fromisoformat(rota("job", "show", "tidy", "--json").json["next_at"])

    page = rota("job", "show", "tidy", "--tz", "Europe/Berlin").out

    assert f"{due:%H:%M:%S} CE" in page
    assert "its clocks" not in page
    assert "time zone  " not in page


@pytest.mark.parametrize(
    ("hours", "text"),
    [
        (0, "2026-03-01 12:00:00 UTC"),
        (5, "2026-03-01 12:00:00 … 17:00:00 UTC"),
        (24, "2026-03-01 12:00:00 UTC … 2026-03-02 12:00:00 UTC"),
    ],
)
def test_stretch_of_due_times_tells_its_day_once(hours: int, text: str) -> None:
    first = datetime(2026, 3, 1, 12, tzinfo=UTC)

    assert span(first, first + timedelta(hours=hours)) == text


def test_ledger_shows_the_newest_due_times_first(rota: Console, server: Server) -> None:
    server.define(TICKING)
    rota("job", "skip", "tidy")
    rota("job", "skip", "tidy")

    first, second = rota("job", "ledger", "tidy", "--since", "5m", "--json").json["items"]
    shown = rota("job", "ledger", "tidy", "--since", "5m", "--limit", "1").lines

    assert first["first"] > second["first"]
    due = datetime.fromisoformat(first["first"])
    assert shown[1].startswith(f"{due:%Y-%m-%d %H:%M:%S} UTC")
    assert rota("job", "ledger", "tidy", "--until", "yesterday").err.startswith("no due times in")


def test_pending_skip_is_on_the_jobs_page_and_in_its_ledger(rota: Console, server: Server) -> None:
    server.define("jobs: [{name: tidy, schedule: '0 2 * * *', steps: [{run: make tidy}]}]")
    due = datetime.fromisoformat(rota("job", "show", "tidy", "--json").json["next_at"])
    rota("job", "skip", "tidy")

    page, ledger = rota("job", "show", "tidy").out, rota("job", "ledger", "tidy").out

    assert f"{due:%Y-%m-%d %H:%M:%S} UTC (skip next)" in page
    assert f"{due:%Y-%m-%d %H:%M:%S} UTC" in ledger
    assert "skip next" in ledger


def test_job_page_leaves_out_what_a_calendar_skips(rota: Console, server: Server) -> None:
    last = today(server) + timedelta(days=2)
    server.define(closed_job(last))

    page = rota("job", "show", "tidy").lines

    [following] = [line for line in page if line.startswith("next")]
    [then] = [line for line in page if line.startswith("then")]
    assert f"{last + timedelta(days=1)} 02:00:00 UTC" in following
    assert str(last + timedelta(days=2)) in then
    assert str(last) not in then


def test_apply_warns_of_a_job_that_a_calendar_rules_out(rota: Console, server: Server) -> None:
    Path("jobs.yaml").write_text(closed_job(today(server) + timedelta(days=20)))

    applied = rota("apply", "jobs.yaml")

    assert applied.code == 0
    assert "jobs.yaml:3  warning: tidy: its next 5 due times are ruled out by calendar moving" in (
        applied.err
    )


def test_empty_range_of_the_ledger_is_told_as_that(rota: Console, server: Server) -> None:
    server.define(BERLIN)

    by_range = rota("job", "ledger", "tidy", "--from", "2026-01-01", "--to", "2026-01-02")
    by_other_words = rota("job", "ledger", "tidy", "--since", "2026-01-01")
    reversed_range = rota("job", "ledger", "tidy", "--from", "2026-01-02", "--to", "2026-01-01")

    assert by_range.err == by_other_words.err == "no due times in this range\n"
    assert rota("job", "ledger", "tidy").err == "no due times yet\n"
    assert (reversed_range.code, "from lies after to" in reversed_range.err) == (2, True)


def test_resuming_tells_what_was_left_out_and_how_to_run_it(rota: Console, server: Server) -> None:
    server.define(TICKING)
    rota("job", "pause", "tidy")
    paused_at = server.do(server.engine.store.now())
    while server.do(server.engine.store.now()) < paused_at + timedelta(milliseconds=200):
        pass

    resumed = rota("job", "resume", "tidy").err

    assert resumed.startswith("resumed job tidy\n")
    assert "left out meanwhile; to run them after all:" in resumed
    assert "rota job backfill tidy --from 20" in resumed


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("10000-01-01", '"10000-01-01": outside the years 1970 to 9999'),
        ("2026-13-01", '"2026-13-01": not an ISO 8601 time such as 2026-06-01T22:00'),
    ],
)
def test_what_is_no_time_is_told_clearly(
    rota: Console, server: Server, text: str, told: str
) -> None:
    server.define(BERLIN)

    refused = [
        rota("job", "pause", "tidy", "--until", text),
        rota("job", "backfill", "tidy", "--from", text),
        rota("job", "ledger", "tidy", "--from", text),
        rota("trigger", "tidy", "--at", text),
        rota("cron", "next", "@daily", "--from", text),
    ]

    assert [(ended.code, told in ended.err) for ended in refused] == [(2, True)] * 5


def test_years_and_parts_of_a_second_are_told_where_they_matter(rota: Console) -> None:
    yearly = rota("cron", "explain", "@yearly", "--from", "2026-05-01").lines
    quick = rota("cron", "explain", "every 250ms", "--from", "2026-05-01").lines

    assert yearly[1] == "  Fri 1 Jan 2027 00:00 · Sat 1 Jan 2028 00:00 · Mon 1 Jan 2029 00:00 …"
    assert quick[1] == "  Fri 1 May 00:00:00.25 · Fri 1 May 00:00:00.5 · Fri 1 May 00:00:00.75 …"
