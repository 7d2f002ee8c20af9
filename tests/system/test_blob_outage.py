"""The blob store goes away: runs go on, and what they printed arrives later."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rota.sdk.client import Client
from testkit.processes import RotaUp
from testkit.proxy import Proxy
from testkit.servers.s3 import S3Server
from testkit.waiting import eventually
from tests.system.conftest import Up
from tests.system.jobs import apply, execute, job, settle

# Prints numbered lines, and leaves the digest of what it printed as its output value.
NUMBERED = "seq {first} {last} | tee -a numbers"
DIGEST = """printf '"%s"' "$(sha256sum <numbers | cut -d' ' -f1)" >$ROTA_OUTPUT"""

OnS3 = Callable[..., RotaUp]


@pytest.fixture
def proxy(s3: S3Server) -> Iterator[Proxy]:
    with Proxy(s3.port) as proxy:
        yield proxy


@pytest.fixture
def on_s3(up: Up, s3: S3Server, proxy: Proxy) -> OnS3:
    """Starts `rota up` with its blobs in S3, reached through the proxy."""
    place = f"{s3.address}/{uuid.uuid4()}"

    def start(**settings: str) -> RotaUp:
        return up(blobs=place, environ=s3.environ(proxy.port), **settings)

    return start


def output_state(client: Client, run: str) -> str:
    return client.get_run(run).attempts[-1].output.state


def digest_of(client: Client, run: str) -> str:
    digest = hashlib.sha256()
    for part in client.stream(Client.raw_log(run)):
        digest.update(part)
    return digest.hexdigest()


@pytest.mark.parametrize("fault", [Proxy.cut, Proxy.hang], ids=["cut", "hang"])
def test_runs_go_on_and_their_output_arrives_later(
    on_s3: OnS3, proxy: Proxy, fault: Callable[[Proxy], None]
) -> None:
    rota = on_s3(lease="3s")
    fault(proxy)
    numbers = NUMBERED.format(first=1, last=100_000)

    # It runs longer than the lease, so that every renewal during the outage counts.
    ended = execute(rota.client, f"{numbers}; sleep 4", DIGEST)
    told = rota.command("logs", ended.id)
    state = output_state(rota.client, ended.id)
    proxy.heal()

    assert (ended.state, ended.losses, ended.attempt) == ("COMPLETED", 0, 1)
    assert state == "pending"
    assert "output is still on worker" in told.stderr
    assert proxy.disturbed > 0
    eventually(lambda: output_state(rota.client, ended.id) == "stored")
    assert digest_of(rota.client, ended.id) == ended.outputs
    assert rota.command("logs", ended.id, "--tail", "1").stdout == "100000\n"


def test_small_output_does_not_need_the_blob_store(on_s3: OnS3, proxy: Proxy) -> None:
    rota = on_s3()
    proxy.cut()

    ended = execute(rota.client, "echo hello")

    assert (ended.state, ended.attempts[0].output.state) == ("COMPLETED", "inline")
    assert rota.command("logs", ended.id).stdout == "hello\n"


def test_a_project_may_have_even_a_line_in_the_blob_store(on_s3: OnS3, proxy: Proxy) -> None:
    rota = on_s3()
    changed = rota.command("project", "set", "default", "--default", "output=blobs")
    assert changed.returncode == 0, changed.stderr
    proxy.cut()

    ended = execute(rota.client, "echo hello")
    assert output_state(rota.client, ended.id) == "pending"
    proxy.heal()

    eventually(lambda: output_state(rota.client, ended.id) == "stored")
    assert rota.command("logs", ended.id).stdout == "hello\n"


def test_an_outage_while_a_job_prints_loses_and_doubles_nothing(
    on_s3: OnS3, proxy: Proxy, tmp_path: Path
) -> None:
    rota = on_s3()
    go_on = tmp_path / "go-on"
    before, during = (
        NUMBERED.format(first=1, last=100_000),
        NUMBERED.format(first=100_001, last=300_000),
    )
    wait = f"until [ -e {go_on} ]; do sleep 0.05; done"
    apply(rota.client, job("numbered", f"{before}; {wait}; {during}", DIGEST))
    run = rota.client.trigger("numbered")
    eventually(lambda: rota.client.get_log(run.id, limit=1).total_lines)

    proxy.cut()
    go_on.touch()
    ended = settle(rota.client, run)
    proxy.heal()

    assert ended.state == "COMPLETED"
    eventually(lambda: output_state(rota.client, run.id) == "stored")
    assert digest_of(rota.client, run.id) == ended.outputs
    assert rota.client.get_run(run.id).attempts[0].output.lines == 300_000


def test_what_a_stopped_worker_could_not_deliver_is_torn(on_s3: OnS3, proxy: Proxy) -> None:
    rota = on_s3(stop_grace="1s")
    proxy.cut()
    ended = execute(rota.client, "seq 100000")

    rota.stop()
    proxy.heal()
    rota.start()

    attempt = rota.client.get_run(ended.id).attempts[0]
    assert (attempt.result, attempt.output.state) == ("COMPLETED", "torn")
    assert rota.client.get_log(ended.id).complete
