"""What the server answers about jobs and runs, and what all answers have in common.

Fields that a newer server adds are ignored. The other topics have modules beside this one.
"""

from __future__ import annotations

from rota.api.answers import Answer, Page
from rota.api.backfills import Backfill, LedgerEntry, SkippedDueTimes
from rota.api.events import Event
from rota.api.jobs import (
    Answered,
    CalendarEffect,
    ClockChange,
    Job,
    JobDetail,
    Lateness,
    MovedJob,
    Schedule,
    SchedulePreview,
    Upcoming,
)
from rota.api.output import LogLine, LogMatches, LogWindow
from rota.api.problems import Problem, ProblemReport
from rota.api.runs import (
    FINAL_STATES,
    Attempt,
    Batch,
    LateResult,
    OutputSummary,
    Progress,
    Reason,
    Run,
    RunDetail,
    Step,
)

__all__ = [
    "FINAL_STATES",
    "Answer",
    "Answered",
    "Attempt",
    "Backfill",
    "Batch",
    "CalendarEffect",
    "ClockChange",
    "Event",
    "Job",
    "JobDetail",
    "LateResult",
    "Lateness",
    "LedgerEntry",
    "LogLine",
    "LogMatches",
    "LogWindow",
    "MovedJob",
    "OutputSummary",
    "Page",
    "Problem",
    "ProblemReport",
    "Progress",
    "Reason",
    "Run",
    "RunDetail",
    "Schedule",
    "SchedulePreview",
    "SkippedDueTimes",
    "Step",
    "Upcoming",
]
