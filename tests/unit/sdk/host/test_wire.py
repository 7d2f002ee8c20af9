from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from rota.sdk.host import wire

ORDERS: list[wire.Order] = [
    wire.Run(
        (wire.Calls("app.add", "add", "default", 1, ["r_1"], [2], [1_000], {0: '{"a": [1]}'}),)
    ),
    wire.Cancel((1, 2)),
    wire.Stop(),
]
MESSAGES: list[wire.Message] = [
    wire.Hello(7, ("app.add",)),
    wire.Unusable("ImportError: no"),
    wire.News(
        (wire.Printed(1, "stdout", 0, b"\xff"),),
        (wire.Progressed(1, 0.5, None, "half"),),
        wire.Completed([2, 3], [10, 11], [20, 21], [5, 6], {1: b"[1]"}),
        (wire.Done(1, "completed", 10, 20, 5, "", b"[1]", (wire.Step("dump", "failed", 0.1),)),),
    ),
]


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    """The host's and the worker's end of a connection."""
    first, second = socket.socketpair()
    with first, second:
        yield first, second


@pytest.mark.parametrize("order", ORDERS, ids=lambda order: type(order).__name__)
def test_host_reads_what_the_worker_writes(
    order: wire.Order, ends: tuple[socket.socket, socket.socket]
) -> None:
    hosts_end, workers_end = ends
    workers_end.sendall(wire.encode(order))
    workers_end.shutdown(socket.SHUT_WR)

    (heard,) = wire.receive(hosts_end)

    assert heard == order


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_worker_reads_what_the_host_writes(
    message: wire.Message, ends: tuple[socket.socket, socket.socket]
) -> None:
    hosts_end, workers_end = ends
    wire.send(hosts_end, message)

    (heard,) = wire.message_reader().feed(workers_end.recv(1 << 16))

    assert heard == message


def test_frames_may_arrive_in_any_pieces() -> None:
    reader = wire.message_reader()
    first, second = socket.socketpair()
    with first, second:
        for message in MESSAGES:
            wire.send(first, message)
        data = second.recv(1 << 16)

    heard = [message for byte in data for message in reader.feed(bytes([byte]))]

    assert [type(message).__name__ for message in heard] == ["Hello", "Unusable", "News"]
