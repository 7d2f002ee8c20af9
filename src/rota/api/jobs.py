"""Jobs, their schedules, and the answers to their due times."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from rota.api.answers import UNSENT, Answer, Instant, Problem, one_of
from rota.api.runs import IsolationWord, NetworkWord, Run

Kind = Annotated[
    str,
    one_of(
        "How an expression behaves when clocks are changed.", "fixed", "elapsed", "interval", "once"
    ),
]
JobStatus = Annotated[
    str,
    one_of(
        "Whether a job comes by itself.",
        "active",
        "stuck",
        "paused",
        "disabled",
        "finished",
        "deleted",
        "on demand",
    ),
]


class Schedule(Answer, frozen=True, kw_only=True):
    expressions: tuple[str, ...] = ()
    timezone: str = "UTC"
    calendars: tuple[str, ...] = ()
    words: str = ""
    kinds: tuple[Kind, ...] = ()  # of each expression: how it behaves when clocks are changed
    spread_seconds: float = 0.0  # by how much the job's spread delays each of its runs
    jitter_seconds: float = 0.0  # by how much its jitter may delay one


class Follow(Answer, frozen=True, kw_only=True):
    """A job that another one comes after."""

    job: str
    when: str = "completed"  # the ends of its runs that are followed
    gives: Mapping[str, str] = {}  # what inputs are given of such a run
    words: str = ""


class Job(Answer, frozen=True, kw_only=True):
    """A job and where its schedule stands."""

    id: str
    project: str = "default"
    name: str
    version: int = 0
    etag: str = ""
    title: str = ""  # for people, in any script
    description: str = ""
    owner: str = ""
    labels: Mapping[str, str] = {}
    type: str = ""
    enabled: bool = True
    paused: bool = False
    paused_by: str = ""
    paused_until: Instant | None = None  # None: until it is resumed
    stuck_since: Instant | None = None  # None: no run of it waits in vain
    finished_at: Instant | None = None  # a `run_once` job that has fired
    schedule: Schedule | None = None  # None: on demand only, or unreadable
    follows: tuple[str, ...] = ()  # names of the jobs that it comes after
    after: tuple[Follow, ...] = ()  # the same, with what is followed of them
    unreadable: str = ""  # why the server cannot read it, so that it does not fire; "": it can
    next_at: Instant | None = None  # the next due time that runs, on the clocks of its schedule
    set: str = ""
    created_by: str = ""
    created_at: Instant = UNSENT
    updated_at: Instant = UNSENT
    last_state: str | None = None  # of the newest run that runs or has ended; None: never run
    last_ended_at: Instant | None = None
    expected_seconds: float | None = None  # how long a run takes; None: not known yet
    status: JobStatus = ""
    isolation: IsolationWord = ""
    network: NetworkWord = ""
    run_as: str = ""  # user of the worker's machine; "": none is asked for
    limits: Mapping[str, Any] = {}  # of a run, as the job file writes them
    image: str = ""  # of a container


class Answered(Answer, frozen=True, kw_only=True):
    """Due times that got their answer together, without a run."""

    first: Instant
    last: Instant
    count: int
    state: str
    cause: str = ""


class MovedJob(Job, frozen=True, kw_only=True):
    """A job after a change of its schedule's standing."""

    answered: tuple[Answered, ...] = ()  # what the change wrote into the ledger


class Lateness(Answer, frozen=True, kw_only=True):
    """How late the runs started that started last, in seconds."""

    count: int
    p50: float
    p95: float
    p99: float


class JobDetail(Job, frozen=True, kw_only=True):
    """A job with its document."""

    document: Mapping[str, Any] = {}  # in the job file's own vocabulary
    yaml: str = ""  # the same as a job file
    lateness: Lateness | None = None  # None: no run has started yet
    followed_by: tuple[str, ...] = ()  # jobs that come after it


class JobAndRun(Answer, frozen=True, kw_only=True):
    """A job and how it last went."""

    job: Job
    last_run: Run | None = None  # None: never run


class CalendarEffect(Answer, frozen=True, kw_only=True):
    """A due time that a calendar skips or moves."""

    due: Instant
    calendar: str
    released_at: Instant | None = None  # when the run starts instead; None: there is none


class ClockChange(Answer, frozen=True, kw_only=True):
    """A change of clocks that moves, drops or doubles a due time."""

    at: Instant  # the first instant on the new offset
    text: str = ""  # what it does to the schedule


class Upcoming(Answer, frozen=True, kw_only=True):
    times: tuple[Instant, ...] = ()  # with the offset of the schedule's zone
    schedule: str = ""  # in words; "" on demand
    clock_changes: tuple[ClockChange, ...] = ()
    calendars: tuple[CalendarEffect, ...] = ()  # those of the times that calendars skip or move
    answered: tuple[Answered, ...] = ()  # coming due times that are skipped already
    problem: str = ""  # why the job cannot fire: a calendar that the server cannot read


class SchedulePreview(Answer, frozen=True, kw_only=True):
    """Meaning of a schedule."""

    words: str = ""
    kinds: tuple[Kind, ...] = ()  # of each expression: how it behaves when clocks are changed
    next: tuple[Instant, ...] = ()  # with the offset of the schedule's zone
    warnings: tuple[Problem, ...] = ()
    clock_changes: tuple[ClockChange, ...] = ()
