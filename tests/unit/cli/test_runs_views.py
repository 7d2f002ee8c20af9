from __future__ import annotations

import io
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from rota.cli import times
from rota.cli.printing import write_table
from rota.cli.ps import GOING
from rota.cli.runs import RUNS, write_run
from rota.cli.terminal import Terminal
from rota.cli.watching import Transcript
from rota.sdk.answers import Attempt, Note, OutputSummary, Progress, RunDetail, Step
from rota.sdk.client import Client

PRESENT = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def terminal() -> Terminal:
    return Terminal(io.StringIO(), io.StringIO(), has_colour=False, is_plain=False, width=None)


def run(**fields: Any) -> RunDetail:
    known: dict[str, Any] = {"id": "r_1", "job": "tidy", "state": "COMPLETED", "attempt": 1}
    return RunDetail(**known | fields)


def page_of(run: RunDetail) -> dict[str, str]:
    """The names and values on a run's page."""
    target = io.StringIO()
    write_run(
        Terminal(target, io.StringIO(), has_colour=False, is_plain=False, width=None), run, PRESENT
    )
    pairs = (line.partition("  ") for line in target.getvalue().splitlines())
    return {name: value.strip() for name, _, value in pairs}


@pytest.mark.parametrize(
    ("attempts", "text"),
    [
        ({"attempt": 2, "max_attempts": 3, "failures": 1}, "completed · attempt 2 of 3"),
        ({"attempt": 2, "max_attempts": 1, "losses": 1}, "completed · attempt 2 (1 lost)"),
        ({"attempt": 3, "losses": 2, "is_alone": True}, "completed · attempt 3 (2 lost) · alone"),
        ({"attempt": 2, "max_attempts": 1}, "completed · attempt 2 (1 interrupted)"),
        ({"state": "PROCESSING", "attempt": 2}, "processing · attempt 2 (1 interrupted)"),
        ({"state": "QUEUED", "attempt": 1}, "queued · attempt 1 (1 interrupted)"),
        ({"state": "FAILED", "attempt": 2, "failures": 1}, "failed · attempt 2 (1 interrupted)"),
        (
            {"state": "FAILED", "attempt": 4, "failures": 1, "losses": 1},
            "failed · attempt 4 (1 lost, 2 interrupted)",
        ),
        ({"state": "CANCELLED", "attempt": 1, "failures": 1}, "cancelled · attempt 1 of 1"),
    ],
)
def test_attempts_are_counted_against_the_limit_unless_some_were_lost_or_interrupted(
    attempts: dict[str, Any], text: str
) -> None:
    assert page_of(run(**attempts))["state"] == text


def test_values_are_shown_as_programs_write_them() -> None:
    page = page_of(run(inputs={"target": "orders", "all": True}, outputs={"größe": [1, None]}))

    assert page["inputs"] == "target=orders all=true"
    assert page["outputs"] == '{"größe": [1, null]}'


def test_a_file_is_shown_by_its_name() -> None:
    page = page_of(run(inputs={"data": {"file": "a.csv", "digest": "sha256:0", "size": 4893}}))

    assert page["inputs"] == "data=a.csv (4,893 bytes)"


def test_lists_pages_and_transcripts_tell_the_same_duration() -> None:
    stream = io.StringIO()
    client = Client("http://127.0.0.1:1", "token")
    tried_twice = run(
        attempt=2,
        failures=1,
        max_attempts=3,
        first_started_at=PRESENT,
        ended_at=PRESENT + timedelta(seconds=35),
        duration_seconds=2,
    )

    Transcript(client, terminal(), stream).take(tried_twice)
    [_, listed] = table_of(tried_twice)

    assert page_of(tried_twice)["state"].endswith(" · 2.0 s, 35.0 s in total")
    assert "✔ completed in 2.0 s, 35.0 s in total · " in stream.getvalue()
    assert " 2.0 s " in listed


def table_of(run: RunDetail) -> list[str]:
    screen = io.StringIO()
    write_table(Terminal(screen, io.StringIO(), False, False, 100), RUNS.columns, [run])
    return screen.getvalue().splitlines()


def test_what_was_never_measured_is_not_zero() -> None:
    target = io.StringIO()
    steps = (
        Step(
            name="measured", result="completed", seconds=1, cpu_seconds=0.5, max_memory_bytes=2**20
        ),
        Step(name="not", result="completed", seconds=1),
        Step(name="skipped", result="skipped", tries=0),
    )
    lost = Attempt(number=1, worker="w", result="LOST", started_at=PRESENT)
    completed = Attempt(number=2, worker="w", result="COMPLETED", cpu_seconds=0.5, steps=steps)

    shown = run(attempt=2, losses=1, attempts=(lost, completed))
    write_run(Terminal(target, io.StringIO(), False, False, None), shown, PRESENT, wide=True)

    rows = {
        line.split()[0]: " ".join(line.split()[1:])
        for line in target.getvalue().splitlines()
        if line
    }
    assert rows["1"].startswith("lost w – – – – ")
    assert rows["2"].startswith("completed w – – 0.5 s – ")
    assert rows["measured"] == "completed – 1.0 s 1 0.5 s 1 MiB –"
    assert rows["not"] == "completed – 1.0 s 1 – – –"
    assert rows["skipped"] == "skipped – – – – – –"


def test_transcript_counts_no_lost_attempt_against_the_limit() -> None:
    stream = io.StringIO()
    lost = Attempt(number=1, worker="w", result="LOST", started_at=PRESENT)
    going = Attempt(number=2, worker="w", started_at=PRESENT)
    client = Client("http://127.0.0.1:1", "token")

    Transcript(client, terminal(), stream).take(
        run(state="PROCESSING", attempt=2, losses=1, attempts=(lost, going))
    )

    assert "  attempt 1 lost\n" in stream.getvalue()


def test_80_columns_have_the_job_the_state_and_why_it_failed() -> None:
    screen = io.StringIO()
    present = times.now()
    failed = run(
        id="r_1k0ghsf35spcrm2222222222",
        job="nightly-backup-of-orders",
        state="FAILED",
        due_at=present - timedelta(hours=3),
        duration_seconds=842,
        message="step upgrade: exit 3: could not connect to the server",
    )
    tomorrow = present + timedelta(hours=20)
    ahead = run(id="r_2", job="tidy", state="SCHEDULED", due_at=tomorrow, eligible_at=tomorrow)
    queued = run(id="r_3", state="QUEUED", due_at=present, waiting="it waits for a worker")

    write_table(
        Terminal(screen, io.StringIO(), False, False, 80), RUNS.columns, [failed, ahead, queued]
    )

    _, first, why, second, third = screen.getvalue().splitlines()
    assert first.startswith("r_1k0ghsf35spcrm  nightly-backup-of-orders  failed     3 h 00 m ago")
    assert why == "    step upgrade: exit 3: could not connect to the server"
    assert second.startswith("r_2               tidy                      scheduled  in ")
    assert third.startswith("r_3               tidy                      queued ")


def going(**fields: Any) -> RunDetail:
    known = {"state": "PROCESSING", "started_at": times.now() - timedelta(seconds=62)}
    return run(**known | fields)


def test_80_columns_have_what_goes_on_and_how_far_it_is() -> None:
    screen = io.StringIO()
    note = Note(step="Test the whole of it", output_lines=3, last_line="ok  ./store  1.2s")
    backup = going(
        id="r_1k0ghsf35spcrm2222222222",
        job="nightly-backup-of-orders",
        note=note,
        progress=Progress(done=45, total=100, message="copying"),
    )
    created = times.now() - timedelta(seconds=5)
    waits = run(id="r_2", job="tidy", state="BLOCKED", waiting="held by ann", created_at=created)

    write_table(Terminal(screen, io.StringIO(), False, False, 80), GOING.columns, [backup, waits])

    assert screen.getvalue().splitlines() == [
        "RUN               JOB           STEP           ELAPSED   PROGRESS  LAST LINE",
        "r_1k0ghsf35spcrm  nightly-bac…  Test the who…  1 m 02 s  45%       ok  ./store …",
        "r_2               tidy          blocked        5 s       –         held by ann",
    ]


def test_a_run_that_goes_on_tells_step_time_progress_and_what_it_printed() -> None:
    steps = (
        Step(name="Build", result="completed", seconds=8.4),
        Step(name="Test", result="running", started_at=times.now() - timedelta(seconds=12)),
    )
    attempt = Attempt(
        number=1,
        worker="w",
        started_at=times.now() - timedelta(seconds=62),
        steps=steps,
        output=OutputSummary(state="pending", lines=120),
    )
    note = Note(step="Test", step_started_at=PRESENT - timedelta(seconds=12), last_line="ok 7")
    found = going(note=note, progress=Progress(done=3), attempts=(attempt,))
    target = io.StringIO()

    write_run(Terminal(target, io.StringIO(), False, False, None), found, PRESENT)

    pages = page_of(found)
    assert pages["state"] == "processing · attempt 1 of 1 · 1 m 02 s so far"
    assert (pages["step"], pages["progress"], pages["last line"]) == ("Test · 12 s", "3", "ok 7")
    assert "120 lines so far" in target.getvalue()
    assert target.getvalue().splitlines()[-2:] == ["  Build  ✔ 8.4 s", "  Test   ▶ 12 s"]
