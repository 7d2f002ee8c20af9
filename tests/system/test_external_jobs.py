"""Jobs of type `external`, from the job file to a system that reports late, twice and forged."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from rota.contracts import client_pb2 as pb
from rota.contracts.client_pb2_grpc import SchedulerStub
from rota.domain.credentials import SecretKind, new_secret
from rota.sdk.client import Client
from rota.sdk.errors import Conflict, Denied, NotFound
from rota.sdk.external import ExternalRun
from testkit.http_service import BREAKS, Asked, HttpService, Reply, reply, serving
from testkit.processes import RotaUp
from testkit.servers.ports import free_ports
from testkit.waiting import eventually
from tests.system.conftest import Up
from tests.system.jobs import apply, log_of, settle
from tests.system.test_http_jobs import HERE

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def system() -> Iterator[HttpService]:
    """The other system, which takes whatever it is told."""
    with serving() as system:
        system.on("POST", "/runs", reply({}))
        system.on("POST", "/cancelled", reply({}))
        yield system


@pytest.fixture
def settings(home: Path, system: HttpService) -> dict[str, Any]:
    """Of a server that keeps its addresses when it is started again."""
    rest, rpc = free_ports(2)
    secrets = home.with_name("secrets.toml")
    secrets.write_text(
        f'[CI_TOKEN]\nvalue = "token-of-the-shop"\nhosts = ["{system.url}"]\n'
        'projects = ["default"]\n'
    )
    secrets.chmod(0o600)
    return {
        "listen": f"127.0.0.1:{rest}",
        "grpc_listen": f"127.0.0.1:{rpc}",
        "outgoing_networks": HERE,
        "http_secrets": str(secrets),
    }


def build(system: HttpService, heartbeat: str = "1m", **fields: Any) -> dict[str, Any]:
    """A job that the other system does."""
    external = {
        "announce": {
            "url": f"{system.url}/runs",
            "headers": {"Authorization": {"secret": "CI_TOKEN", "prefix": "Bearer "}},
        },
        "cancel": {"url": f"{system.url}/cancelled"},
        "heartbeat": heartbeat,
    }
    inputs = {"title": {"type": "string", "default": "nightly"}}
    given = {"type": "external", "timeout": "1h", "external": external, "inputs": inputs}
    return {"name": "build", **given, **fields}


def announced(system: HttpService, count: int) -> list[Asked]:
    """So many announcements, once they have come."""
    eventually(lambda: len(told(system, "/runs")) >= count)
    return told(system, "/runs")


def told(system: HttpService, path: str) -> list[Asked]:
    return [each for each in system.of("POST") if each.path == path]


def test_a_system_reports_over_the_death_of_the_server(
    up: Up, home: Path, system: HttpService, settings: dict[str, Any]
) -> None:
    system.on("POST", "/runs", BREAKS, Reply(503), reply({}))
    rota = up(**settings)
    apply(rota.client, build(system))
    run = rota.client.trigger("build", {"title": "release"})

    first, second, third = announced(system, 3)
    with ExternalRun.announced(first.json()) as one:
        one.update("processing", progress=0.25, message="compiling", output="one")
    shown = rota.client.get_run(run.id)
    rota.kill()
    rota = up(**settings)
    with ExternalRun.announced(third.json()) as other:
        other.update("processing", progress={"done": 3, "total": 4}, output="two")
    refused = _reports(rota, first, third, run.id)
    ended = settle(rota.client, run)

    assert {each.headers["webhook-id"] for each in (first, second, third)} == {f"{run.id}.1"}
    assert {each.headers["idempotency-key"] for each in (first, second, third)} == {run.id}
    assert first.headers["authorization"] == "Bearer token-of-the-shop"
    assert first.json()["inputs"] == {"title": "release"}
    assert first.json()["report"]["token"] != third.json()["report"]["token"]
    assert shown.progress is not None
    assert (shown.progress.done, shown.progress.message) == (25.0, "compiling")
    assert refused == ["report_stale", "unauthenticated", "run_not_found", "report_late"]
    assert (ended.state, ended.attempt, ended.outputs) == ("COMPLETED", 1, {"build": 7})
    assert log_of(rota.client, run.id) == "one\ntwo\n"
    assert [(late.attempt, late.result) for late in ended.late_results] == [(1, "FAILED")]
    with pytest.raises(Conflict):
        rota.client.report_run(run.id, "failed")  # by an operator, who needs no number
    assert len(told(system, "/runs")) == 3


def _reports(rota: RotaUp, first: Asked, third: Asked, run: str) -> list[str]:
    """Report out of order, forged, for another run, twice and late; return the refusals."""
    url = rota.client.server.url
    tokens = [each.json()["report"]["token"] for each in (first, third)]
    refusals = []

    def refused(token: str, name: str, state: str, number: int) -> None:
        with (
            Client(url, token) as client,
            pytest.raises((Conflict, Denied, NotFound)) as refusal,
        ):
            client.report_run(name, state, number=number)
        refusals.append(refusal.value.code)

    refused(tokens[0], run, "failed", 1)
    refused(new_secret(SecretKind.REPORT), run, "failed", 2**61)
    refused(tokens[0], rota.client.trigger("build").id, "failed", 2**61)
    with Client(url, tokens[1]) as client:
        ends = [
            client.report_run(run, "completed", number=2**61, outputs={"build": 7})
            for _ in range(2)
        ]
    assert ends[0] == ends[1]
    refused(tokens[0], run, "failed", 2**61 + 1)
    return refusals


def test_a_system_is_told_of_names_beyond_ascii(
    up: Up, home: Path, system: HttpService, settings: dict[str, Any]
) -> None:
    rota = up(**settings)
    job = build(system)
    job["external"]["announce"]["headers"]["X-Title"] = {"input": "title"}
    apply(rota.client, job)

    rota.client.trigger("build", {"title": "Jos\u00e9"})

    [first] = announced(system, 1)
    assert first.headers["x-title"] == "Jos\u00e9"


def test_a_cancel_ends_what_reports_without_end(
    up: Up, home: Path, system: HttpService, settings: dict[str, Any]
) -> None:
    rota = up(**settings)
    apply(rota.client, build(system))
    run = rota.client.trigger("build")
    [first] = announced(system, 1)

    rota.client.cancel_run(run.id)
    with ExternalRun.announced(first.json()) as one:
        one.update("processing", message="I go on")

    assert settle(rota.client, run).state == "CANCELLED"


def test_silence_is_found_by_the_server_that_is_there(
    up: Up, home: Path, system: HttpService, settings: dict[str, Any]
) -> None:
    rota = up(**settings)
    apply(rota.client, build(system, heartbeat="5s"))
    run = rota.client.trigger("build")
    [first] = announced(system, 1)

    rota.kill()
    rota = up(**settings)
    second = announced(system, 2)[-1]
    with ExternalRun.announced(first.json()) as late, pytest.raises(Conflict, match="is over"):
        late.update("completed")
    with ExternalRun.announced(second.json()) as current:
        current.update("failed", message="no disk")
    ended = settle(rota.client, run)

    assert second.headers["webhook-id"] == f"{run.id}.2"
    assert (ended.state, ended.message, ended.losses) == ("FAILED", "no disk", 1)
    assert [late.attempt for late in ended.late_results] == [1]


def test_a_cancel_is_told_and_reports_come_by_grpc(
    up: Up, home: Path, system: HttpService, settings: dict[str, Any]
) -> None:
    rota = up(**settings)
    apply(rota.client, build(system))
    runs = [rota.client.trigger("build").id for _ in range(2)]
    tokens = {each.json()["run"]: each.json()["report"]["token"] for each in announced(system, 2)}
    operator = rota.client.server.token or ""

    with grpc.insecure_channel(settings["grpc_listen"]) as channel:
        stub = SchedulerStub(channel)

        def call(name: str, request: Any, token: str) -> Any:
            metadata = (("authorization", f"Bearer {token}"),)
            return getattr(stub, name)(request, metadata=metadata, timeout=20)

        end = pb.UpdateRunStatusRequest(
            run=runs[0],
            status=pb.REPORTED_STATUS_COMPLETED,
            number=1,
            outputs_json=json.dumps({"build": 8}),
        )
        accepted = call("UpdateRunStatus", end, tokens[runs[0]])
        again = call("UpdateRunStatus", end, tokens[runs[0]])
        call("CancelRun", pb.CancelRunRequest(run=runs[1]), operator)

    completed, cancelled = (rota.client.wait(each, 20) for each in runs)
    eventually(lambda: len(told(system, "/cancelled")) == 1)
    [message] = told(system, "/cancelled")

    assert accepted == again
    assert (completed.state, completed.outputs) == ("COMPLETED", {"build": 8})
    assert cancelled.state == "CANCELLED"
    assert (message.json()["type"], message.json()["run"]) == ("run.cancelled", runs[1])
    assert message.headers["webhook-id"] == f"{runs[1]}.1.cancel"
