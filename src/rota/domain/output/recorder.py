"""From what is read off pipes, in any portions, to records and chunks."""

from __future__ import annotations

from dataclasses import dataclass, field

from rota.domain.output.chunks import Chunk, ChunkWriter
from rota.domain.output.records import Stream
from rota.domain.sizes import format_size

LINE_LIMIT = 64 * 1024  # bytes of a record's text; a longer line is split
INLINE_LIMIT = 4 * 1024  # bytes of records that ride in the report of the outcome


@dataclass(frozen=True, slots=True)
class Totals:
    """What was kept of an attempt's output, and what was not."""

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
    """Records the output of one attempt, up to a limit."""

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
    def has_full_chunk(self) -> bool:
        return self._writer.has_full_chunk

    @property
    def held_bytes(self) -> int:
        """Memory that output takes which has not been taken yet."""
        return self._writer.held_bytes + sum(len(line.text) for line in self._open.values())

    def feed(self, at_ms: int, stream: Stream, step: int, data: bytes) -> None:
        """Add what was just read from a stream of a step."""
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

    def take_chunks(self, *, force: bool) -> list[Chunk]:
        """The full chunks; with `force` all there is, unfinished lines too. Each is given once."""
        if force:
            self._write_open_lines(ends_line=False)
            self._writer.pack()
        return self._writer.take()

    def close(self, at_ms: int) -> None:
        """No more output will come. Closing again changes nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        self._write_open_lines(ends_line=False)
        if self._dropped:
            self.remark(at_ms, f"{self._dropped:,} bytes printed after the cut were not kept")

    def inline(self) -> bytes | None:
        """All records, if they are few enough to ride in the report; None: they go as chunks."""
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
        """Record what there is of unfinished lines; they stay open unless ended here."""
        for (stream, step), line in self._open.items():
            if line.text or ends_line:
                text = bytes(line.text)
                self._writer.write(line.at_ms, stream, step, text, ends_line=ends_line)
                line.text.clear()
        if ends_line:
            self._open.clear()
