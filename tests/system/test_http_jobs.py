"""Jobs of type `http`, from the job file to another system that fails, hangs and goes on."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rota.sdk.client import Client
from testkit.http_service import HANGS, HttpService, Reply, reply, serving
from testkit.processes import RotaUp
from testkit.waiting import eventually
from tests.system.conftest import Up
from tests.system.jobs import apply, log_of, settle

pytestmark = pytest.mark.timeout(120)

HERE = "127.0.0.1/32"
MANY = 20


@pytest.fixture
def service() -> Iterator[HttpService]:
    with serving() as service:
        yield service


def payout(service: HttpService, **fields: Any) -> dict[str, Any]:
    """A job that is begun there, and looked after until it is paid."""
    http = {
        "submit": {
            "url": f"{service.url}/pay",
            "headers": {"Authorization": {"secret": "PAY_TOKEN", "prefix": "Bearer "}},
            "body": {"amount": {"input": "amount"}},
        },
        "status": {"url": {"header": "Location"}, "every": "1s"},
        "cancel": {"url": {"header": "Location"}, "method": "DELETE"},
        "result": {
            "pointer": "/state",
            "values": {"paid": "completed", "pending": "running"},
            "progress": "/percent",
            "outputs": {"receipt": "/receipt"},
        },
    }
    inputs = {"amount": {"type": "integer", "default": 1}}
    return {"name": "payout", "type": "http", "http": http, "inputs": inputs, **fields}


def secrets(home: Path, service: HttpService) -> dict[str, str]:
    """Write the worker's secrets; return the settings of it."""
    file = home.with_name("secrets.toml")
    file.write_text(
        f'[PAY_TOKEN]\nvalue = "token-of-the-shop"\nhosts = ["{service.url}"]\n'
        'projects = ["default"]\n'
    )
    file.chmod(0o600)
    return {"http_secrets": str(file), "outgoing_networks": HERE}


def is_under_way(client: Client, run: str) -> bool:
    found = client.get_run(run)
    return found.note is not None and found.note.step == "status"


@pytest.mark.parametrize("delivery", ["at_least_once", "at_most_once"])
def test_a_lost_worker_costs_the_work_nothing(
    up: Up, home: Path, service: HttpService, delivery: str
) -> None:
    """The next attempt goes on with what the one before had submitted, once, with the same key."""
    service.on("POST", "/pay", reply({}, 202, Location="/pay/7"))
    service.on("GET", "/pay/7", reply({"state": "pending", "percent": 40}))
    rota = up(lease="3s", **secrets(home, service))
    apply(rota.client, payout(service, delivery=delivery))
    run = rota.client.trigger("payout", {"amount": 5})
    eventually(lambda: is_under_way(rota.client, run.id))
    eventually(lambda: rota.client.get_run(run.id).progress is not None)

    [worker] = rota.client.list_workers()
    kill_worker(rota, worker.worker)
    eventually(lambda: rota.client.get_run(run.id).attempt == 2)
    service.on("GET", "/pay/7", reply({"state": "paid", "receipt": "A1"}))
    ended = settle(rota.client, run)

    assert (ended.state, ended.outputs, ended.attempt) == ("COMPLETED", {"receipt": "A1"}, 2)
    [asked] = service.of("POST")
    assert asked.headers["idempotency-key"] == run.id
    assert asked.headers["authorization"] == "Bearer token-of-the-shop"
    assert asked.json() == {"amount": 5}
    assert ended.handle == {"taken": {"header:location": "/pay/7"}}


def kill_worker(rota: RotaUp, name: str) -> None:
    """Kill the worker's process: its guardian ends, and another one is started."""
    for folder in Path("/proc").iterdir():
        if not folder.name.isdecimal():
            continue
        try:
            words = (folder / "cmdline").read_bytes().decode().split("\0")
        except OSError:
            continue
        home = f"--home={rota.home.absolute()}"
        if "rota.runtime.worker_process" in words and home in words:
            os.kill(int(folder.name), signal.SIGKILL)
            return
    raise AssertionError(f"worker {name} has no process")


def test_many_take_no_slot(up: Up, home: Path, service: HttpService) -> None:
    service.on("GET", "/slow", HANGS)
    rota = up(slots="1", **secrets(home, service))
    slow = {"submit": {"url": f"{service.url}/slow", "timeout": "1m"}}
    apply(
        rota.client,
        {"name": "slow", "type": "http", "http": slow, "timeout": "1m", "grace": "100ms"},
        {"name": "plain", "steps": [{"run": "echo here"}]},
    )
    runs = rota.client.trigger_many("slow", [{}] * MANY).runs
    eventually(lambda: len(service.asked) == MANY)

    plain = settle(rota.client, rota.client.trigger("plain"))

    assert plain.state == "COMPLETED"
    # Starts are told with the next beat: they are no reason to wake the server.
    eventually(lambda: {rota.client.get_run(run).state for run in runs} == {"PROCESSING"})
    for run in runs:
        rota.client.cancel_run(run)
    assert {rota.client.wait(run, 30).state for run in runs} == {"CANCELLED"}


def test_what_cannot_be_done_says_why(up: Up, home: Path, service: HttpService) -> None:
    service.on("GET", "/private", Reply(302, headers={"Location": "http://127.0.0.2/admin"}))
    service.on("GET", "/bad", Reply(422, json.dumps({"detail": "no such month"}).encode()))
    rota = up(**secrets(home, service))
    apply(
        rota.client,
        *(
            {"name": name, "type": "http", "http": {"submit": {"url": f"{service.url}/{name}"}}}
            for name in ("private", "bad")
        ),
        payout(service, name="other") | {"needs": {"site": "nowhere"}},
    )

    private = settle(rota.client, rota.client.trigger("private"))
    bad = settle(rota.client, rota.client.trigger("bad"))

    assert (private.state, private.cause) == ("FAILED", "address")
    assert "127.0.0.2 must not be reached: it is this machine itself" in private.message
    assert bad.message == "submit: answered 422: no such month"
    assert "→ 422 Unprocessable" in log_of(rota.client, bad.id)


def test_a_run_waits_for_a_worker_that_has_its_secret(up: Up, service: HttpService) -> None:
    rota = up(outgoing_networks=HERE)
    apply(rota.client, payout(service))
    run = rota.client.trigger("payout")

    why = eventually(lambda: rota.client.get_run(run.id).reasons)

    assert "secret PAY_TOKEN" in why[0].message
    assert service.asked == []
