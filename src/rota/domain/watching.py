"""The order in which a watcher is told of an attempt's steps and of its output.

Workers tell of both, each by itself: a step may have ended here long before its last lines arrive.
Each step has its place in the output, so what is told is in order all the same: the begin of a step
before its first line, its end after its last one. Pure: whoever follows an attempt says what has
arrived.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rota.domain.run import StepReport

_EVERYTHING = 2**62  # further than any line


@dataclass(frozen=True, slots=True)
class Place:
    """How far somebody was told of a run: all that goes before."""

    attempt: int = 1
    line: int = 0  # of its output, the next one
    step: int = 0  # all before were told to their end

    def __str__(self) -> str:
        return f"{self.attempt}.{self.line}.{self.step}"

    @classmethod
    def parse(cls, text: str) -> Place:
        """Read a place as it was written; `ValueError` if it is none."""
        parts = text.split(".")
        if len(parts) != 3 or not all(part.isascii() and part.isdecimal() for part in parts):
            raise ValueError(text)
        place = cls(*map(int, parts))
        if place.attempt < 1 or max(place.attempt, place.line, place.step) >= _EVERYTHING:
            raise ValueError(text)
        return place


@dataclass(frozen=True, slots=True)
class ToldStep:
    """A step that began (it is running) or ended."""

    number: int
    step: StepReport


class StepCourse:
    """Steps of one attempt: what is known of them, and what a watcher was told."""

    def __init__(self, told: int = 0) -> None:
        self._first = told  # those before were told to their end
        self._steps: dict[int, StepReport] = {}
        self._begun: set[int] = set()
        self._ended: set[int] = set()
        self._are_placed = False  # in the output

    @property
    def told(self) -> int:
        """Return the number of the first step whose end was not told."""
        while self._first in self._ended:
            self._first += 1
        return self._first

    def learn_note(self, first: int, steps: Sequence[StepReport]) -> None:
        """Take what a worker tells while the attempt goes on, from the step `first` on."""
        self._steps.update(enumerate(steps, first))
        self._are_placed = True

    def learn_end(self, steps: Sequence[StepReport]) -> None:
        """Take all steps of an attempt that has ended; nobody may have told their places."""
        self._steps.update(enumerate(steps))
        self._are_placed |= any(step.first_line or step.lines for step in steps)

    @property
    def has_untold(self) -> bool:
        """Return whether something waits for output to arrive."""
        return any(True for _ in self._open(_EVERYTHING, None))

    def before(self, line: int, step: int) -> Iterator[ToldStep]:
        """Yield what is to be told before a line, which a step printed; it counts as told."""
        return self._tell(line, step)

    def up_to(self, line: int | None) -> Iterator[ToldStep]:
        """Yield what is to be told once all lines before that one were; None: all there is."""
        return self._tell(_EVERYTHING if line is None else line, None)

    def next_change(self, line: int) -> int:
        """Return the next line, after one, before which something is to be told."""
        places = [
            place
            for number, step in self._steps.items()
            for place in (step.first_line, step.first_line + step.lines)
            if place > line and number not in self._ended
        ]
        return min(places, default=_EVERYTHING)

    def _tell(self, line: int, printing: int | None) -> Iterator[ToldStep]:
        for _, number, is_end in sorted(self._open(line, printing)):
            step = self._steps[number]
            (self._ended if is_end else self._begun).add(number)
            yield ToldStep(number, step if is_end else _begun(step))

    def _open(self, line: int, printing: int | None) -> Iterator[tuple[int, int, bool]]:
        """Yield what was not told and is due before a line: its place, number, and if it is an end.

        The line itself is the proof that the step which prints it has begun.
        """
        for number, step in self._steps.items():
            if number < self._first or number in self._ended:
                continue
            has_begun = printing is not None and number <= printing
            begins, ends = self._places(number, step, printing)
            is_skipped = step.result == "skipped" and step.started_at is None
            if number not in self._begun and not is_skipped and (begins <= line or has_begun):
                yield min(begins, line), number, False
            if not step.is_running and ends <= line and number != printing:
                yield ends, number, True

    def _places(self, number: int, step: StepReport, printing: int | None) -> tuple[int, int]:
        """Return the lines before which a step begins and ends."""
        if self._are_placed:
            return step.first_line, step.first_line + step.lines
        # Nobody knows their places: each ends before the first line of a later one.
        is_past = printing is not None and number < printing
        return (0, 0) if is_past else (_EVERYTHING, _EVERYTHING)


def _begun(step: StepReport) -> StepReport:
    """Return a step as it was when it began."""
    return StepReport(step.name, "running", started_at=step.started_at, first_line=step.first_line)
