"""Execution of attempts. The failure of the work is a value, never an exception."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from rota.domain.output import Stream
from rota.domain.spec import JobSpec, RunLimits
from rota.ports.work import Fence, Outcome, StepOutcome, Work, WorkBatch


@dataclass(frozen=True, slots=True)
class Assignment:
    """Attempt that this worker has leased and may execute."""

    work: Work
    spec: JobSpec

    def seconds_allowed(self, store_micros: int) -> float | None:
        """Return how long it may run: its timeout, or until its deadline. None: for ever."""
        return _seconds_allowed(self.spec, self.work.deadline_at, store_micros)


@dataclass(frozen=True, slots=True)
class JobBatch:
    """Attempts at one job version that this worker has leased and may execute, in columns."""

    spec: JobSpec
    batch: WorkBatch
    fences: Sequence[Fence]  # those of the batch, in its order

    def __len__(self) -> int:
        return len(self.fences)

    def assignments(self) -> Iterator[Assignment]:
        """Yield the attempts one by one, for an executor that handles them so."""
        return (Assignment(work, self.spec) for work in self.batch.works())

    def without(self, fences: AbstractSet[Fence]) -> JobBatch:
        """Return the attempts but these."""
        if fences.isdisjoint(self.fences):
            return self
        kept = [at for at, fence in enumerate(self.fences) if fence not in fences]
        return JobBatch(self.spec, self.batch.part(kept), [self.fences[at] for at in kept])

    def deadlines(self, store_micros: int) -> dict[int, float]:
        """Return how long attempts may run that must end at a time, by position."""
        return {
            at: _seconds_allowed(self.spec, deadline, store_micros) or 0.0
            for at, deadline in self.batch.deadlines.items()
        }


def _seconds_allowed(spec: JobSpec, deadline_at: int | None, store_micros: int) -> float | None:
    limits = [] if spec.timeout is None else [spec.timeout.total_seconds()]
    if deadline_at is not None:
        limits.append(max(deadline_at - store_micros, 0) / 1e6)
    return min(limits, default=None)


@dataclass(frozen=True, slots=True)
class Completions:
    """Attempts that completed and have no more to tell, in columns."""

    fences: list[Fence]
    started_at: list[int]  # microseconds of the store's clock, estimated
    ended_at: list[int]
    cpu_micros: list[int]
    outputs: dict[int, str] = field(default_factory=dict)  # as JSON, by position

    def __len__(self) -> int:
        return len(self.fences)


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


class AttemptReports(Protocol):
    """Receiver of what executors report about attempts, with the time to stamp it. Never blocks."""

    def store_micros(self) -> int:
        """Return the store's time, estimated, in microseconds: the stamp of starts and ends."""
        ...

    def output(self, fence: Fence) -> OutputSink:
        """Return the sink for what an attempt prints; it is created at the first call."""
        ...

    def progressed(self, fence: Fence, done: float, total: float | None, message: str) -> None: ...

    def stepped(self, fence: Fence, number: int, step: StepOutcome) -> StepOutcome:
        """Note that a step began (its result is `RUNNING`) or ended: somebody may watch.

        Numbers count from 0, by begin. Returns the step with its place in the output.
        """
        ...

    def completed(self, completions: Completions) -> None:
        """Report attempts that completed, and printed all they will."""
        ...

    def ended(self, outcomes: Sequence[Outcome]) -> None:
        """Report attempts that are over, all their processes gone. Output fields are empty."""
        ...


class Files(Protocol):
    """Files of attempts, which the server keeps.

    Both verbs go on where a stream was cut, as long as the worker has its session. `Unavailable`:
    no server answered for too long; `Conflict`: the attempt is not this worker's any more.
    """

    async def fetch(self, fence: Fence, digest: str, into: int, most: int) -> int:
        """Write a file of the attempt to a descriptor, from its start; return its size.

        What is written is verified. One of more than `most` bytes is not written, its size is
        returned. `NotFound`: the server does not keep it, or it is none of this attempt's.
        """
        ...

    async def keep(
        self, fence: Fence, step: int, path: str, source: int, size: int | None = None
    ) -> str:
        """Keep what a descriptor reads from its start, as an artifact; return its digest.

        So many bytes are read, however many there are by now; None: as many as there were when
        this was called. `Invalid`: it changed while it was read, or the
        server does not take it; the message says why.
        """
        ...


class RemoteWork(Protocol):
    """Worker's side of attempts whose work another system does."""

    async def keep_handle(self, fence: Fence, handle: str) -> bool:
        """Keep what names the work of an attempt elsewhere, as JSON; return once the store has it.

        The next attempt gets it and goes on with that work. "" means that the work is over: the
        next attempt begins anew. False: the attempt is not this worker's (any more).
        """
        ...

    def goes_on_elsewhere(self, fence: Fence) -> bool:
        """Return whether a stopped attempt is not to end its work: another attempt goes on."""
        ...


class Executor(Protocol):
    """Executor of one job type. Attempts end only by what it reports, each once."""

    def start(self, batches: Sequence[JobBatch]) -> None:
        """Begin to execute; never blocks."""
        ...

    def cancel(self, fences: Sequence[Fence]) -> None:
        """Stop attempts: TERM, the job's grace, KILL. They still report an end."""
        ...

    async def close(self) -> None:
        """Release everything; no attempt is running any more."""
        ...


class SignalScope(StrEnum):
    """Processes of a tree that a signal is for. KILL is always for all of them."""

    TREE = "tree"
    INSIDE = "inside"  # those in another pid namespace than the main process: TERM to the monitor
    # of a sandbox would kill all at once


@dataclass(frozen=True, slots=True)
class Namespace:
    """Network namespace that a process is to keep a way out of open: it is made ready for that."""

    network: int  # descriptor, by its number there
    users: int | None  # of the user namespace that owns it, likewise; None: the worker's own
    device: str  # that it gets
    receivers: tuple[str, ...]  # hardware addresses; the device drops frames to others
    unreachable: tuple[str, ...]  # networks


@dataclass(frozen=True, slots=True)
class Confinement:
    """Way to start a process that is not simply one of the worker's own."""

    user: int | None = None  # uid; None: the worker's
    group: int | None = None  # gid; None: the worker's
    groups: tuple[int, ...] = ()  # supplementary, where `user` or `group` is given
    limits: RunLimits = RunLimits()  # by a cgroup of its own (open_files: rlimit); not `disk`
    descriptors: Mapping[int, int] = field(default_factory=dict)  # number there → ours; closed here
    signals: SignalScope = SignalScope.TREE
    tag: str = ""  # part of the name of its cgroup: run, attempt and step
    network: Namespace | None = None


@dataclass(frozen=True, slots=True)
class Exit:
    """End of a process, with everything it started gone too."""

    status: int | None  # exit code; None: it died by `signal` or never started
    signal: int | None
    cpu_seconds: float = 0.0  # of its cgroup, where it has one
    max_memory_bytes: int = 0  # the same
    error: str = ""  # why it could not be started
    cause: str = ""  # limit that it ran into: oom or processes; "" = none that is known
    is_lost: bool = False  # it has ended, and nobody knows how


class Process(Protocol):
    """Process tree under the guardian."""

    ended: asyncio.Future[Exit]

    def signal(self, number: int) -> None:
        """Send a signal to the processes of the tree that its confinement names; else to all."""
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
        confinement: Confinement | None = None,
    ) -> Process:
        """Start a process; the two descriptors become its output and are closed here.

        A command that cannot be started is an `Exit` with `error`, like any other end. So is one
        whose confinement the machine does not allow: nothing ever runs with less.
        """
        ...


class Keeper(Protocol):
    """Process beyond the guardian's reach that removes containers when the lease ends."""

    async def keep(self, engine: str, name: str) -> None:
        """Note a container before it is created; return when that is acknowledged.

        `engine` is the path of its API socket.
        """
        ...

    async def started(self, name: str, pid: int) -> None:
        """Tell the host's pid of the container's first process, where the engine tells it."""
        ...

    async def network(self, name: str) -> int:
        """Return a descriptor of the network namespace of a container that was started.

        It is the caller's to close; `Unavailable` if there is none to be had.
        """
        ...

    async def release(self, name: str) -> None:
        """Forget a container that is removed."""
        ...
