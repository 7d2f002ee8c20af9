"""Everything the page about time shows is computed again."""

from __future__ import annotations

import re
import shlex
from datetime import UTC, datetime, timedelta

import pytest

from rota.domain.backfill import DueRun, Only, plan_backfill
from rota.domain.calendars import (
    Allowed,
    BlackoutAnswer,
    Calendar,
    Inside,
    ReleasedAt,
    SkippedBy,
    compile_calendar,
    in_words,
    next_windows,
)
from rota.domain.firing import fold_into_window
from rota.domain.gates import ActiveRun, JobRules, admit
from rota.domain.ids import JobId, RunId
from rota.domain.run import Trigger
from rota.domain.schedule.expressions import Looking, Reading, read_instant
from rota.domain.schedule.zones import load_zone
from rota.domain.spec import Overlap
from rota.domain.states import FINAL_STATES, RunState
from tests.unit.cli.console import Console
from tests.unit.docs.pages import ROOT, Block, blocks, exchanges, rows, table

PAGE = ROOT / "docs" / "design" / "time.md"
WRITTEN = table((ROOT / "docs" / "reference" / "times-and-ids.md").read_text("utf-8"))
DAY = datetime(2026, 5, 4, tzinfo=UTC)
OLDER_WAITING = RunId("r_older")
RUNNING = RunId("r_running")
INSIDE = table(PAGE.read_text("utf-8").partition("`inside` says what")[2])
FIELDS = table(PAGE.read_text("utf-8").partition("What else a field may be")[2])
BACKFILLED: dict[str, list[RunId | None]] = {
    "runs": [None],
    "runs, as its retry": [RunId("r_1")],
    "left out": [],
}


@pytest.mark.parametrize("block", blocks("console", PAGE), ids=str)
def test_transcripts_are_what_the_commands_print(rota: Console, block: Block) -> None:
    for exchange in exchanges(block):
        ended = rota(*shlex.split(exchange.command)[1:])

        assert ended.out + ended.err == exchange.printed


@pytest.mark.parametrize("looking", Looking)
@pytest.mark.parametrize(("written", "means"), WRITTEN)
def test_times_can_be_written_as_the_table_says(written: str, means: str, looking: Looking) -> None:
    reading = Reading(DAY, load_zone("Europe/Berlin"), looking)

    found = [read_instant(text, reading) for text in re.findall("`([^`]+)`", written)]

    assert found
    if means.startswith("the midnight"):
        assert {f"{reading.zone.local(at):%H:%M}" for at in found if reading.zone} == {"00:00"}


@pytest.mark.parametrize(("written", "field", "means"), FIELDS)
def test_fields_mean_what_the_table_says(
    rota: Console, written: str, field: str, means: str
) -> None:
    explained = rota("cron", "explain", written.strip("`")).lines

    assert explained[0] == f"{means}, UTC"


@pytest.mark.parametrize(("window", "closed", "first"), rows(PAGE, "Calendars"))
def test_windows_are_what_the_table_says(window: str, closed: str, first: str) -> None:
    blackout = compile_calendar(Calendar("any", (window.strip("`"),)))

    [found] = next_windows(blackout, datetime(2026, 12, 21, tzinfo=UTC), 1)

    assert in_words(blackout) == f"{closed}, UTC: due times inside are skipped"
    assert f"{found.begins:%Y-%m-%d %H:%M} – {found.ends:%Y-%m-%d %H:%M}" == first


@pytest.mark.parametrize(("inside", "answers"), [(row[0], row[1:]) for row in INSIDE])
def test_due_times_inside_become_what_the_table_says(inside: str, answers: list[str]) -> None:
    calendar = Calendar("any", ("daily 14:00-17:00",), inside=Inside(inside.split("`")[1]))
    due_times = [DAY + timedelta(hours=hour, minutes=30) for hour in range(13, 18)]

    found = fold_into_window([compile_calendar(calendar)], due_times, None)

    assert [answer_words(answer) for answer in found] == answers


def answer_words(answer: BlackoutAnswer) -> str:
    match answer:
        case Allowed():
            return "runs"
        case SkippedBy():
            return "SKIPPED"
        case ReleasedAt():
            return f"runs at {answer.at:%H:%M}"


@pytest.mark.parametrize(("overlap", "new", "waiting", "running"), rows(PAGE, "Overlap"))
def test_overlap_table_is_right(overlap: str, new: str, waiting: str, running: str) -> None:
    rules = JobRules(JobId("j_1"), "nightly", Overlap(overlap.split("`")[1]), max_concurrency=None)
    earlier = [
        ActiveRun(RUNNING, 1, RunState.PROCESSING, Trigger.SCHEDULE, attempt=1),
        ActiveRun(OLDER_WAITING, 2, RunState.BLOCKED, Trigger.SCHEDULE),
    ]

    admission = admit(
        rules, ActiveRun(RunId("r_new"), 3, RunState.SCHEDULED, Trigger.SCHEDULE), earlier
    )

    assert str(admission.state) == new.partition(",")[0]
    assert admission.cause in new
    assert (OLDER_WAITING in admission.supersedes) == waiting.startswith("SKIPPED")
    assert (RUNNING in admission.cancels) == (running == "is cancelled")


@pytest.mark.parametrize(("runs", "everything", "missing", "failed"), rows(PAGE, "Backfill"))
def test_backfill_table_is_right(runs: str, everything: str, missing: str, failed: str) -> None:
    named = [RunState(word) for word in re.findall(r"[A-Z_]{2,}", runs)]
    states = [*named, *([RunState.PROCESSING] if "not over" in runs else [])]

    for state in states:
        run = DueRun(RunId("r_1"), DAY, state)
        for only, told in ((None, everything), (Only.MISSING, missing), (Only.FAILED, failed)):
            made = [repeat.retry_of for repeat in plan_backfill([DAY], [run], only).repeats]
            assert made == BACKFILLED[told], (state, only)


def test_every_state_is_in_the_backfill_table() -> None:
    told = " ".join(row[0] for row in rows(PAGE, "Backfill"))

    assert set(FINAL_STATES) <= set(re.findall(r"[A-Z_]{2,}", told))


def test_every_overlap_policy_is_in_the_table() -> None:
    told = [row[0].split("`")[1] for row in rows(PAGE, "Overlap")]

    assert sorted(told) == sorted(Overlap)
