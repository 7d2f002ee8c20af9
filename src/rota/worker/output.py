"""The output of one attempt on its way from the job's pipes to the server."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta

from rota.domain.output import Chunk, OutputRecorder, Stream, Totals
from rota.ports.work import ChunkMeta, Fence, OutputChunk, ReportAnswer

_BATCH = 16  # chunks in one message

SendChunks = Callable[[list[OutputChunk]], Awaitable[ReportAnswer]]


@dataclass(frozen=True, slots=True)
class OutputTimes:
    """The two clocks that output needs."""

    monotonic: Callable[[], float]  # seconds that only grow
    store_ms: Callable[[], int]  # estimate of the store's clock, milliseconds since 1970


@dataclass(frozen=True, slots=True)
class OutputPacing:
    """How long output may wait, and how much of it."""

    interval: timedelta = timedelta(seconds=10)  # nobody is looking
    watched_interval: timedelta = timedelta(seconds=0.5)  # somebody follows it live
    full_bytes: int = 4 * 1024 * 1024  # the job's pipes are not read while more than this waits


DEFAULT_PACING = OutputPacing()


@dataclass(frozen=True, slots=True)
class FinishedOutput:
    """What the report of the outcome says about output."""

    inline: bytes  # records of small output; empty if it went as chunks, or there is none
    totals: Totals


class AttemptOutput:
    """Records what an attempt prints and sends it in time.

    It starts no task: whoever owns it calls `send_due` no later than `due_at`.
    """

    def __init__(
        self,
        fence: Fence,
        log_limit: int,
        times: OutputTimes,
        send: SendChunks,
        pacing: OutputPacing = DEFAULT_PACING,
    ) -> None:
        self._fence = fence
        self._recorder = OutputRecorder(log_limit)
        self._times = times
        self._send = send
        self._pacing = pacing
        self._is_watched = False
        self._unsent_since: float | None = None  # None: the recorder holds nothing to send
        self._waiting: list[OutputChunk] = []  # taken from the recorder, not yet acknowledged
        self._waiting_bytes = 0
        self._sending = asyncio.Lock()
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._is_fenced = False

    @property
    def is_fenced(self) -> bool:
        """The server refused a chunk: another attempt has the run, nothing more will be sent."""
        return self._is_fenced

    @property
    def is_full(self) -> bool:
        """Too much waits: the job's pipes should not be read until `drained` returns."""
        held = self._waiting_bytes + self._recorder.held_bytes
        return held > self._pacing.full_bytes and not self._is_fenced

    @property
    def due_at(self) -> float | None:
        """Monotonic seconds from which `send_due` has something to do; None: nothing waits."""
        if self._is_fenced:
            return None
        if self._waiting or self._recorder.has_full_chunk:
            return self._times.monotonic()
        if self._unsent_since is None:
            return None
        return self._unsent_since + self._interval.total_seconds()

    @property
    def _interval(self) -> timedelta:
        return self._pacing.watched_interval if self._is_watched else self._pacing.interval

    def set_watched(self, is_watched: bool) -> None:
        self._is_watched = is_watched

    def feed(self, stream: Stream, step: int, data: bytes) -> None:
        """Add what was just read from a pipe. Steps count from 0."""
        if data and not self._is_fenced:
            self._recorder.feed(self._times.store_ms(), stream, step, data)
            self._note_unsent()
            self._note_room()

    def remark(self, text: str, step: int = 0) -> None:
        """Add a line of Rota's own, such as why the job was stopped."""
        if not self._is_fenced:
            self._recorder.remark(self._times.store_ms(), text, step)
            self._note_unsent()

    async def drained(self) -> None:
        """Wait until there is room again; somebody else has to be sending."""
        await self._has_room.wait()

    async def send_due(self) -> None:
        """Send what is due by now. After `Unavailable` nothing is lost: call it again later."""
        due_at = self.due_at
        now = self._times.monotonic()
        if due_at is None or due_at > now:
            return
        is_time = self._unsent_since is not None and (
            now >= self._unsent_since + self._interval.total_seconds()
        )
        self._take(force=is_time)
        await self._send_waiting()

    async def finish(self) -> FinishedOutput:
        """Send all that is left, unless it is small enough to ride in the report.

        Returns once the server has everything. After `Unavailable`, call it again.
        """
        self._recorder.close(self._times.store_ms())
        inline = self._recorder.inline()
        if inline is None and not self._is_fenced:
            self._take(force=True)
            await self._send_waiting()
        return FinishedOutput(inline or b"", self._recorder.totals)

    def _note_unsent(self) -> None:
        if self._unsent_since is None:
            self._unsent_since = self._times.monotonic()

    def _note_room(self) -> None:
        if self.is_full:
            self._has_room.clear()
        else:
            self._has_room.set()

    def _take(self, *, force: bool) -> None:
        taken = self._recorder.take_chunks(force=force)
        self._waiting += [self._outgoing(chunk) for chunk in taken]
        self._waiting_bytes += sum(len(chunk.data) for chunk in taken)
        self._unsent_since = self._times.monotonic() if self._recorder.held_bytes else None

    def _outgoing(self, chunk: Chunk) -> OutputChunk:
        meta = ChunkMeta(
            chunk.number,
            chunk.first_line,
            chunk.lines,
            chunk.text_bytes,
            chunk.first_at_ms,
            chunk.last_at_ms,
        )
        return OutputChunk(self._fence.run, self._fence.attempt, meta, chunk.data)

    async def _send_waiting(self) -> None:
        """One sender at a time: chunks arrive in order, and none is sent twice without need."""
        async with self._sending:
            while self._waiting:
                batch = self._waiting[:_BATCH]
                answer = await self._send(batch)
                if self._fence in answer.fenced:
                    self._is_fenced = True
                    batch = list(self._waiting)
                del self._waiting[: len(batch)]
                self._waiting_bytes -= sum(len(chunk.data) for chunk in batch)
                self._note_room()
