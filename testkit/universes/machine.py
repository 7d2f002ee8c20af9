"""Machine under a worker: its guardian and the processes of attempts.

They go on while the worker is frozen, and end with it, or when its lease may expire in the store.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from math import inf

from rota.domain.run import AttemptResult
from rota.ports.executor import JobBatch
from rota.ports.work import Fence, Work
from testkit.universes.catalogue import TIMEOUT
from testkit.universes.evidence import KILLED
from testkit.universes.nodes import NodeClock
from testkit.universes.surroundings import Surroundings

_STOPPING_SECONDS = 0.5  # what a process takes at most to end after it was asked to


class Machine:
    """Implements `rota.ports.executor.Executor` and `rota.worker.session.LeaseGuard`."""

    def __init__(
        self, name: str, clock: NodeClock, surroundings: Surroundings, failing: float
    ) -> None:
        self.name = name
        self._failing = failing  # how likely an attempt is to fail
        self.clock = clock
        self._timeline = surroundings.timeline
        self._witness = surroundings.witness
        self._random = surroundings.random
        self._processes: dict[Fence, object] = {}  # with what tells one from a later one
        self._deadline = -inf  # by its own clock; before that nothing may live
        self._is_watched = False
        self.on_end: Callable[[Fence, AttemptResult], None] = lambda _fence, _result: None
        self.on_kill: Callable[[], Awaitable[None]]

    # --- the guardian

    def prolong(self, deadline: float) -> None:
        """Extend the lease to this time of its clock."""
        self._deadline = max(self._deadline, deadline)
        if not self._is_watched:
            self._is_watched = True
            self._watch()

    def _watch(self) -> None:
        self._timeline.after(self.clock.until(self._deadline) + 1e-6, self._look)

    async def _look(self) -> None:
        if self.clock.monotonic() < self._deadline:
            self._watch()
            return
        self._is_watched = False
        if self._deadline == -inf:
            return
        self._witness.note("lease passed", self.name)
        await self.on_kill()

    def kill(self) -> None:
        """Kill all processes, until the next lease."""
        self._deadline = -inf
        for fence in list(self._processes):
            self._end(fence, KILLED)

    def refused(self, fences: Sequence[Fence]) -> None:
        """Check that reports were refused only after the lease expired, when all is dead here."""
        if fences and self.clock.monotonic() < self._deadline:
            self._witness.complain("a report under a valid lease was refused", fences)

    # --- the executor

    def start(self, jobs: Sequence[JobBatch]) -> None:
        for job in jobs:
            for work in job.batch.works():
                if self.clock.monotonic() < self._deadline:  # else the guardian ends us all
                    self._execute(work)

    def cancel(self, fences: Sequence[Fence]) -> None:
        for fence in fences:
            if fence in self._processes:
                pause = self._random.uniform(0, _STOPPING_SECONDS)
                self._end_later(fence, pause, AttemptResult.CANCELLED)

    async def close(self) -> None:
        """Do nothing: there is nothing to release."""

    def _execute(self, work: Work) -> None:
        fence = work.fence
        self._witness.started(work, self.name)
        self._processes[fence] = object()
        seconds = self._random.choice((0.05, 0.3, 1.0, 3.0, 8.0)) * self._random.uniform(0.5, 2)
        is_failing = self._random.random() < self._failing
        result = AttemptResult.FAILED if is_failing else AttemptResult.COMPLETED
        if seconds >= TIMEOUT.total_seconds():
            seconds, result = TIMEOUT.total_seconds(), AttemptResult.TIMED_OUT
        self._end_later(fence, seconds, result)

    def _end_later(self, fence: Fence, seconds: float, result: AttemptResult) -> None:
        process = self._processes[fence]
        self._timeline.after(seconds, partial(self._end_if_alive, fence, process, result))

    async def _end_if_alive(self, fence: Fence, process: object, result: AttemptResult) -> None:
        if self._processes.get(fence) is process:
            self._end(fence, result)
            self.on_end(fence, result)

    def _end(self, fence: Fence, how: str) -> None:
        del self._processes[fence]
        self._witness.ended(fence, how)
