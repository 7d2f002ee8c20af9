"""A broken link is felt by those who use it, not by breaking it."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from testkit.chaos.backend_faults import BrokenLink
from testkit.proxy import Proxy
from testkit.waiting import eventually


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


@pytest.fixture
def proxy(server: socket.socket) -> Iterator[Proxy]:
    with Proxy(server.getsockname()[1]) as proxy:
        yield proxy


def dial(proxy: Proxy) -> socket.socket:
    return socket.create_connection(("127.0.0.1", proxy.port))


def test_a_cut_is_felt_by_whoever_dials_again(server: socket.socket, proxy: Proxy) -> None:
    fault = BrokenLink(("server-1", "NATS"), [proxy], "server to queue cut", Proxy.cut)
    with dial(proxy), server.accept()[0] as far_end:
        fault.inject()
        assert far_end.recv(1) == b""
        assert not fault.is_felt()

        with dial(proxy):
            eventually(fault.is_felt)


def test_who_has_no_reason_to_use_a_link_is_made_to(proxy: Proxy) -> None:
    def speak() -> None:
        with dial(proxy) as peer:
            peer.sendall(b"hello")

    fault = BrokenLink(("server-1", "S3"), [proxy], "server to blobs silent", Proxy.hang, speak)
    fault.inject()

    eventually(fault.is_felt)
