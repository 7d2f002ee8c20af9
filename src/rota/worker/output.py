"""Output of one attempt, from the job's pipes to the spool."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from rota.domain.output import OutputRecorder, Stream, Totals
from rota.domain.spec import JobSpec, OutputKept
from rota.worker.spool import Outbox


@dataclass(frozen=True, slots=True)
class OutputTimes:
    """Clocks that output needs."""

    monotonic: Callable[[], float]  # seconds that only grow
    store_ms: Callable[[], int]  # estimate of the store's clock, milliseconds since 1970


@dataclass(frozen=True, slots=True)
class OutputPacing:
    """Limits on how long output may wait, and how much of it."""

    interval: timedelta = timedelta(seconds=10)  # nobody is looking
    watched_interval: timedelta = timedelta(seconds=0.5)  # somebody follows it live
    full_bytes: int = 4 * 1024 * 1024  # the job's pipes are not read while more than this waits


DEFAULT_PACING = OutputPacing()


@dataclass(frozen=True, slots=True)
class FinishedOutput:
    """Facts about output for the report of the outcome."""

    inline: bytes  # records of small output; empty if it went as chunks, or there is none
    totals: Totals


class AttemptOutput:
    """Records what an attempt prints and posts it in time.

    It starts no task: its owner calls `post_due` no later than `due_at`.
    """

    def __init__(
        self,
        log_limit: int,
        times: OutputTimes,
        outbox: Outbox,
        pacing: OutputPacing = DEFAULT_PACING,
        *,
        may_ride: bool = True,
    ) -> None:
        self._may_ride = may_ride  # small output may be sent with the report
        self._recorder = OutputRecorder(log_limit)
        self._times = times
        self._outbox = outbox
        self._outbox.on_change = self._note_room
        self._pacing = pacing
        self._is_watched = False
        self.printed = 0  # bytes, those that `log_limit` cut off included
        self._unposted_since: float | None = None  # None: the recorder holds nothing
        self._has_room = asyncio.Event()
        self._has_room.set()

    @classmethod
    def of(cls, spec: JobSpec, times: OutputTimes, outbox: Outbox) -> AttemptOutput:
        """Create the output of an attempt at a job."""
        may_ride = spec.output is not OutputKept.BLOBS
        return cls(spec.log_limit, times, outbox, may_ride=may_ride)

    @property
    def is_full(self) -> bool:
        """Return whether too much waits: the pipes should not be read until `drained` returns.

        While nobody accepts output the job is not held back: the spool stores it, up to its limit.
        """
        if self._outbox.is_refused or self._outbox.is_stalled:
            return False
        return self._outbox.pending_bytes + self._recorder.buffered_bytes > self._pacing.full_bytes

    @property
    def due_at(self) -> float | None:
        """Return the monotonic time from which `post_due` has work; None: nothing waits."""
        if self._unposted_since is None or self._outbox.is_refused:
            return None
        return self._unposted_since + self._interval.total_seconds()

    @property
    def _interval(self) -> timedelta:
        return self._pacing.watched_interval if self._is_watched else self._pacing.interval

    @property
    def is_watched(self) -> bool:
        return self._is_watched

    def set_watched(self, is_watched: bool) -> None:
        self._is_watched = is_watched

    @property
    def totals(self) -> Totals:
        """Return how much was printed so far."""
        return self._recorder.totals

    @property
    def last_line(self) -> str:
        """Return the last line with a text, or its end if it is long."""
        return self._recorder.last_line.decode(errors="replace")

    def end_step(self, step: int) -> None:
        """Complete what a step printed."""
        self._recorder.end_step(step)

    def post_if_watched(self) -> None:
        """Post what there is, if somebody follows it."""
        if self._is_watched and self._unposted_since is not None:
            self._post(force=True)

    def feed(self, stream: Stream, step: int, data: bytes) -> None:
        """Add bytes that were read from a pipe. Steps count from 0."""
        self.printed += len(data)
        if data and not self._outbox.is_refused:
            self._recorder.feed(self._times.store_ms(), stream, step, data)
            self._note_unposted()
            if self._recorder.has_full_chunk:
                self._post(force=False)

    def remark(self, text: str, step: int = 0) -> None:
        """Add a line of Rota's own, such as why the job was stopped."""
        if not self._outbox.is_refused:
            self._recorder.remark(self._times.store_ms(), text, step)
            self._note_unposted()

    async def drained(self) -> None:
        """Wait until there is room again; another task has to be delivering."""
        await self._has_room.wait()

    def post_due(self) -> None:
        """Post output that has waited long enough."""
        due_at = self.due_at
        if due_at is not None and due_at <= self._times.monotonic():
            self._post(force=True)

    def finish(self) -> FinishedOutput:
        """Post all that is left, unless it is small enough to be sent with the report."""
        self._recorder.close(self._times.store_ms())
        inline = self._recorder.inline() if self._may_ride else None
        if inline is None:
            self._post(force=True)
        return FinishedOutput(inline or b"", self._recorder.totals)

    async def settled(self) -> None:
        """Wait until everything posted has arrived, unless nobody accepts it at the moment."""
        await self._outbox.settled()

    def _note_unposted(self) -> None:
        if self._unposted_since is None:
            self._unposted_since = self._times.monotonic()

    def _note_room(self) -> None:
        if self.is_full:
            self._has_room.clear()
        else:
            self._has_room.set()

    def _post(self, *, force: bool) -> None:
        self._outbox.add(self._recorder.take_chunks(force=force))
        self._unposted_since = self._times.monotonic() if self._recorder.buffered_bytes else None
