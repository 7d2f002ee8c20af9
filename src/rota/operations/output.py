"""Output of attempts: kept as it comes, read by windows, searched, followed.

Lines are numbered by record from 0, over the whole output of an attempt. Numbers never change, so
they serve as cursors and as links.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import timedelta
from operator import attrgetter

import structlog

from rota.domain.errors import Invalid, NotFound, Unavailable
from rota.domain.ids import RunId, SessionId
from rota.domain.output import (
    CHUNK_LIMIT,
    PACKED_LIMIT,
    Record,
    damaged,
    find_records,
    read_records,
    to_raw,
    unpack,
)
from rota.domain.run import Attempt, OutputState, Run
from rota.domain.states import RunState, is_final
from rota.operations.engine import Engine
from rota.operations.runs import find_run
from rota.ports.queue import EVENTS, WATCHED
from rota.ports.queue import output as output_topic
from rota.ports.records import Event, StoredChunk
from rota.ports.work import Fence, OutputChunk, ReportAnswer

log = structlog.get_logger()

_WINDOW_LINES = 1_000
_WINDOW_BYTES = 2 * 1024 * 1024  # of text: a window of long lines ends early
_SEARCH_PIECES = 256  # chunks that one search call looks through, at most 64 MiB
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
class _Piece:
    """One fetch: a chunk in the blob store, or the records stored beside the attempt."""

    first_line: int
    lines: int
    key: str = ""
    inline: bytes = b""


@dataclass(frozen=True, slots=True)
class _Extent:
    """Extent of an attempt's output that has arrived so far."""

    pieces: Sequence[_Piece]
    is_complete: bool
    pending_bytes: int
    worker: str

    @property
    def total_lines(self) -> int:
        return self.pieces[-1].first_line + self.pieces[-1].lines if self.pieces else 0

    def pieces_from(self, line: int) -> Sequence[_Piece]:
        index = bisect_right(self.pieces, line, key=attrgetter("first_line")) - 1
        return self.pieces[max(index, 0) :] if line < self.total_lines else ()


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
    refused |= await _closed(engine, session, frozenset(map(_fence, chunks)) - refused)
    chunks = [chunk for chunk in chunks if _fence(chunk) not in refused]
    stored = [(_fence(chunk), StoredChunk(chunk.meta, _key(session, chunk))) for chunk in chunks]
    data = {place.key: chunk.data for chunk, (_, place) in zip(chunks, stored, strict=True)}
    # Bytes first, their index second: the index never names a blob that is not there.
    await _put_all(engine, data)
    # Blobs of chunks that are refused only now stay behind unnamed, and go when the run is pruned:
    # a refused repeat of what was accepted before shares its key.
    fenced = await engine.store.add_chunks(session, stored)
    accepted = tuple({fence for fence, _ in stored}.difference(fenced))
    for fence in accepted:
        engine.queue.announce(output_topic(fence.run))
    return ReportAnswer(accepted=accepted, fenced=(*refused, *fenced))


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
    extent = await _extent(engine, run, attempt)
    return await _window(engine, extent, first_line, limit)


async def tail(
    engine: Engine, run: RunId, attempt: int, limit: int = _WINDOW_LINES
) -> OutputWindow:
    """Return the last `limit` lines that have arrived."""
    extent = await _extent(engine, run, attempt)
    return await _window(engine, extent, extent.total_lines - limit, limit)


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
    extent = await _extent(engine, run, attempt)
    pieces = extent.pieces_from(max(first_line, 0))
    hits: list[OutputLine] = []
    for piece in pieces[:_SEARCH_PIECES]:
        data = await _load(engine, piece)
        for index, record in find_records(data, needle, first_line - piece.first_line):
            hits.append(OutputLine(piece.first_line + index, record))
            if len(hits) == limit:
                return SearchPage(tuple(hits), hits[-1].number + 1, is_exhausted=False)
    rest = pieces[_SEARCH_PIECES:]
    next_line = rest[0].first_line if rest else extent.total_lines
    return SearchPage(tuple(hits), next_line, is_exhausted=not rest)


async def raw(engine: Engine, run: RunId, attempt: int) -> AsyncGenerator[bytes, None]:
    """Yield the printed bytes, unchanged, with Rota's remarks, as far as they have arrived."""
    extent = await _extent(engine, run, attempt)
    for piece in extent.pieces:
        yield to_raw(await _load(engine, piece))


async def follow(
    engine: Engine, run: RunId, attempt: int, from_line: int = 0
) -> AsyncGenerator[OutputWindow, None]:
    """Yield windows as lines arrive, until the attempt has ended and all of them were yielded.

    An empty window comes every few seconds of silence, as a sign of life. What an ended attempt
    left on its worker is not waited for longer than that.
    """
    listener = engine.queue.listen(output_topic(run))
    is_silent = False
    try:
        while True:
            window = await read_window(engine, run, attempt, from_line)
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
        log.warning("output.refused", run=chunk.run, attempt=chunk.attempt, chunk=chunk.meta.number)
    return frozenset(map(_fence, refused))


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


def _fence(chunk: OutputChunk) -> Fence:
    return Fence(chunk.run, chunk.attempt)


def _key(session: SessionId, chunk: OutputChunk) -> str:
    return f"runs/{chunk.run}/{chunk.attempt}-{session}/{chunk.meta.number}"


def _needle(text: str) -> bytes:
    if not text or "\n" in text:
        raise Invalid(
            "the text to search for must be part of one line",
            code="invalid_search",
            hint="give at least one character, and no line break",
        )
    return text.encode(errors="surrogateescape")


async def _extent(engine: Engine, run: RunId, number: int) -> _Extent:
    # The attempt first: if it has ended by then, all its chunks are there.
    attempt = await _attempt(engine, run, number)
    is_pending = attempt.output.state is OutputState.PENDING
    pending_bytes = 0
    if attempt.output.state is OutputState.INLINE:
        inline = await engine.store.inline_output(run, number)
        pieces = [_Piece(0, inline.count(b"\n"), inline=inline)]
    else:
        chunks = await engine.store.chunks(run, number)
        pieces = _pieces(chunks)
        if is_pending:
            pending_bytes = attempt.output.bytes - sum(chunk.meta.bytes for chunk in chunks)
    is_complete = attempt.result is not None and not is_pending
    return _Extent(pieces, is_complete, pending_bytes, attempt.worker)


async def _attempt(engine: Engine, run: RunId, number: int) -> Attempt:
    for attempt in await engine.store.attempts(run):
        if attempt.number == number:
            return attempt
    raise NotFound(
        f"run {run} has no attempt {number}",
        hint=f"`rota run show {run}` lists its attempts",
        facts={"run": run, "attempt": number},
    )


def _pieces(chunks: Sequence[StoredChunk]) -> list[_Piece]:
    pieces: list[_Piece] = []
    first_line = 0
    for chunk in chunks:
        pieces.append(_Piece(first_line, chunk.meta.lines, chunk.key))
        first_line += chunk.meta.lines
    return pieces


async def _window(engine: Engine, extent: _Extent, first_line: int, limit: int) -> OutputWindow:
    position = max(first_line, 0)
    lines: list[OutputLine] = []
    room = _WINDOW_BYTES
    for piece in extent.pieces_from(position):
        if len(lines) >= limit or room <= 0:
            break
        data = await _load(engine, piece)
        for record in read_records(data, position - piece.first_line, limit - len(lines)):
            lines.append(OutputLine(position, record))
            position += 1
            room -= len(record.text)
            if room <= 0:
                break
    return OutputWindow(
        tuple(lines),
        position,
        extent.total_lines,
        extent.is_complete,
        extent.pending_bytes,
        extent.worker,
    )


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
            elif is_final(run.state) or run.state is RunState.UNKNOWN:
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


async def follow_events(engine: Engine, after: int | None) -> AsyncGenerator[list[Event], None]:
    """Yield events past a position in order, without end; without a position, those to come.

    An empty list comes every few seconds of silence, as a sign of life.
    """
    listener = engine.queue.listen(EVENTS)
    try:
        position = (await engine.store.counts()).last_event if after is None else after
        while True:
            events = await engine.store.events(position, _EVENT_BATCH)
            yield events
            if events:
                position = events[-1].seq
            else:
                await listener.wait(_SLOW_POLL)
    finally:
        listener.close()
