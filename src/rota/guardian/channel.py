"""The socket to the worker: batches both ways, never blocking."""

from __future__ import annotations

import array
import contextlib
import errno
import json
import mmap
import os
import socket
from collections import deque
from collections.abc import Iterator

from rota.guardian.messages import Message

_BUFFER_BYTES = 4 << 20  # a batch of spawns carries as many whole environments
_BATCH_BYTES = 1 << 15  # a datagram of this size fits whatever the system's limits are
_MAX_FDS = 253  # the kernel's limit for one datagram
_SO_SNDBUFFORCE = 32  # root may exceed the limit; the socket module does not name it
_FD_BYTES = array.array("i").itemsize


def socket_pair() -> tuple[socket.socket, socket.socket]:
    """The guardian's end and the worker's."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for end in (ours, theirs):
        _widen(end)
    ours.setblocking(False)
    return ours, theirs


def _widen(end: socket.socket) -> None:
    end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER_BYTES)  # cut to the system's limit
    with contextlib.suppress(PermissionError):
        end.setsockopt(socket.SOL_SOCKET, _SO_SNDBUFFORCE, _BUFFER_BYTES)


class Closed(Exception):
    """The worker closed its end."""


class Channel:
    """The guardian's end. What cannot be sent yet waits here for another `flush`."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        # Only pages that are written to are kept: nearly all messages fit into the first one.
        self._buffer = mmap.mmap(-1, _BUFFER_BYTES, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._outgoing: deque[bytes] = deque()  # encoded messages

    def fileno(self) -> int:
        return self._socket.fileno()

    @property
    def has_outgoing(self) -> bool:
        return bool(self._outgoing)

    @contextlib.contextmanager
    def receive(self) -> Iterator[tuple[bytes, list[int]]]:
        """The next datagram with its descriptors, which are closed afterwards."""
        size, fds = self._receive()
        try:
            if not size:
                raise Closed
            yield bytes(memoryview(self._buffer)[:size]), fds
        finally:
            for fd in fds:
                os.close(fd)

    def _receive(self) -> tuple[int, list[int]]:
        try:
            size, ancillary, _, _ = self._socket.recvmsg_into(
                [self._buffer], socket.CMSG_SPACE(_MAX_FDS * _FD_BYTES), socket.MSG_CMSG_CLOEXEC
            )
        except ConnectionResetError:
            raise Closed from None
        return size, _descriptors(ancillary)

    def send(self, message: Message) -> None:
        """Queues a message for the next `flush`."""
        self._outgoing.append(json.dumps(message).encode())

    def flush(self) -> None:
        """Sends what the socket takes now."""
        while batch := self._next_batch():
            if not self._try_to_send(b"[" + b",".join(batch) + b"]"):
                return
            for _ in batch:
                self._outgoing.popleft()

    def _next_batch(self) -> list[bytes]:
        batch: list[bytes] = []
        room = _BATCH_BYTES
        for message in self._outgoing:
            room -= len(message) + 1
            if batch and room < 0:
                break
            batch.append(message)
        return batch

    def _try_to_send(self, datagram: bytes) -> bool:
        try:
            self._socket.send(datagram)
        except (BrokenPipeError, ConnectionResetError):
            return True  # nobody will ever read it; the end of the worker is noticed elsewhere
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.ENOBUFS):
                raise
            return False
        return True


def _descriptors(ancillary: list[tuple[int, int, bytes]]) -> list[int]:
    fds = array.array("i")
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
    return list(fds)
