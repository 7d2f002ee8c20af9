"""Previews of jobs: when they come next, and what calendars and clock changes do to that."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from rota.domain.calendars import Blackout, Calendar, compile_calendar
from rota.domain.errors import Invalid
from rota.domain.firing import next_start
from rota.domain.ids import JobId, instant
from rota.domain.job import Job
from rota.domain.jobfile import read_job
from rota.domain.schedule import ClockChange, Timetable, clock_changes, describe
from rota.domain.schedule.sources import LAST_MICROS
from rota.domain.spec import Schedule
from rota.operations.calendars import CalendarEffect, blackouts_of, calendar_effects
from rota.operations.engine import Engine
from rota.operations.specs import stamp, timetable, timetable_of
from rota.ports.records import LedgerEntry

_NOTED = 5  # due times that a plan looks ahead


@dataclass(frozen=True, slots=True)
class Prospect:
    """Effect of calendars on the next due times of a job."""

    next_at: datetime | None  # the first that runs; None: none does in five years
    effects: tuple[CalendarEffect, ...]
    warning: str  # "" unless all that was looked at are ruled out


def prospect(table: Timetable, blackouts: Sequence[Blackout], next_at: datetime) -> Prospect:
    """Return what calendars do to the due times from a cursor on."""
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
    """Yield notes for people about a schedule when it is saved."""
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
    """Return the due times from a cursor on, and the one after these, as far as they are known."""
    if table.run_once or table.after_previous:
        return (next_at,), None
    known = (next_at, *table.upcoming(next_at, limit))
    return known[:limit], known[limit] if len(known) > limit else None


def _all_ruled_out(skipped: Sequence[CalendarEffect], next_at: datetime | None) -> str:
    names = " and ".join(sorted({effect.calendar for effect in skipped}))
    count = f"its next {len(skipped)} due times are" if len(skipped) > 1 else "its next due time is"
    then = f"the first that runs is {stamp(next_at)}" if next_at else "it never runs"
    return f"{count} ruled out by calendar {names}: {then}"


_THE_END = instant(LAST_MICROS)
_Calendars = Mapping[tuple[str, str], Calendar]  # by project and name


@dataclass(frozen=True, slots=True)
class Upcoming:
    """Next due times of a job, with calendars applied."""

    times: tuple[datetime, ...] = ()  # empty on demand, while held, or when it is over
    words: str = ""  # "" on demand
    clock_changes: tuple[ClockChange, ...] = ()
    calendars: tuple[CalendarEffect, ...] = ()  # on those of the times that they skip or move
    answered: tuple[LedgerEntry, ...] = ()  # coming due times that are skipped already
    problem: str = ""  # why the job cannot fire: this server cannot read it, or a calendar


async def find_upcoming(engine: Engine, job: Job, count: int) -> Upcoming:
    """Return the next due times of a job, and what calendars and clock changes will do to them."""
    try:
        spec = read_job(job.document)
        table = timetable(spec, job.anchor)
    except Invalid as error:
        return Upcoming(problem=_reasons(error))
    if table is None or spec.schedule is None:
        return Upcoming()
    blackouts, problem = await _blackouts(engine, job, spec.schedule.calendars)
    times, effects = _ahead(table, blackouts, job.next_at, count)
    now = await engine.store.now()
    ledger = await engine.store.ledger(job.id, now, _THE_END, count)
    return Upcoming(
        times=times,
        words=describe(table),
        clock_changes=clock_changes(table, now),
        calendars=effects,
        answered=tuple(entry for entry in ledger if entry.run is None and entry.first > now),
        problem=problem,
    )


async def next_starts(engine: Engine, jobs: Sequence[Job]) -> dict[JobId, datetime | None]:
    """Return the next due time of each job that its calendars let run.

    Where they cannot be read, nothing runs until they can: then it is the next due time.
    """
    projects = {job.project for job in jobs if _names(job)}
    stored = [each for project in projects for each in await engine.store.calendars(project)]
    calendars = {(each.project, each.calendar.name): each.calendar for each in stored}
    # Holidays take a while to be looked up, and leases are renewed on this loop.
    return await asyncio.to_thread(_next_starts, jobs, calendars)


async def _blackouts(
    engine: Engine, job: Job, names: Sequence[str]
) -> tuple[tuple[Blackout, ...], str]:
    """Return the calendars of a job, or why they cannot be read."""
    if not names or job.next_at is None:
        return (), ""
    try:
        return await blackouts_of(engine, job.project, names), ""
    except Invalid as error:
        return (), _reasons(error)


def _reasons(error: Invalid) -> str:
    return f"{error}: {'; '.join(map(str, error.problems))}"


def _ahead(
    table: Timetable, blackouts: Sequence[Blackout], next_at: datetime | None, count: int
) -> tuple[tuple[datetime, ...], tuple[CalendarEffect, ...]]:
    if next_at is None:
        return (), ()
    times, following = due_times_from(table, next_at, count)
    return times, calendar_effects(blackouts, times, following)


def _names(job: Job) -> Sequence[str]:
    return job.document.get("calendars", ()) if job.next_at else ()


def _next_starts(jobs: Sequence[Job], calendars: _Calendars) -> dict[JobId, datetime | None]:
    return {job.id: _next_start(job, calendars) for job in jobs}


def _next_start(job: Job, calendars: _Calendars) -> datetime | None:
    names = _names(job)
    if job.next_at is None or not names:
        return job.next_at
    try:
        table = timetable_of(job)
        blackouts = [compile_calendar(calendars[job.project, name]) for name in names]
    except (Invalid, KeyError):
        return job.next_at
    start = next_start(table, blackouts, job.next_at) if table else None
    return start.due if start else None
