"""Calendars: named windows, shared by jobs, in which nothing is to run.

Pure: it is given the time, never asks for it. The tz database and the optional package `holidays`
are all it reads. It knows nothing of stores, runs, or which job uses which calendar.
"""

from __future__ import annotations

from rota.domain.calendars.blackout import (
    Allowed,
    Blackout,
    BlackoutAnswer,
    BlackoutWindow,
    ReleasedAt,
    SkippedBy,
    blackout_answer,
    end_of_blackout,
    next_windows,
)
from rota.domain.calendars.compilation import compile_calendar, in_words
from rota.domain.calendars.windows import Calendar, Holidays, Inside

__all__ = [
    "Allowed",
    "Blackout",
    "BlackoutAnswer",
    "BlackoutWindow",
    "Calendar",
    "Holidays",
    "Inside",
    "ReleasedAt",
    "SkippedBy",
    "blackout_answer",
    "compile_calendar",
    "end_of_blackout",
    "in_words",
    "next_windows",
]
