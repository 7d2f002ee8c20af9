from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import grpc
import httpx
import pytest

from rota.clock import SystemClock
from rota.contracts import client_pb2 as pb
from rota.contracts.client_pb2_grpc import SchedulerStub
from rota.domain.access import Role
from rota.domain.errors import Conflict, Invalid
from rota.operations.tokens import create_token
from rota.runtime.doors import RpcDoor
from rota.runtime.machine import Machine
from rota.runtime.server import Running, Server
from rota.runtime.settings import Settings
from rota.server.dispatcher.floor import Floor
from rota.store.sqlite.opening import open_sqlite
from testkit.certificates import make_certificate

pytestmark = pytest.mark.anyio


async def refusal(settings: Settings) -> Conflict:
    ready: asyncio.Future[Running] = asyncio.get_running_loop().create_future()
    with pytest.raises(Conflict) as refused:
        await Server(settings).run(ready)
    return refused.value


async def test_second_server_on_the_same_data_and_port_is_told_that_one_runs(
    tmp_path: Path,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        settings = Settings(home=tmp_path, listen=f"127.0.0.1:{port}")
        store = await open_sqlite(settings.store_path)

        on_same_data = await refusal(settings)
        await store.close()
        on_free_data = await refusal(settings)

    assert (on_same_data.code, on_free_data.code) == ("already_running", "port_taken")


async def test_taken_port_of_grpc_is_told_like_that_of_rest(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        settings = Settings(home=tmp_path, listen="127.0.0.1:0", grpc_listen=listen)

        refused = await refusal(settings)

    assert (refused.code, refused.message) == ("port_taken", f"{listen} is already in use")
    assert "ROTA_GRPC_LISTEN" in refused.hint


async def test_certificate_without_its_key_is_a_fault_of_the_settings(tmp_path: Path) -> None:
    one, other = make_certificate(tmp_path, "one"), make_certificate(tmp_path, "other")
    ready: asyncio.Future[Running] = asyncio.get_running_loop().create_future()

    for key in (other.key, tmp_path / "absent.key"):
        settings = Settings(
            home=tmp_path / "home",
            listen="127.0.0.1:0",
            tls_cert=one.certificate,
            tls_key=key,
        )
        with pytest.raises(Invalid, match="cannot be used") as refused:
            await Server(settings).run(ready)
        assert refused.value.code == "bad_settings"


class Diary:
    """Notes what is stopped, and when; in the place of a worker, too."""

    name = "worker"

    def __init__(self) -> None:
        self.entries: list[tuple[str, float]] = []

    def note(self, what: str) -> None:
        self.entries.append((what, asyncio.get_running_loop().time()))

    async def run(self) -> None:
        await asyncio.Event().wait()

    async def stop(self) -> None:
        self.note("worker")


async def test_claims_end_before_the_worker_and_what_was_sent_arrives_before_the_streams_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    diary = Diary()
    retire, close = Floor.retire, RpcDoor.close

    async def retiring(floor: Floor) -> None:
        diary.note("claims")
        await retire(floor)

    async def closing(door: RpcDoor) -> None:
        diary.note("streams")
        await close(door)

    monkeypatch.setattr(Floor, "retire", retiring)
    monkeypatch.setattr(RpcDoor, "close", closing)
    settings = Settings(home=tmp_path, listen="127.0.0.1:0", grpc_listen="127.0.0.1:0")
    machine = Machine(settings, SystemClock())
    machine.worker = diary  # type: ignore[assignment]
    server = Server(settings, machine=machine)
    ready: asyncio.Future[Running] = asyncio.get_running_loop().create_future()
    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        group.create_task(server.run(ready))
        await ready
        server.stop()

    (first, _), (second, stopped), (third, ended), *_ = diary.entries
    assert (first, second, third) == ("claims", "worker", "streams")
    assert ended - stopped > 0.29


async def test_a_token_that_is_revoked_over_rest_is_worthless_over_grpc_at_once(
    tmp_path: Path,
) -> None:
    settings = Settings(home=tmp_path, listen="127.0.0.1:0", grpc_listen="127.0.0.1:0")
    store = await open_sqlite(settings.store_path)
    _, admin = await create_token(store, name="admin", role=Role.ADMIN, actor="test")
    token_id, secret = await create_token(store, name="viewer", role=Role.VIEWER, actor="test")
    await store.close()
    server = Server(settings)
    ready: asyncio.Future[Running] = asyncio.get_running_loop().create_future()

    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        group.create_task(server.run(ready))
        running = await ready
        async with grpc.aio.insecure_channel(running.grpc_listen) as channel:
            before = await status(channel, secret)
            async with httpx.AsyncClient(headers={"Authorization": f"Bearer {admin}"}) as client:
                await client.delete(f"{running.url}/api/v1/tokens/{token_id}")
            after = await status(channel, secret)
        server.stop()

    assert (before, after) == (grpc.StatusCode.OK, grpc.StatusCode.UNAUTHENTICATED)


async def status(channel: grpc.aio.Channel, secret: str) -> grpc.StatusCode:
    metadata = (("authorization", f"Bearer {secret}"),)
    call = SchedulerStub(channel).GetDueJobs(pb.GetDueJobsRequest(), metadata=metadata)
    code: grpc.StatusCode = await call.code()
    return code
