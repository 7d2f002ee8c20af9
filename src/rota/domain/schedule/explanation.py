"""A schedule that belongs to no job yet, or to a named one: what it means, told beforehand."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from rota.domain.errors import Problem
from rota.domain.schedule.advice import hash_warnings, warnings
from rota.domain.schedule.clock_changes import ClockChange, clock_changes, clock_remark
from rota.domain.schedule.compilation import compile_schedule
from rota.domain.schedule.sources import Kind
from rota.domain.schedule.words import describe
from rota.domain.spec import Schedule

MOST_EXPLAINED = 10_000  # due times of one explanation


@dataclass(frozen=True, slots=True)
class DueTime:
    """One due time on the clocks of the schedule's zone."""

    at: datetime
    remark: str  # what a change of clocks did to it, or ""


@dataclass(frozen=True, slots=True)
class Explanation:
    """A schedule in words and in due times."""

    after: datetime  # when it begins, on the clocks of the schedule's zone
    words: str
    kinds: tuple[Kind, ...]  # of each expression: how it behaves when clocks change
    next: tuple[DueTime, ...]
    clock_changes: tuple[ClockChange, ...]  # the next ones that move, drop or double a due time
    warnings: tuple[Problem, ...]


def explain(schedule: Schedule, *, key: str, after: datetime, count: int) -> Explanation:
    """What a schedule means, with its due times later than `after`; `Invalid` if it is none.

    `key` is the identity of the job that it belongs to; "" if that is not known yet.
    """
    table = compile_schedule(schedule, key=key, anchor=after)
    due_times = table.upcoming(after, count)
    unsure = () if key else hash_warnings(schedule)
    return Explanation(
        after=table.zone.local(after),
        words=describe(table),
        kinds=table.kinds,
        next=tuple(DueTime(table.zone.local(due), clock_remark(table, due)) for due in due_times),
        clock_changes=clock_changes(table, after),
        warnings=(*warnings(schedule, key=key), *unsure),
    )
