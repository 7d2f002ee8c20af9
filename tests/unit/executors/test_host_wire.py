from __future__ import annotations

import socket
from collections.abc import Iterator

import msgspec
import pytest

from rota.executors import host_wire as worker
from rota.sdk.host import wire as host

ORDERS = [
    worker.Run((worker.Task(1, "app.add", "r_1", 2, "add", "default", 1_000, {"a": [1]}),)),
    worker.Cancel((1, 2)),
    worker.Stop(),
]
MESSAGES = [
    host.Hello(7, ("app.add",)),
    host.Unusable("ImportError: no"),
    host.News(
        (host.Printed(1, "stdout", 0, b"\xff"),),
        (host.Progressed(1, 0.5, None, "half"),),
        (host.Done(1, "completed", 10, 20, 5, "", b"[1]", (host.Step("dump", "failed", 0.1),)),),
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
    order: worker.Order, ends: tuple[socket.socket, socket.socket]
) -> None:
    hosts_end, workers_end = ends
    workers_end.sendall(worker.encode(order))
    workers_end.shutdown(socket.SHUT_WR)

    (heard,) = host.receive(hosts_end)

    assert type(heard).__name__ == type(order).__name__
    assert msgspec.structs.asdict(heard) == as_host(order)


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_worker_reads_what_the_host_writes(
    message: msgspec.Struct, ends: tuple[socket.socket, socket.socket]
) -> None:
    hosts_end, workers_end = ends
    host.send(hosts_end, message)

    (heard,) = worker.FrameReader().feed(workers_end.recv(1 << 16))

    assert msgspec.to_builtins(heard) == msgspec.to_builtins(message)


def test_frames_may_arrive_in_any_pieces() -> None:
    reader = worker.FrameReader()
    first, second = socket.socketpair()
    with first, second:
        for message in MESSAGES:
            host.send(first, message)
        data = second.recv(1 << 16)

    heard = [message for byte in data for message in reader.feed(bytes([byte]))]

    assert [type(message).__name__ for message in heard] == ["Hello", "Unusable", "News"]


@pytest.mark.parametrize("name", ["Task", "Run", "Cancel", "Stop", "Done", "Printed", "News"])
def test_both_sides_describe_the_same(name: str) -> None:
    assert fields(getattr(worker, name)) == fields(getattr(host, name))


def fields(kind: type[msgspec.Struct]) -> list[tuple[str, object]]:
    return [(field.name, field.default) for field in msgspec.structs.fields(kind)]


def as_host(order: worker.Order) -> dict[str, object]:
    """The same order as the host has it."""
    kind = getattr(host, type(order).__name__)
    return msgspec.structs.asdict(msgspec.convert(msgspec.to_builtins(order), kind))
