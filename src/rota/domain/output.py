"""Output of an attempt as records: one a line, packed into chunks, read back byte for byte.

Read in the order of the data: records and their format, chunks of them, and `OutputRecorder`, which
makes both from what an attempt prints, up to its limit. Pure: it is given bytes and times; where
chunks are kept and how they travel is decided elsewhere. A chunk is compressed on its own, small
enough to fetch by itself, and readable by a person with `zcat`.

The format of records:

    1731712345678 stdout 0|Compiling 2 files
    |Linking
    1731712345690 stderr 0|warning: unused import
    1731712346001 stdout 1+Continue?
    1731712349127 stdout 1| yes

A record is a header, a mark and a text. The header is milliseconds since 1970, the stream and the
index of the step; it is left out where it would repeat that of the record before, but never in
the first record of a chunk. The mark is `|` when a line feed followed the text, `+` when none did:
the line goes on in the next record of that stream and step, or the stream ended without one. The
text is any bytes but the line feed, exactly as printed.
"""

from __future__ import annotations

import re
import sys
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import groupby
from operator import itemgetter

from rota.domain.errors import Unavailable
from rota.domain.quantities import format_size

# Possessive quantifiers (`++`): a group may have 100,000 records, and none is ever given back.
_GROUP = re.compile(rb"([0-9]{1,18}) (stdout|stderr|rota) ([0-9]{1,9})((?:[|+].*+\n)++)")


class Stream(StrEnum):
    """Stream that a text came from."""

    STDOUT = "stdout"
    STDERR = "stderr"
    ROTA = "rota"  # Rota's own remarks, such as the cut mark


@dataclass(frozen=True, slots=True)
class Record:
    """One line of output, or a piece of one."""

    at_ms: int  # milliseconds since 1970
    stream: Stream
    step: int  # index of the step, from 0
    text: bytes  # without its line feed
    ends_line: bool  # False: the line goes on in the next record of this stream and step


def header_of(at_ms: int, stream: Stream, step: int) -> bytes:
    return b"%d %s %d" % (at_ms, stream.encode(), step)


def marked(text: bytes, *, ends_line: bool) -> bytes:
    """Encode records without headers: one for an unfinished line, or one for each line."""
    if not ends_line:
        return b"+%b\n" % text
    return b"|%b\n" % text.replace(b"\n", b"\n|")


def read_records(data: bytes, first: int = 0, limit: int | None = None) -> Iterator[Record]:
    """Yield records of one chunk or of inline output, from the given index on."""
    index = 0
    end = sys.maxsize if limit is None else first + limit
    for group in _groups(data):
        if index >= end:
            return
        count = group.body.count(b"\n")
        if first < index + count:
            for line in group.lines()[max(first - index, 0) : end - index]:
                yield group.record(line)
        index += count


@dataclass(frozen=True, slots=True)
class Block:
    """Records in a row with the same time, stream and step."""

    index: int  # of its first record
    at_ms: int
    stream: Stream
    step: int
    text: bytes  # of all records, with line feeds between them
    ends_line: bool  # False: it is a single record, and its line goes on


def read_blocks(data: bytes, first: int = 0) -> Iterator[Block]:
    """Yield all records from the given index on, as few blocks."""
    index = 0
    for group in _groups(data):
        count = group.body.count(b"\n")
        if first < index + count:
            yield from group.blocks(index, max(first - index, 0))
        index += count


def find_records(data: bytes, text: bytes, first: int = 0) -> Iterator[tuple[int, Record]]:
    """Yield records that contain a text, with their indexes, from the given index on."""
    if text not in data:
        return
    index = 0
    for group in _groups(data):
        if text in group.body:
            for number, line in enumerate(group.lines(), index):
                if number >= first and text in line[1:]:
                    yield number, group.record(line)
        index += group.body.count(b"\n")


def to_raw(data: bytes) -> bytes:
    """Return the printed bytes, all streams in the order of the records."""
    return b"".join(group.raw() for group in _groups(data))


def damaged(what: str) -> Unavailable:
    return Unavailable(
        f"stored output is damaged: {what}",
        code="output_damaged",
        hint="the blob store returned something else than was written: check its disk or backup",
    )


@dataclass(frozen=True, slots=True)
class _Group:
    """Records in a row with the same header. Work goes by groups: lines can be many and short."""

    at_ms: int
    stream: Stream
    step: int
    body: bytes  # marks and texts

    def lines(self) -> list[bytes]:
        return self.body[:-1].split(b"\n")

    def record(self, line: bytes) -> Record:
        return Record(self.at_ms, self.stream, self.step, line[1:], line.startswith(b"|"))

    @property
    def has_open_lines(self) -> bool:
        return self.body.startswith(b"+") or b"\n+" in self.body

    def blocks(self, index: int, skipped: int) -> Iterator[Block]:
        """Yield the records but the skipped ones; `index` is that of the first one."""
        if not skipped and not self.has_open_lines:
            yield self._block(index, self.body[1:-1].replace(b"\n|", b"\n"), ends_line=True)
            return
        index += skipped
        for mark, lines in groupby(self.lines()[skipped:], key=itemgetter(0)):
            texts = [line[1:] for line in lines]
            if mark == ord("|"):
                yield self._block(index, b"\n".join(texts), ends_line=True)
            else:
                for place, text in enumerate(texts, index):
                    yield self._block(place, text, ends_line=False)
            index += len(texts)

    def _block(self, index: int, text: bytes, *, ends_line: bool) -> Block:
        return Block(index, self.at_ms, self.stream, self.step, text, ends_line)

    def raw(self) -> bytes:
        if self.has_open_lines:
            return b"".join(
                line[1:] + b"\n" if line.startswith(b"|") else line[1:] for line in self.lines()
            )
        return self.body[1:].replace(b"\n|", b"\n")


def _groups(data: bytes) -> Iterator[_Group]:
    position = 0
    while position < len(data):
        match = _GROUP.match(data, position)
        if match is None:
            raise damaged(f"no record at byte {position}")
        yield _Group(int(match[1]), Stream(match[2].decode()), int(match[3]), match[4])
        position = match.end()


CHUNK_LIMIT = 256 * 1024  # bytes of records
PACKED_LIMIT = CHUNK_LIMIT + 1024  # bytes of their chunk: what does not compress grows a little
_GZIP = 31  # zlib's window bits for a whole gzip member
_LATEST = 2_000  # bytes that are remembered of what was printed last
_LEVEL = 1  # output is compressed as fast as it is printed; higher levels gain little on text


@dataclass(frozen=True, slots=True)
class Chunk:
    """Sequence of records with its place in the whole; chunks joined in order are one valid .gz."""

    number: int  # from 0
    first_line: int  # index of its first record in the whole output
    lines: int  # records
    text_bytes: int  # as printed, Rota's remarks included
    first_at_ms: int
    last_at_ms: int
    data: bytes  # the records as one gzip member


def unpack(data: bytes) -> bytes:
    """Decompress a chunk. Never more than a chunk can hold, whatever the data claims."""
    inflater = zlib.decompressobj(wbits=_GZIP)
    try:
        records = inflater.decompress(data, CHUNK_LIMIT + 1)
    except zlib.error as error:
        raise damaged(str(error)) from error
    if len(records) > CHUNK_LIMIT or not inflater.eof or inflater.unused_data:
        raise damaged("a chunk is not one whole gzip member of its size")
    return records


def gap_up_to(last: Chunk, remark: str) -> Chunk:
    """Make the chunk that replaces dropped ones up to `last`: one line of Rota's own.

    It ends at the line where they ended, so that nothing after it moves.
    """
    writer = ChunkWriter()
    writer.write(last.last_at_ms, Stream.ROTA, 0, remark.encode(), ends_line=True)
    writer.pack()
    [chunk] = writer.take()
    return replace(chunk, number=last.number, first_line=last.first_line + last.lines - 1)


class ChunkWriter:
    """Writer of records; every time a chunk is full it is packed and set aside."""

    def __init__(self) -> None:
        self.lines = 0  # records written so far
        self.text_bytes = 0  # as printed
        self._latest = b""  # the end of what was written last
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
    def buffered_bytes(self) -> int:
        """Memory of records which nobody has taken yet."""
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
        self._latest = text[-_LATEST:]
        self.lines += text.count(b"\n") + 1
        self.text_bytes += len(text) + ends_line

    @property
    def last_line(self) -> bytes:
        """Return the last line with a text, or its end if it is long; empty: nothing was said."""
        return self._latest.rstrip().rpartition(b"\n")[2]

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
        """Return the packed chunks, handed over once."""
        taken, self._packed, self._packed_size = self._packed, [], 0
        return taken

    def unpacked(self) -> bytes | None:
        """Return all records, as long as no chunk was packed."""
        return None if self._next_number else b"".join(self._parts)


LINE_LIMIT = 64 * 1024  # bytes of a record's text; a longer line is split
INLINE_LIMIT = 4 * 1024  # bytes of records that ride in the report of the outcome


@dataclass(frozen=True, slots=True)
class Totals:
    """Totals of an attempt's output that was kept, and of what was not."""

    bytes: int  # as printed, Rota's remarks included
    lines: int  # records
    dropped_bytes: int  # printed past the limit

    @property
    def truncated(self) -> bool:
        return self.dropped_bytes > 0


@dataclass(slots=True)
class _OpenLine:
    """The part of an unfinished line that is not in a record yet."""

    at_ms: int = 0
    text: bytearray = field(default_factory=bytearray)


class OutputRecorder:
    """Recorder of the output of one attempt, up to a limit."""

    def __init__(self, log_limit: int) -> None:
        self._log_limit = log_limit
        self._room = log_limit
        self._dropped = 0
        self._open: dict[tuple[Stream, int], _OpenLine] = {}
        self._writer = ChunkWriter()
        self._is_closed = False

    @property
    def totals(self) -> Totals:
        return Totals(self._writer.text_bytes, self._writer.lines, self._dropped)

    @property
    def last_line(self) -> bytes:
        return self._writer.last_line

    @property
    def has_full_chunk(self) -> bool:
        return self._writer.has_full_chunk

    @property
    def buffered_bytes(self) -> int:
        """Memory of output that has not been taken yet."""
        return self._writer.buffered_bytes + sum(len(line.text) for line in self._open.values())

    def feed(self, at_ms: int, stream: Stream, step: int, data: bytes) -> None:
        """Add bytes that were just read from a stream of a step."""
        kept = data[: self._room]
        self._room -= len(kept)
        if kept:
            self._assemble(at_ms, stream, step, kept)
        if len(kept) < len(data):
            self._drop(at_ms, len(data) - len(kept))

    def remark(self, at_ms: int, text: str, step: int = 0) -> None:
        """Add a line of Rota's own. The limit does not apply to it."""
        line = " ".join(text.splitlines()).encode(errors="replace")
        self._writer.write(at_ms, Stream.ROTA, step, line, ends_line=True)

    def end_step(self, step: int) -> None:
        """Record the unfinished lines of a step that has ended: none of the next goes before."""
        for stream, its in list(self._open):
            if its == step:
                line = self._open.pop((stream, its))
                if line.text:
                    self._writer.write(line.at_ms, stream, its, bytes(line.text), ends_line=False)

    def take_chunks(self, *, force: bool) -> list[Chunk]:
        """Return the full chunks; with `force` all, unfinished lines too. Each is given once."""
        if force:
            self._write_open_lines(ends_line=False)
            self._writer.pack()
        return self._writer.take()

    def close(self, at_ms: int) -> None:
        """Close the output; closing again changes nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        self._write_open_lines(ends_line=False)
        if self._dropped:
            self.remark(at_ms, f"{self._dropped:,} bytes printed after the cut were not kept")

    def inline(self) -> bytes | None:
        """Return all records, if they are few enough for the report; None: they go as chunks."""
        records = self._writer.unpacked()
        return None if records is None or len(records) > INLINE_LIMIT else records

    def _assemble(self, at_ms: int, stream: Stream, step: int, data: bytes) -> None:
        line = self._open.setdefault((stream, step), _OpenLine())
        line.at_ms = at_ms
        line.text += data
        if len(line.text) <= LINE_LIMIT and b"\n" not in data:
            return
        text = bytes(line.text)
        done = self._write_ready(at_ms, stream, step, text)
        if text.endswith(b"\n"):
            del self._open[stream, step]
        else:
            line.text = bytearray(text[done:])

    def _write_ready(self, at_ms: int, stream: Stream, step: int, text: bytes) -> int:
        """Record whole lines and the pieces of a too long one; returns where the rest begins.

        Whole lines go by the window, not one by one: the cost is that of copying bytes, however
        short the lines are.
        """
        start = 0
        while start < len(text):
            end = text.rfind(b"\n", start, start + LINE_LIMIT + 1)
            ends_line = end >= 0
            if not ends_line:
                end = start + LINE_LIMIT
                if end >= len(text):
                    break
            self._writer.write(at_ms, stream, step, text[start:end], ends_line=ends_line)
            start = end + ends_line
        return start

    def _drop(self, at_ms: int, count: int) -> None:
        if not self._dropped:
            # The mark begins a line of its own, also for who reads the raw bytes.
            self._write_open_lines(ends_line=True)
            self.remark(at_ms, f"output cut here: log_limit {format_size(self._log_limit)} reached")
        self._dropped += count

    def _write_open_lines(self, *, ends_line: bool) -> None:
        """Record the pending part of unfinished lines; they stay open unless ended here."""
        for (stream, step), line in self._open.items():
            if line.text or ends_line:
                text = bytes(line.text)
                self._writer.write(line.at_ms, stream, step, text, ends_line=ends_line)
                line.text.clear()
        if ends_line:
            self._open.clear()
