"""What people see of a run while they watch it: on a terminal, in a pipe, at 80 columns."""

from __future__ import annotations

import io
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from rota.cli.terminal import Terminal
from rota.cli.watching import Transcript
from rota.sdk.answers import (
    Attempt,
    LinesNews,
    LogLine,
    Progress,
    ProgressNews,
    Run,
    RunDetail,
    Step,
    StepNews,
    TimeNews,
)
from rota.sdk.client import Client
from rota.sdk.watching import RunNews

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
QUEUED = Run(id="r_1", job="ci", state="QUEUED", created_at=NOON, queued_at=NOON)
CLAIMED = Run(
    id="r_1",
    job="ci",
    state="CLAIMED",
    attempt=1,
    worker="w",
    created_at=NOON,
    queued_at=NOON,
    claimed_at=NOON + timedelta(seconds=0.2),
)


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def run(state: str = "PROCESSING", **fields: Any) -> dict[str, Any]:
    return {
        "id": "r_1",
        "job": "ci",
        "state": state,
        "attempt": 1,
        "worker": "w",
        "created_at": NOON,
        "queued_at": NOON,
        "claimed_at": at(0.2),
        "started_at": at(0.2),
        **fields,
    }


PROCESSING = Run(**run())


def begins(number: int, name: str, seconds: float) -> StepNews:
    step = Step(name=name, result="running", started_at=at(seconds))
    return StepNews(attempt=1, number=number, step=step)


def ends(number: int, name: str, result: str = "completed", **fields: Any) -> StepNews:
    step = Step(name=name, result=result, **fields)
    return StepNews(attempt=1, number=number, step=step)


def prints(*texts: str, step: int = 0, skipped: int = 0, continues: bool = False) -> LinesNews:
    lines = tuple(LogLine(n=0, text=text, step=step, continues=continues) for text in texts)
    return LinesNews(run="r_1", attempt=1, lines=lines, skipped=skipped)


def progress(done: float, total: float | None = 100.0, message: str = "") -> ProgressNews:
    return ProgressNews(attempt=1, progress=Progress(done=done, total=total, message=message))


def time(seconds: float) -> TimeNews:
    return TimeNews(at=at(seconds))


def ended(result: str = "COMPLETED", **fields: Any) -> list[RunNews]:
    attempt = Attempt(number=1, worker="w", result=result, **fields)
    whole = RunDetail(**run(result, ended_at=at(21.7), duration_seconds=21.5, attempts=(attempt,)))
    return [attempt, whole]


BUILD: list[RunNews] = [
    QUEUED,
    CLAIMED,
    PROCESSING,
    begins(0, "Set up Go", 0.2),
    ends(0, "Set up Go", seconds=1.1),
    begins(1, "Build", 1.3),
    time(3.3),
    prints("go build ./...", step=1),
    ends(1, "Build", seconds=8.4),
    begins(2, "Test", 9.7),
    prints("FAIL ./store: expected 3, got 2", step=2),
    ends(2, "Test", "failed", seconds=12.0, exit_code=1),
    *ended("FAILED"),
]


def seen(news: Sequence[RunNews], stream: io.StringIO, *, width: int | None = None) -> list[str]:
    terminal = Terminal(stream, io.StringIO(), has_colour=False, is_plain=False, width=width)
    transcript = Transcript(Client("http://127.0.0.1:7700", "token"), terminal, stream)
    for each in news:
        transcript.take(each)
    transcript.end_line()
    return stream.getvalue().splitlines()


def on_screen(written: str) -> list[str]:
    """What a terminal shows in the end, of which this knows as much as is used here."""
    lines, row = [""], 0
    at_end = written.replace("\x1b[J", "\x00")
    position = 0
    while position < len(at_end):
        letter = at_end[position]
        if letter == "\x1b":
            up, _, _ = at_end[position + 2 :].partition("A")
            row -= int(up)
            position += len(up) + 2
        elif letter == "\x00":
            lines = [*lines[:row], ""]
        elif letter == "\n":
            row += 1
            lines += [""] * (row + 1 - len(lines))
        elif letter != "\r":
            lines[row] += letter
        position += 1
    return lines


class TestPipe:
    def test_each_thing_is_a_line_without_any_control_sequence(self) -> None:
        stream = io.StringIO()

        assert seen(BUILD, stream) == [
            "run r_1 queued → claimed by w (0.2 s) → processing",
            "  Set up Go  ✔ 1.1 s",
            "  Build      ▶",
            "    | go build ./...",
            "  Build      ✔ 8.4 s",
            "  Test       ▶",
            "    | FAIL ./store: expected 3, got 2",
            "  Test       ✖ exit 1  (12.0 s)",
            "✖ failed after 21.5 s · rota logs r_1 --failed · http://127.0.0.1:7700",
        ]
        assert "\x1b" not in stream.getvalue()
        assert "\r" not in stream.getvalue()

    def test_way_to_a_worker_grows_as_it_happens(self) -> None:
        stream = io.StringIO()

        seen([QUEUED, CLAIMED], stream)

        assert stream.getvalue().startswith("run r_1 queued → claimed by w (0.2 s)")

    def test_progress_is_worth_twenty_lines_at_most(self) -> None:
        news: list[RunNews] = [PROCESSING, *(progress(each / 10) for each in range(1_001))]

        lines = seen(news, io.StringIO())

        assert len(lines) == 20
        assert lines[1] == "    █░░░░░░░░░░░░░░░░░░░  5%"

    def test_lines_that_were_passed_over_are_counted(self) -> None:
        lines = seen([PROCESSING, prints("last", skipped=4_980)], io.StringIO())

        assert lines[1:] == ["    … 4,980 lines · rota logs r_1", "    | last"]

    def test_line_that_is_printed_in_pieces_is_one(self) -> None:
        news: list[RunNews] = [PROCESSING, prints("50", continues=True)]
        news += [prints(" %", continues=True), prints(" done"), prints("half", continues=True)]

        lines = seen([*news, *ended()], io.StringIO())

        assert lines[1:3] == ["    | 50 % done", "    | half"]


class TestAttempts:
    def test_next_one_comes_after_all_that_the_last_one_left(self) -> None:
        waits = Run(**run("SCHEDULED", max_attempts=3, failures=1, eligible_at=None))
        again: dict[str, Any] = {"attempt": 2, "max_attempts": 3, "failures": 1, "queued_at": None}

        lines = seen(
            [
                PROCESSING,
                begins(0, "Test", 0.2),
                waits,  # the run is told before the last lines of its attempt
                prints("flaky"),
                ends(0, "Test", "failed", seconds=1, exit_code=1),
                Attempt(number=1, result="FAILED", steps=(Step(name="Test", result="failed"),)),
                Run(**run(**again)),
            ],
            io.StringIO(),
        )

        assert lines[1:] == [
            "  Test  ▶",
            "    | flaky",
            "  Test  ✖ exit 1  (1.0 s)",
            "  attempt 1 of 3 failed",
            "attempt 2 scheduled → claimed by w → processing",
        ]

    def test_whoever_comes_later_sees_how_the_earlier_ones_ended(self) -> None:
        lost = Attempt(number=1, worker="v", result="LOST", message="its worker vanished")

        lines = seen([lost, Run(**run(attempt=2, losses=1))], io.StringIO())

        assert lines == [
            "  its worker vanished",
            "  attempt 1 lost",
            "run r_1 attempt 2 queued → claimed by w (0.2 s) → processing",
        ]

    def test_doubt_that_a_probe_is_to_end_is_told_once(self) -> None:
        lost = Attempt(number=1, worker="w", result="LOST")
        doubt = Run(**run("UNKNOWN"))

        lines = seen([PROCESSING, lost, doubt, time(1), time(2), *ended()], io.StringIO())

        assert lines[1:] == [
            "unknown: its probe is to tell how it ended",
            "✔ completed in 21.5 s · rota logs r_1 · http://127.0.0.1:7700",
        ]

    def test_doubt_that_is_left_to_a_person_is_told_at_the_end_alone(self) -> None:
        lost = Attempt(number=1, worker="w", result="LOST")
        whole = RunDetail(**run("UNKNOWN", attempts=(lost,)))

        lines = seen([PROCESSING, lost, Run(**run("UNKNOWN")), whole, time(1)], io.StringIO())

        assert lines[1:] == [
            "✖ unknown: a person must decide · rota run resolve r_1 --as completed|failed|retry"
            " · http://127.0.0.1:7700"
        ]


class TestTerminal:
    @pytest.fixture(autouse=True)
    def terminal(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.setenv("COLUMNS", "80")

    def test_what_goes_on_is_drawn_below_what_has_happened(self) -> None:
        screen = Screen()
        news = [*BUILD[:8], progress(45, message="linking"), time(62)]

        terminal = Terminal(screen, io.StringIO(), False, False, 80)
        transcript = Transcript(Client("http://127.0.0.1:7700", "token"), terminal, screen)
        for each in news:
            transcript.take(each)

        assert on_screen(screen.getvalue()) == [
            "run r_1 queued → claimed by w (0.2 s) → processing",
            "  Set up Go  ✔ 1.1 s",
            "    | go build ./...",
            "▶ Build  1 m 00 s of 1 m 01 s  █████████░░░░░░░░░░░  45%  linking",
        ]

    def test_nothing_is_left_of_what_was_drawn(self) -> None:
        screen = Screen()
        seen(BUILD, screen, width=80)

        lines = on_screen(screen.getvalue())

        assert lines[1:3] == ["  Set up Go  ✔ 1.1 s", "    | go build ./..."]
        assert lines[-1] == ""
        assert not [line for line in lines if line.startswith("▶")]

    def test_waiting_run_says_how_long(self) -> None:
        screen = Screen()
        terminal = Terminal(screen, io.StringIO(), False, False, 80)
        transcript = Transcript(Client("http://127.0.0.1:7700", "token"), terminal, screen)

        for each in (QUEUED, time(1), time(2)):
            transcript.take(each)

        assert on_screen(screen.getvalue()) == ["run r_1 queued  2 s"]

    def test_80_columns_are_enough_for_everything(self) -> None:
        screen = Screen()
        long = "word " * 40
        news: list[RunNews] = [PROCESSING, begins(0, long, 1), prints(long)]
        news += [progress(1, message=long), time(9)]

        seen(news, screen, width=80)

        assert max(len(line) for line in on_screen(screen.getvalue())) < 80
        assert "…" in screen.getvalue()

    def test_wide_letters_are_counted_by_their_cells(self) -> None:
        screen = Screen()

        seen([PROCESSING, prints("構" * 100)], screen, width=80)

        assert len(on_screen(screen.getvalue())[1]) < 45


HOSTILE = "\x1b[2J\x1b]0;title\x07\x9b31m\r\x08\u202e"


@pytest.mark.parametrize("stream", [io.StringIO, Screen])
def test_nothing_that_others_say_steers_the_terminal(
    stream: type[io.StringIO], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    written = stream()
    news: list[RunNews] = [
        Run(**run(worker=HOSTILE)),
        begins(0, HOSTILE, 1),
        time(2),
        prints(f"a{HOSTILE}b"),
        progress(1, message=HOSTILE),
        time(3),
        ends(0, HOSTILE, "failed", cause=HOSTILE),
        Attempt(number=1, result="FAILED", message=HOSTILE),
        RunDetail(**run("FAILED", cause=HOSTILE)),
    ]

    seen(news, written)

    ours = written.getvalue().replace("\x1b[J", "").replace("\r", "")
    assert [letter for letter in ours if not letter.isprintable() and letter != "\n"] == []
