"""Due runs that wait until the jobs which they come after have completed."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from operator import itemgetter

from rota.domain.forecast.ahead import RunAhead
from rota.domain.spec import Overlap


@dataclass(frozen=True, slots=True)
class DueRun:
    """A due run, as it would come if it had to wait for nobody."""

    run: RunAhead
    since: float  # the due time before: whoever has completed later need not do so again
    missed_at: float = inf  # when it waits no longer, and is MISSED; infinity: never


@dataclass(frozen=True, slots=True)
class DueLine:
    """The due runs of a job that comes after others."""

    upstreams: Sequence[str]  # keys, see `after_key`
    overlap: Overlap
    runs: Sequence[DueRun]  # by `since`
    completed: Mapping[str, float] = field(default_factory=dict)  # the last time; missing: never
    within: float = inf  # how long runs that are still to be made wait
    free_at: float = -inf  # when the run before these has ended


def let_go(line: DueLine) -> tuple[list[RunAhead], DueLine]:
    """The runs that wait for nobody, and the line of all others."""
    progress = LineProgress(line)
    released = [*progress.release()]
    return released, replace(line, runs=tuple(progress.waiting), free_at=progress.free_at)


class LineProgress:
    """Lets runs of a line go as their upstreams complete."""

    def __init__(self, line: DueLine) -> None:
        self._line = line
        self._ends = {key: _known(line.completed.get(key)) for key in line.upstreams}
        self.waiting = deque(line.runs)
        self.free_at = line.free_at
        self._missed: list[RunAhead] = []

    def complete(self, upstream: str, at: float) -> Iterator[RunAhead]:
        """A job that it comes after will have completed then: those that need not wait longer."""
        insort(self._ends[upstream], at)
        return self.release()

    def expect(self, run: RunAhead, since: float) -> Iterator[RunAhead]:
        """One more comes, the last so far."""
        self.waiting.append(DueRun(run, since, run.ready_at + self._line.within))
        return self.release()

    def release(self) -> Iterator[RunAhead]:
        """Those of which it is known when all upstreams have completed for them."""
        known_to = min(ends[-1] for ends in self._ends.values())
        while self.waiting and self.waiting[0].since < known_to:
            due = self.waiting.popleft()
            key, at = max(self._completions(due.since), key=itemgetter(1))
            if (run := self._passed(due, key, at)) is not None:
                yield run

    def left(self) -> list[RunAhead]:
        """Those for which somebody does not complete in time: they do not start."""
        while self.waiting:
            due = self.waiting.popleft()
            lacks = next(key for key, ends in self._ends.items() if ends[-1] <= due.since)
            self._passed(due, lacks, inf)
        return self._missed

    def _completions(self, since: float) -> Iterator[tuple[str, float]]:
        for key, ends in self._ends.items():
            yield key, ends[bisect_right(ends, since)]

    def _passed(self, due: DueRun, upstream: str, at: float) -> RunAhead | None:
        """The run that need not wait any more from then on; None: it will never start."""
        run = replace(due.run)
        if at > run.ready_at:
            run.held_until, run.waits_for = at, upstream
        if self._is_dropped(due, run):
            return None
        if at == inf or at > max(run.ready_at, due.missed_at):
            self.free_at = max(self.free_at, due.missed_at)
            self._missed.append(run)
            return None
        self.free_at = max(self.free_at, run.arrives_at) + run.seconds
        if self._line.overlap is Overlap.CANCEL_PREVIOUS and self.waiting:
            run.seconds = min(run.seconds, self._next_at - run.arrives_at)
        return run

    @property
    def _next_at(self) -> float:
        return self.waiting[0].run.ready_at if self.waiting else inf

    def _is_dropped(self, due: DueRun, run: RunAhead) -> bool:
        """Whether the overlap rule lets the run come to nothing, as if each started at once."""
        waited = min(run.arrives_at, due.missed_at)
        match self._line.overlap:
            case Overlap.SKIP:
                return run.ready_at < self.free_at
            case Overlap.QUEUE_ONE:
                return self._is_replaced(run, max(waited, self.free_at))
            case Overlap.CANCEL_PREVIOUS:
                return self._is_replaced(run, waited)
            case Overlap.QUEUE_ALL | Overlap.ALLOW:
                return False

    def _is_replaced(self, run: RunAhead, waits_until: float) -> bool:
        """Whether the next one comes while it waits."""
        return run.ready_at < waits_until and self._next_at < waits_until


def _known(completed: float | None) -> list[float]:
    """Ends of an upstream, after one that helps nobody."""
    return [-inf] if completed is None else [-inf, completed]
