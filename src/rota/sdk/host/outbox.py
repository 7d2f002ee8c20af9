"""What waits to be told to the worker, sent by a thread of its own.

User code never touches the socket: it may be interrupted at any point, and a frame may not.
"""

from __future__ import annotations

import socket
import threading
from collections import deque
from itertools import groupby
from queue import SimpleQueue
from typing import TypeVar

from rota.sdk.host import wire

T = TypeVar("T")

_MOST_PRINTED = 4 * 1024 * 1024  # bytes that may wait; whoever prints more has to wait too


class Outbox:
    """Threads put in; one thread sends all there is, and so batches more the busier it gets."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._done: deque[wire.Done] = deque()
        self._printed: deque[wire.Printed] = deque()
        self._progressed: deque[wire.Progressed] = deque()
        self._waiting_bytes = 0
        self._has_room = threading.Event()
        self._has_room.set()
        self._bell: SimpleQueue[None] = SimpleQueue()
        self._rung = False
        self._thread = threading.Thread(target=self._send_all, name="rota-outbox", daemon=True)
        self._thread.start()

    def done(self, done: wire.Done) -> None:
        self._done.append(done)
        self._ring()

    def printed(self, key: int, stream: str, step: int, data: bytes) -> None:
        self._has_room.wait()
        self._printed.append(wire.Printed(key, stream, step, data))
        self._waiting_bytes += len(data)
        if self._waiting_bytes > _MOST_PRINTED:
            self._has_room.clear()
        self._ring()

    def progressed(self, progressed: wire.Progressed) -> None:
        self._progressed.append(progressed)
        self._ring()

    def _ring(self) -> None:
        if not self._rung:
            self._rung = True
            self._bell.put(None)

    def _send_all(self) -> None:
        while True:
            self._bell.get()
            self._rung = False
            try:
                wire.send(self._connection, self._take())
            except OSError:
                return  # the worker is gone, and the reader of its orders ends the process
            self._waiting_bytes = 0
            self._has_room.set()

    def _take(self) -> wire.News:
        # Ends first: what their tasks had printed is then certainly among the printed.
        done = _drain(self._done)
        printed = _drain(self._printed)
        latest = {each.key: each for each in _drain(self._progressed)}
        return wire.News(_joined(printed), tuple(latest.values()), tuple(done))


def _drain(queue: deque[T]) -> list[T]:
    return [queue.popleft() for _ in range(len(queue))]


def _joined(printed: list[wire.Printed]) -> tuple[wire.Printed, ...]:
    """Pieces of one stream that follow one another, as one."""
    groups = groupby(printed, key=lambda piece: (piece.key, piece.stream, piece.step))
    return tuple(
        wire.Printed(key, stream, step, b"".join(piece.data for piece in pieces))
        for (key, stream, step), pieces in groups
    )
