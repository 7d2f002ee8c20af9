"""What calendars say about the due times of a job that uses them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from rota.domain.calendars.blackout import Blackout, end_of_blackout
from rota.domain.calendars.definition import Inside


@dataclass(frozen=True, slots=True)
class Allowed:
    """No calendar minds."""


@dataclass(frozen=True, slots=True)
class SkippedBy:
    """The due time does not run."""

    name: str  # of the calendar

    @property
    def cause(self) -> str:
        """What the ledger records."""
        return f"calendar {self.name}"


@dataclass(frozen=True, slots=True)
class ReleasedAt:
    """The run waits until no calendar of the job minds any more."""

    at: datetime
    name: str  # of the calendar that makes it wait; the first, if several do


BlackoutAnswer = Allowed | SkippedBy | ReleasedAt

_ALLOWED = Allowed()


def blackout_answer(blackouts: Sequence[Blackout], due: datetime) -> BlackoutAnswer:
    """The answer to one due time. A calendar that skips wins over one that lets runs wait.

    Together, calendars may leave no free instant for five years: then waiting is in vain, and the
    due time is skipped.
    """
    closed = [blackout for blackout in blackouts if blackout.is_inside(due)]
    if not closed:
        return _ALLOWED
    for blackout in closed:
        if blackout.calendar.inside is Inside.SKIP:
            return SkippedBy(blackout.name)
    end = end_of_blackout(blackouts, due)
    return ReleasedAt(end, closed[0].name) if end else SkippedBy(closed[0].name)
