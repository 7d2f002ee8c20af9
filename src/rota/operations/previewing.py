"""Schedules looked at before and after they are saved: in words, and with their coming times."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from rota.domain.errors import Problem
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
from rota.operations.definitions import timetable, upcoming

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
    table = timetable(read_job(job.document), job.anchor)
    if table is None:
        return Outlook((), "", ())
    times = await upcoming(backends, job, count)
    now = await backends.store.now()
    return Outlook(times, describe(table), _changes(table, now))


def _changes(table: Timetable, after: datetime) -> tuple[str, ...]:
    return tuple(change.text for change in clock_changes(table, after))
