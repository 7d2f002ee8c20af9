"""Spool of output that no server has yet: in memory while it is little, else on disk."""

from __future__ import annotations

import asyncio
import itertools
import shutil
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

import structlog

from rota.domain.errors import NotFound, Unavailable
from rota.domain.output import Chunk, gap_up_to
from rota.ports.work import ChunkMeta, Fence, OutputChunk, ReportAnswer

log = structlog.get_logger()

_BATCH = 16  # chunks in one message


@dataclass(frozen=True, slots=True)
class SpoolLimits:
    """Limits on the bytes that a worker keeps, over all its attempts."""

    memory: int = 8 * 1024 * 1024  # more than this goes to disk
    total: int = 1024 * 1024 * 1024  # beyond this the oldest is cut


@dataclass(slots=True, eq=False)
class Parcel:
    """Chunk to be delivered, or the gap where dropped chunks were."""

    chunk: Chunk  # without its data while that is on disk, and in a gap
    size: int  # of the data
    path: Path | None = None  # where the data is; None: in memory
    was_sent: bool = False  # a server may have it: it must not change any more
    is_gap: bool = False
    dropped_bytes: int = 0
    dropped_lines: int = 0

    def packed(self) -> Chunk:
        """Return the chunk with its data."""
        if self.is_gap:
            return gap_up_to(
                self.chunk,
                f"output cut here: {self.dropped_lines:,} lines ({self.dropped_bytes:,} bytes) "
                "could not be delivered, and the worker had no room to keep them",
            )
        return self.chunk if self.path is None else replace(self.chunk, data=self.path.read_bytes())


class Outbox:
    """Undelivered parcels of one attempt, in order."""

    def __init__(self, spool: OutputSpool, fence: Fence, number: int) -> None:
        self.fence = fence
        self.number = number  # grows with each outbox of the spool
        self.pending_bytes = 0
        self.is_refused = False  # another attempt has the run: nothing more will be sent
        self.on_change: Callable[[], None] = lambda: None
        self._spool = spool
        self._parcels: deque[Parcel] = deque()
        self._settled = asyncio.Event()
        self._settled.set()

    @property
    def parcels(self) -> Iterable[Parcel]:
        return self._parcels

    @property
    def is_stalled(self) -> bool:
        """Return whether no server accepts output at the moment, so that waiting is pointless."""
        return self._spool.is_stalled

    async def settled(self) -> None:
        """Wait until all is delivered or refused, or no server accepts output."""
        await self._settled.wait()

    def add(self, chunks: Sequence[Chunk]) -> None:
        """Keep chunks until they are delivered."""
        for chunk in chunks:
            if not self.is_refused:
                parcel = self._spool.keep(chunk)
                self._parcels.append(parcel)
                self.pending_bytes += parcel.size
                self._spool.enlist(self)
        self.note_change()

    def remove(self, parcel: Parcel) -> None:
        """Remove a delivered parcel."""
        if parcel in self._parcels:
            self._parcels.remove(parcel)
            self._let_go(parcel)
            self.note_change()

    def refuse(self) -> None:
        """Drop everything, now and later."""
        self.is_refused = True
        while self._parcels:
            self._let_go(self._parcels.popleft())
        self.note_change()

    def cut_oldest(self) -> bool:
        """Replace the oldest parcel that can still change by a gap; return False if none can."""
        for index, parcel in enumerate(self._parcels):
            if parcel.was_sent:
                continue
            if not parcel.is_gap:
                self._parcels[index] = self._cut(parcel)
                return True
            if index + 1 == len(self._parcels):
                return False
            following = self._cut(self._parcels[index + 1])
            following.dropped_bytes += parcel.dropped_bytes
            following.dropped_lines += parcel.dropped_lines
            self._parcels[index + 1] = following
            del self._parcels[index]
            return True
        return False

    def note_change(self) -> None:
        if not self._parcels:
            self._spool.dismiss(self)
        if self._parcels and not self.is_stalled:
            self._settled.clear()
        else:
            self._settled.set()
        self.on_change()

    def _cut(self, parcel: Parcel) -> Parcel:
        self._let_go(parcel)
        return gap_of(parcel.chunk)

    def _let_go(self, parcel: Parcel) -> None:
        self.pending_bytes -= parcel.size
        self._spool.release(parcel)


def gap_of(chunk: Chunk) -> Parcel:
    return Parcel(
        replace(chunk, data=b""),
        size=0,
        is_gap=True,
        dropped_bytes=chunk.text_bytes,
        dropped_lines=chunk.lines,
    )


@dataclass(frozen=True, slots=True)
class Batch:
    """Parcels of one message."""

    items: Sequence[tuple[Outbox, Parcel]]
    chunks: Sequence[OutputChunk]  # those of the items


def _outgoing(fence: Fence, chunk: Chunk) -> OutputChunk:
    meta = ChunkMeta(
        chunk.number,
        chunk.first_line,
        chunk.lines,
        chunk.text_bytes,
        chunk.first_at_ms,
        chunk.last_at_ms,
    )
    return OutputChunk(fence.run, fence.attempt, meta, chunk.data)


class OutputSpool:
    """Outboxes of all attempts of a worker.

    The folder is the worker's own. What an earlier process left there is deleted: only the session
    that ran an attempt may send its output, and that ended with its process; the store marks such
    output as torn.
    """

    def __init__(self, folder: Path, limits: SpoolLimits | None = None) -> None:
        self._folder = folder
        self._limits = limits or SpoolLimits()
        self._outboxes: dict[Fence, Outbox] = {}  # that have parcels; the next to send goes first
        self._memory_bytes = 0
        self._held_bytes = 0
        self._numbers = itertools.count()  # of outboxes and files
        self._is_empty = asyncio.Event()
        self._is_empty.set()
        self.has_parcels = asyncio.Event()
        self.wants_delivery = asyncio.Event()  # there is reason to think that it works again
        self.is_stalled = False

    def open(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(parents=True, mode=0o700)

    def outbox(self, fence: Fence) -> Outbox:
        return Outbox(self, fence, next(self._numbers))

    async def emptied(self) -> None:
        """Wait until nothing is left to deliver."""
        await self._is_empty.wait()

    @property
    def is_empty(self) -> bool:
        return not self._outboxes

    def discard(self) -> None:
        """Drop what is left: no server would accept it any more."""
        for outbox in list(self._outboxes.values()):
            outbox.refuse()

    # --- for the deliverer

    def next_batch(self) -> Batch:
        """Return parcels to send now. Outboxes take turns, so that none waits behind a long one."""
        items: list[tuple[Outbox, Parcel]] = []
        chunks: list[OutputChunk] = []
        for outbox in list(self._outboxes.values()):
            parcels = list(itertools.islice(outbox.parcels, _BATCH - len(items)))
            try:
                chunks += [_outgoing(outbox.fence, parcel.packed()) for parcel in parcels]
            except OSError as error:
                log.error("output.lost", run=outbox.fence.run, error=str(error))
                outbox.refuse()  # the store will call it torn
                continue
            items += [(outbox, parcel) for parcel in parcels]
            if parcels:
                self._outboxes[outbox.fence] = self._outboxes.pop(outbox.fence)
        for _, parcel in items:
            parcel.was_sent = True
        return Batch(items, chunks)

    def mark_delivered(self, batch: Batch, refused: Collection[Fence]) -> None:
        """Remove the parcels of a batch that a server answered."""
        if self.is_stalled:
            log.info("output.delivered_again")
        self._set_stalled(False)
        for outbox, parcel in batch.items:
            if outbox.fence in refused:
                outbox.refuse()
            else:
                outbox.remove(parcel)

    def mark_stalled(self, error: str) -> None:
        """Record that no server accepts output: attempts end without waiting for it."""
        if not self.is_stalled:
            log.warning("output.kept_here", error=error)
        self._set_stalled(True)

    def _set_stalled(self, is_stalled: bool) -> None:
        has_changed = is_stalled != self.is_stalled
        self.is_stalled = is_stalled
        if has_changed:
            for outbox in list(self._outboxes.values()):
                outbox.note_change()

    # --- for outboxes

    def keep(self, chunk: Chunk) -> Parcel:
        """Store a chunk, on disk if memory is short; without room it becomes a gap at once."""
        size = len(chunk.data)
        parcel = Parcel(chunk, size)
        if self._memory_bytes + size > self._limits.memory:
            try:
                parcel = self._write(chunk)
            except OSError as error:
                log.warning("output.not_kept", error=str(error))
                return gap_of(chunk)
        else:
            self._memory_bytes += size
        self._held_bytes += size
        return parcel

    def _write(self, chunk: Chunk) -> Parcel:
        path = self._folder / str(next(self._numbers))
        try:
            path.write_bytes(chunk.data)
        except OSError:
            path.unlink(missing_ok=True)
            raise
        return Parcel(replace(chunk, data=b""), len(chunk.data), path)

    def release(self, parcel: Parcel) -> None:
        self._held_bytes -= parcel.size
        if parcel.path is not None:
            parcel.path.unlink(missing_ok=True)
        else:
            self._memory_bytes -= parcel.size

    def enlist(self, outbox: Outbox) -> None:
        """Schedule an outbox that has a new parcel; above the total limit, cut the oldest ones."""
        self._outboxes.setdefault(outbox.fence, outbox)
        self._is_empty.clear()
        self.has_parcels.set()
        while self._held_bytes > self._limits.total:
            by_age = sorted(self._outboxes.values(), key=lambda each: each.number)
            if not any(each.cut_oldest() for each in by_age):
                return

    def dismiss(self, outbox: Outbox) -> None:
        """Unschedule an outbox that has no parcels left."""
        self._outboxes.pop(outbox.fence, None)
        if not self._outboxes:
            self._is_empty.set()
            self.has_parcels.clear()


SendChunks = Callable[[Sequence[OutputChunk]], Awaitable[ReportAnswer]]


@dataclass(frozen=True, slots=True)
class DeliveryPacing:
    """Back-off after a failed delivery; doubled each time."""

    first_pause: timedelta = timedelta(milliseconds=100)
    longest_pause: timedelta = timedelta(seconds=5)


class OutputDeliverer:
    """Delivers a worker's output: each chunk of an attempt after the one before was answered."""

    name = "output-deliverer"

    def __init__(
        self, spool: OutputSpool, send: SendChunks, pacing: DeliveryPacing | None = None
    ) -> None:
        self._spool = spool
        self._send = send
        self._pacing = pacing or DeliveryPacing()

    async def run(self) -> None:
        """Deliver until cancelled. Connections may break and sessions be resumed meanwhile."""
        pause = self._pacing.first_pause
        while True:
            await self._spool.has_parcels.wait()
            try:
                await self.run_once()
                pause = self._pacing.first_pause
            except (Unavailable, NotFound) as error:
                self._spool.mark_stalled(str(error))
                await self._wait(pause)
                pause = min(2 * pause, self._pacing.longest_pause)

    async def run_once(self) -> int:
        """Deliver one batch; return its number of chunks. On `Unavailable`, nothing was lost."""
        batch = self._spool.next_batch()
        if batch.chunks:
            answer = await self._send(batch.chunks)
            self._spool.mark_delivered(batch, answer.fenced)
        return len(batch.chunks)

    async def _wait(self, pause: timedelta) -> None:
        self._spool.wants_delivery.clear()
        try:
            async with asyncio.timeout(pause.total_seconds()):
                await self._spool.wants_delivery.wait()
        except TimeoutError:
            pass
