"""Several servers, servers that stop, and what is said on the way between them."""

from __future__ import annotations

import os
import shutil
import socket
from pathlib import Path

import grpc
import pytest
from structlog.testing import capture_logs

from rota.domain.errors import Unavailable
from rota.link.grpc_client import ClientTls, GrpcAccess, GrpcConnector
from rota.ports.work import MAX_ITEMS, Beat, Fence, Progress, Start
from rota.server.gateway.rpc.server import ServerTls, serve
from testkit.builders import hello
from testkit.certificates import Certificate, make_certificate
from tests.unit.link.conftest import Cluster, Reception

pytestmark = pytest.mark.anyio


def nobody() -> str:
    """An address where nobody listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{free.getsockname()[1]}"


async def test_a_worker_finds_the_server_that_is_up(reception: Reception) -> None:
    servers = (nobody(), reception.address, nobody())
    connector = GrpcConnector(GrpcAccess(servers, await reception.token()))

    link = await connector.connect()

    assert link.server == reception.address
    await link.close()


async def test_a_worker_says_whom_it_could_not_reach(reception: Reception) -> None:
    servers = (nobody(), nobody())
    connector = GrpcConnector(GrpcAccess(servers, await reception.token()))

    with pytest.raises(Unavailable) as problem:
        await connector.connect()

    assert all(server in problem.value.message for server in servers)


async def test_a_worker_whose_server_stops_goes_on_at_another(cluster: Cluster) -> None:
    servers = {server.address: server for server in [await cluster.open(), await cluster.open()]}
    token = await next(iter(servers.values())).token()
    connector = GrpcConnector(GrpcAccess(tuple(servers), token))
    link = await connector.connect()
    first = await link.register(hello())
    await servers[link.server].stop()
    with pytest.raises(Unavailable) as stopped:
        await link.receive()

    other = await connector.connect()
    second = await other.register(hello(resumes=first.session))

    assert stopped.value.code == "server_stopping"
    assert other.server != link.server
    assert (second.session, second.stream) == (first.session, 2)
    assert (await other.beat(Beat())).alive
    await link.close()
    await other.close()


@pytest.mark.parametrize("tls", [None, ClientTls()], ids=["in the clear", "by other authorities"])
async def test_a_server_with_a_certificate_is_told_as_such(
    cluster: Cluster, tmp_path: Path, tls: ClientTls | None
) -> None:
    made = make_certificate(tmp_path)
    shown = ServerTls(made.certificate.read_bytes(), made.key.read_bytes())
    secure = await cluster.open(shown)

    with pytest.raises(Unavailable) as refused:
        await secure.connect(await secure.token(), tls)

    assert "set ROTA_TLS_CA" in refused.value.message


async def test_a_second_server_does_not_share_an_address(reception: Reception) -> None:
    with pytest.raises(Unavailable) as refused:
        await serve(reception.address, [])

    assert refused.value.code == "address_in_use"


def certificate(folder: Path, name: str = "server") -> Certificate:
    if not shutil.which("openssl") and "CI" not in os.environ:
        pytest.skip("needs the command openssl")
    return make_certificate(folder, name)


async def open_with(cluster: Cluster, made: Certificate) -> Reception:
    return await cluster.open(ServerTls(made.certificate.read_bytes(), made.key.read_bytes()))


async def test_a_worker_talks_by_tls_to_a_server_it_knows(cluster: Cluster, tmp_path: Path) -> None:
    made = certificate(tmp_path)
    reception = await open_with(cluster, made)
    tls = ClientTls(made.certificate.read_bytes())

    link = await reception.connect(await reception.token(), tls)

    assert (await link.register(hello())).session


@pytest.mark.parametrize("trusts", ["nobody", "others"])
async def test_a_worker_shows_its_token_to_no_server_it_does_not_know(
    cluster: Cluster, tmp_path: Path, trusts: str
) -> None:
    reception = await open_with(cluster, certificate(tmp_path))
    others = certificate(tmp_path, "other").certificate.read_bytes()
    tls = ClientTls(others if trusts == "others" else None)

    with pytest.raises(Unavailable):
        await reception.connect(await reception.token(), tls)


async def test_a_server_with_tls_takes_nothing_in_the_clear(
    cluster: Cluster, tmp_path: Path
) -> None:
    reception = await open_with(cluster, certificate(tmp_path))

    with pytest.raises(Unavailable):
        await reception.connect(await reception.token())


async def test_long_requests_travel_in_pieces(reception: Reception) -> None:
    link = await reception.connect(await reception.token())
    await link.register(hello())
    fences = [Fence(f"r_{number}", 1) for number in range(2 * MAX_ITEMS + 1)]

    started = await link.start([Start(fence.run, 1, 0) for fence in fences])
    await link.progress([Progress(fence.run, 1, 1.0, None) for fence in fences])

    assert set(started.refused) == set(fences)


async def test_a_worker_of_the_former_release_is_told_what_to_do(reception: Reception) -> None:
    token = await reception.token("ancient")
    told: list[grpc.aio.AioRpcError] = []

    with capture_logs() as logged:
        for _ in range(2):
            stream = await reception.talk(token, "rota.v1.Workers")
            with pytest.raises(grpc.aio.AioRpcError) as ended:
                await stream.read()
            told.append(ended.value)

    assert [(line["event"], line["worker"]) for line in logged] == [("worker.outdated", "ancient")]
    for error in told:
        assert error.code() is grpc.StatusCode.UNAVAILABLE  # it goes on looking for another
        assert "install that release on this worker" in (error.details() or "")


async def test_a_server_of_the_former_release_is_told_as_such() -> None:
    server = await serve("127.0.0.1:0", [])
    address = f"127.0.0.1:{server.port}"

    with pytest.raises(Unavailable) as told:
        await GrpcConnector(GrpcAccess((address,), "rotaw_x")).connect()

    assert f"{address}: this server is of an older release" in told.value.message
    await server.close()
