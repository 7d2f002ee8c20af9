"""Timetables in one line."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

from rota.domain.errors import Invalid, Problem
from rota.domain.schedule import Timetable, compile_schedule
from rota.domain.spec import Schedule

ANCHOR = datetime(2026, 1, 1, tzinfo=UTC)


def utc(text: str) -> datetime:
    """`2026-03-29 01:00` as an instant."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def timetable(
    *expressions: str,
    timezone: str = "UTC",
    key: str = "j_test",
    anchor: datetime = ANCHOR,
    **settings: Any,
) -> Timetable:
    schedule = replace(Schedule(expressions, timezone), **settings)
    return compile_schedule(schedule, key=key, anchor=anchor)


def upcoming(after: str, timetable: Timetable, count: int = 3) -> list[str]:
    """The next due times on UTC clocks, to the second."""
    return [
        due.replace(tzinfo=None).isoformat(" ") for due in timetable.upcoming(utc(after), count)
    ]


def local_times(after: str, timetable: Timetable, count: int = 3) -> list[str]:
    """The next due times on the clocks of the schedule's zone, with offset."""
    zone = ZoneInfo(timetable.zone.name)
    due_times = timetable.upcoming(utc(after), count)
    return [due.astimezone(zone).isoformat(" ", "minutes") for due in due_times]


def problems_of(*expressions: str, **settings: Any) -> tuple[Problem, ...]:
    """What is wrong with a schedule; none if it compiles."""
    try:
        timetable(*expressions, **settings)
    except Invalid as error:
        return error.problems
    return ()
