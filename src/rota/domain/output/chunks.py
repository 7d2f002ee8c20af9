"""Records packed into chunks: small enough to fetch one by one, compressed each on its own."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, replace

from rota.domain.output.records import Stream, damaged, header_of, marked

CHUNK_LIMIT = 256 * 1024  # bytes of records
PACKED_LIMIT = CHUNK_LIMIT + 1024  # bytes of their chunk: what does not compress grows a little
_GZIP = 31  # zlib's window bits for a whole gzip member
_LEVEL = 1  # output is compressed as fast as it is printed; higher levels gain little on text


@dataclass(frozen=True, slots=True)
class Chunk:
    """A run of records with its place in the whole; chunks joined in order are one valid .gz."""

    number: int  # from 0
    first_line: int  # index of its first record in the whole output
    lines: int  # records
    text_bytes: int  # as printed, Rota's remarks included
    first_at_ms: int
    last_at_ms: int
    data: bytes  # the records as one gzip member


def unpack(data: bytes) -> bytes:
    """The records of a chunk. Never more than a chunk can hold, whatever the data claims."""
    inflater = zlib.decompressobj(wbits=_GZIP)
    try:
        records = inflater.decompress(data, CHUNK_LIMIT + 1)
    except zlib.error as error:
        raise damaged(str(error)) from error
    if len(records) > CHUNK_LIMIT or not inflater.eof or inflater.unused_data:
        raise damaged("a chunk is not one whole gzip member of its size")
    return records


def gap_up_to(last: Chunk, remark: str) -> Chunk:
    """What takes the place of chunks that were dropped, up to `last`: one line of Rota's own.

    It ends at the line where they ended, so that nothing after it moves.
    """
    writer = ChunkWriter()
    writer.write(last.last_at_ms, Stream.ROTA, 0, remark.encode(), ends_line=True)
    writer.pack()
    [chunk] = writer.take()
    return replace(chunk, number=last.number, first_line=last.first_line + last.lines - 1)


class ChunkWriter:
    """Collects records; every time a chunk is full it is packed and set aside."""

    def __init__(self) -> None:
        self.lines = 0  # records written so far
        self.text_bytes = 0  # as printed
        self._packed: list[Chunk] = []
        self._packed_size = 0
        self._next_number = 0
        self._begin()

    def _begin(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0
        self._header = b""
        self._first_line = self.lines
        self._text_bytes_before = self.text_bytes
        self._first_at_ms = self._last_at_ms = 0

    @property
    def has_full_chunk(self) -> bool:
        return bool(self._packed)

    @property
    def held_bytes(self) -> int:
        """Memory that records take which nobody has taken yet."""
        return self._size + self._packed_size

    def write(self, at_ms: int, stream: Stream, step: int, text: bytes, *, ends_line: bool) -> None:
        """Add whole lines (without the last line feed), or a piece of an unfinished one."""
        header = header_of(at_ms, stream, step)
        records = marked(text, ends_line=ends_line)
        if self._size + len(header) + len(records) > CHUNK_LIMIT:
            self.pack()
        if not self._parts:
            self._first_at_ms = at_ms
        if header != self._header:
            self._header = header
            records = header + records
        self._parts.append(records)
        self._size += len(records)
        self._last_at_ms = at_ms
        self.lines += text.count(b"\n") + 1
        self.text_bytes += len(text) + ends_line

    def pack(self) -> None:
        """Close the chunk being filled, if there is anything in it."""
        if not self._parts:
            return
        chunk = Chunk(
            number=self._next_number,
            first_line=self._first_line,
            lines=self.lines - self._first_line,
            text_bytes=self.text_bytes - self._text_bytes_before,
            first_at_ms=self._first_at_ms,
            last_at_ms=self._last_at_ms,
            data=zlib.compress(b"".join(self._parts), _LEVEL, wbits=_GZIP),
        )
        self._next_number += 1
        self._packed.append(chunk)
        self._packed_size += len(chunk.data)
        self._begin()

    def take(self) -> list[Chunk]:
        """The packed chunks, handed over once."""
        taken, self._packed, self._packed_size = self._packed, [], 0
        return taken

    def unpacked(self) -> bytes | None:
        """All records, as long as no chunk was packed."""
        return None if self._next_number else b"".join(self._parts)
