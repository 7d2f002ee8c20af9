"""Notes about attempts that go on: their steps, and how much they printed.

Most attempts are over before anybody could read a note about them, and have none: what is kept here
of their steps goes with them. A note is the whole state of an attempt, so nothing has to be
remembered of what a server was told, but when, and which state that was.

An attempt that tells nothing for too long may be stopped (`stalled_after`): output, progress, and
steps that begin or end are its signs of life. What it does between two of them nobody sees.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta

import msgspec

from rota.ports.executor import JobBatch
from rota.ports.work import (
    MAX_LAST_LINE,
    MAX_NOTED_STEPS,
    MAX_STEPS,
    RUNNING,
    Fence,
    Outcome,
    Progress,
    StepNote,
    StepOutcome,
    storable,
)
from rota.worker.output import AttemptOutput


@dataclass(frozen=True, slots=True)
class NotePacing:
    """How often an attempt is told of."""

    after: timedelta = timedelta(seconds=1)  # an attempt that is over by then has no note
    watched_after: timedelta = timedelta(milliseconds=200)
    interval: timedelta = timedelta(seconds=1)  # between changes of its steps
    output_interval: timedelta = timedelta(seconds=2)  # while it only prints
    watched_interval: timedelta = timedelta(milliseconds=500)
    again: timedelta = timedelta(minutes=1)  # unchanged: a store may have lost it


DEFAULT_PACING = NotePacing()

_NEVER = -math.inf
_UNKNOWN = StepOutcome("", "skipped")  # a step that was never told
_STEP_RESULTS = frozenset({"completed", "failed", "timed_out", "cancelled"})


@dataclass(slots=True)
class _Kept:
    """Steps of an attempt, and how much of them and of its output was told."""

    steps: list[StepOutcome] = field(default_factory=list)  # by their number
    changes: int = 0  # of the steps
    told_changes: int = 0  # that a server was told
    told_lines: int = 0
    told_at: float = _NEVER  # monotonic


class NoteBook:
    """Notes of a worker's attempts."""

    def __init__(
        self,
        monotonic: Callable[[], float],
        store_micros: Callable[[], int],
        pacing: NotePacing = DEFAULT_PACING,
    ) -> None:
        self._monotonic = monotonic
        self._store_micros = store_micros
        self._pacing = pacing
        self._kept: dict[Fence, _Kept] = {}

    @property
    def kept(self) -> Mapping[Fence, object]:
        """Return the attempts that have steps."""
        return self._kept

    def stepped(
        self, fence: Fence, number: int, step: StepOutcome, output: AttemptOutput | None
    ) -> StepOutcome:
        """Keep a step that began or ended; return it with its place in the output."""
        kept = self._of(fence)
        lines = 0 if output is None else output.totals.lines
        began = kept.steps[number] if number < len(kept.steps) else None
        placed = _placed(step, began, lines)
        if began is not None:
            kept.steps[number] = placed
        elif number < MAX_STEPS:
            kept.steps += [_UNKNOWN] * (number - len(kept.steps))
            kept.steps.append(placed)
        kept.changes += 1
        return placed

    def completed(self, outcome: Outcome, lines: int) -> Outcome:
        """Return an end with what only notes know of its steps; so many lines were printed.

        That is their place in the output of a function; and all of them, where the process has died
        that was to tell how they ended.
        """
        kept = self._kept.get(outcome.fence)
        if kept is None or (outcome.steps and outcome.steps == (*kept.steps,)):
            return outcome
        word = str(outcome.result).lower()
        result = word if word in _STEP_RESULTS else "cancelled"
        steps = [
            msgspec.structs.replace(step, result=result) if step.result == RUNNING else step
            for step in outcome.steps or kept.steps
        ]
        for number, (step, noted) in enumerate(zip(steps, kept.steps, strict=False)):
            if not (step.first_line or step.lines):
                steps[number] = _placed(step, noted, lines)
        return msgspec.structs.replace(outcome, steps=tuple(steps))

    def forget(self, fences: Iterable[Fence]) -> None:
        if self._kept:
            for fence in fences:
                self._kept.pop(fence, None)

    def begin_stream(self) -> None:
        """Tell all again: the server may have changed, and requests may have been lost."""
        for kept in self._kept.values():
            kept.told_changes, kept.told_lines, kept.told_at = 0, 0, _NEVER

    def due(
        self, fence: Fence, output: AttemptOutput | None, received_at: float
    ) -> StepNote | None:
        """Return the note of an attempt if one is due, which counts as told from now on."""
        if output is None and fence not in self._kept:
            return None
        kept, now = self._of(fence), self._monotonic()
        lines = 0 if output is None else output.totals.lines
        is_watched = output is not None and output.is_watched
        pause = self._pause(kept, lines, is_watched=is_watched)
        after = self._pacing.watched_after if is_watched else self._pacing.after
        if pause is None or now < max(kept.told_at + pause, received_at + after.total_seconds()):
            return None
        kept.told_changes, kept.told_lines, kept.told_at = kept.changes, lines, now
        return self._note(fence, kept, output)

    def put_off(self, notes: Iterable[StepNote]) -> None:
        """Tell these again after the usual pause: the server did not take them."""
        for note in notes:
            if kept := self._kept.get(note.fence):
                kept.told_changes, kept.told_lines = -1, -1

    def _of(self, fence: Fence) -> _Kept:
        kept = self._kept.get(fence)
        if kept is None:
            kept = self._kept[fence] = _Kept()
        return kept

    def _pause(self, kept: _Kept, lines: int, *, is_watched: bool) -> float | None:
        """Return how long after the note before the next one is due; None: there is no need."""
        pacing = self._pacing
        if kept.changes == kept.told_changes and lines == kept.told_lines:
            return None if kept.told_at == _NEVER else pacing.again.total_seconds()
        if is_watched:
            return pacing.watched_interval.total_seconds()
        has_steps = kept.changes != kept.told_changes
        return (pacing.interval if has_steps else pacing.output_interval).total_seconds()

    def _note(self, fence: Fence, kept: _Kept, output: AttemptOutput | None) -> StepNote:
        first = max(len(kept.steps) - MAX_NOTED_STEPS, 0)
        steps = tuple(kept.steps[first:])
        note = StepNote(fence.run, fence.number, self._store_micros(), first, steps)
        if output is None:
            return note
        totals = output.totals
        return msgspec.structs.replace(
            note,
            output_lines=totals.lines,
            output_bytes=totals.bytes,
            last_line=storable(output.last_line[:MAX_LAST_LINE]),
        )


def _placed(step: StepOutcome, began: StepOutcome | None, lines: int) -> StepOutcome:
    """Return a step with its place in the output of so many lines."""
    if began is None or step.result == RUNNING:
        return msgspec.structs.replace(step, first_line=lines)
    if began.result != RUNNING:
        return msgspec.structs.replace(step, first_line=began.first_line, lines=began.lines)
    return msgspec.structs.replace(
        step,
        started_at=step.started_at or began.started_at,
        first_line=began.first_line,
        lines=max(lines - began.first_line, 0),
    )


_PROGRESS_INTERVAL = 1.0  # seconds: functions may say how far they are a thousand times in it


class ProgressBook:
    """Progress of attempts that was not told yet: the latest of each."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._untold: dict[Fence, Progress] = {}
        self._told_at: dict[Fence, float] = {}

    def __bool__(self) -> bool:
        return bool(self._untold)

    def keep(self, progress: Progress) -> None:
        """Keep progress; what is no number is left out, as servers end the connection for it."""
        if math.isfinite(progress.done) and math.isfinite(progress.total or 0.0):
            self._untold[progress.fence] = progress

    def due(self, ending: Collection[Fence]) -> list[Progress]:
        """Return what is due, which counts as told from now on; all of those that are `ending`."""
        now, at_once = self._monotonic(), frozenset(ending)
        due = [
            fence
            for fence in self._untold
            if fence in at_once or now - self._told_at.get(fence, _NEVER) >= _PROGRESS_INTERVAL
        ]
        self._told_at.update(dict.fromkeys(due, now))
        return list(map(self._untold.pop, due))

    def forget(self, fences: Iterable[Fence]) -> None:
        if self._untold or self._told_at:
            for fence in fences:
                self._untold.pop(fence, None)
                self._told_at.pop(fence, None)


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
