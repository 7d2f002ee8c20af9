"""What becomes of the due times of a job: run, missed, or ruled out by its calendars.

Pure: it is given the time, never asks for it. It knows nothing of stores, runs, or who fires.
"""

from __future__ import annotations

from rota.domain.firing.backlog import (
    Answers,
    DueStart,
    FiringRules,
    SkippedRange,
    answer_due_times,
)
from rota.domain.firing.coming import RuledOut, SkippedNext, next_start, skip_next_start
from rota.domain.firing.pieces import fold_into_window

__all__ = [
    "Answers",
    "DueStart",
    "FiringRules",
    "RuledOut",
    "SkippedNext",
    "SkippedRange",
    "answer_due_times",
    "fold_into_window",
    "next_start",
    "skip_next_start",
]
