"""Output of attempts: kept as it comes, read by windows, searched, followed.

Lines are numbered by record from 0, over the whole output of an attempt. Numbers never change, so
they serve as cursors and as links.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import timedelta

import structlog

from rota.domain.errors import Invalid, NotFound, Unavailable
from rota.domain.ids import RunId, SessionId
from rota.domain.output import (
    CHUNK_LIMIT,
    PACKED_LIMIT,
    Block,
    Record,
    damaged,
    find_records,
    read_blocks,
    read_records,
    to_raw,
    unpack,
)
from rota.domain.run import Attempt, OutputState, OutputSummary, Run
from rota.operations.engine import Engine
from rota.operations.runs import find_run, is_settled
from rota.ports.queue import EVENTS, WATCHED
from rota.ports.queue import output as output_topic
from rota.ports.records import Event, StoredChunk
from rota.ports.work import Fence, OutputChunk, ReportAnswer

log = structlog.get_logger()

_WINDOW_LINES = 1_000
_WINDOW_BYTES = 2 * 1024 * 1024  # of text: a window of long lines ends early
_PAGE_BYTES = 1024 * 1024  # of records: a page of blocks ends after the chunks that reach this
_PAGE_PIECES = 64  # chunks of a page of blocks, if they are small
_SEARCH_PIECES = 256  # chunks that one search call looks through, at most 64 MiB
_RAW_PIECES = 256  # chunks whose places are read at a time
_WINDOW_PIECES = 16  # the same for windows, most of which lie in one or two chunks
_AT_ONCE = 8  # chunks that are fetched side by side, and in memory together
_NOTHING = OutputSummary()
_SLOW_POLL = timedelta(seconds=5)
_STORING = timedelta(seconds=8)  # less than a worker waits for an answer


@dataclass(frozen=True, slots=True)
class OutputLine:
    number: int  # index of the record in the whole output
    record: Record


@dataclass(frozen=True, slots=True)
class OutputWindow:
    """Lines in a row."""

    lines: tuple[OutputLine, ...]
    next_line: int  # where the following window begins
    total_lines: int  # that have arrived
    is_complete: bool  # the attempt has ended: no more will arrive
    pending_bytes: int = 0  # of an ended attempt, still on its worker
    worker: str = ""
    summary: OutputSummary = _NOTHING

    @property
    def is_last(self) -> bool:
        return self.is_complete and self.next_line >= self.total_lines


@dataclass(frozen=True, slots=True)
class SearchPage:
    """Lines that contain a text."""

    hits: tuple[OutputLine, ...]
    next_line: int  # where the search goes on
    is_exhausted: bool  # everything that has arrived was looked through


@dataclass(frozen=True, slots=True)
class OutputPage:
    """Blocks in a row: lines with the same time, stream and step are one."""

    blocks: tuple[tuple[int, Block], ...]  # each with the number of its first line
    next_line: int  # where the following page begins
    total_lines: int  # that have arrived
    is_complete: bool  # the attempt has ended: no more will arrive
    pending_bytes: int = 0  # of an ended attempt, still on its worker
    worker: str = ""
    summary: OutputSummary = _NOTHING


@dataclass(frozen=True, slots=True)
class _Piece:
    """One fetch: a chunk in the blob store, or the records stored beside the attempt."""

    first_line: int
    lines: int
    key: str = ""
    inline: bytes = b""

    @property
    def next_line(self) -> int:
        return self.first_line + self.lines


@dataclass(frozen=True, slots=True)
class _Arrived:
    """Output of an attempt as far as it has arrived."""

    run: RunId
    attempt: int
    inline: bytes  # all of it; empty if it lies in the blob store
    total_lines: int
    is_complete: bool
    pending_bytes: int
    worker: str
    summary: OutputSummary


async def store_chunks(
    engine: Engine, session: SessionId, chunks: Sequence[OutputChunk]
) -> ReportAnswer:
    """Store output of leased attempts, and what attempts that ended in the session left behind.

    The rest is refused, and so are attempts of which a chunk is not what a worker may send: it
    would only send it again. The same chunks sent twice are accepted twice and kept once.
    `Unavailable` comes soon, whatever the blob store does: the worker keeps them and sends them
    again.
    """
    refused = _impossible(chunks)
    fences = frozenset(chunk.fence for chunk in chunks)
    refused |= await _closed(engine, session, fences - refused)
    chunks = [chunk for chunk in chunks if chunk.fence not in refused]
    stored = [(chunk.fence, StoredChunk(chunk.meta, _key(session, chunk))) for chunk in chunks]
    data = {place.key: chunk.data for chunk, (_, place) in zip(chunks, stored, strict=True)}
    # Bytes first, their index second: the index never names a blob that is not there.
    await _put_all(engine, data)
    # Blobs of chunks that are refused only now stay behind unnamed, and go when the run is pruned:
    # a refused repeat of what was accepted before shares its key.
    fenced = await engine.store.add_chunks(session, stored)
    for fence in dict.fromkeys(fence for fence, _ in stored):
        if fence not in fenced:
            engine.queue.announce(output_topic(fence.run))
    return ReportAnswer(refused=(*refused, *fenced))


async def _put_all(engine: Engine, data: Mapping[str, bytes]) -> None:
    """Put blobs concurrently. No put is under way any more when it returns or raises."""
    try:
        async with asyncio.timeout(_STORING.total_seconds()):
            puts = (engine.blobs.put(key, each) for key, each in data.items())
            # Without `return_exceptions` the first failure returns while other puts go on.
            results = await asyncio.gather(*puts, return_exceptions=True)
    except TimeoutError as error:
        raise Unavailable("the blob store does not answer", code="blobs_unreachable") from error
    for failure in filter(None, results):
        raise failure


async def read_window(
    engine: Engine, run: RunId, attempt: int, first_line: int = 0, limit: int = _WINDOW_LINES
) -> OutputWindow:
    """Read up to `limit` lines, fewer if they are very long. Fetch only the chunks they lie in."""
    arrived = await _arrived(engine, run, attempt)
    return await _window(_Loader(engine), arrived, first_line, limit)


async def tail(
    engine: Engine, run: RunId, attempt: int, limit: int = _WINDOW_LINES
) -> OutputWindow:
    """Return the last `limit` lines that have arrived."""
    arrived = await _arrived(engine, run, attempt)
    return await _window(_Loader(engine), arrived, arrived.total_lines - limit, limit)


async def read_page(
    engine: Engine, run: RunId, attempt: int, first_line: int = 0, *, last: int | None = None
) -> OutputPage:
    """Read about a megabyte from `first_line` on, or from where the `last` so many lines begin.

    A page ends where a chunk does: who reads page after page fetches each chunk once.
    """
    arrived = await _arrived(engine, run, attempt)
    position = max(first_line if last is None else arrived.total_lines - last, 0)
    blocks: list[tuple[int, Block]] = []
    size = 0
    pieces = await _pieces(engine, arrived, position, _PAGE_PIECES)
    for batch in _batches(pieces):
        for piece, data in await _load_all(engine, batch):
            first = max(position - piece.first_line, 0)
            blocks += ((piece.first_line + each.index, each) for each in read_blocks(data, first))
            position = piece.next_line
            size += len(data)
        if size >= _PAGE_BYTES:
            break
    return OutputPage(
        tuple(blocks),
        position,
        arrived.total_lines,
        arrived.is_complete,
        arrived.pending_bytes,
        arrived.worker,
        arrived.summary,
    )


async def search(
    engine: Engine,
    run: RunId,
    attempt: int,
    text: str,
    first_line: int = 0,
    limit: int = _WINDOW_LINES,
) -> SearchPage:
    """Find lines that contain a plain text, from `first_line` on; a call does a bounded part of it.

    A text that was torn apart (by a pause in the middle of a line, or past 64 KiB of one) is not
    found where the pieces meet.
    """
    needle = _needle(text)
    arrived = await _arrived(engine, run, attempt)
    hits: list[OutputLine] = []
    next_line = max(first_line, 0)
    for piece in await _pieces(engine, arrived, next_line, _SEARCH_PIECES):
        data = await _load(engine, piece)
        for index, record in find_records(data, needle, first_line - piece.first_line):
            hits.append(OutputLine(piece.first_line + index, record))
            if len(hits) == limit:
                return SearchPage(tuple(hits), hits[-1].number + 1, is_exhausted=False)
        next_line = piece.next_line
    is_exhausted = next_line >= arrived.total_lines
    return SearchPage(tuple(hits), min(next_line, arrived.total_lines), is_exhausted)


async def raw(engine: Engine, run: RunId, attempt: int) -> AsyncGenerator[bytes, None]:
    """Yield the printed bytes, unchanged, with Rota's remarks, as far as they have arrived."""
    arrived = await _arrived(engine, run, attempt)
    position = 0
    while pieces := await _pieces(engine, arrived, position, _RAW_PIECES):
        for batch in _batches(pieces):
            for _, data in await _load_all(engine, batch):
                yield to_raw(data)
        position = pieces[-1].next_line


class OutputReader:
    """Reader of the output of one attempt, again and again while it grows."""

    def __init__(self, engine: Engine, run: RunId, attempt: int) -> None:
        self._run = run
        self._attempt = attempt
        self._loader = _Loader(engine)

    async def read(self, from_line: int, newest: int | None = None) -> OutputWindow:
        """Read from a line on; only the newest so many lines, if more have arrived since."""
        arrived = await _arrived(self._loader.engine, self._run, self._attempt)
        if newest is not None:
            from_line = max(from_line, arrived.total_lines - newest)
        return await _window(self._loader, arrived, from_line, _WINDOW_LINES)


async def follow(
    engine: Engine, run: RunId, attempt: int, from_line: int = 0
) -> AsyncGenerator[OutputWindow, None]:
    """Yield windows as lines arrive, until the attempt has ended and all of them were yielded.

    An empty window comes every few seconds of silence, as a sign of life. What an ended attempt
    left on its worker is not waited for longer than that.
    """
    listener = engine.queue.listen(output_topic(run))
    reader = OutputReader(engine, run, attempt)
    is_silent = False
    try:
        while True:
            window = await reader.read(from_line)
            yield window
            if window.is_last or (is_silent and window.pending_bytes and not window.lines):
                return
            from_line = window.next_line
            if from_line >= window.total_lines:
                is_silent = not await listener.wait(_SLOW_POLL)
    finally:
        listener.close()


async def _closed(engine: Engine, session: SessionId, fences: frozenset[Fence]) -> frozenset[Fence]:
    """Return attempts whose output the session may not send: no blob is put for those."""
    return fences - await engine.store.open_outputs(session, {fence.run for fence in fences})


def _impossible(chunks: Sequence[OutputChunk]) -> frozenset[Fence]:
    """Return attempts with a chunk that no worker may send."""
    refused = [chunk for chunk in chunks if not _is_possible(chunk)]
    for chunk in refused:
        log.warning(
            "output.refused", run=chunk.run, attempt=chunk.fence.attempt, chunk=chunk.meta.number
        )
    return frozenset(chunk.fence for chunk in refused)


def _is_possible(chunk: OutputChunk) -> bool:
    meta = chunk.meta
    return (
        len(chunk.data) <= PACKED_LIMIT
        and 1 <= meta.lines <= CHUNK_LIMIT
        and 0 <= meta.bytes <= CHUNK_LIMIT
        and meta.number >= 0
        and chunk.run.isascii()
        and chunk.run.replace("_", "").isalnum()  # all else might reach into keys of another run
    )


def _key(session: SessionId, chunk: OutputChunk) -> str:
    # Of the content, too: a worker that gives up a chunk sends a gap by its number, and a server
    # may have stored the chunk after all, whose answer was lost.
    content = zlib.crc32(chunk.data)
    return f"runs/{chunk.run}/{chunk.number}-{session}/{chunk.meta.number}-{content:08x}"


def _needle(text: str) -> bytes:
    if not text or "\n" in text:
        raise Invalid(
            "the text to search for must be part of one line",
            code="invalid_search",
            hint="give at least one character, and no line break",
        )
    return text.encode(errors="surrogateescape")


async def _arrived(engine: Engine, run: RunId, number: int) -> _Arrived:
    # The attempt first: if it has ended by then, all its chunks are there.
    attempt = await _attempt(engine, run, number)
    is_pending = attempt.output.state is OutputState.PENDING
    pending_bytes, inline = 0, b""
    if attempt.output.state is OutputState.INLINE:
        inline = await engine.store.inline_output(run, number)
        total_lines = inline.count(b"\n")
    else:
        stored = await engine.store.arrived_output(run, number)
        total_lines = stored.lines
        if is_pending:
            pending_bytes = attempt.output.bytes - stored.bytes
    is_complete = attempt.result is not None and not is_pending
    return _Arrived(
        run,
        number,
        inline,
        total_lines,
        is_complete,
        pending_bytes,
        attempt.worker,
        attempt.output,
    )


async def _attempt(engine: Engine, run: RunId, number: int) -> Attempt:
    for attempt in await engine.store.attempts(run):
        if attempt.number == number:
            return attempt
    raise NotFound(
        f"run {run} has no attempt {number}",
        hint=f"`rota run show {run}` lists its attempts",
        facts={"run": run, "attempt": number},
    )


async def _pieces(engine: Engine, arrived: _Arrived, line: int, limit: int) -> Sequence[_Piece]:
    """Return the piece that has a line, and up to `limit` with those after it."""
    if line >= arrived.total_lines:
        return ()
    if arrived.inline:
        return (_Piece(0, arrived.total_lines, inline=arrived.inline),)
    chunks = await engine.store.chunks(arrived.run, arrived.attempt, line, limit)
    return [_Piece(chunk.begins_at, chunk.meta.lines, chunk.key) for chunk in chunks]


def _batches(pieces: Sequence[_Piece]) -> Sequence[Sequence[_Piece]]:
    return [pieces[start : start + _AT_ONCE] for start in range(0, len(pieces), _AT_ONCE)]


class _Loader:
    """Loader of pieces that keeps the latest: the next window often begins in it."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._piece: _Piece | None = None
        self._data = b""

    async def load(self, piece: _Piece) -> bytes:
        if piece != self._piece:
            self._data = await _load(self.engine, piece)
            self._piece = piece
        return self._data


async def _window(loader: _Loader, arrived: _Arrived, first_line: int, limit: int) -> OutputWindow:
    position = max(first_line, 0)
    lines: list[OutputLine] = []
    room = _WINDOW_BYTES
    pieces: Sequence[_Piece] = ()
    while len(lines) < limit and room > 0:
        pieces = pieces[1:] or await _pieces(loader.engine, arrived, position, _WINDOW_PIECES)
        if not pieces:
            break
        data = await loader.load(pieces[0])
        first = position - pieces[0].first_line
        for record in read_records(data, first, limit - len(lines)):
            lines.append(OutputLine(position, record))
            position += 1
            room -= len(record.text)
            if room <= 0:
                break
    return OutputWindow(
        tuple(lines),
        position,
        arrived.total_lines,
        arrived.is_complete,
        arrived.pending_bytes,
        arrived.worker,
        arrived.summary,
    )


async def _load_all(engine: Engine, pieces: Sequence[_Piece]) -> Sequence[tuple[_Piece, bytes]]:
    """Load pieces side by side. No fetch is under way any more when it returns or raises."""
    loads = (_load(engine, piece) for piece in pieces)
    loaded = await asyncio.gather(*loads, return_exceptions=True)
    found: list[tuple[_Piece, bytes]] = []
    for piece, data in zip(pieces, loaded, strict=True):
        if isinstance(data, BaseException):
            raise data
        found.append((piece, data))
    return found


async def _load(engine: Engine, piece: _Piece) -> bytes:
    if piece.inline:
        return piece.inline
    try:
        data = unpack(await engine.blobs.get(piece.key))
    except NotFound as error:
        raise Unavailable(
            f"stored output is missing: {piece.key}",
            code="output_missing",
            hint="the blob store lost it: check its disk or backup",
        ) from error
    if data.count(b"\n") != piece.lines:
        raise damaged(f"{piece.key} does not have the {piece.lines} lines of its index")
    return data


_EVENT_BATCH = 500


@dataclass(frozen=True, slots=True)
class AttemptBegan:
    number: int


@dataclass(frozen=True, slots=True)
class AttemptPrinted:
    number: int
    window: OutputWindow  # empty: nothing new, a sign of life


Followed = AttemptBegan | AttemptPrinted | Run | None  # Run: it has ended; None: a sign of life


async def follow_run(
    engine: Engine, run: Run, attempt: int, from_line: int = 0
) -> AsyncGenerator[Followed, None]:
    """Yield the output from an attempt on, and of all later ones, until the run is settled."""
    listener = engine.queue.listen(EVENTS)
    try:
        while True:
            if attempt <= run.attempt:
                engine.queue.announce(WATCHED, run.id)
                async with aclosing(follow(engine, run.id, attempt, from_line)) as windows:
                    async for window in windows:
                        yield AttemptPrinted(attempt, window)
                attempt, from_line = attempt + 1, 0
            elif await is_settled(engine, run):
                yield run
                return
            else:
                await listener.wait(_SLOW_POLL)
                yield None
            run = await find_run(engine, run.id, project=run.project)
            if run.attempt >= attempt:
                yield AttemptBegan(attempt)
    finally:
        listener.close()


async def follow_events(
    engine: Engine,
    after: int | None,
    projects: Collection[str] | None,
    ids: Sequence[str] = (),
) -> AsyncGenerator[list[Event], None]:
    """Yield events past a position in order, without end; without a position, those to come.

    Of these projects, None: all; with `ids`, those that name one of them. An empty list comes every
    few seconds of silence, as a sign of life.
    """
    listener = engine.queue.listen(EVENTS)
    try:
        position = await engine.store.last_event() if after is None else after
        while True:
            events = await engine.store.events(position, _EVENT_BATCH, ids=ids, projects=projects)
            yield events
            if events:
                position = events[-1].seq
            else:
                await listener.wait(_SLOW_POLL)
    finally:
        listener.close()
