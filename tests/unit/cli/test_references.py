from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from rota.cli.references import run_id
from rota.domain.ids import micros, new_run_id
from rota.operations import workers
from rota.ports.work import Hello, Start
from rota.sdk.client import Client
from testkit.waiting import eventually
from tests.unit.cli.console import Console
from tests.unit.cli.server import Server

PAYOUT = """
jobs:
  - name: payout
    delivery: at_most_once
    probe: {run: ./was_it_paid.sh, delay: 1h}
    steps: [{run: ./pay.sh}]
"""


def test_whole_id_of_a_run_is_not_asked_for() -> None:
    nobody = Client("http://127.0.0.1:1", "token")
    run = new_run_id(datetime(2026, 3, 1, tzinfo=UTC))

    assert run_id(nobody, run) == run
    assert run_id(nobody, f"http://127.0.0.1:7700/runs/{run}") == run


@pytest.fixture
def run(rota: Console, server: Server) -> str:
    """A payout of which nobody knows what became, and which a probe is going to ask about."""
    server.define(PAYOUT)
    run = rota("trigger", "payout", "-o", "name").out.strip()
    lease = timedelta(milliseconds=20)
    session, _ = server.do(workers.register(server.engine, Hello("brief", "default", 1), lease))
    [work] = server.do(server.engine.store.claim(session.id, 1)).batch.works()
    now = micros(server.do(server.engine.store.now()))
    server.do(server.engine.store.start(session.id, [Start(work.run, work.number, now)]))

    def is_unknown() -> bool:
        server.do(server.engine.store.reap({session.id: session.beats}))
        return rota("run", "list", "--state", "unknown", "-o", "name").out.strip() == run

    eventually(is_unknown)
    return run


def test_a_job_means_its_run_and_not_the_probe_of_that(rota: Console, run: str) -> None:
    shown = rota("run", "show", "payout", "-o", "name")
    why = rota("why", "payout", "--json")
    cancelled = rota("run", "cancel", "payout", "--dry-run")

    assert shown.out.strip() == run
    assert why.json["run"] == run
    assert f"would not cancel {run}: it is unknown already" in cancelled.err


def test_why_says_what_a_probe_waits_for(rota: Console, run: str) -> None:
    [probe] = rota("run", "list", "--where", "trigger:probe", "-o", "name").out.split()

    why = " ".join(rota("why", probe).out.split())

    assert "it asks what became of another run, after its probe's delay: at 20" in why
    assert "jitter" not in why
    assert run not in why
