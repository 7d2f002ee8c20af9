"""Due times to come: which of them run, and what a person should know of them beforehand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from rota.domain.calendars import Blackout
from rota.domain.firing import next_start
from rota.domain.schedule import Timetable, clock_changes
from rota.domain.spec import Schedule
from rota.operations.calendars import CalendarEffect, calendar_effects
from rota.operations.stamps import stamp

_NOTED = 5  # due times that a plan looks ahead


@dataclass(frozen=True, slots=True)
class Prospect:
    """What calendars do to the next due times of a job."""

    next_at: datetime | None  # the first that runs; None: none does in five years
    effects: tuple[CalendarEffect, ...]
    warning: str  # "" unless all that was looked at are ruled out


def prospect(table: Timetable, blackouts: Sequence[Blackout], next_at: datetime) -> Prospect:
    """What calendars make of the due times from a cursor on."""
    due_times, following = due_times_from(table, next_at, _NOTED)
    effects = calendar_effects(blackouts, due_times, following)
    start = next_start(table, blackouts, next_at)
    first = start.due if start else None
    skipped = [effect for effect in effects if effect.released_at is None]
    is_ruled_out = len(skipped) == len(due_times)
    return Prospect(first, effects, _all_ruled_out(skipped, first) if is_ruled_out else "")


def schedule_notes(
    schedule: Schedule, table: Timetable, next_at: datetime | None, now: datetime
) -> Iterator[str]:
    """What a person should know of a schedule when it is saved."""
    if next_at is None and not table.after_previous:
        yield "its schedule has no due time left: it will never run by itself"
    elif schedule.run_once and next_at is not None:
        yield f"run_once: next start {stamp(next_at)}, then the job is finished"
    changes = clock_changes(table, now)
    if changes:
        yield f"type: {', '.join(table.kinds)}"
    yield from (f"clocks: {change.text}" for change in changes)


def due_times_from(
    table: Timetable, next_at: datetime, limit: int
) -> tuple[tuple[datetime, ...], datetime | None]:
    """The due times from a cursor on, and the one after these, as far as they are known."""
    if table.run_once or table.after_previous:
        return (next_at,), None
    known = (next_at, *table.upcoming(next_at, limit))
    return known[:limit], known[limit] if len(known) > limit else None


def _all_ruled_out(skipped: Sequence[CalendarEffect], next_at: datetime | None) -> str:
    names = " and ".join(sorted({effect.calendar for effect in skipped}))
    count = f"its next {len(skipped)} due times are" if len(skipped) > 1 else "its next due time is"
    then = f"the first that runs is {stamp(next_at)}" if next_at else "it never runs"
    return f"{count} ruled out by calendar {names}: {then}"
