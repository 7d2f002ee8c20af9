"""Payouts that are made exactly once, whenever workers die, with the ledger of the example."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from rota.sdk.client import Client
from testkit.processes import RotaUp
from testkit.waiting import eventually
from tests.system.conftest import Up
from tests.unit.docs.pages import ROOT

EXAMPLE = ROOT / "examples" / "payouts"
PAYOUTS = 1_000
SLOTS = 8
STAGES = ("before", "sent", "paid")
PATIENT = timedelta(minutes=1)

pytestmark = pytest.mark.timeout(120)

# A payout stops at each stage for as long as there is a file of its name.
APP = """
import http.client
import json
import threading
from pathlib import Path

from rota import App, Context

app = App("payouts")
HERE = Path("STAGES")


def reach(stage: str, ctx: Context) -> None:
    if (HERE / f"hold-{stage}").exists():
        (HERE / f"{stage} {ctx.run_id} {ctx.attempt}").touch()
        while (HERE / f"hold-{stage}").exists():
            threading.Event().wait(0.02)


@app.job()
def payout(ctx: Context, to: str, cents: int) -> None:
    reach("before", ctx)
    ledger = http.client.HTTPConnection("LEDGER", timeout=30)
    told = {"key": ctx.run_id, "fence": ctx.fence, "to": to, "cents": cents}
    ledger.request("POST", "/payments", json.dumps(told))
    reach("sent", ctx)
    answer = ledger.getresponse()
    if answer.status not in (200, 201):
        raise RuntimeError(answer.read().decode())
    ledger.close()
    reach("paid", ctx)
"""


class Ledger:
    """The example's ledger as a process, asked over HTTP."""

    def __init__(self, folder: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, EXAMPLE / "ledger.py", "--port=0", "--takes=0.02"],
            cwd=folder,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        self.host = self._process.stdout.readline().strip().removeprefix("ledger at http://")

    def payments(self) -> list[dict[str, Any]]:
        connection = http.client.HTTPConnection(self.host, timeout=10)
        connection.request("GET", "/payments")
        found: list[dict[str, Any]] = json.load(connection.getresponse())["payments"]
        connection.close()
        return found

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    found = Ledger(tmp_path)
    yield found
    found.close()


def job_file(ledger: Ledger) -> str:
    probe = {
        "run": [sys.executable, str(EXAMPLE / "steps" / "was_it_paid.py")],
        "delay": "200ms",
    }
    payout = {
        "name": "payout",
        "type": "python",
        "function": "payouts.payout",
        "delivery": "at_most_once",
        "inputs": {"to": {"type": "string"}, "cents": {"type": "integer"}},
        "env": {"LEDGER": f"http://{ledger.host}"},
        "probe": probe,
        "max_losses": 20,
    }
    return json.dumps({"jobs": [payout]})


def kill_worker_in(stage: str, rota: RotaUp, stages: Path) -> None:
    """Kill the worker while all that it has is at this stage."""
    hold = stages / f"hold-{stage}"
    hold.touch()
    eventually(lambda: len(list(stages.glob(f"{stage} *"))) >= SLOTS, PATIENT)
    worker = rota.worker_pid()
    os.kill(worker, signal.SIGKILL)
    eventually(lambda: not Path(f"/proc/{worker}").exists())
    hold.unlink()


def test_each_of_a_thousand_payouts_is_made_once_though_workers_are_killed(
    up: Up, ledger: Ledger, tmp_path: Path
) -> None:
    stages = tmp_path / "stages"
    stages.mkdir()
    app = APP.replace("STAGES", str(stages)).replace("LEDGER", ledger.host)
    (tmp_path / "payouts_app.py").write_text(app)
    rota = up(slots=str(SLOTS), app="payouts_app:app", lease="1h")
    rota.client.apply(job_file(ledger))
    wanted = [{"to": f"payee-{number}", "cents": number} for number in range(1, PAYOUTS + 1)]
    (stages / f"hold-{STAGES[0]}").touch()
    rota.client.trigger_many("payout", wanted)

    for stage in STAGES:
        kill_worker_in(stage, rota, stages)

    def ended() -> Counter[str]:
        runs = rota.client.each(Client.list_runs(job="payout", limit=1_000))
        states = Counter(run.state for run in runs if run.trigger != "probe")
        assert states == {"COMPLETED": PAYOUTS}
        return states

    eventually(ended, PATIENT)
    paid = ledger.payments()
    assert sorted((each["to"], each["cents"]) for each in paid) == sorted(
        (each["to"], each["cents"]) for each in wanted
    )
    probes = list(rota.client.each(Client.list_runs(trigger="probe", limit=1_000)))
    assert len(probes) >= len(STAGES) * SLOTS
    answers = Counter(run.cause for run in probes)
    assert answers["says retry"] >= SLOTS  # killed before they paid
    assert answers[""] >= SLOTS  # killed after
    assert set(answers) == {"says retry", ""}
