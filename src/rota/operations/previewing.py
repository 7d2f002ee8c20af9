"""Schedules looked at before and after they are saved: in words, and with their coming times."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from rota.domain.errors import Invalid, Problem
from rota.domain.job import Job
from rota.domain.jobfile import read_job
from rota.domain.schedule import (
    Kind,
    Timetable,
    clock_changes,
    compile_schedule,
    describe,
    warnings,
)
from rota.domain.spec import Schedule
from rota.operations.backends import Backends
from rota.operations.calendars import CalendarEffect, blackouts_of, calendar_effects
from rota.operations.definitions import due_times_from, timetable, upcoming

_KEY = "preview"  # the seed of `H` in an expression that belongs to no job yet


@dataclass(frozen=True, slots=True)
class Preview:
    """What a schedule means."""

    words: str
    kinds: tuple[Kind, ...]  # of each expression, in the order written
    times: tuple[datetime, ...]  # on the clocks of the schedule's zone
    warnings: tuple[Problem, ...]
    clock_changes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Outlook:
    """When a job comes next."""

    times: tuple[datetime, ...]  # UTC; empty on demand, while held, or when it is over
    words: str  # "" on demand
    clock_changes: tuple[str, ...]
    calendars: tuple[CalendarEffect, ...] = ()  # on those of the times that they skip or move
    problem: str = ""  # why the job cannot fire: a calendar that this server cannot read


def preview(schedule: Schedule, start: datetime, count: int) -> Preview:
    """The due times after `start` of a schedule; `Invalid` with all that is wrong with it."""
    table = compile_schedule(schedule, key=_KEY, anchor=start)
    return Preview(
        words=describe(table),
        kinds=table.kinds,
        times=tuple(table.zone.local(due) for due in table.upcoming(start, count)),
        warnings=tuple(warnings(schedule, key=_KEY)),
        clock_changes=_changes(table, start),
    )


async def outlook(backends: Backends, job: Job, count: int) -> Outlook:
    """The next due times of a job, and what changes of clocks will do to them."""
    spec = read_job(job.document)
    table = timetable(spec, job.anchor)
    if table is None or spec.schedule is None:
        return Outlook((), "", ())
    times = await upcoming(backends, job, count)
    now = await backends.store.now()
    found = Outlook(times, describe(table), _changes(table, now))
    if not spec.schedule.calendars or job.next_at is None:
        return found
    try:
        blackouts = await blackouts_of(backends, job.project, spec.schedule.calendars)
    except Invalid as error:
        return replace(found, problem=f"{error}: {'; '.join(map(str, error.problems))}")
    effects = calendar_effects(blackouts, *due_times_from(table, job.next_at, count))
    return replace(found, calendars=effects)


def _changes(table: Timetable, after: datetime) -> tuple[str, ...]:
    return tuple(change.text for change in clock_changes(table, after))
