"""What the server answers to a job file: what applying it does, or would do."""

from __future__ import annotations

from rota.api.plans import (
    Change,
    Plan,
    PlannedCalendar,
    PlannedCart,
    PlannedDeclaration,
    Submission,
    SubmittedJob,
    Validation,
)

__all__ = [
    "Change",
    "Plan",
    "PlannedCalendar",
    "PlannedCart",
    "PlannedDeclaration",
    "Submission",
    "SubmittedJob",
    "Validation",
]
