"""Messages between host and worker: frames of MessagePack, every message a batch.

A frame is four bytes of length, big-endian, and an array whose first element is the message's
name. The host blocks on its socket (`send`, `receive`); the worker has an event loop, which feeds
what arrives to a `FrameReader`. The link between worker and server on one machine has the same
frames; neither may import the other, nor the host anything beneath both, which would make it heavy.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from typing import Generic, TypeVar

import msgspec

_LENGTH = struct.Struct(">I")
_PIECE = 256 * 1024


class Calls(msgspec.Struct, frozen=True, array_like=True):
    """Attempts at one job version, in columns: their keys are consecutive."""

    function: str
    job: str
    project: str
    first_key: int  # the worker's name for the first attempt; the next one has the next number
    runs: list[str]
    numbers: list[int]  # of their fences
    due_at: list[int]  # microseconds since 1970
    inputs: dict[int, str] = {}  # as JSON, by position; few have any

    @property
    def keys(self) -> range:
        return range(self.first_key, self.first_key + len(self.runs))


class Run(msgspec.Struct, frozen=True, array_like=True, tag="run"):
    batches: tuple[Calls, ...]


class Cancel(msgspec.Struct, frozen=True, array_like=True, tag="cancel"):
    keys: tuple[int, ...]


class Stop(msgspec.Struct, frozen=True, array_like=True, tag="stop"):
    """Order to exit; nothing runs any more."""


class Step(msgspec.Struct, frozen=True, array_like=True):
    name: str
    result: str  # completed, failed, cancelled; running: it goes on
    seconds: float
    started: int = 0  # microseconds of the machine's monotonic clock


class Completed(msgspec.Struct, frozen=True, array_like=True):
    """Attempts that completed and have no more to tell, in columns."""

    keys: list[int] = []
    started: list[int] = []  # microseconds of the machine's monotonic clock, like `ended`
    ended: list[int] = []
    cpu: list[int] = []  # microseconds of its thread; 0 for async functions, which share one
    outputs: dict[int, bytes] = {}  # as JSON, by position


class Done(msgspec.Struct, frozen=True, array_like=True):
    """End of an attempt that has more to tell."""

    key: int
    result: str  # completed, failed or cancelled
    started: int
    ended: int
    cpu: int = 0
    message: str = ""
    output: bytes = b""  # JSON; empty: nothing
    steps: tuple[Step, ...] = ()


class Printed(msgspec.Struct, frozen=True, array_like=True):
    key: int
    stream: str  # stdout, stderr or rota
    step: int
    data: bytes


class Progressed(msgspec.Struct, frozen=True, array_like=True):
    key: int
    done: float
    total: float | None
    message: str


class Stepped(msgspec.Struct, frozen=True, array_like=True):
    """Step that began or ended in a function that goes on."""

    key: int
    number: int
    step: Step


class HostedType(msgspec.Struct, frozen=True, array_like=True):
    """Executor class of a type of jobs, whose methods are functions of the host."""

    name: str
    every: float  # seconds between two looks at the work
    patience: float  # seconds for which looks may tell nothing
    call_timeout: float  # seconds that a call may take
    can_cancel: bool
    schema: str  # JSON Schema of its parameters; {}: they are not checked


class Hello(msgspec.Struct, frozen=True, array_like=True, tag="hello"):
    pid: int
    functions: tuple[str, ...]
    types: tuple[HostedType, ...] = ()


class Unusable(msgspec.Struct, frozen=True, array_like=True, tag="unusable"):
    """The app could not be loaded; the host exits."""

    message: str


class News(msgspec.Struct, frozen=True, array_like=True, tag="news"):
    """Batch of messages, in an order that keeps each attempt's output before its end."""

    printed: tuple[Printed, ...] = ()
    progressed: tuple[Progressed, ...] = ()
    completed: Completed = Completed()
    done: tuple[Done, ...] = ()
    stepped: tuple[Stepped, ...] = ()

    def __bool__(self) -> bool:
        told = self.printed, self.progressed, self.completed.keys, self.done, self.stepped
        return any(told)


Order = Run | Cancel | Stop  # what the worker says
Message = Hello | Unusable | News  # what the host says
M = TypeVar("M")

_ENCODER = msgspec.msgpack.Encoder()


def encode(message: Order | Message) -> bytes:
    body = _ENCODER.encode(message)
    return _LENGTH.pack(len(body)) + body


class FrameReader(Generic[M]):
    """Splits received bytes into messages of the types that the other side sends."""

    def __init__(self, decoder: msgspec.msgpack.Decoder[M]) -> None:
        self._decode = decoder.decode
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[M]:
        self._buffer += data
        while len(self._buffer) >= _LENGTH.size:
            end = _LENGTH.size + _LENGTH.unpack_from(self._buffer)[0]
            if len(self._buffer) < end:
                return
            frame = bytes(self._buffer[_LENGTH.size : end])
            del self._buffer[:end]
            yield self._decode(frame)


def order_reader() -> FrameReader[Order]:
    return FrameReader(msgspec.msgpack.Decoder(Order))


def message_reader() -> FrameReader[Message]:
    return FrameReader(msgspec.msgpack.Decoder(Message))


def send(connection: socket.socket, message: Message) -> None:
    connection.sendall(encode(message))


def receive(connection: socket.socket) -> Iterator[Order]:
    """Yield orders as they come, until the worker is gone."""
    reader = order_reader()
    while data := connection.recv(_PIECE):
        yield from reader.feed(data)
