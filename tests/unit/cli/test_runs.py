from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from rota.domain.output import OutputRecorder, Stream
from rota.operations.output import store_chunks
from rota.ports.work import ChunkMeta, Fence, OutputChunk, StepOutcome
from rota.sdk.client import Client
from rota.sdk.exchange import Call, Reply
from tests.unit.cli.console import Console
from tests.unit.cli.server import Printed, Server
from tests.unit.sdk.answering import AnsweringServer, document, problem

TIDY = "jobs: [{name: tidy, steps: [{name: Sweep, run: x}, {name: Mop, run: y}]}]"
SWEPT = StepOutcome("Sweep", "completed", exit_code=0, seconds=1.1)
NOT_MOPPED = StepOutcome("Mop", "failed", exit_code=1, seconds=12)


def triggered(rota: Console, server: Server) -> str:
    server.define(TIDY)
    return rota("trigger", "tidy", "-o", "name").out.strip()


def failed(rota: Console, server: Server, printed: bytes = b"no water\n") -> str:
    run = triggered(rota, server)
    output = [Printed(b"dust\n", step=0), Printed(printed, step=1)]
    server.finish(server.claim(), "FAILED", steps=[SWEPT, NOT_MOPPED], printed=output)
    return run


def test_list_has_states_in_lower_case_and_the_reason(rota: Console, server: Server) -> None:
    run = failed(rota, server)

    [heading, line] = rota("run", "list").lines

    assert heading.split() == ["RUN", "JOB", "STATE", "DUE", "TOOK", "DETAIL"]
    assert line.split()[:3] == [run[:16], "tidy", "failed"]


def test_logs_of_a_job_are_of_its_newest_run_that_has_started(
    rota: Console, server: Server
) -> None:
    failed(rota, server)
    rota("trigger", "tidy", "--at", "tomorrow")

    assert rota("logs", "tidy").out == "dust\nno water\n"


def test_short_id_of_a_list_is_taken_for_the_whole(rota: Console, server: Server) -> None:
    runs = [triggered(rota, server) for _ in range(3)]

    shown = [line.split()[0] for line in rota("run", "list").lines[1:]]

    assert [rota("run", "show", short, "-o", "name").out.strip() for short in shown] == runs[::-1]
    assert rota("run", "why", shown[0]).code == rota("run", "cancel", shown[0]).code == 0
    wide = [line.split()[0] for line in rota("run", "list", "-o", "wide").lines[1:]]
    assert wide == rota("run", "list", "-o", "name").lines == runs[::-1]


@pytest.mark.parametrize(
    ("environment", "words", "mark"),
    [
        ({"TZ": "Asia/Tokyo"}, (), "JST"),
        ({"TZ": ":Asia/Tokyo"}, (), "JST"),
        ({"TZ": "Asia/Tokyo", "ROTA_TZ": "Asia/Kolkata"}, (), "IST"),
        ({"TZ": "Asia/Tokyo", "ROTA_TZ": "Asia/Kolkata"}, ("--tz", "Africa/Lagos"), "WAT"),
    ],
)
def test_times_are_printed_on_the_readers_clocks(
    rota: Console,
    server: Server,
    monkeypatch: pytest.MonkeyPatch,
    environment: dict[str, str],
    words: tuple[str, ...],
    mark: str,
) -> None:
    run = triggered(rota, server)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)

    [_, line] = rota("run", "list", *words).lines
    page = rota("run", "show", run, *words)
    data = rota("run", "show", run, "--json", *words)

    due = datetime.fromisoformat(data.json["due_at"])
    zone = ZoneInfo(words[-1] if words else [*environment.values()][-1].removeprefix(":"))
    assert f"{due.astimezone(zone):%H:%M:%S} {mark}" in line
    assert f"{due.astimezone(zone):%H:%M:%S} {mark}" in page.out
    assert data.json["due_at"].endswith("Z")


def test_zone_of_one_command_is_not_that_of_the_next(rota: Console, server: Server) -> None:
    triggered(rota, server)

    assert " JST" in rota("run", "list", "--tz", "Asia/Tokyo").out
    assert " UTC" in rota("run", "list").out


def test_zone_that_is_none_gets_the_nearest_one(
    rota: Console, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    triggered(rota, server)
    by_option = rota("run", "list", "--tz", "Europe/Berln")
    monkeypatch.setenv("ROTA_TZ", "Europe/Pariss")
    by_variable = rota("run", "list")

    assert (by_option.code, by_variable.code) == (2, 2)
    assert "--tz: there is no time zone" in by_option.err
    assert "did you mean Europe/Berlin?" in by_option.err
    assert "ROTA_TZ: there is no time zone" in by_variable.err


def test_filter_has_times_on_the_readers_clocks(rota: Console, server: Server) -> None:
    run = triggered(rota, server)
    now = server.do(server.engine.store.now()).astimezone(ZoneInfo("Asia/Karachi"))
    where = f"since:'{now - timedelta(hours=1):%Y-%m-%d %H:%M}'"

    def found(*words: str) -> list[str]:
        return rota("run", "list", "-o", "name", *words).lines

    assert found("--where", where, "--tz", "Asia/Karachi") == [run]
    assert found("--where", where) == []  # in UTC, that is still to come
    assert found("--where", "since:yesterday") == found("--where", "since:5m") == [run]


def test_filters_narrow_the_list(rota: Console, server: Server) -> None:
    over = failed(rota, server)
    waiting = triggered(rota, server)

    assert rota("run", "list", "--where", "state:failed", "-o", "name").lines == [over]
    assert rota("run", "list", "--state", "queued", "-o", "name").lines == [waiting]
    assert rota("run", "list", "--job", "tid*", "-o", "name").lines == [waiting, over]
    assert rota("ps", "-o", "name").lines == [waiting]
    assert rota("run", "list", "--active", "-o", "name").lines == [waiting]


def test_bad_filter_gets_the_nearest_key(rota: Console, server: Server) -> None:
    ended = rota("run", "list", "--where", "stat:failed")

    assert ended.code == 2
    assert 'did you mean "state"?' in ended.err


def test_run_is_shown_with_its_steps(rota: Console, server: Server) -> None:
    run = failed(rota, server)

    ended = rota("run", "show", run)

    assert ended.code == 0
    assert "failed · attempt 1 of 1 · exit 1" in ended.out
    assert "  Sweep  ✔ 1.1 s" in ended.lines
    assert "  Mop    ✖ exit 1  (12.0 s)" in ended.lines


def test_wide_page_of_a_run_tells_what_its_steps_took(rota: Console, server: Server) -> None:
    run = triggered(rota, server)
    swept = StepOutcome("Sweep", "completed", 0, None, 1.1, 2, 0.5, 3 << 20)
    killed = StepOutcome("Mop", "failed", None, 9, 12, 1, 2.25, 64 << 20, "oom")
    server.finish(server.claim(), "FAILED", steps=[swept, killed])

    lines = rota("run", "show", run, "-o", "wide").lines[-3:]

    assert [" ".join(line.split()) for line in lines] == [
        "STEP RESULT EXIT TOOK TRIES CPU MEMORY CAUSE",
        "Sweep completed exit 0 1.1 s 2 0.5 s 3 MiB –",
        "Mop failed signal 9 12.0 s 1 2.2 s 64 MiB oom",
    ]
    assert "  Mop    ✖ signal 9, oom  (12.0 s)" in rota("run", "show", run).lines
    [attempt] = json.loads(rota("run", "show", run, "-o", "json").out)["attempts"]
    told = [(s["cpu_seconds"], s["max_memory_bytes"], s["cause"]) for s in attempt["steps"]]
    assert told == [(0.5, 3 << 20, ""), (2.25, 64 << 20, "oom")]


@pytest.mark.parametrize("form", ["{run}", "{prefix}", "{bare}", "{url}/runs/{run}", "tidy"])
def test_run_is_found_by_every_form_of_its_name(rota: Console, server: Server, form: str) -> None:
    run = triggered(rota, server)
    reference = form.format(run=run, prefix=run[:16], bare=run[2:], url=server.url)

    assert rota("run", "show", reference, "-o", "name").out.strip() == run


def test_unknown_run_is_not_found(rota: Console, server: Server) -> None:
    for words in (["run", "show"], ["run", "watch"], ["logs"], ["why"], ["run", "cancel"]):
        assert rota(*words, "r_nope").code == 3


def test_job_that_never_ran_has_no_newest_run(rota: Console, server: Server) -> None:
    server.define(TIDY)

    ended = rota("logs", "tidy")

    assert ended.code == 3
    assert "rota trigger tidy" in ended.err


@pytest.mark.parametrize("words", [["logs"], ["why"], ["run", "show"], ["run", "cancel"]])
def test_name_of_nothing_may_have_been_a_job_s_or_a_run_s(
    rota: Console, server: Server, words: list[str]
) -> None:
    ended = rota(*words, "nope")

    assert ended.code == 3
    assert ended.err.startswith("rota: no job or run named nope\n")


def test_waiting_run_says_why(rota: Console, server: Server) -> None:
    run = triggered(rota, server)

    ended = rota("why", run)

    assert ended.code == 0
    assert ended.lines[0].startswith(f"{run} tidy · blocked for ")
    assert ended.lines[0].endswith(" · start unknown")
    assert "  1 worker  no worker serves pool default" in ended.lines
    assert "no worker serves pool default" in rota("run", "list").out
    assert "waits for  no worker serves pool default" in rota("run", "show", run).out
    assert "  passed: time, pause, hold, max_concurrency" in ended.lines
    assert ended.lines[-1].startswith("  not a reason: priority (first in queue), fair share (")


def test_run_of_a_later_time_says_when_it_is_due(rota: Console, server: Server) -> None:
    server.define(TIDY)
    rota("trigger", "tidy", "--at", "2099-06-01T22:00+02:00")

    assert "  1 time  it is due at 2099-06-01 20:00:00 UTC" in rota("why", "tidy").out


def test_reasons_for_programs(rota: Console, server: Server) -> None:
    run = triggered(rota, server)

    assert rota("run", "why", run, "--json").json["reasons"][0]["gate"] == "worker"


def test_waiting_run_is_cancelled(rota: Console, server: Server) -> None:
    run = triggered(rota, server)

    rehearsed = rota("run", "cancel", run, "--dry-run")
    done = rota("run", "cancel", run)

    assert rehearsed.err == f"would cancel {run}: it is blocked and would not start\n"
    assert done.code == 0
    assert rota("run", "show", run, "--json").json["state"] == "CANCELLED"


def test_rehearsed_cancel_says_what_would_happen_to_a_run_that_goes_or_has_ended(
    rota: Console, server: Server
) -> None:
    run = triggered(rota, server)
    work = server.claim()

    going = rota("run", "cancel", run, "--dry-run")
    server.finish(work)
    over = rota("run", "cancel", run, "--dry-run")

    assert going.err == (
        f"would cancel {run}: it is processing, would be asked to stop and killed after its grace\n"
    )
    assert over.err == f"would not cancel {run}: it is completed already\n"
    assert (going.code, over.code) == (20, 0)


def test_only_active_run_of_a_job_is_cancelled_by_the_job_s_name(
    rota: Console, server: Server
) -> None:
    failed(rota, server)
    run = triggered(rota, server)

    done = rota("run", "cancel", "tidy", "-o", "name")
    again = rota("run", "cancel", "tidy")

    assert done.out.strip() == run
    assert again.code == 3
    assert "job tidy has no active run" in again.err


def test_job_with_several_active_runs_does_not_say_which_to_cancel(
    rota: Console, server: Server
) -> None:
    runs = [triggered(rota, server), triggered(rota, server)]

    ended = rota("run", "cancel", "tidy")

    assert ended.code == 2
    assert all(run in ended.err for run in runs)
    assert len(rota("ps", "-o", "name").lines) == 2


def test_cancelling_many_needs_consent(rota: Console, server: Server) -> None:
    run = triggered(rota, server)

    ended = rota("run", "cancel", *[run] * 101)

    assert ended.code == 2
    assert "cancel 101 runs?" in ended.err


def test_retry_is_a_new_run(rota: Console, server: Server) -> None:
    old = failed(rota, server)

    ended = rota("run", "retry", old, "--json")

    assert ended.json["retry_of"] == old


def test_only_an_unknown_run_can_be_resolved(rota: Console, server: Server) -> None:
    run = triggered(rota, server)

    assert rota("run", "resolve", run, "--as", "failed").code == 5


def test_log_is_what_the_run_printed_without_its_escape_sequences(
    rota: Console, server: Server
) -> None:
    run = failed(rota, server, b"\x1b[31mred\x1b[0m\n10%\r100%\nunfinished")

    assert rota("logs", run).out == "dust\nred\n100%\nunfinished\n"


def test_raw_log_is_exact(rota: Console, server: Server) -> None:
    run = failed(rota, server, b"\x1b[31mred\x1b[0m\r\n")

    assert rota("logs", run, "--raw").out == "dust\n\x1b[31mred\x1b[0m\r\n"


def test_log_can_be_narrowed(rota: Console, server: Server) -> None:
    run = failed(rota, server, b"one\ntwo\nthree\n")

    assert rota("logs", run, "--failed").lines == ["one", "two", "three"]
    assert rota("logs", run, "--tail", "2").lines == ["two", "three"]
    assert rota("logs", run, "--search", "t").lines == ["dust", "two", "three"]
    assert rota("logs", run, "--follow").lines == ["dust", "one", "two", "three"]
    assert rota("logs", run, "--follow", "--tail", "1").lines == ["three"]
    assert rota("logs", run, "--attempt", "1", "--tail", "1").lines == ["three"]


def test_long_log_comes_in_several_windows(rota: Console, server: Server) -> None:
    more_than_one_window = 1_100
    run = failed(rota, server, b"x\n" * more_than_one_window)

    assert rota("logs", run).lines == ["dust", *["x"] * more_than_one_window]


def test_more_lines_than_a_window_has_can_be_asked_for(rota: Console, server: Server) -> None:
    run = failed(rota, server, b"x\n" * 1_100)

    assert rota("logs", run, "--tail", "1050").lines == ["x"] * 1_050
    assert rota("logs", run, "--follow", "--tail", "1050").lines == ["x"] * 1_050


def stored(rota: Console, server: Server, printed: bytes) -> str:
    """A run that has ended and printed so much that it went in chunks."""
    run = triggered(rota, server)
    work = server.claim()
    recorder = OutputRecorder(1 << 40)
    recorder.feed(1_000, Stream.STDOUT, 0, printed)
    recorder.close(1_000)
    for c in recorder.take_chunks(force=True):
        meta = ChunkMeta(c.number, c.first_line, c.lines, c.text_bytes, c.first_at_ms, c.last_at_ms)
        chunk = OutputChunk(work.run, work.attempt, meta, c.data)
        server.do(store_chunks(server.engine, server.session, [chunk]))
    server.finish(work, printed=[Printed(printed)])
    return run


@pytest.mark.parametrize("options", [[], ["--follow"], ["-t"], ["-o", "jsonl"]], ids=str)
def test_requests_for_a_log_grow_with_its_bytes_not_with_its_lines(
    rota: Console, server: Server, options: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    many_lines, long_lines = b"\n" * 40_000, b"x" * 39_999 + b"\n"
    asked: list[str] = []
    send = Client.exchange

    def counting(client: Client, call: Call[Any]) -> Reply:
        asked.append(call.path)
        return send(client, call)

    monkeypatch.setattr(Client, "exchange", counting)
    counts = []
    for printed in (many_lines, long_lines, many_lines * 20):
        run = stored(rota, server, printed)
        asked.clear()
        lines = rota("logs", run, *options).lines
        assert len(lines) == printed.count(b"\n")
        counts.append(sum(path.endswith("/log/blocks") for path in asked))

    small, long, large = counts
    assert small == long
    assert large == small + 1  # 1.6 MB of records are two pages


def test_log_lines_have_times_where_asked(rota: Console, server: Server) -> None:
    run = failed(rota, server, b"one\n\nthree\nun")

    stamp = "00:00:01.000  "
    assert rota("logs", run, "-t").lines == [
        stamp + text for text in ("dust", "one", "", "three", "un")
    ]


def test_log_for_programs(rota: Console, server: Server) -> None:
    run = failed(rota, server)

    document = rota("logs", run, "--json").json
    lines = rota("logs", run, "-o", "jsonl").lines

    assert [line["text"] for line in document["lines"]] == ["dust", "no water"]
    assert document["run"] == run
    assert [json.loads(line) for line in lines] == document["lines"]


@pytest.mark.parametrize("count", [0, 1, 2_500])
def test_log_is_one_document_however_long_it_is(rota: Console, server: Server, count: int) -> None:
    run = stored(rota, server, b"\x1b[31m\xc2\x9b\n" * count)

    ended = rota("logs", run, "--json")

    assert ended.json == {"run": run, "lines": ended.json["lines"]}
    assert [line["text"] for line in ended.json["lines"]] == ["\x1b[31m\x9b"] * count
    assert ended.out == json.dumps(ended.json, indent=2) + "\n"


def test_search_is_in_the_attempt_that_was_named(rota: Console, server: Server) -> None:
    run = failed(rota, server)

    assert rota("logs", run, "--search", "water", "--attempt", "1").lines == ["no water"]
    assert rota("logs", run, "--search", "water", "--attempt", "2").code == 3


def test_watched_run_that_completes(rota: Console, server: Server) -> None:
    run = triggered(rota, server)
    server.finish(server.claim(), steps=[SWEPT])

    ended = rota("run", "watch", run)

    assert ended.code == 0
    assert ended.lines[0].startswith(f"run {run} queued → claimed by worker-1 (")
    assert ended.lines[0].endswith(") → processing")
    assert ended.lines[1] == "  Sweep  ✔ 1.1 s"
    assert ended.lines[2].startswith("✔ completed in ")
    assert ended.lines[2].endswith(f"{server.url}/runs/{run}")


def test_watched_run_that_fails_shows_what_the_step_printed(rota: Console, server: Server) -> None:
    run = failed(rota, server)

    ended = rota("run", "watch", run)

    assert ended.code == 10
    assert ended.lines[1:7] == [
        "  Sweep  ▶",
        "    | dust",
        "  Sweep  ✔ 1.1 s",
        "  Mop    ▶",
        "    | no water",
        "  Mop    ✖ exit 1  (12.0 s)",
    ]
    assert ended.lines[7].startswith("✖ failed after ")
    assert f"rota logs {run} --failed" in ended.lines[7]


@pytest.mark.parametrize(("result", "code"), [("TIMED_OUT", 11), ("FAILED", 10)])
def test_exit_code_of_watching_says_how_the_run_ended(
    rota: Console, server: Server, result: str, code: int
) -> None:
    run = triggered(rota, server)
    server.finish(server.claim(), result)

    assert rota("run", "watch", run).code == code


def test_watched_run_that_is_cancelled(rota: Console, server: Server) -> None:
    run = triggered(rota, server)
    rota("run", "cancel", run)

    ended = rota("run", "watch", run)

    assert ended.code == 11
    assert "✖ cancelled" in ended.out


def test_watching_gives_up_after_its_time_and_says_the_run_goes_on(
    rota: Console, server: Server
) -> None:
    server.define(TIDY)

    ended = rota("trigger", "tidy", "--watch", "--timeout", "100ms")

    assert ended.code == 12
    assert "blocked: no worker serves pool default" in ended.out
    assert "is still going" in ended.err


def test_interrupted_watching_says_the_run_goes_on(
    rota: Console, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = triggered(rota, server)
    monkeypatch.setattr("rota.cli.watching.Transcript.take", _interrupt)

    ended = rota("run", "watch", run)

    assert ended.code == 130
    assert f"stopped watching; {run} goes on" in ended.err
    assert rota("run", "show", run, "--json").json["state"] == "BLOCKED"


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def test_watching_survives_a_restart_of_the_server(
    rota: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = {"id": "r_1", "job": "tidy", "state": "QUEUED"}
    away = problem(503, detail="restarting")
    with AnsweringServer() as fake:
        monkeypatch.setenv("ROTA_URL", fake.url)
        monkeypatch.setenv("ROTA_TOKEN", "secret")
        fake.on("GET /runs/r_1", document(run), away, away, document({**run, "state": "MISSED"}))

        ended = rota("run", "watch", "r_1")

    assert ended.code == 11
    assert ended.lines[-1].startswith("✖ missed")


@pytest.mark.parametrize("wish", [["--json"], ["-o", "jsonl"]])
def test_watching_for_programs_prints_each_thing_that_happens_as_a_line(
    rota: Console, server: Server, wish: list[str]
) -> None:
    run = failed(rota, server)

    ended = rota("run", "watch", run, *wish)

    told = [json.loads(line) for line in ended.lines]
    assert ended.code == 10
    assert [each["event"] for each in told] == [
        "run",
        *["step", "lines", "step"] * 2,
        "attempt",
        "end",
    ]
    assert told[1]["data"]["step"]["result"] == "running"
    assert told[-1]["data"]["state"] == "FAILED"
    assert ended.err == ""


def test_watching_as_yaml_prints_the_run_and_talks_on_standard_error(
    rota: Console, server: Server
) -> None:
    run = failed(rota, server)

    ended = rota("run", "watch", run, "-o", "yaml")

    assert ended.code == 10
    assert "state: FAILED" in ended.out
    assert "✖ failed" in ended.err


def test_output_that_is_still_on_its_worker_is_told(rota: Console, server: Server) -> None:
    run = failed(rota, server, b"no water\n" * 1_000)

    ended = rota("logs", run)
    raw = rota("logs", run, "--raw")

    assert (ended.code, ended.out) == (0, "")
    assert ended.err == "output is still on worker worker-1, 9,005 bytes\n"
    assert raw.err == ended.err


def test_a_run_that_goes_on_may_have_printed_more(rota: Console, server: Server) -> None:
    run = triggered(rota, server)
    work = server.claim()

    going = rota("logs", run)
    server.finish(work)

    assert going.err == f"output may still be on worker worker-1 · rota logs {run} -f\n"
    assert rota("logs", run).err == ""


def test_output_that_was_lost_with_its_worker_is_told(rota: Console, server: Server) -> None:
    run = triggered(rota, server)
    server.finish(server.claim(), "LOST")

    ended = rota("logs", run)

    assert ended.err == "what worker worker-1 had not delivered of the output is lost\n"


def test_followed_output_says_where_another_attempt_begins(rota: Console, server: Server) -> None:
    run = triggered(rota, server)
    server.finish(server.claim(), "INTERRUPTED", printed=[Printed(b"dust\n")])
    server.do(server.engine.store.release_eligible(10))
    server.finish(server.claim(), printed=[Printed(b"more dust\n")])

    ended = rota("logs", run, "--attempt", "1", "-f")

    assert ended.lines == ["dust", "more dust"]
    assert ended.err == "attempt 2 begins\n"


def test_nothing_is_printed_of_a_run_without_failed_steps(rota: Console, server: Server) -> None:
    run = triggered(rota, server)
    server.finish(server.claim(), steps=[SWEPT], printed=[Printed(b"dust\n")])

    ended = rota("logs", run, "--failed")

    assert (ended.code, ended.out) == (0, "")
    assert ended.err == "no step of attempt 1 failed\n"


def test_all_is_printed_of_an_attempt_that_failed_without_steps(
    rota: Console, server: Server
) -> None:
    run = triggered(rota, server)
    server.finish(server.claim(), "FAILED", printed=[Printed(b"dust\n")])

    assert rota("logs", run, "--failed").out == "dust\n"


def test_a_run_tells_that_its_output_is_still_on_its_worker(rota: Console, server: Server) -> None:
    run = failed(rota, server, b"no water\n" * 1_000)

    watched = rota("run", "watch", run)

    assert "  output is still on worker worker-1" in watched.lines
    assert "(pending)" in rota("run", "show", run).out


@pytest.mark.parametrize(
    "words",
    [
        ["trigger", "tiddy"],
        ["job", "show", "tiddy"],
        ["job", "history", "tiddy"],
        ["job", "pause", "tiddy"],
        ["logs", "tiddy"],
        ["why", "tiddy"],
        ["run", "show", "tiddy"],
        ["run", "cancel", "tiddy"],
        ["run", "retry", "tiddy"],
        ["run", "resolve", "tiddy", "--as", "failed"],
        ["run", "hold", "tiddy"],
        ["run", "reprioritise", "tiddy", "9"],
    ],
    ids=" ".join,
)
def test_mistyped_job_gets_the_nearest_one(rota: Console, server: Server, words: list[str]) -> None:
    server.define(TIDY)

    ended = rota(*words)

    assert ended.code == 3
    assert 'did you mean "tidy"?' in ended.err
    assert "r_tiddy" not in ended.err


def test_retry_of_a_job_means_its_newest_run_that_ended(rota: Console, server: Server) -> None:
    old = failed(rota, server)

    rehearsed = rota("run", "retry", "tidy", "--dry-run")
    ended = rota("run", "retry", "tidy")
    again = rota("run", "retry", "tidy", "--json")

    assert f"would run {old} again, as a new run; it is failed now" in rehearsed.err
    assert f"retrying {old}" in ended.err
    assert again.json["retry_of"] == old, "the retry itself still waits"


def test_a_job_without_a_run_that_ended_cannot_be_retried(rota: Console, server: Server) -> None:
    run = triggered(rota, server)

    ended = rota("run", "retry", "tidy")

    assert ended.code == 3
    assert ended.err == f"rota: no run of job tidy has ended yet\n  rota run watch {run}\n"


def unknown(rota: Console, server: Server) -> str:
    server.define(TIDY.replace("name: tidy,", "name: tidy, delivery: at_most_once,"))
    run = rota("trigger", "tidy", "-o", "name").out.strip()
    work = server.claim()
    server.do(server.engine.store.lose(server.session, [Fence(work.run, work.attempt)]))
    return run


def test_resolving_a_job_means_its_unknown_run(rota: Console, server: Server) -> None:
    run = unknown(rota, server)

    ended = rota("run", "resolve", "tidy", "--as", "completed")
    again = rota("run", "resolve", "tidy", "--as", "completed")

    assert ended.err == f"{run} is completed now\n"
    assert again.code == 3
    assert "job tidy has no unknown run" in again.err
    assert f"its newest run is {run}, completed" in again.err


def test_a_job_means_its_run_that_waits_where_only_such_can_be_steered(
    rota: Console, server: Server
) -> None:
    server.define(TIDY.replace("name: tidy,", "name: tidy, max_concurrency: 1,"))
    rota("trigger", "tidy")
    server.claim()
    waiting = rota("trigger", "tidy", "-o", "name").out.strip()

    ended = rota("run", "hold", "tidy")

    assert ended.err.startswith(f"{waiting} is blocked now")


def test_history_and_output_of_a_deleted_job_are_found_by_its_name(
    rota: Console, server: Server
) -> None:
    run = failed(rota, server)
    rota("job", "delete", "tidy", "--yes")

    assert rota("job", "history", "tidy", "-o", "name").lines == [run]
    assert rota("logs", "tidy").out == "dust\nno water\n"
    assert rota("run", "show", "tidy", "-o", "name").lines == [run]
    assert rota("job", "ledger", "tidy").code == 0
    assert "rota job history tidy" in rota("job", "show", "tidy").err
