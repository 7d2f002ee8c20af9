"""Schedules: turned from the written form into due times that are right in every zone.

Pure: it is given the time, never asks for it. The tz database is all it reads. It knows nothing
of runs, stores or the jobs whose schedules it is handed.
"""

from __future__ import annotations

from rota.domain.schedule.explanation import (
    ClockChange,
    DueTime,
    Explanation,
    clock_changes,
    clock_remark,
    explain,
    warnings,
)
from rota.domain.schedule.misfire import (
    CatchUp,
    DueRange,
    PassedOver,
    catch_up,
    following,
    pass_over,
)
from rota.domain.schedule.sources import Kind
from rota.domain.schedule.timetable import Timetable, compile_schedule, is_one_off
from rota.domain.schedule.words import describe

__all__ = [
    "CatchUp",
    "ClockChange",
    "DueRange",
    "DueTime",
    "Explanation",
    "Kind",
    "PassedOver",
    "Timetable",
    "catch_up",
    "clock_changes",
    "clock_remark",
    "compile_schedule",
    "describe",
    "explain",
    "following",
    "is_one_off",
    "pass_over",
    "warnings",
]
