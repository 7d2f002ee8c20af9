"""Rights that one server takes away end on all of them, also for what is under way."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

import grpc
import httpx
import pytest

from rota.contracts import client_pb2 as pb
from rota.contracts.client_pb2_grpc import SchedulerStub
from testkit.cluster import Cluster
from tests.system.jobs import apply, job

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

WITHIN_SECONDS = 10.0
PATIENCE_SECONDS = 30.0


def read_to_the_end(url: str, secret: str, is_open: threading.Event) -> float:
    """Read a stream until the server ends it; returns when that was."""
    headers = {"Authorization": f"Bearer {secret}", "Accept": "text/event-stream"}
    timeout = httpx.Timeout(PATIENCE_SECONDS)
    with httpx.stream("GET", url, headers=headers, timeout=timeout, trust_env=False) as answer:
        assert answer.status_code == 200
        read_all(answer.iter_bytes(), is_open)
    return time.monotonic()


def read_all(pieces: Iterable[object], is_open: threading.Event) -> None:
    for _ in pieces:
        is_open.set()


def watch_to_the_end(address: str, secret: str, is_open: threading.Event) -> float:
    """Watch events until the server refuses to tell more; returns when that was."""
    metadata = (("authorization", f"Bearer {secret}"),)
    with grpc.insecure_channel(address) as channel:
        watching = SchedulerStub(channel).Watch(
            pb.WatchRequest(), metadata=metadata, timeout=PATIENCE_SECONDS
        )
        with pytest.raises(grpc.RpcError) as refusal:
            read_all(watching, is_open)
    assert refusal.value.code() is grpc.StatusCode.UNAUTHENTICATED
    return time.monotonic()


def test_streams_end_within_ten_seconds_after_a_token_is_revoked_on_another_server(
    cluster: Cluster,
) -> None:
    admin, elsewhere = cluster.client(0), cluster.servers[1]
    apply(admin, job("talks", "for n in $(seq 60); do echo $n; sleep 1; done"))
    run = admin.trigger("talks")
    made = admin.create_token("listener", "viewer")
    events, log = (
        f"{elsewhere.url}/api/v1/{path}" for path in ("events/stream", f"runs/{run.id}/log/stream")
    )
    streams = [
        (read_to_the_end, events),
        (read_to_the_end, log),
        (watch_to_the_end, elsewhere.grpc),
    ]
    opened = [threading.Event() for _ in streams]

    with ThreadPoolExecutor(len(streams)) as threads:
        reading = [
            threads.submit(read, address, made.secret, is_open)
            for (read, address), is_open in zip(streams, opened, strict=True)
        ]
        for is_open in opened:
            assert is_open.wait(PATIENCE_SECONDS)
        admin.revoke_token(made.id)
        revoked_at = time.monotonic()
        ends = [each.result() - revoked_at for each in reading]
    admin.cancel_run(run.id)

    assert max(ends) < WITHIN_SECONDS
