"""How output is written down: one record a line, readable by a person with `zcat`.

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
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from rota.domain.errors import Unavailable

# Possessive quantifiers (`++`): a group may have 100,000 records, and none is ever given back.
_GROUP = re.compile(rb"([0-9]{1,18}) (stdout|stderr|rota) ([0-9]{1,9})((?:[|+].*+\n)++)")


class Stream(StrEnum):
    """Where a text came from."""

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
    """Records without headers: one of an unfinished line, or one for each line of the text."""
    if not ends_line:
        return b"+%b\n" % text
    return b"|%b\n" % text.replace(b"\n", b"\n|")


def read_records(data: bytes, first: int = 0, limit: int | None = None) -> Iterator[Record]:
    """Records of one chunk or of inline output, from the given index on."""
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


def find_records(data: bytes, text: bytes, first: int = 0) -> Iterator[tuple[int, Record]]:
    """Records that contain a text, with their indexes, from the given index on."""
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
    """What was printed, all streams in the order of the records."""
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

    def raw(self) -> bytes:
        if self.body.startswith(b"+") or b"\n+" in self.body:
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
