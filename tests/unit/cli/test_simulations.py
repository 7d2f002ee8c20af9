"""`rota simulate`."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest

from testkit.builders import hello
from tests.unit.cli.console import Console
from tests.unit.cli.server import Server

_MAIN = "import sys; from rota.cli.main import main; sys.exit(main())"
EXAMPLE = str(Path(__file__).parents[3] / "examples" / "workload.yaml")
JOBS = """
jobs:
  - {name: a, schedule: every 1m, overlap: allow, expect: 3m, start_within: 5s, steps: [{run: x}]}
  - {name: b, schedule: every 4m, steps: [{run: x}]}
"""


def test_a_workload_is_simulated_without_a_server(rota: Console) -> None:
    shown = rota("simulate", EXAMPLE, "--for", "30m", "--sample", "0.5")

    assert shown.code == 0
    assert shown.lines[0].startswith("30 m 00 s of 7 workers: ")
    assert shown.lines[1].startswith("a sample: 50 % of workers, runs and limits")
    headings = [line.split()[0] for line in shown.lines if line.isupper() or "RUNS" in line]
    assert headings == ["JOB", "PRIORITY", "SHARE", "POOL"]
    assert shown.lines[-1].startswith("3.")  # runs a second, of the whole workload


def test_progress_is_drawn_on_a_terminal_and_wiped_out(rota: Console) -> None:
    words = [sys.executable, "-c", _MAIN, "simulate", EXAMPLE, "--for", "10m"]
    ours, theirs = os.openpty()

    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=theirs, env={**os.environ, "TERM": "xterm"}
    ) as process:
        os.close(theirs)
        drawn = _all_of(ours)
        assert process.stdout is not None
        printed = process.stdout.read().decode()

    shares = [
        int(share) for share in re.findall(r"simulating .* (\d+)%", drawn.replace("\r", "\n"))
    ]
    assert shares[0] == 0
    assert shares == sorted(shares)
    assert shares[-1] > 90
    assert drawn.endswith("\r\x1b[K")
    assert printed.startswith("10 m 00 s of ")


def _all_of(terminal: int) -> str:
    """What is written to a terminal until nobody has it open."""
    found = b""
    with suppress(OSError), open(terminal, "rb", buffering=0) as stream:
        while part := stream.read(4_096):
            found += part
    return found.decode()


def test_nothing_is_drawn_where_there_is_no_terminal(rota: Console) -> None:
    assert rota("simulate", EXAMPLE, "--for", "10m").err == ""


def test_the_same_seed_tells_programs_the_same(rota: Console) -> None:
    words = ("simulate", EXAMPLE, "--for", "10m", "--json", "--seed")

    assert rota(*words, "5").json == rota(*words, "5").json
    assert rota(*words, "5").json != rota(*words, "6").json


def test_what_is_wrong_with_a_file_is_told_with_its_place(rota: Console) -> None:
    Path("bad.yaml").write_text("workers: [{name: w, cuont: 3}]\njobs: []\n")

    shown = rota("simulate", "bad.yaml")

    assert shown.code == 6
    assert shown.err.splitlines() == [
        'bad.yaml:1:21  unknown key "cuont" in workers w — did you mean "count"?',
        "bad.yaml:2:7  jobs must have 1 to 10,000 entries",
        "bad.yaml: 2 errors",
    ]


def test_a_change_is_shown_beside_what_is(rota: Console, server: Server) -> None:
    server.define(JOBS)
    server.do(server.engine.store.register(hello(slots=1), timedelta(minutes=10)))

    shown = rota("simulate", "--add-workers", "4", "--without", "b", "--for", "30m").lines

    assert shown[1].split() == ["workers", "1", "5"]
    [late] = [line for line in shown if line.startswith("late")]
    assert int(late.split()[1]) > int(late.split()[2]) == 0
    [without] = [line for line in shown if line.startswith("b ")]
    assert without.split()[2] == "–"


@pytest.mark.parametrize(
    "words",
    [
        (),
        (EXAMPLE, "--without", "a"),
        ("--add-workers", "many"),
        ("--move", "a"),
        (EXAMPLE, "--sample", "2"),
    ],
)
def test_wrong_usage_says_what_to_write(rota: Console, words: tuple[str, ...]) -> None:
    shown = rota("simulate", *words)

    assert shown.code == 2
    assert shown.err
