"""Execution of attempts. The failure of the work is a value, never an exception."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from rota.domain.output import Stream
from rota.domain.spec import JobSpec
from rota.ports.work import Fence, Outcome, Work


@dataclass(frozen=True, slots=True)
class Assignment:
    """Attempt that this worker has leased and may execute."""

    work: Work
    spec: JobSpec

    def seconds_allowed(self, store_micros: int) -> float | None:
        """Return how long it may run: its timeout, or until its deadline. None: for ever."""
        limits = [] if self.spec.timeout is None else [self.spec.timeout.total_seconds()]
        if self.work.deadline_at is not None:
            limits.append(max(self.work.deadline_at - store_micros, 0) / 1e6)
        return min(limits, default=None)


class OutputSink(Protocol):
    """Receiver of what an attempt prints."""

    @property
    def is_full(self) -> bool:
        """Return whether the source should not be read until `drained` returns."""
        ...

    def feed(self, stream: Stream, step: int, data: bytes) -> None:
        """Record output of a step. Steps count from 0."""
        ...

    async def drained(self) -> None: ...


class Desk(Protocol):
    """Services of a worker to its executors. Nothing here blocks."""

    def store_micros(self) -> int:
        """Return the store's time, estimated, in microseconds: the stamp of starts and ends."""
        ...

    def output(self, fence: Fence) -> OutputSink:
        """Return the sink for what an attempt prints; it is created at the first call."""
        ...

    def progressed(self, fence: Fence, done: float, total: float | None, message: str) -> None: ...

    def ended(self, outcomes: Sequence[Outcome]) -> None:
        """Report attempts that are over, all their processes gone. Output fields are empty."""
        ...


class Executor(Protocol):
    """Executor of one job type. Attempts end only by a call of the desk's `ended`, each once."""

    def start(self, assignments: Sequence[Assignment]) -> None:
        """Begin to execute; never blocks."""
        ...

    def cancel(self, fences: Sequence[Fence]) -> None:
        """Stop attempts: TERM, the job's grace, KILL. They still report an end."""
        ...

    async def close(self) -> None:
        """Release everything; no attempt is running any more."""
        ...


@dataclass(frozen=True, slots=True)
class Exit:
    """End of a process, with everything it started gone too."""

    status: int | None  # exit code; None: it died by `signal` or never started
    signal: int | None
    cpu_seconds: float = 0.0
    max_memory_bytes: int = 0
    error: str = ""  # why it could not be started


class Process(Protocol):
    """Process tree under the guardian."""

    ended: asyncio.Future[Exit]

    def signal(self, number: int) -> None:
        """Send a signal to every process of the tree."""
        ...

    def kill(self) -> None: ...


class Spawner(Protocol):
    """Starter of processes as children of the guardian, so that they die with the lease."""

    def spawn(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: str,
        stdout: int,
        stderr: int,
    ) -> Process:
        """Start a process; the two descriptors become its output and are closed here.

        A command that cannot be started is an `Exit` with `error`, like any other end.
        """
        ...
