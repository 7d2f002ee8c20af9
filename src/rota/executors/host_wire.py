"""What worker and function host say to one another, as the worker sees it.

The host's side is `rota.sdk.host.wire`: the SDK imports nothing of the server, so each side has
its own description, and a test holds the two together. A frame is four bytes of length,
big-endian, and a MessagePack array whose first element is the message's name.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import msgspec

_LENGTH = struct.Struct(">I")


class Task(msgspec.Struct, frozen=True, array_like=True):
    """An attempt to execute."""

    key: int
    function: str
    run: str
    attempt: int
    job: str
    project: str
    due_at: int  # microseconds since 1970
    inputs: dict[str, Any] | None = None


class Run(msgspec.Struct, frozen=True, array_like=True, tag="run"):
    tasks: tuple[Task, ...]


class Cancel(msgspec.Struct, frozen=True, array_like=True, tag="cancel"):
    keys: tuple[int, ...]


class Stop(msgspec.Struct, frozen=True, array_like=True, tag="stop"):
    """Nothing runs any more: exit."""


class Step(msgspec.Struct, frozen=True, array_like=True):
    name: str
    result: str
    seconds: float


class Done(msgspec.Struct, frozen=True, array_like=True):
    """The end of a task."""

    key: int
    result: str  # completed, failed or cancelled
    started: int  # microseconds of the machine's monotonic clock, like `ended`
    ended: int
    cpu: int = 0  # microseconds
    message: str = ""
    output: bytes = b""  # JSON; empty: nothing
    steps: tuple[Step, ...] = ()


class Printed(msgspec.Struct, frozen=True, array_like=True):
    key: int
    stream: str
    step: int
    data: bytes


class Progressed(msgspec.Struct, frozen=True, array_like=True):
    key: int
    done: float
    total: float | None
    message: str


class Hello(msgspec.Struct, frozen=True, array_like=True, tag="hello"):
    pid: int
    functions: tuple[str, ...]


class Unusable(msgspec.Struct, frozen=True, array_like=True, tag="unusable"):
    """The app could not be loaded; the host exits."""

    message: str


class News(msgspec.Struct, frozen=True, array_like=True, tag="news"):
    """What happened. Each task's output comes before its end."""

    printed: tuple[Printed, ...] = ()
    progressed: tuple[Progressed, ...] = ()
    done: tuple[Done, ...] = ()


Order = Run | Cancel | Stop
Message = Hello | Unusable | News

_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(Message)


def encode(order: Order) -> bytes:
    body = _ENCODER.encode(order)
    return _LENGTH.pack(len(body)) + body


class FrameReader:
    """Cuts what arrives into messages."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[Message]:
        self._buffer += data
        while len(self._buffer) >= _LENGTH.size:
            end = _LENGTH.size + _LENGTH.unpack_from(self._buffer)[0]
            if len(self._buffer) < end:
                return
            frame = bytes(self._buffer[_LENGTH.size : end])
            del self._buffer[:end]
            yield _DECODER.decode(frame)
