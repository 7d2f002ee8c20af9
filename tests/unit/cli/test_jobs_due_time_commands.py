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
    assert rota("job", "ledger", "tidy", "--until", "yesterday").err.startswith("no due times to ")


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

    assert by_range.err == (
        "no due times from 2026-01-01 00:00:00 UTC to 2026-01-02 00:00:00 UTC\n"
    )
    assert by_other_words.err == "no due times from 2026-01-01 00:00:00 UTC\n"
    assert rota("job", "ledger", "tidy").err == "no due times yet\n"
    assert (reversed_range.code, "from lies after to" in reversed_range.err) == (2, True)


class TestClocksOfTheReader:
    """What is typed without an offset is on the clocks that times are printed on."""

    TOKYO = ("--tz", "Asia/Tokyo")  # the job's clocks are those of Berlin

    def test_start_of_a_run(self, rota: Console, server: Server) -> None:
        server.define(BERLIN)

        ended = rota("trigger", "tidy", "--at", "2099-01-01 06:00", *self.TOKYO, "--json")

        assert ended.json["due_at"] == "2098-12-31T21:00:00Z"
        assert ended.err.endswith(" · 2099-01-01 06:00:00 JST\n")

    def test_start_of_a_rehearsed_run(self, rota: Console, server: Server) -> None:
        server.define(BERLIN)

        coming = rota("trigger", "tidy", "--at", "2099-01-01 06:00", *self.TOKYO, "--dry-run")
        past = rota("trigger", "tidy", "--at", "2020-01-01 06:00", *self.TOKYO, "--dry-run")

        assert coming.err.startswith("would trigger job tidy (active) to start in ")
        assert coming.err.endswith(" · 2099-01-01 06:00:00 JST\n")
        assert "; 2020-01-01 06:00:00 JST has passed: it would start now\n" in past.err

    def test_end_of_a_pause(self, rota: Console, server: Server) -> None:
        server.define(BERLIN)
        words = ("job", "pause", "tidy", "--until", "2099-01-01", *self.TOKYO)

        would, ended = rota(*words, "--dry-run"), rota(*words)

        assert would.err == (
            "job tidy would be paused until 2099-01-01 00:00:00 JST; it is active now\n"
        )
        assert ended.err == "paused job tidy until 2099-01-01 00:00:00 JST\n"
        until = rota("job", "show", "tidy", "--json").json["paused_until"]
        assert until == "2098-12-31T15:00:00Z"

    def test_length_of_a_pause_is_told_as_its_end(self, rota: Console, server: Server) -> None:
        server.define(BERLIN)
        words = ("job", "pause", "tidy", "--for", "2 hours", *self.TOKYO)

        would, ended = rota(*words, "--dry-run"), rota(*words)

        assert would.err.startswith("job tidy would be paused until 20")
        assert ended.err.startswith("paused job tidy until 20")
        assert ended.err.endswith(" JST\n")

    def test_range_of_a_backfill(self, rota: Console, server: Server) -> None:
        server.define(BERLIN)
        bounds = ("--from", "2026-01-02 10:00", "--to", "2026-01-02 11:00")

        there = rota("job", "backfill", "tidy", *bounds, *self.TOKYO, "--plan")
        elsewhere = rota("job", "backfill", "tidy", *bounds, "--tz", "Europe/Berlin", "--plan")

        # 02:00 to 02:50 in Berlin, every ten minutes
        assert there.err == "due times from 2026-01-02 10:00:00 JST to 2026-01-02 11:00:00 JST\n"
        assert there.lines == ["would run 6 due times (2026-01-02 10:00:00 … 10:50:00 JST) of tidy"]
        assert elsewhere.lines == ["would run nothing of tidy"]

    def test_range_of_the_ledger(self, rota: Console, server: Server) -> None:
        server.define(BERLIN)
        rota("job", "backfill", "tidy", "--from", "2026-01-02T01:00Z", "--to", "2026-01-02T01:00Z")
        bounds = ("--since", "2026-01-02 09:30", "--until", "2026-01-02 10:30")

        there = rota("job", "ledger", "tidy", *bounds, *self.TOKYO)
        elsewhere = rota("job", "ledger", "tidy", *bounds, "--tz", "Europe/Berlin")

        assert there.lines[1].startswith("2026-01-02 10:00:00 JST")
        assert elsewhere.err == (
            "no due times from 2026-01-02 09:30:00 CET to 2026-01-02 10:30:00 CET\n"
        )

    def test_clocks_without_a_name_are_asked_for(
        self, rota: Console, server: Server, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        server.define(BERLIN)
        monkeypatch.setenv("TZ", "<+07>-7")  # what only the C library understands

        refused = rota("trigger", "tidy", "--at", "14:00")
        length, exact = (rota("trigger", "tidy", "--at", at) for at in ("5m", "2099-01-01T00:00Z"))

        assert refused.code == 2
        assert '"14:00": has no offset' in refused.err
        assert "--tz Europe/Berlin" in refused.err
        assert (length.code, exact.code) == (0, 0)


def test_repeated_key_with_a_length_of_time_gives_the_same_run(
    rota: Console, server: Server
) -> None:
    server.define(BERLIN)
    words = ("trigger", "tidy", "--at", "30m", "--key", "once", "-o", "name")

    assert rota(*words).out == rota(*words).out != ""


@pytest.mark.parametrize("length", ["-5m", "5 minutes", "5m", "5 minutes ago"])
def test_times_of_the_past_are_taken_as_people_write_them(
    rota: Console, server: Server, length: str
) -> None:
    server.define(TICKING)
    rota("job", "skip", "tidy")

    [_, *answers] = rota("job", "ledger", "tidy", "--since", length).lines  # it goes on ticking
    assert sum("skip next" in line for line in answers) == 1


def test_option_before_the_next_one_still_lacks_its_value(rota: Console) -> None:
    refused = rota("job", "ledger", "tidy", "--since", "--limit", "4")

    assert (refused.code, "--since needs a value." in refused.err) == (2, True)


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
