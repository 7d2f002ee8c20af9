"""Length-prefixed MessagePack frames and the table of verbs of a worker's conversation."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from rota.ports.work import (
    Beat,
    BeatAnswer,
    Hello,
    Order,
    Outcome,
    OutputChunk,
    Progress,
    ReportAnswer,
    Start,
    StartAnswer,
    Welcome,
)

_LENGTH_BYTES = 4
MAX_FRAME = 128 * 1024 * 1024
ORDER = 0  # the number of a frame that answers nothing


class Frame(msgspec.Struct, frozen=True, array_like=True):
    number: int  # a request's, repeated in its answer; ORDER: sent unasked
    verb: str  # "" in answers
    body: msgspec.Raw
    error: tuple[str, str, str] | None = None  # code, message, kind of a refused request


class Verb(msgspec.Struct, frozen=True):
    request: msgspec.msgpack.Decoder[Any]
    answer: msgspec.msgpack.Decoder[Any]


def _verb(request: Any, answer: Any) -> Verb:
    return Verb(msgspec.msgpack.Decoder(request), msgspec.msgpack.Decoder(answer))


VERBS = {
    "register": _verb(Hello, Welcome),
    "beat": _verb(Beat, BeatAnswer),
    "start": _verb(tuple[Start, ...], StartAnswer),
    "report": _verb(tuple[Outcome, ...], ReportAnswer),
    "output": _verb(tuple[OutputChunk, ...], ReportAnswer),
    "progress": _verb(tuple[Progress, ...], None),
    "leave": _verb(None, None),
}
ORDERS = msgspec.msgpack.Decoder(Order)
_frames = msgspec.msgpack.Decoder(Frame)
encode = msgspec.msgpack.encode


def packed(frame: Frame) -> bytes:
    """A frame as bytes for the wire."""
    data = encode(frame)
    return len(data).to_bytes(_LENGTH_BYTES, "big") + data


async def read_frame(reader: asyncio.StreamReader) -> Frame:
    """The next frame. `ConnectionError` at the end or when the peer talks nonsense."""
    try:
        length = int.from_bytes(await reader.readexactly(_LENGTH_BYTES), "big")
        if length > MAX_FRAME:
            raise ConnectionError(f"a frame of {length} bytes is too long")
        return _frames.decode(await reader.readexactly(length))
    except (asyncio.IncompleteReadError, msgspec.MsgspecError) as error:
        raise ConnectionError("the connection ended") from error
