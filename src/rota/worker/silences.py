"""Attempts that may not be silent for long: `stalled_after`.

Output, progress and steps that begin or end are signs of life. What a job does between two of them
nobody sees: an attempt that hangs is one that gives no sign.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from rota.ports.executor import JobBatch
from rota.ports.work import Fence
from rota.worker.output import AttemptOutput


@dataclass(slots=True)
class _Silence:
    """How long an attempt has given no sign."""

    limit: float  # seconds
    since: float  # monotonic
    printed: int = 0  # bytes, when that was last looked at
    has_stopped: bool = False  # it was too long


class Silences:
    """Silences of the attempts at jobs with `stalled_after`; most jobs have none."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._kept: dict[Fence, _Silence] = {}

    def begin(self, job: JobBatch) -> None:
        """Listen to attempts that are about to begin, if their job wants that."""
        if job.spec.stalled_after is None:
            return
        limit, now = job.spec.stalled_after.total_seconds(), self._monotonic()
        self._kept.update((fence, _Silence(limit, now)) for fence in job.fences)

    def end(self, fence: Fence) -> None:
        """Note a sign of life."""
        if self._kept and (silence := self._kept.get(fence)) is not None:
            silence.since = self._monotonic()

    def too_long(self, outputs: Mapping[Fence, AttemptOutput]) -> Iterator[Fence]:
        """Yield attempts that are silent for too long, whatever they printed before."""
        if not self._kept:
            return
        now = self._monotonic()
        for fence, silence in self._kept.items():
            output = outputs.get(fence)
            printed = 0 if output is None else output.printed
            if printed != silence.printed:
                silence.printed, silence.since = printed, now
            if now - silence.since >= silence.limit and not silence.has_stopped:
                yield fence

    def stop(self, fence: Fence) -> None:
        """Note that an attempt is stopped for its silence."""
        self._kept[fence].has_stopped = True

    def has_stopped(self, fence: Fence) -> bool:
        """Return whether an attempt was stopped for its silence."""
        return bool(self._kept) and fence in self._kept and self._kept[fence].has_stopped

    def forget(self, fences: Iterable[Fence]) -> None:
        """Forget attempts that are over."""
        if self._kept:
            for fence in fences:
                self._kept.pop(fence, None)
