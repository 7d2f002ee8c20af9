from __future__ import annotations

import os
import subprocess
from datetime import timedelta
from pathlib import Path

import pytest

from testkit.evidence import CLOCK_TICK, Event, Evidence
from testkit.waiting import boottime


@pytest.fixture
def evidence(tmp_path: Path) -> Evidence:
    return Evidence(tmp_path / "it's evidence")


def run(script: str, attempt: int = 1) -> None:
    """Run a script as a worker would."""
    told = {"ROTA_JOB": "job", "ROTA_RUN_ID": "r_1", "ROTA_ATTEMPT": str(attempt)}
    subprocess.run(
        ["sh", "-ec", script], env={"PATH": os.environ["PATH"], **told}, check=False, timeout=20
    )


def test_script_leaves_start_beats_and_end(evidence: Evidence) -> None:
    before = boottime()

    run(evidence.script(evidence.beats(2, every=timedelta(milliseconds=1))))

    marks = evidence.marks()
    assert [mark.event for mark in marks] == [Event.START, Event.BEAT, Event.BEAT, Event.END]
    assert {(mark.job, mark.run, mark.attempt) for mark in marks} == {("job", "r_1", 1)}
    assert all(before - CLOCK_TICK <= mark.at <= boottime() for mark in marks)


def test_script_that_fails_leaves_no_end(evidence: Evidence) -> None:
    run(evidence.script("exit 3"))
    run(evidence.script(), attempt=2)

    assert evidence.started() == [("r_1", 1), ("r_1", 2)]
    assert evidence.ended() == [("r_1", 2)]
