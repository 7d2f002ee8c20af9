from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import pytest
import yaml

from rota.ports.work import Offer
from tests.unit.cli.console import Console
from tests.unit.cli.server import Server

TIDY = "jobs: [{name: tidy, schedule: '0 2 * * *', steps: [{run: make tidy}]}]"
GREET = """
jobs:
  - name: greet
    inputs: {name: {type: string, default: world}}
    steps: [{run: echo hello}]
"""

NAME_IN: dict[str, Callable[[str], object]] = {
    "json": lambda text: json.loads(text)["items"][0]["name"],
    "jsonl": lambda text: json.loads(text)["name"],
    "yaml": lambda text: yaml.safe_load(text)["items"][0]["name"],
    "name": lambda text: text.strip(),
}


def write(text: str, name: str = "jobs.yaml") -> str:
    Path(name).write_text(text)
    return name


def test_new_job_is_planned_applied_and_then_unchanged(rota: Console, server: Server) -> None:
    file = write(TIDY)

    planned, applied, again = (
        rota("apply", file, "--plan"),
        rota("apply", file),
        rota("apply", file),
    )

    assert (planned.code, applied.code, again.code) == (20, 0, 0)
    assert planned.out.startswith("+ tidy  new        every day at 02:00 UTC, next in ")
    assert "1 change. Apply with: rota apply jobs.yaml --if-match " in planned.err
    assert "1 change applied" in applied.err
    assert again.out.startswith("  tidy  unchanged")
    assert "no changes" in again.err


def test_plan_without_changes_ends_well(rota: Console, server: Server) -> None:
    server.define(TIDY)

    ended = rota("apply", write(TIDY, "test.yaml"), "--plan")

    assert ended.code == 0


def test_changed_job_shows_what_differs(rota: Console, server: Server) -> None:
    server.define(TIDY)

    ended = rota("apply", write(TIDY.replace("make tidy", "make clean"), "test.yaml"), "--plan")

    assert ended.out.startswith("~ tidy  changed")
    assert "make tidy → make clean" in ended.out


def test_bad_file_is_refused_with_places_and_changes_nothing(rota: Console, server: Server) -> None:
    good, bad = write(TIDY, "good.yaml"), write(TIDY.replace("schedule", "shedule"), "bad.yaml")

    ended = rota("apply", good, bad)

    assert ended.code == 6
    assert ended.err.startswith("bad.yaml:1:21  unknown key")
    assert "1 error, nothing was changed" in ended.err
    assert rota("job", "list", "-o", "name").out == ""


def test_warning_among_errors_is_told_as_one(rota: Console, server: Server) -> None:
    bad = write("jobs: [{name: a, schedule: '0 2 * *', stepz: []}]")

    ended = rota("apply", bad)

    told = [line.partition("  ")[2] for line in ended.err.splitlines() if line.startswith(bad)]
    assert [line.startswith("warning: ") for line in told] == [False, True, False]
    assert "2 errors, nothing was changed" in ended.err


def test_job_that_only_moves_to_another_set_shows_that(rota: Console, server: Server) -> None:
    server.define(TIDY)

    ended = rota("apply", write(TIDY, "other.yaml"), "--plan")

    assert ended.lines[1].strip() == "set  test → other"


def test_stale_plan_is_a_conflict(rota: Console, server: Server) -> None:
    assert rota("apply", write(TIDY), "--if-match", "0123").code == 5


def test_plan_of_several_files_has_no_single_etag(rota: Console, server: Server) -> None:
    ended = rota("apply", write(TIDY), write(GREET, "b.yaml"), "--if-match", "0123")

    assert ended.code == 2


def test_prune_deletes_only_with_consent(rota: Console, server: Server) -> None:
    rota("apply", write(TIDY))
    empty = write("jobs: []")

    refused = rota("apply", empty, "--prune")
    agreed = rota("apply", empty, "--prune", "--yes")

    assert refused.code == 2
    assert "delete 1 job (tidy)?" in refused.err
    assert "--yes" in refused.err
    assert agreed.code == 0
    assert agreed.out.startswith("- tidy  removed")


def test_many_changes_need_consent(rota: Console, server: Server) -> None:
    jobs = [{"name": f"j{n}", "steps": [{"run": "x"}]} for n in range(101)]
    file = write(json.dumps({"jobs": jobs}))

    assert rota("apply", file).code == 2
    assert rota("apply", file, "--yes").code == 0


def test_list_shows_schedule_in_words_and_never_run(rota: Console, server: Server) -> None:
    server.define(TIDY)

    [heading, line] = rota("job", "list").lines

    assert heading.split() == ["NAME", "STATUS", "SCHEDULE", "NEXT", "LAST"]
    assert "every day at 02:00 UTC" in line
    assert line.endswith("never run")


def test_list_says_once_that_a_job_runs_on_demand(rota: Console, server: Server) -> None:
    server.define(GREET)

    active = rota("job", "list").lines[1].split("  ")
    rota("job", "pause", "greet")
    paused = rota("job", "list").lines[1].split("  ")

    assert [cell.strip() for cell in active if cell][:3] == ["greet", "on demand", "–"]
    assert [cell.strip() for cell in paused if cell][:3] == ["greet", "paused", "on demand"]


def test_list_takes_a_pattern(rota: Console, server: Server) -> None:
    server.define(TIDY)
    server.define(GREET)

    assert rota("job", "list", "gr*", "-o", "name").lines == ["greet"]


def test_list_goes_over_pages_and_says_if_there_is_more(rota: Console, server: Server) -> None:
    jobs = [{"name": f"j{n:04}", "steps": [{"run": "x"}]} for n in range(1_005)]
    server.define(json.dumps({"jobs": jobs}))

    everything = rota("job", "list", "-o", "name", "--limit", "5000")
    part = rota("job", "list", "--limit", "3")

    assert len(everything.lines) == 1_005
    assert len(part.lines) == 4
    assert "--limit" in part.err


@pytest.mark.parametrize("output", NAME_IN)
def test_list_in_formats_of_programs(rota: Console, server: Server, output: str) -> None:
    server.define(TIDY)

    ended = rota("job", "list", "-o", output)

    assert NAME_IN[output](ended.out) == "tidy"
    assert ended.err == ""


def test_empty_list_says_what_to_type(rota: Console, server: Server) -> None:
    ended = rota("job", "list")

    assert (ended.code, ended.out) == (0, "")
    assert "rota apply FILE" in ended.err


@pytest.mark.parametrize("place", ["tidy", "{url}/jobs/tidy", "/jobs/tidy?tab=runs"])
def test_job_is_shown_by_name_or_pasted_address(rota: Console, server: Server, place: str) -> None:
    server.define(TIDY)

    ended = rota("job", "show", place.format(url=server.url))

    assert ended.code == 0
    assert "every day at 02:00 UTC" in ended.out
    assert "- run: make tidy" in ended.out


def test_hostile_description_does_not_reach_the_terminal(rota: Console, server: Server) -> None:
    server.define(
        json.dumps({"jobs": [{"name": "a", "description": "\x1b[2J", "steps": [{"run": "x"}]}]})
    )

    shown = [
        rota("job", "show", "a"),
        rota("job", "show", "a", "--json"),
        rota("job", "export", "a"),
    ]

    assert all("\x1b" not in ended.out for ended in shown)


def test_a_type_that_no_worker_ever_had_is_shown_with_what_is_wrong(
    rota: Console, server: Server
) -> None:
    server.register("fra-1", offers=(Offer("type", "ticket", "it cannot be loaded"),))

    listed, shown = rota("job", "types"), rota("job", "types", "ticket")

    assert listed.lines[-1].split() == ["ticket", "a", "plug-in", "none", "now", "fra-1"]
    assert "not on fra-1  it cannot be loaded" in shown.out
    assert "not known: no worker ever had it" in shown.out


def test_unknown_job_is_not_found(rota: Console, server: Server) -> None:
    for verb in ("show", "trigger", "pause", "resume", "enable", "disable", "history", "ledger"):
        assert rota("job", verb, "nope").code == 3


@pytest.mark.parametrize(
    ("verb", "status"),
    [("pause", "paused"), ("disable", "disabled")],
)
def test_job_is_taken_out_and_put_back(
    rota: Console, server: Server, verb: str, status: str
) -> None:
    server.define(TIDY)
    back = {"pause": "resume", "disable": "enable"}[verb]

    rehearsed = rota("job", verb, "tidy", "--dry-run")
    done = rota("job", verb, "tidy", "--json")
    undone = rota("job", back, "tidy")

    assert "would be" in rehearsed.err
    assert done.json["status"] == status
    assert undone.err == f"{back}d job tidy\n"
    assert rota("job", "list", "--json").json["items"][0]["status"] == "active"


@pytest.mark.parametrize("flags", [("--for", "2h"), ("--until", "2099-01-01T00:00Z")])
def test_a_pause_that_ends_by_itself_says_when(
    rota: Console, server: Server, flags: tuple[str, ...]
) -> None:
    server.define(TIDY)

    done = rota("job", "pause", "tidy", *flags, "--json")

    assert done.json["paused_until"] is not None
    assert "paused by admin until 2" in rota("job", "show", "tidy").out


def test_a_pause_has_one_end(rota: Console, server: Server) -> None:
    server.define(TIDY)

    ended = rota("job", "pause", "tidy", "--for", "2h", "--until", "2099-01-01T00:00Z")

    assert ended.code == 2
    assert "either --until or --for" in ended.err


def test_skipping_names_the_due_time_it_skipped_and_the_next(rota: Console, server: Server) -> None:
    server.define(TIDY)
    before = datetime.fromisoformat(rota("job", "show", "tidy", "--json").json["next_at"])

    rehearsed = rota("job", "skip", "tidy", "--dry-run")
    done = rota("job", "skip", "tidy")

    after = datetime.fromisoformat(rota("job", "show", "tidy", "--json").json["next_at"])
    assert after - before == timedelta(days=1)
    assert rehearsed.err.startswith("would skip the next due time: in ")
    assert done.err.startswith(
        f"job tidy skips {before:%Y-%m-%d %H:%M:%S} UTC; the next one that runs is in "
    )


def test_show_tells_how_late_runs_start(rota: Console, server: Server) -> None:
    server.define(TIDY)
    rota("trigger", "tidy")
    server.finish(server.claim())

    shown = rota("job", "show", "tidy")

    [line] = [line for line in shown.lines if "starts late by" in line]
    assert line.endswith("(p99) of the last 1")


def test_deleting_needs_consent(rota: Console, server: Server) -> None:
    server.define(TIDY)

    refused = rota("job", "delete", "tidy")
    rehearsed = rota("job", "delete", "tidy", "--dry-run")
    done = rota("job", "delete", "tidy", "--yes")

    assert (refused.code, rehearsed.code, done.code) == (2, 20, 0)
    assert rota("job", "delete", "tidy", "--yes").code == 3


def test_who_deletes_a_job_is_told_which_jobs_come_after_it(rota: Console, server: Server) -> None:
    server.define(TIDY)
    server.define("jobs: [{name: report, after: [tidy], steps: [{run: x}]}]")

    rehearsed = rota("job", "delete", "tidy", "--dry-run")
    done = rota("job", "delete", "tidy", "--yes")

    for ended in (rehearsed, done):
        assert "jobs that come after it will wait for it in vain: report" in ended.err


def test_export_reads_back_unchanged(rota: Console, server: Server) -> None:
    server.define(TIDY)
    server.define(GREET)

    write(rota("job", "export").out, "test.yaml")

    assert rota("apply", "test.yaml", "--plan").code == 0


def test_trigger_stores_a_run_and_says_where_it_is(rota: Console, server: Server) -> None:
    server.define(GREET)

    ended = rota("trigger", "greet", "--input", "name=Ada", "--priority", "9")

    run = rota("run", "list", "--json").json["items"][0]
    assert ended.out == f"run {run['id']} blocked: no worker serves pool default\n"
    assert f"{server.url}/runs/{run['id']}" in ended.err
    assert (run["inputs"], run["priority"]) == ({"name": "Ada"}, 9)


def test_same_key_gives_the_same_run_and_another_body_is_a_conflict(
    rota: Console, server: Server
) -> None:
    server.define(GREET)
    first = rota("trigger", "greet", "--key", "k1", "-o", "name")

    again = rota("trigger", "greet", "--key", "k1", "-o", "name")
    other = rota("trigger", "greet", "--key", "k1", "--input", "name=Ada")

    assert again.out == first.out
    assert other.code == 5


def test_unknown_input_gets_the_nearest_name(rota: Console, server: Server) -> None:
    server.define(GREET)

    ended = rota("trigger", "greet", "--input", "nome=Ada")

    assert ended.code == 2
    assert 'did you mean "name"?' in ended.err


def test_trigger_of_a_paused_job_says_what_holds_the_run(rota: Console, server: Server) -> None:
    server.define(GREET)
    rota("job", "pause", "greet")

    ended = rota("trigger", "greet")

    assert ended.out.endswith(" blocked: job greet is paused\n")
    assert ended.err.startswith("rota job resume greet · rota run watch ")


def test_rehearsed_trigger_makes_no_run(rota: Console, server: Server) -> None:
    server.define(GREET)

    rota("trigger", "greet", "--dry-run")

    assert rota("run", "list", "-o", "name").out == ""


def test_last_run_of_a_job_is_not_one_that_lies_ahead(rota: Console, server: Server) -> None:
    server.define(TIDY)
    rota("trigger", "tidy", "--at", "2099-01-01")
    never = rota("job", "list").lines[1]
    rota("trigger", "tidy")
    work = server.claim()
    going = rota("job", "list").lines[1]
    server.finish(work)
    rota("trigger", "tidy", "--at", "2099-01-01")

    listed, shown = rota("job", "list").lines[1], rota("job", "show", "tidy").lines

    assert never.endswith("never run")
    assert going.endswith("processing")
    assert re.search(r"  completed \d.* ago$", listed)
    assert any(line.startswith("last ") and "completed" in line for line in shown)


def test_ledger_of_a_new_job_is_empty(rota: Console, server: Server) -> None:
    server.define(TIDY)

    ended = rota("job", "ledger", "tidy")

    assert (ended.code, ended.out) == (0, "")


def test_triggering_at_a_time_that_has_passed_says_that_it_starts_now(
    rota: Console, server: Server
) -> None:
    server.define(TIDY)

    past = rota("trigger", "tidy", "--at", "2020-01-01T00:00Z", "-o", "name")
    coming = rota("trigger", "tidy", "--at", "2099-01-01T00:00Z", "-o", "name")
    present = rota("trigger", "tidy", "--at", "now", "-o", "name")

    assert (past.code, coming.code, present.code) == (0, 0, 0)
    assert past.err == (
        f"2020-01-01 00:00:00 UTC has passed: the run starts now · rota run cancel {past.out}"
    )
    assert coming.err.startswith("due in ")
    assert coming.err.endswith(" · 2099-01-01 00:00:00 UTC\n")
    assert present.err == ""
