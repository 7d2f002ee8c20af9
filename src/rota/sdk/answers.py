"""What the server answers about jobs and runs, and what all answers have in common.

Fields that a newer server adds are ignored. The other topics have modules beside this one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Generic, TypeVar

import msgspec

T = TypeVar("T")

FINAL_STATES = frozenset({"COMPLETED", "FAILED", "TIMED_OUT", "CANCELLED", "SKIPPED", "MISSED"})


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """A JSON object of the API."""


class Page(Answer, Generic[T], frozen=True, kw_only=True):
    """A part of a list."""

    items: tuple[T, ...]
    next_cursor: str | None = None  # None: this is the last part

    def __iter__(self) -> Iterator[T]:
        return iter(self.items)


class Problem(Answer, frozen=True, kw_only=True):
    """One thing wrong with an input, at one place of it."""

    message: str
    path: str = ""
    line: int | None = None
    column: int | None = None
    hint: str | None = None
    warning: bool = False  # worth a look, but nothing is refused because of it

    def __str__(self) -> str:
        place = ":".join(str(part) for part in (self.line, self.column) if part) or self.path
        text = f"{place}  {self.message}" if place else self.message
        return f"{text} — {self.hint}" if self.hint else text


class ProblemReport(Answer, frozen=True, kw_only=True):
    """The body of an error answer (RFC 9457)."""

    title: str = ""
    detail: str | None = None
    hint: str | None = None
    code: str = ""
    errors: tuple[Problem, ...] = ()
    trace_id: str | None = None


class Schedule(Answer, frozen=True, kw_only=True):
    expressions: tuple[str, ...] = ()
    timezone: str = "UTC"
    calendars: tuple[str, ...] = ()
    words: str = ""
    kinds: tuple[str, ...] = ()  # of each expression: fixed, elapsed, interval, once
    spread_seconds: float = 0.0  # by how much the job's spread delays each of its runs
    jitter_seconds: float = 0.0  # by how much its jitter may delay one


class Job(Answer, frozen=True, kw_only=True):
    id: str
    name: str
    project: str = "default"
    version: int = 0
    etag: str = ""
    description: str = ""
    owner: str = ""
    labels: Mapping[str, str] = {}
    type: str = ""
    enabled: bool = True
    paused: bool = False
    paused_by: str | None = None
    paused_until: datetime | None = None  # None: until it is resumed
    stuck_since: datetime | None = None  # None: no run of it waits in vain
    finished_at: datetime | None = None  # when a `run_once` job had fired
    schedule: Schedule | None = None  # None: on demand only, or unreadable
    follows: tuple[str, ...] = ()  # names of the jobs that it comes after
    unreadable: str = ""  # why the server cannot read it, so that it does not fire
    next_at: datetime | None = None  # that runs; with the offset of the schedule's zone
    set: str | None = None
    created_by: str = ""
    created_at: datetime | None = None
    updated_at: datetime | None = None
    last_state: str | None = None  # None: never run
    last_ended_at: datetime | None = None
    expected_seconds: float | None = None
    status: str = ""  # active, stuck, paused, disabled, finished, on demand, deleted


class Answered(Answer, frozen=True, kw_only=True):
    """Due times that got their answer together, without a run."""

    first: datetime
    last: datetime
    count: int
    state: str
    cause: str = ""


class MovedJob(Job, frozen=True, kw_only=True):
    """A job after it was paused, resumed, enabled, disabled, or one due time was skipped."""

    answered: tuple[Answered, ...] = ()  # what that wrote into the ledger


class Lateness(Answer, frozen=True, kw_only=True):
    """How late the runs started that started last, in seconds."""

    count: int
    p50: float
    p95: float
    p99: float


class JobDetail(Job, frozen=True, kw_only=True):
    document: Mapping[str, Any] = {}  # in the job file's own vocabulary
    yaml: str = ""
    lateness: Lateness | None = None  # None: no run has started yet
    followed_by: tuple[str, ...] = ()  # jobs that come after it


class CalendarEffect(Answer, frozen=True, kw_only=True):
    """A due time that a calendar skips or moves."""

    due: datetime
    calendar: str
    released_at: datetime | None = None  # when the run starts instead; None: there is none


class ClockChange(Answer, frozen=True, kw_only=True):
    """A change of clocks that moves, drops or doubles a due time."""

    at: datetime
    text: str = ""


class Upcoming(Answer, frozen=True, kw_only=True):
    times: tuple[datetime, ...] = ()
    schedule: str = ""  # in words
    clock_changes: tuple[ClockChange, ...] = ()
    answered: tuple[Answered, ...] = ()  # coming due times that are skipped already
    calendars: tuple[CalendarEffect, ...] = ()  # those of the times that calendars skip or move
    problem: str = ""  # why the job cannot fire: a calendar that the server cannot read


class LedgerEntry(Answer, frozen=True, kw_only=True):
    """The answer to one due time, or to a stretch of them."""

    first: datetime
    last: datetime
    count: int = 1
    state: str = ""
    cause: str | None = None
    run: str | None = None
    backfilled_by: tuple[str, ...] = ()  # the newest runs that made up for it, newest first


class SkippedDueTimes(Answer, frozen=True, kw_only=True):
    """Due times that a backfill leaves out for the same cause."""

    cause: str  # active, completed, not_failed
    count: int = 0
    first: datetime
    last: datetime


class Backfill(Answer, frozen=True, kw_only=True):
    """What a backfill does, or would do; `list_runs(backfill=id)` are its runs."""

    id: str | None = None  # None: this is a plan
    runs: int = 0
    first: datetime | None = None  # due times of its runs; None: it has none
    last: datetime | None = None
    skipped: tuple[SkippedDueTimes, ...] = ()


class Reason(Answer, frozen=True, kw_only=True):
    """One gate that holds a run."""

    gate: str
    message: str = ""
    key: str = ""
    eligible_at: datetime | None = None
    action: str = ""


class Step(Answer, frozen=True, kw_only=True):
    name: str
    result: str = ""
    exit_code: int | None = None
    signal: int | None = None
    seconds: float = 0.0
    tries: int = 1


class OutputSummary(Answer, frozen=True, kw_only=True):
    state: str = "none"
    bytes: int = 0
    lines: int = 0
    truncated: bool = False


class Attempt(Answer, frozen=True, kw_only=True):
    number: int
    worker: str = ""
    result: str | None = None  # None: still going
    claimed_at: datetime | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    duration_seconds: float | None = None
    exit_code: int | None = None
    signal: int | None = None
    message: str = ""
    steps: tuple[Step, ...] = ()
    cpu_seconds: float = 0.0
    max_memory_bytes: int = 0
    output: OutputSummary = OutputSummary()


class LateResult(Answer, frozen=True, kw_only=True):
    """A report that came after its lease had ended."""

    attempt: int
    session: str = ""
    received_at: datetime | None = None
    result: str = ""
    message: str = ""


class Progress(Answer, frozen=True, kw_only=True):
    done: float = 0.0
    total: float | None = None
    message: str = ""


class Run(Answer, frozen=True, kw_only=True):
    id: str
    job: str = ""
    job_id: str = ""
    job_version: int = 0
    project: str = "default"
    trigger: str = ""
    state: str
    due_at: datetime | None = None
    created_at: datetime | None = None
    created_by: str = ""
    priority: int = 5
    pool: str = ""
    delivery: str = ""
    attempt: int = 0  # number of the latest attempt; 0 before the first
    max_attempts: int = 1
    failures: int = 0
    losses: int = 0
    is_alone: bool = False  # it lost so many workers that nothing else may go beside it
    cause: str = ""
    message: str = ""
    reasons: tuple[Reason, ...] = ()
    waiting: str | None = None  # what holds it, in a sentence
    eligible_at: datetime | None = None
    queued_at: datetime | None = None
    claimed_at: datetime | None = None
    started_at: datetime | None = None
    first_started_at: datetime | None = None
    ended_at: datetime | None = None
    duration_seconds: float | None = None
    lateness_seconds: float | None = None
    is_late: bool | None = None  # missed `start_within`; None: no objective, or not judged yet
    worker: str = ""
    cancel_requested_at: datetime | None = None
    cancel_requested_by: str = ""
    exit_code: int | None = None
    signal: int | None = None
    inputs: Mapping[str, Any] | None = None
    outputs: Any = None
    progress: Progress | None = None
    retry_of: str | None = None
    follows: str | None = None  # the run whose completion it answers
    backfill: str | None = None
    cart: str | None = None  # None: it is of no cart
    item: str | None = None  # its key in that cart; None: of no cart, or the check of one
    deadline_at: datetime | None = None
    url: str = ""  # path of its page

    @property
    def is_final(self) -> bool:
        return self.state in FINAL_STATES

    @property
    def is_settled(self) -> bool:
        """Whether nothing more happens by itself: final, or a question for a person."""
        return self.is_final or self.state == "UNKNOWN"


class RunDetail(Run, frozen=True, kw_only=True):
    attempts: tuple[Attempt, ...] = ()
    late_results: tuple[LateResult, ...] = ()


class Batch(Answer, frozen=True, kw_only=True):
    runs: tuple[str, ...]


class LogLine(Answer, frozen=True, kw_only=True):
    n: int
    at: datetime | None = None
    stream: str = "stdout"
    step: int = 0
    text: str = ""
    continues: bool = False  # the rest of the line is in the next one


class LogWindow(Answer, frozen=True, kw_only=True):
    """Some lines of an attempt's output."""

    run: str = ""
    attempt: int = 0
    lines: tuple[LogLine, ...] = ()
    next_line: int = 0
    total_lines: int | None = None
    complete: bool = False
    truncated: bool = False
    output_state: str = ""
    worker: str = ""
    pending_bytes: int = 0  # of an ended attempt, still on its worker


class LogMatches(Answer, frozen=True, kw_only=True):
    matches: tuple[LogLine, ...] = ()
    next_line: int | None = None


class Event(Answer, frozen=True, kw_only=True):
    """A CloudEvent of the history."""

    id: str
    type: str = ""
    time: datetime | None = None
    source: str = ""
    subject: str | None = None
    data: Mapping[str, Any] = {}


class SchedulePreview(Answer, frozen=True, kw_only=True):
    words: str = ""
    kinds: tuple[str, ...] = ()
    next: tuple[datetime, ...] = ()  # with the offset of the schedule's zone
    warnings: tuple[Problem, ...] = ()
    clock_changes: tuple[ClockChange, ...] = ()
