from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from rota.guardian import messages
from rota.guardian.channel import Channel, Closed, socket_pair


@pytest.fixture
def ends() -> Iterator[tuple[Channel, socket.socket]]:
    ours, theirs = socket_pair()
    theirs.setblocking(False)
    with ours, theirs:
        yield Channel(ours), theirs


def read_all(worker: socket.socket) -> list[str]:
    texts: list[str] = []
    try:
        while True:
            texts += [message["error"] for message in json.loads(worker.recv(1 << 20))]
    except BlockingIOError:
        return texts


def test_messages_of_one_turn_share_a_datagram(ends: tuple[Channel, socket.socket]) -> None:
    channel, worker = ends
    channel.send(messages.error("one"))
    channel.send(messages.error("two"))

    channel.flush()

    assert [message["error"] for message in json.loads(worker.recv(1 << 20))] == ["one", "two"]


def test_what_a_slow_worker_leaves_unread_waits_in_order(
    ends: tuple[Channel, socket.socket],
) -> None:
    channel, worker = ends
    texts = [str(number) * 10_000 for number in range(1_000, 1_600)]
    for text in texts:
        channel.send(messages.error(text))

    channel.flush()
    assert channel.has_outgoing
    received: list[str] = []
    while len(received) < len(texts):
        received += read_all(worker)
        channel.flush()

    assert received == texts
    assert not channel.has_outgoing


def test_messages_to_a_worker_that_is_gone_are_dropped(
    ends: tuple[Channel, socket.socket],
) -> None:
    channel, worker = ends
    worker.close()
    channel.send(messages.error("anybody?"))

    channel.flush()

    assert not channel.has_outgoing


def test_end_of_the_worker_is_told(ends: tuple[Channel, socket.socket]) -> None:
    channel, worker = ends
    worker.close()

    with pytest.raises(Closed), channel.receive():
        pass


def test_descriptors_are_closed_after_use(ends: tuple[Channel, socket.socket]) -> None:
    channel, worker = ends
    with Path(os.devnull).open() as null:
        socket.send_fds(worker, [b"[]"], [null.fileno(), null.fileno()])

    with channel.receive() as (datagram, fds):
        assert datagram == b"[]"
        assert len(fds) == 2
        assert not any(os.get_inheritable(fd) for fd in fds)

    for fd in fds:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(fd)


def test_batch_of_many_environments_fits(ends: tuple[Channel, socket.socket]) -> None:
    channel, worker = ends
    datagram = b"x" * 150_000

    worker.send(datagram)

    with channel.receive() as (received, _):
        assert received == datagram
