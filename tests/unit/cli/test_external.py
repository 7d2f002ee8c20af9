"""`rota run report`, and what is shown of runs that another system does."""

from __future__ import annotations

import pytest

from rota.domain.credentials import SecretKind, digest, new_secret
from rota.operations import external
from testkit.builders import MINUTE
from tests.unit.cli.console import Console
from tests.unit.cli.server import Server

JOB = """
jobs:
  - name: build
    type: external
    timeout: 1h
    external:
      announce: {url: "https://ci.example.org/runs"}
      heartbeat: 5m
"""


@pytest.fixture
def run(rota: Console, server: Server) -> str:
    """A run that has begun."""
    server.define(JOB)
    run = rota("trigger", "build", "-o", "name").out.strip()
    assert server.do(external.begin_waiting(server.engine)) == 1
    return run


def test_a_run_is_reported_to_its_end(rota: Console, run: str) -> None:
    going = rota(
        *("run", "report", run, "--state", "processing", "--progress", "0.4"),
        *("--message", "testing", "--log", "compiled"),
    )
    shown = rota("run", "show", run)
    listed = rota("ps")
    ended = rota("run", "report", "build", "--state", "completed", "--result", "id=7")

    assert (going.code, going.err) == (0, f"reported {run} as processing, attempt 1\n")
    assert "40%" in shown.out
    assert "testing" in shown.out
    assert "report due" in shown.out
    assert "build" in listed.out
    assert ended.code == 0
    found = rota("run", "show", run, "--json").json
    assert (found["state"], found["outputs"]) == ("COMPLETED", {"id": 7})
    assert rota("run", "logs", run).out == "compiled\n"


def test_the_token_of_an_attempt_is_enough(
    rota: Console, server: Server, run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = new_secret(SecretKind.REPORT)
    server.do(server.engine.store.lease_announcements([digest(token)], MINUTE))
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("ROTA_TOKEN", token)
        without = rota("run", "report", run, "--state", "failed")
        reported = rota("run", "report", run, "--state", "failed", "--number", "1")
        looked = rota("run", "show", run)
        by_job = rota("run", "report", "build", "--state", "failed", "--number", "2")
        elsewhere.setenv("ROTA_TOKEN", token[:-1])
        torn = rota("run", "report", run, "--state", "failed", "--number", "2")

    assert "needs a number" in without.err
    assert "for reports on its run, named by its whole id" in by_job.err
    assert "project create" not in looked.err
    assert "came with the announcement of the attempt" in torn.err
    assert reported.code == 0
    assert looked.code != 0
    assert rota("run", "show", run, "--json").json["state"] == "FAILED"


def test_what_was_told_in_vain_is_shown(rota: Console, server: Server, run: str) -> None:
    [sending] = server.do(external.announce_due(server.engine, 20))
    server.do(sending)

    shown, why = rota("run", "show", run), rota("why", run)

    assert "once in vain: this server sends no announcements" in " ".join(shown.out.split())
    assert "another system does it; the next report is due" in " ".join(why.out.split())


def test_what_comes_late_is_refused_and_shown(rota: Console, run: str) -> None:
    rota("run", "report", run, "--state", "completed")

    late = rota("run", "report", run, "--state", "failed", "--message", "or did it")

    assert late.code == 5
    assert "has ended: it is completed" in late.err
    assert "refused: attempt 1 reported failed after it was over\n" in rota("run", "show", run).out


def test_no_worker_and_no_wall_of_one_is_shown(rota: Console, run: str) -> None:
    rota("run", "report", run, "--state", "completed")

    watched, shown = rota("run", "watch", run), rota("run", "show", run)

    assert "queued → begun by another system" in watched.out
    assert "isolation" not in shown.out


def test_a_rehearsal_reports_nothing(rota: Console, run: str) -> None:
    rehearsed = rota("run", "report", run, "--state", "failed", "--dry-run")

    assert rehearsed.code == 20
    assert f"would report {run} as failed" in rehearsed.err
    assert rota("run", "show", run, "--json").json["state"] == "PROCESSING"


def test_a_result_needs_a_name(rota: Console, run: str) -> None:
    refused = rota("run", "report", run, "--state", "completed", "--result", "7")

    assert refused.code == 2
    assert "is not NAME=VALUE" in refused.err
