"""Probes end the doubt about runs whose workers were killed, and survive such deaths themselves."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rota.sdk.answers import Run, RunDetail
from rota.sdk.errors import Conflict
from testkit.processes import RotaUp
from testkit.waiting import eventually
from tests.system.conftest import Up
from tests.system.jobs import Document, apply, job, log_of

PROBE = """
echo "run $ROTA_RUN_ID attempt $ROTA_ATTEMPT fence $ROTA_FENCE to $INPUT_TO probe $ROTA_PROBE"
echo $ROTA_PROBE >> {folder}/asked
while [ -e {folder}/hold ]; do sleep 0.05; done
exit $(cat {folder}/answer)
"""


def pay(folder: Path, **probe: object) -> Document:
    work = f"echo $ROTA_ATTEMPT >> {folder}/begun; [ $ROTA_ATTEMPT -gt 1 ] || sleep 600"
    asks = {"run": PROBE.format(folder=folder), "delay": "0s", **probe}
    inputs = {"to": {"type": "string"}}
    return job("pay", work, delivery="at_most_once", probe=asks, inputs=inputs)


def kill_worker_when(rota: RotaUp, path: Path) -> None:
    """Kill the worker once a step of it has left this file."""
    eventually(path.exists)
    os.kill(rota.worker_pid(), signal.SIGKILL)


def test_it_is_asked_by_another_worker_what_became_of_the_run(up: Up, tmp_path: Path) -> None:
    (tmp_path / "answer").write_text("0")
    rota = up(lease="1h")
    apply(rota.client, pay(tmp_path))
    run = rota.client.trigger("pay", {"to": "ada"})

    kill_worker_when(rota, tmp_path / "begun")

    eventually(lambda: rota.client.get_run(run.id).state == "COMPLETED")
    shown = rota.client.get_run(run.id)
    [probe] = shown.probes
    assert (shown.cause, probe.answer, probe.tries) == ("probe", "completed", 1)
    assert log_of(rota.client, probe.id) == (f"run {run.id} attempt 1 fence 1 to ada probe 1\n")
    assert (tmp_path / "begun").read_text() == "1\n"
    told = rota.command("run", "show", run.id).stdout
    assert f"{probe.id} (completed)" in told
    with pytest.raises(Conflict, match="would do the work of pay once more") as refused:
        rota.client.retry_run(probe.id)
    assert refused.value.hint == f"rota why {run.id} tells what it asked about"


def test_who_waits_or_watches_waits_for_the_probe_too(up: Up, tmp_path: Path) -> None:
    (tmp_path / "answer").write_text("0")
    (tmp_path / "hold").touch()
    rota = up(lease="1h")
    apply(rota.client, pay(tmp_path))
    run = rota.client.trigger("pay", {"to": "ada"})
    with ThreadPoolExecutor() as pool:
        waited = pool.submit(rota.client.wait, run.id, 60)
        watched = pool.submit(rota.command, "run", "watch", run.id)
        read = pool.submit(lambda: list(rota.client.follow_log(run.id)))
        kill_worker_when(rota, tmp_path / "begun")
        eventually((tmp_path / "asked").exists)
        doubted = rota.client.get_run(run.id)
        (tmp_path / "hold").unlink()

        assert (doubted.state, doubted.awaits_probe, doubted.is_settled) == ("UNKNOWN", True, False)
        assert waited.result().state == "COMPLETED"
        assert watched.result().returncode == 0, watched.result().stdout
        assert f"run {run.id} " in watched.result().stdout
        ended = read.result()[-1]
        assert isinstance(ended, Run)
        assert ended.state == "COMPLETED"
    assert rota.client.get_run(run.id).awaits_probe is False


def test_what_had_no_effect_is_tried_again(up: Up, tmp_path: Path) -> None:
    (tmp_path / "answer").write_text("2")
    rota = up(lease="1h")
    apply(rota.client, pay(tmp_path))
    run = rota.client.trigger("pay", {"to": "ada"})

    kill_worker_when(rota, tmp_path / "begun")

    ended = eventually(lambda: _ended(rota, run.id))
    assert (ended.state, ended.attempt) == ("COMPLETED", 2)
    assert (tmp_path / "begun").read_text() == "1\n2\n"


def test_workers_and_servers_that_die_while_it_asks_lose_no_answer(up: Up, tmp_path: Path) -> None:
    (tmp_path / "answer").write_text("0")
    (tmp_path / "hold").touch()
    rota = up(lease="1h")
    apply(rota.client, pay(tmp_path))
    run = rota.client.trigger("pay", {"to": "ada"})
    kill_worker_when(rota, tmp_path / "begun")

    kill_worker_when(rota, tmp_path / "asked")
    eventually(lambda: (tmp_path / "asked").read_text() == "1\n2\n")
    rota.kill()
    (tmp_path / "hold").unlink()
    rota.start()

    assert eventually(lambda: _ended(rota, run.id)).state == "COMPLETED"
    assert (tmp_path / "begun").read_text() == "1\n"
    [probe] = rota.client.get_run(run.id).probes
    assert probe.tries == 3


def test_a_probe_that_never_answers_leaves_it_to_a_person(up: Up, tmp_path: Path) -> None:
    (tmp_path / "answer").write_text("75")
    rota = up(lease="1h")
    apply(rota.client, pay(tmp_path, attempts=2))
    run = rota.client.trigger("pay", {"to": "ada"})

    kill_worker_when(rota, tmp_path / "begun")

    eventually(lambda: "found out nothing" in rota.command("why", run.id).stdout)
    assert rota.client.get_run(run.id).state == "UNKNOWN"
    assert rota.client.get_job("pay").last_state == "UNKNOWN"  # not that of the probe
    assert "found out nothing" in rota.command("why", "pay").stdout
    assert "no run of job pay has ended yet" in rota.command("run", "retry", "pay").stderr
    assert (tmp_path / "asked").read_text() == "1\n2\n"


def _ended(rota: RotaUp, run: str) -> RunDetail:
    found = rota.client.get_run(run)
    assert found.is_final
    return found
