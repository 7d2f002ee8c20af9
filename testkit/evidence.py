"""Evidence that jobs write about themselves, independent of what Rota reports.

A job appends a line for its start, each beat of its life and its end, each with one write to a
file opened for appending, with the boot time that all processes of the machine share.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from pathlib import Path

CLOCK_TICK = 0.01  # seconds: how exactly a job knows the time


class Event(StrEnum):
    START = "start"
    BEAT = "beat"
    END = "end"


@dataclass(frozen=True, slots=True)
class Mark:
    """Line of evidence."""

    job: str
    run: str
    attempt: int
    event: Event
    at: float  # boot time in seconds, rounded down to CLOCK_TICK


class Evidence:
    """File that the jobs of one test write to."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.touch()

    def script(self, *parts: str) -> str:
        """Return a step that writes a start and an end, with these lines of shell between."""
        return "\n".join([self.definition(), "note start", *parts, "note end"])

    def beats(self, count: int, every: timedelta = timedelta(milliseconds=100)) -> str:
        """Return lines of shell for `script`: live on for so many beats."""
        pause = every.total_seconds()
        return f"for _ in $(seq {count}); do note beat; sleep {pause}; done"

    def definition(self) -> str:
        """Return a line of shell that defines `note EVENT`; what `script` begins with."""
        line = '"$ROTA_JOB $ROTA_RUN_ID $ROTA_ATTEMPT $1 $up"'
        target = shlex.quote(str(self.path))
        return f"note() {{ read -r up _ </proc/uptime; echo {line} >>{target}; }}"

    def marks(self) -> list[Mark]:
        """Read all marks so far, in the order of writing."""
        return [_mark(line) for line in self.path.read_text().splitlines()]

    def started(self) -> list[tuple[str, int]]:
        """List runs and attempts that began, in that order."""
        return [(mark.run, mark.attempt) for mark in of_event(self.marks(), Event.START)]

    def ended(self) -> list[tuple[str, int]]:
        return [(mark.run, mark.attempt) for mark in of_event(self.marks(), Event.END)]


def of_event(marks: Iterable[Mark], event: Event) -> list[Mark]:
    return [mark for mark in marks if mark.event is event]


def _mark(line: str) -> Mark:
    job, run, attempt, event, at = line.split()
    return Mark(job, run, int(attempt), Event(event), float(at))
