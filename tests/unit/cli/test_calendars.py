from __future__ import annotations

from pathlib import Path

from tests.unit.cli.console import Console
from tests.unit.cli.server import Server

WEEKENDS = 'name: weekends\nwindows: ["Sat,Sun"]\n'
WORDS = "all day on Saturday and Sunday, UTC: due times inside are skipped"
NIGHTLY = """
calendars: [{name: nights, windows: ["daily 22:00-06:00"], inside: run_after}]
jobs: [{name: tidy, schedule: "0 2 * * *", calendars: [nights], steps: [{run: make tidy}]}]
"""


def write(text: str, name: str = "weekends.yaml") -> str:
    Path(name).write_text(text)
    return name


def test_calendar_is_set_listed_and_shown(rota: Console, server: Server) -> None:
    created = rota("calendar", "set", write(WEEKENDS))
    listed = rota("calendar", "list")
    shown = rota("calendar", "show", "weekends")

    assert (created.code, created.err) == (0, f"created calendar weekends: {WORDS}\n")
    assert listed.lines[1].split(maxsplit=1) == ["weekends", WORDS]
    assert shown.lines[0].split(maxsplit=1) == ["calendar", "weekends (version 1)"]
    assert sum(line.startswith("  from ") for line in shown.lines) == 5
    assert shown.lines[-3:] == ["name: weekends", "windows:", "  - Sat,Sun"]


def test_setting_again_tells_what_differs(rota: Console, server: Server) -> None:
    file = write(WEEKENDS)
    rota("calendar", "set", file)

    same = rota("calendar", "set", file)
    changed = rota("calendar", "set", write(WEEKENDS.replace("Sat,Sun", "Sun")))

    assert same.err == "calendar weekends is unchanged\n"
    assert changed.err.startswith("changed calendar weekends: all day on Sunday")
    assert "windows[0]  Sat,Sun → Sun" in changed.err


def test_dry_run_checks_but_changes_nothing(rota: Console, server: Server) -> None:
    planned = rota("calendar", "set", write(WEEKENDS), "--dry-run")
    wrong = rota("calendar", "set", write(WEEKENDS.replace("Sat,Sun", "Satt")), "--dry-run")

    assert planned.err.startswith("would create calendar weekends: ")
    assert wrong.code == 6
    assert rota("calendar", "list", "-o", "name").out == ""


def test_bad_calendar_is_refused_with_its_line_and_column(rota: Console, server: Server) -> None:
    ended = rota("calendar", "set", write(WEEKENDS.replace("Sat,Sun", "Satt")))

    assert ended.code == 6
    assert ended.err.startswith('weekends.yaml:2:11  "Satt": there is no weekday "Satt"')
    assert "nothing was changed" in ended.err


def test_misspelt_key_of_a_calendar_is_told_with_the_nearest_one(
    rota: Console, server: Server
) -> None:
    ended = rota("calendar", "set", write(WEEKENDS.replace("windows:", "window:")))

    assert ended.code == 6
    told = 'weekends.yaml:2:1  unknown key "window" in calendar weekends — did you mean "windows"?'
    assert told in ended.err


def test_file_that_is_no_calendar_is_refused_without_a_server(rota: Console) -> None:
    broken = rota("calendar", "set", write("windows: ["))
    listed = rota("calendar", "set", write("- Sat"))
    nameless = rota("calendar", "set", write("windows: [Sat]"))

    assert (broken.code, listed.code, nameless.code) == (6, 6, 6)
    assert broken.err.startswith("weekends.yaml:2:1  not valid YAML")
    assert "no mapping" in listed.err
    assert "has no name" in nameless.err


def test_stale_etag_is_a_conflict(rota: Console, server: Server) -> None:
    assert rota("calendar", "set", write(WEEKENDS), "--if-match", "0123").code == 5


def test_calendar_in_use_is_not_deleted(rota: Console, server: Server) -> None:
    server.define(NIGHTLY)

    looked = rota("calendar", "delete", "nights", "--dry-run")
    refused = rota("calendar", "delete", "nights", "--yes")

    assert looked.err == "would delete calendar nights; used by tidy\n"
    assert refused.code == 5
    assert "take it out of them first: tidy" in refused.err


def test_calendar_is_deleted_with_consent(rota: Console, server: Server) -> None:
    rota("calendar", "set", write(WEEKENDS))

    refused = rota("calendar", "delete", "weekends")
    agreed = rota("calendar", "delete", "weekends", "--yes")

    assert (refused.code, agreed.code) == (2, 0)
    assert rota("calendar", "show", "weekends").code == 3


def test_plan_shows_calendars_and_what_they_do(rota: Console, server: Server) -> None:
    file = write(NIGHTLY, "jobs.yaml")

    planned, applied, again = (
        rota("apply", file, "--plan"),
        rota("apply", file),
        rota("apply", file, "--plan"),
    )

    assert (planned.code, applied.code, again.code) == (20, 0, 0)
    assert planned.lines[0].startswith("+ calendar nights  new        from 22:00 to 06:00 the next")
    assert planned.lines[1].startswith("+ tidy             new        every day at 02:00 UTC")
    assert "02:00:00 UTC is inside calendar nights: runs " in planned.lines[2]
    assert "2 changes applied" in applied.err


def test_changed_calendar_alone_is_a_change(rota: Console, server: Server) -> None:
    rota("apply", write(NIGHTLY, "jobs.yaml"))

    planned = rota("apply", write(NIGHTLY.replace("06:00", "05:00"), "jobs.yaml"), "--plan")

    assert planned.code == 20
    assert planned.lines[0].startswith("~ calendar nights  changed")
    assert "windows[0]  daily 22:00-06:00 → daily 22:00-05:00" in planned.lines[1]


def test_exported_jobs_bring_their_calendars(rota: Console, server: Server) -> None:
    server.define(NIGHTLY)

    again = rota("apply", write(rota("job", "export").out, "test.yaml"), "--plan")

    assert again.code == 0
    assert again.lines[0].startswith("  calendar nights  unchanged")
    assert again.lines[1].startswith("  tidy             unchanged")


def test_job_shows_which_due_times_are_moved(rota: Console, server: Server) -> None:
    server.define(NIGHTLY)

    shown = rota("job", "show", "tidy")

    moved = [line for line in shown.lines if line.startswith("  calendar nights: ")]
    assert len(moved) == 5
    assert moved[0].endswith("06:00:00 UTC")
