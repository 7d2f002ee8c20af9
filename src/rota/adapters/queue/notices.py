"""What one NOTIFY of PostgreSQL carries: a few lines of text of a bounded length."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

import msgspec

_MAX_BYTES = 7_900  # PostgreSQL takes less than 8,000
_MAX_VALUES = 50  # ids in one line


class Kind(StrEnum):
    WAKE = "wake"
    OFFER = "offer"


class Hint(NamedTuple):
    """One line: a topic with payloads, or a pool with runs."""

    kind: Kind
    name: str
    values: tuple[str, ...]


_decoder = msgspec.json.Decoder(Hint)


def hints(
    wakes: Mapping[str, Sequence[str]], offers: Mapping[str, Sequence[str]]
) -> Iterator[Hint]:
    """Lines for all of it, none of them long."""
    for kind, told in ((Kind.WAKE, wakes), (Kind.OFFER, offers)):
        for name, values in told.items():
            for at in range(0, max(len(values), 1), _MAX_VALUES):
                yield Hint(kind, name, tuple(values[at : at + _MAX_VALUES]))


def pack(node: str, lines: Iterator[Hint]) -> Iterator[str]:
    """Texts that begin with the node's name; what does not fit into any is left out."""
    start = node.encode()
    text = bytearray(start)
    for line in lines:
        encoded = msgspec.json.encode(line)
        if len(start) + 1 + len(encoded) > _MAX_BYTES:
            continue
        if len(text) + 1 + len(encoded) > _MAX_BYTES:
            yield text.decode()
            text = bytearray(start)
        text += b"\n" + encoded
    if len(text) > len(start):
        yield text.decode()


def unpack(text: str) -> tuple[str, list[Hint]]:
    """The node and its hints; `msgspec.MsgspecError` for what is no such text."""
    node, *lines = text.split("\n")
    return node, [_decoder.decode(line) for line in lines]
