from __future__ import annotations

import io
from datetime import UTC, datetime, timedelta

import pytest
from msgspec import structs

from rota.cli.job_views import LEDGER
from rota.cli.printing import write_table
from rota.cli.terminal import Terminal
from rota.domain.access import Role
from rota.sdk.answers import LedgerEntry
from tests.unit.cli.console import Console, Ended
from tests.unit.cli.server import Server

TIDY = "jobs: [{name: tidy, schedule: '0 * * * *', steps: [{run: make tidy}]}]"
HOUR = timedelta(hours=1)
DUE = datetime(2026, 5, 4, tzinfo=UTC)


def next_hour(rota: Console) -> datetime:
    return datetime.fromisoformat(rota("job", "show", "tidy", "--json").json["next_at"])


def backfill(rota: Console, hours: int, *words: str) -> Ended:
    """Backfill so many hourly due times before now."""
    begin = next_hour(rota) - hours * HOUR
    return rota("job", "backfill", "tidy", "--from", begin.isoformat(), *words)


def test_backfill_is_planned_and_then_started(rota: Console, server: Server) -> None:
    server.define(TIDY)
    last = f"{next_hour(rota) - HOUR:%H:00:00} UTC"

    planned = backfill(rota, 3, "--plan")
    started = backfill(rota, 3)

    assert (planned.code, started.code) == (20, 0)
    assert planned.out.startswith("would run 3 due times (")
    assert " … " in planned.out
    assert planned.out.endswith(f" {last}) of tidy\n")
    [first_line] = started.lines
    assert first_line.startswith("backfill b_")
    backfill_id = first_line.split()[1].rstrip(":")
    bounds, listing = started.err.splitlines()
    assert bounds.startswith("due times from 20")
    assert bounds.endswith(":00:00 UTC to now")
    assert listing == f"rota run list --where backfill:{backfill_id}"
    listed = rota("run", "list", "--where", f"backfill:{backfill_id}", "-o", "name")
    assert len(listed.lines) == 3


def test_plan_of_nothing_ends_well_and_says_what_is_left_out(rota: Console, server: Server) -> None:
    server.define(TIDY)
    backfill(rota, 1)

    ended = backfill(rota, 1, "--plan")

    nothing, left_out = ended.lines
    assert ended.code == 0
    assert nothing == "would run nothing of tidy"
    assert left_out.startswith("  left out: 1 still going (")


def test_failed_due_times_are_repeated(rota: Console, server: Server) -> None:
    server.define(TIDY)
    backfill(rota, 1)
    server.finish(server.claim(), "FAILED")

    repeated = backfill(rota, 2, "--only", "failed", "--json")

    assert repeated.json["runs"] == 1
    assert [group["cause"] for group in repeated.json["skipped"]] == ["not_failed"]
    shown = rota("run", "show", "tidy").out
    assert f"backfill   {repeated.json['id']}" in shown
    assert "retry of" in shown


def test_many_runs_need_consent(rota: Console, server: Server) -> None:
    server.define(TIDY)

    refused = backfill(rota, 101)
    agreed = backfill(rota, 101, "--yes", "-o", "name")

    assert refused.code == 2
    assert "start 101 runs of tidy?" in refused.err
    assert agreed.out.startswith("b_")


def test_the_same_key_does_nothing_new(rota: Console, server: Server) -> None:
    server.define(TIDY)

    first = backfill(rota, 2, "--key", "once", "-o", "name")
    again = backfill(rota, 2, "--key", "once", "-o", "name")

    assert first.out == again.out


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("--from", "soon"),
        ("--from", "2026-01-01T00:00Z", "--only", "some"),
        ("--from", "2026-01-01T00:00Z", "--max-parallel", "0"),
        ("--from", "2026-01-01T00:00Z", "--to", "2025-01-01T00:00Z"),
    ],
)
def test_wrong_range_is_a_usage_error(
    rota: Console, server: Server, words: tuple[str, ...]
) -> None:
    server.define(TIDY)

    assert rota("job", "backfill", "tidy", *words).code == 2


COPY = """
jobs:
  - name: copy
    inputs: {host: {type: string}, parts: {type: integer, default: 1}}
    steps: [{run: make copy}]
  - {name: idle, enabled: false, steps: [{run: make idle}]}
"""


@pytest.mark.parametrize(
    "words",
    [
        ("copy",),
        ("copy", "-i", "host=db-1", "-i", "hosst=db-1"),
        ("copy", "-i", "host=db-1", "-i", "parts=many"),
        ("idle",),
        ("nobody",),
    ],
)
def test_rehearsal_of_a_trigger_refuses_what_the_trigger_refuses(
    rota: Console, server: Server, words: tuple[str, ...]
) -> None:
    server.define(COPY)

    rehearsed, refused = rota("trigger", *words, "--dry-run"), rota("trigger", *words)

    assert rehearsed == refused
    assert refused.code in (2, 3, 5)


def test_rehearsal_of_a_trigger_needs_the_same_role(
    rota: Console, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.define(TIDY)
    monkeypatch.setenv("ROTA_TOKEN", server.secrets[Role.VIEWER])

    rehearsed, refused = rota("trigger", "tidy", "--dry-run"), rota("trigger", "tidy")

    assert (rehearsed.code, refused.code) == (4, 4)


def test_rehearsal_of_a_trigger_makes_no_run(rota: Console, server: Server) -> None:
    server.define(COPY)

    ended = rota("trigger", "copy", "-i", "host=db-1", "-i", "parts=2", "--dry-run")

    assert (ended.code, ended.err) == (20, "would trigger job copy (on demand)\n")
    assert rota("run", "list", "--json").json["items"] == []


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            ("--at", "tomorrow 25:00"),
            '--at: "tomorrow 25:00": 25:00 is no time of day: write 00:00 to 23:59',
        ),
        (("--priority", "11"), '--priority must be at most 9, not "11".'),
        (("--priority", "-1"), '--priority must be at least 0, not "-1".'),
    ],
)
def test_wrong_option_of_a_trigger_is_told_in_plain_words(
    rota: Console, server: Server, words: tuple[str, ...], told: str
) -> None:
    server.define(TIDY)

    ended, rehearsed = rota("trigger", "tidy", *words), rota("trigger", "tidy", *words, "--dry-run")

    assert ended == rehearsed
    assert (ended.code, ended.err) == (2, f"rota: {told}\nSee: rota trigger --help\n")


def test_ledger_names_who_made_up_for_a_due_time() -> None:
    [cause] = [column.text for column in LEDGER.columns if column.heading == "CAUSE"]
    missed = LedgerEntry(first=DUE, last=DUE, state="MISSED", cause="downtime")

    assert cause(missed) == "downtime"
    assert cause(structs.replace(missed, backfilled_by=("r_2", "r_1"))) == (
        "downtime, backfilled by r_2, r_1"
    )


def test_ledger_names_a_run_once() -> None:
    [cause] = [column.text for column in LEDGER.columns if column.heading == "CAUSE"]
    made_up_for = LedgerEntry(
        first=DUE, last=DUE, state="COMPLETED", run="r_1", backfilled_by=("r_1",)
    )

    assert cause(made_up_for) == "backfilled"
    assert cause(structs.replace(made_up_for, backfilled_by=("r_2", "r_1"))) == "backfilled by r_2"


def test_ledger_fits_80_columns_with_both_ends_of_a_stretch() -> None:
    screen = io.StringIO()
    stretch = LedgerEntry(
        first=DUE, last=DUE + 50 * HOUR, count=51, state="MISSED", cause="the server was down"
    )

    write_table(
        Terminal(screen, io.StringIO(), False, False, 80),
        LEDGER.columns,
        [stretch, structs.replace(stretch, run="r_1k0ghsf35spcrm2222222222")],
    )

    assert screen.getvalue().splitlines()[1:] == [
        "2026-05-04 00:00 … 2026-05-06 02:00 UTC  51     missed  –",
        "    the server was down",
        "2026-05-04 00:00 … 2026-05-06 02:00 UTC  51     missed  r_1k0ghsf35spcrm",
        "    the server was down",
    ]


def test_backfilled_due_times_are_in_the_ledger(rota: Console, server: Server) -> None:
    server.define(TIDY)
    first = next_hour(rota) - 3 * HOUR
    backfill(rota, 3)

    entries = rota("job", "ledger", "tidy", "--json").json["items"]

    due = sorted(datetime.fromisoformat(entry["first"]) for entry in entries)
    assert due == [first, first + HOUR, first + 2 * HOUR]
    assert all(entry["backfilled_by"] == [entry["run"]] for entry in entries)
