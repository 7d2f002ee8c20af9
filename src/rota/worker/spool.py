"""Spool of output that no server has yet: in memory while it is little, else on disk."""

from __future__ import annotations

import asyncio
import itertools
import shutil
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

import structlog

from rota.domain.errors import NotFound, Unavailable
from rota.domain.output import Chunk, gap_up_to
from rota.ports.work import MAX_PARCEL, ChunkMeta, Fence, OutputChunk, Refused, ReportAnswer

log = structlog.get_logger()

_BATCH = 16  # chunks in one message
_WINDOW = 4  # messages under way at once
_BREAKS_TOGETHER = 2  # after so many breaks of the link in a row, a chunk goes alone
_BREAKS_ALONE = 5  # after so many alone, it is given up
_TROUBLE = 3  # failures in a row from which on people are told
_NO_ROOM = "could not be delivered, and the worker had no room to keep them"
_NO_WAY = "could not be delivered: the link to the server broke whenever they were sent"


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
    reason: str = _NO_ROOM  # of a gap
    sent_in: int = 0  # the connection that its latest message failed in; 0: none
    was_alone: bool = False  # when that failed
    breaks: int = 0  # of the link in a row, while it was on its way
    breaks_alone: int = 0  # while it was alone

    @property
    def goes_alone(self) -> bool:
        return self.breaks >= _BREAKS_TOGETHER

    def note_connection(self, number: int) -> None:
        """Count a break of the link, if it is sent again by another connection than last time."""
        if not self.sent_in:
            return
        if number == self.sent_in:
            self.breaks = self.breaks_alone = 0  # the link lives: the server did not take it
        else:
            self.breaks += 1
            self.breaks_alone += self.was_alone
        self.sent_in = 0

    def packed(self) -> Chunk:
        """Return the chunk with its data."""
        if self.is_gap:
            return gap_up_to(
                self.chunk,
                f"output cut here: {self.dropped_lines:,} lines ({self.dropped_bytes:,} bytes) "
                f"{self.reason}",
            )
        return self.chunk if self.path is None else replace(self.chunk, data=self.path.read_bytes())


class Outbox:
    """Undelivered parcels of one attempt, in order."""

    def __init__(self, spool: OutputSpool, fence: Fence, number: int) -> None:
        self.fence = fence
        self.number = number  # grows with each outbox of the spool
        self.pending_bytes = 0
        self.is_refused = False  # another attempt has the run: nothing more will be sent
        self.is_busy = False  # a message with its parcels is under way: the next one waits
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

    def note_connection(self, number: int) -> None:
        """Count breaks of the link by what is sent again; a chunk that no link carries is cut."""
        for parcel in self._parcels:
            if not parcel.was_sent:
                break
            parcel.note_connection(number)
        eldest = self._parcels[0]
        if eldest.breaks_alone >= _BREAKS_ALONE and not eldest.is_gap:
            log.error("output.given_up", run=self.fence.run, size=eldest.size, error=_NO_WAY)
            self._parcels[0] = self._cut(eldest, _NO_WAY)

    def note_change(self) -> None:
        if not self._parcels:
            self._spool.dismiss(self)
        if self._parcels and not self.is_stalled:
            self._settled.clear()
        else:
            self._settled.set()
        self.on_change()

    def _cut(self, parcel: Parcel, reason: str = _NO_ROOM) -> Parcel:
        self._let_go(parcel)
        self._spool.on_given_up(f"output of {self.fence.run}")
        return gap_of(parcel.chunk, reason)

    def _let_go(self, parcel: Parcel) -> None:
        self.pending_bytes -= parcel.size
        self._spool.release(parcel)


def gap_of(chunk: Chunk, reason: str = _NO_ROOM) -> Parcel:
    return Parcel(
        replace(chunk, data=b""),
        size=0,
        is_gap=True,
        dropped_bytes=chunk.text_bytes,
        dropped_lines=chunk.lines,
        reason=reason,
    )


@dataclass(frozen=True, slots=True)
class ChunkBatch:
    """Parcels of one message."""

    items: list[tuple[Outbox, Parcel]]
    chunks: list[OutputChunk]  # those of the items

    def add(self, outbox: Outbox, parcels: list[Parcel], chunks: list[OutputChunk]) -> None:
        """Add parcels of an outbox, which are on their way from now on."""
        outbox.is_busy = True
        for parcel in parcels:
            parcel.was_sent = True
            self.items.append((outbox, parcel))
        self.chunks.extend(chunks)


def _outgoing(fence: Fence, chunk: Chunk) -> OutputChunk:
    meta = ChunkMeta(
        chunk.number,
        chunk.first_line,
        chunk.lines,
        chunk.text_bytes,
        chunk.first_at_ms,
        chunk.last_at_ms,
    )
    return OutputChunk(fence.run, fence.number, meta, chunk.data)


def _fitting(parcels: Iterable[Parcel], room: int | None, count: int) -> list[Parcel]:
    """Return the next parcels that fit; without a limit on their room, at least one."""
    taken: list[Parcel] = []
    for parcel in itertools.islice(parcels, count):
        if room is not None and parcel.size > room:
            break
        if taken and parcel.goes_alone:
            break
        taken.append(parcel)
        if parcel.goes_alone:
            break
        room = (MAX_PARCEL if room is None else room) - parcel.size
    return taken


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
        self.has_parcels = asyncio.Event()  # that are not on their way
        self.wants_delivery = asyncio.Event()  # there is reason to think that it works again
        self.is_stalled = False
        self.on_given_up: Callable[[str], None] = lambda _: None  # told what, in words for people
        self._failures = 0  # in a row
        self._error = ""  # the latest

    def open(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(parents=True, mode=0o700)

    def outbox(self, fence: Fence) -> Outbox:
        return Outbox(self, fence, next(self._numbers))

    @property
    def is_empty(self) -> bool:
        return not self._outboxes

    def discard(self) -> None:
        """Drop what is left: no server would accept it any more."""
        for outbox in list(self._outboxes.values()):
            outbox.refuse()

    @property
    def trouble(self) -> str:
        """Say what is kept here because servers do not take it; "" if it works, or just failed."""
        if self._failures < _TROUBLE or not self._outboxes:
            return ""
        count, size = len(self._outboxes), self._held_bytes / 1e6
        runs = "a run" if count == 1 else f"{count:,} runs"
        return f"output of {runs} ({size:,.1f} MB) cannot be delivered: {self._error}"

    # --- for the deliverer

    def next_batch(self, connection: int = 0) -> ChunkBatch:
        """Return parcels to send now, as many as fit a message; their outboxes are busy then.

        Outboxes take turns, so that none waits behind a long one. A server goes by the order of an
        attempt's chunks: none is on its way while an earlier one is unanswered.
        """
        batch = ChunkBatch([], [])
        room: int | None = None  # for a first one of any size
        for outbox in [each for each in self._outboxes.values() if not each.is_busy]:
            try:
                outbox.note_connection(connection)
                parcels = _fitting(outbox.parcels, room, _BATCH - len(batch.items))
                if not parcels or (batch.items and parcels[0].goes_alone):
                    continue
                chunks = [_outgoing(outbox.fence, parcel.packed()) for parcel in parcels]
            except OSError as error:
                log.error("output.lost", run=outbox.fence.run, error=str(error))
                outbox.refuse()  # the store will call it torn
                continue
            batch.add(outbox, parcels, chunks)
            self._outboxes[outbox.fence] = self._outboxes.pop(outbox.fence)
            room = (MAX_PARCEL if room is None else room) - sum(len(each.data) for each in chunks)
            if room <= 0 or len(batch.items) >= _BATCH or parcels[0].goes_alone:
                break
        self._note_parcels()
        return batch

    def mark_delivered(
        self, batch: ChunkBatch, refused: Collection[Fence] = (), again: Collection[Fence] = ()
    ) -> None:
        """Remove the parcels of a batch that a server answered, but for those to send again."""
        if self.is_stalled:
            log.info("output.delivered_again")
        self._failures = 0
        self._set_stalled(False)
        for outbox, parcel in batch.items:
            outbox.is_busy = False
            if outbox.fence in refused:
                outbox.refuse()
            elif outbox.fence not in again:
                outbox.remove(parcel)
        self._note_parcels()

    def mark_failed(
        self, batch: ChunkBatch, error: str, connection: int, *, is_alone: bool
    ) -> None:
        """Keep the parcels of a batch that has no answer.

        `connection` is the number of the one that it was sent in, 0 if it was not sent at all;
        `is_alone` tells that no other message was under way.
        """
        for outbox, parcel in batch.items:
            outbox.is_busy = False
            parcel.sent_in = connection
            parcel.was_alone = is_alone and len(batch.items) == 1
        self._note_parcels()
        self._failures += connection > 0
        self.mark_stalled(error)

    def mark_refused(self, batch: ChunkBatch, error: str) -> None:
        """Keep the parcels of a batch that a server cannot take now: the link lives."""
        for outbox, parcel in batch.items:
            outbox.is_busy = False
            parcel.sent_in = parcel.breaks = parcel.breaks_alone = 0
        self._note_parcels()
        self._failures += 1
        self.mark_stalled(error)

    def mark_stalled(self, error: str) -> None:
        """Record that no server accepts output: attempts end without waiting for it."""
        if not self.is_stalled:
            log.warning("output.kept_here", error=error)
        self._error = error
        self._set_stalled(True)

    def _note_parcels(self) -> None:
        if any(not outbox.is_busy for outbox in self._outboxes.values()):
            self.has_parcels.set()
        else:
            self.has_parcels.clear()

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
        self._note_parcels()
        while self._held_bytes > self._limits.total:
            by_age = sorted(self._outboxes.values(), key=lambda each: each.number)
            if not any(each.cut_oldest() for each in by_age):
                return

    def dismiss(self, outbox: Outbox) -> None:
        """Unschedule an outbox that has no parcels left."""
        self._outboxes.pop(outbox.fence, None)
        self._note_parcels()


SendChunks = Callable[[Sequence[OutputChunk]], Awaitable[ReportAnswer]]


@dataclass(frozen=True, slots=True)
class DeliveryPacing:
    """Back-off after a failed delivery; doubled each time."""

    first_pause: timedelta = timedelta(milliseconds=100)
    longest_pause: timedelta = timedelta(seconds=5)


class NotSent(Unavailable):
    """There was no connection to send by."""


class OutputDeliverer:
    """Delivers a worker's output in messages of bounded size, each acknowledged by itself.

    After a failure only one message is under way until one was acknowledged: if it breaks the link,
    it is known which one it was.
    """

    name = "output-deliverer"

    def __init__(
        self,
        spool: OutputSpool,
        send: SendChunks,
        pacing: DeliveryPacing | None = None,
        connection: Callable[[], int] = lambda: 1,
    ) -> None:
        """`connection` returns the number of the worker's connection, which grows with each."""
        self._spool = spool
        self._send = send
        self._pacing = pacing or DeliveryPacing()
        self._connection = connection
        self._pause = self._pacing.first_pause
        self._has_failed = False  # since the latest pause
        self._window = _WINDOW
        self._under_way = 0
        self._has_ended = asyncio.Event()

    async def run(self) -> None:
        """Deliver until cancelled. Connections may break and sessions be resumed meanwhile."""
        async with asyncio.TaskGroup() as group:
            while True:
                await self._spool.has_parcels.wait()
                await self._until_room()
                if self._has_failed:
                    await self._wait()
                batch = self._spool.next_batch(self._connection())
                if batch.chunks:
                    self._under_way += 1
                    group.create_task(self._deliver(batch))

    async def run_once(self) -> int:
        """Deliver one batch; return its number of chunks, 0 if that failed: nothing is lost."""
        batch = self._spool.next_batch(self._connection())
        if not batch.chunks:
            return 0
        self._under_way += 1
        await self._deliver(batch)
        return 0 if self._has_failed else len(batch.chunks)

    async def _deliver(self, batch: ChunkBatch) -> None:
        connection, is_alone = self._connection(), self._window == 1
        try:
            answer = await self._send(batch.chunks)
        except Refused as error:
            self._note_failure()
            self._spool.mark_refused(batch, str(error))
        except (Unavailable, NotFound) as error:
            was_sent = not isinstance(error, NotSent)
            self._note_failure()
            self._spool.mark_failed(
                batch, str(error), connection if was_sent else 0, is_alone=is_alone
            )
        else:
            self._note_success()
            self._has_failed = bool(answer.again)
            self._spool.mark_delivered(batch, answer.refused, answer.again)
        finally:
            self._under_way -= 1
            self._has_ended.set()

    def _note_success(self) -> None:
        self._has_failed = False
        self._pause = self._pacing.first_pause
        self._window = min(2 * self._window, _WINDOW)

    def _note_failure(self) -> None:
        self._has_failed = True
        self._window = 1

    async def _until_room(self) -> None:
        while self._under_way >= self._window:
            self._has_ended.clear()
            await self._has_ended.wait()

    async def _wait(self) -> None:
        """Wait after a failure, until there is reason to try again; each time longer."""
        self._has_failed = False
        self._spool.wants_delivery.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(self._pause.total_seconds()):
                await self._spool.wants_delivery.wait()
        self._pause = min(2 * self._pause, self._pacing.longest_pause)
