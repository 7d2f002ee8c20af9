"""What else applying a job file would do, for those who plan a part of it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from rota.operations.calendars import PlannedCalendars
from rota.operations.planned_limits import PlannedLimits


@dataclass(frozen=True, slots=True)
class Circumstances:
    now: datetime
    calendars: PlannedCalendars
    limits: PlannedLimits
    removed_jobs: Collection[str] = ()  # of the file's project
    prune: bool = False
