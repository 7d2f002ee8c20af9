"""Workers behind something that cuts their stream after each megabyte: nginx does by default."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest

from rota.runtime import machine
from rota.runtime.settings import Settings
from rota.sdk.client import Client
from testkit.nodes import ServerNode, WorkerNode
from testkit.proxy import Proxy
from testkit.servers.nginx import Nginx, find_nginx
from testkit.servers.ports import free_ports
from testkit.waiting import eventually
from tests.system.jobs import all_completed, apply, job

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

MEGABYTE = 1024 * 1024
RUNS, SLOTS = 12, 4
CUTS = 20
PATIENCE = timedelta(seconds=100)
# Lines that hardly compress: 2 MB of them, and three quarters of that as bytes on the wire.
PRINT = f"head -c {2 * MEGABYTE} /dev/urandom | base64 | tee numbers"
STAMP = "date +%s.%N >> {evidence}/$ROTA_RUN_ID.{what}"
DIGEST = """printf '"%s"' "$(sha256sum <numbers | cut -d' ' -f1)" >$ROTA_OUTPUT"""


@dataclass
class Site:
    """A server, and a worker that reaches it through something that cuts."""

    client: Client
    worker: WorkerNode
    between: Proxy | Nginx


@pytest.fixture(params=["proxy", "nginx"])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    if request.param == "nginx" and find_nginx() is None and "CI" not in os.environ:
        pytest.skip("needs nginx")
    rest, grpc = free_ports(2)
    with ExitStack() as stack:
        home = tmp_path / "server"
        server = ServerNode("server", home, (rest, grpc))
        stack.callback(server.close)
        server.start()
        between = _between(request.param, grpc, tmp_path, stack)
        settings = Settings(home=home)
        _, token = machine.create(settings, "test", "admin")
        _, secret = machine.create_for_worker(settings, "worker", pool=None)
        client = stack.enter_context(Client(server.url, token))
        worker = WorkerNode(
            "worker",
            tmp_path / "worker",
            client,
            server=f"127.0.0.1:{between.port}",
            worker_token=secret,
            slots=str(SLOTS),
        )
        stack.callback(worker.close)
        worker.start()
        yield Site(client, worker, between)


def _between(kind: str, grpc: int, folder: Path, stack: ExitStack) -> Proxy | Nginx:
    if kind == "nginx":
        return stack.enter_context(Nginx(folder / "nginx", f"127.0.0.1:{grpc}"))
    proxy = stack.enter_context(Proxy(grpc))
    proxy.cut_each_after(MEGABYTE)
    return proxy


def test_no_run_is_repeated_and_no_slot_idles(site: Site, tmp_path: Path) -> None:
    begun, ended = (STAMP.format(evidence=tmp_path, what=what) for what in ("begun", "ended"))
    apply(site.client, job("loud", begun, PRINT, DIGEST, ended, overlap="allow"))
    site.client.trigger_many("loud", [{}] * RUNS)

    runs = eventually(lambda: all_completed(site.client, RUNS), PATIENCE)

    assert {run.attempt for run in runs} == {1}
    begins = {run.id: _stamps(tmp_path, run.id, "begun") for run in runs}
    ends = {run.id: _stamps(tmp_path, run.id, "ended") for run in runs}
    assert {len(times) for times in (*begins.values(), *ends.values())} == {1}
    assert _longest_idle([t for [t] in begins.values()], [t for [t] in ends.values()]) < 1
    for run in runs:
        eventually(partial(_is_stored, site.client, run.id))
        assert _digest(site.client, run.id) == site.client.get_run(run.id).outputs
    assert site.between.cuts >= CUTS
    assert "never retrieved" not in site.worker.printed()


def _stamps(folder: Path, run: str, what: str) -> list[float]:
    return [float(line) for line in (folder / f"{run}.{what}").read_text().split()]


def _longest_idle(begins: list[float], ends: list[float]) -> float:
    """Return for how long a slot was free, at most, while runs were waiting."""
    freed = sorted(ends)[: len(begins) - SLOTS]
    taken = sorted(begins)[SLOTS:]
    return max(later - earlier for earlier, later in zip(freed, taken, strict=True))


def _is_stored(client: Client, run: str) -> bool:
    return client.get_run(run).attempts[-1].output.state == "stored"


def _digest(client: Client, run: str) -> str:
    digest = hashlib.sha256()
    for part in client.stream(Client.raw_log(run)):
        digest.update(part)
    return digest.hexdigest()
