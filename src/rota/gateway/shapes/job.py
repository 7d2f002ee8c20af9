"""Jobs, and what becomes of their due times."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import AwareDatetime, Field, model_validator

from rota.domain.job import Job
from rota.domain.jobfile import read_job, to_yaml
from rota.domain.lateness import Lateness
from rota.domain.spec import JobSpec
from rota.gateway.shapes.models import Answer, Body, Duration
from rota.operations.definitions import words_of
from rota.operations.previewing import Outlook

Status = Literal["active", "stuck", "paused", "disabled", "finished", "on demand"]


class ScheduleShape(Answer):
    expressions: list[str]
    timezone: str
    calendars: list[str]
    words: str


class _Definition(Answer):
    """What a version of a job says about itself."""

    description: str
    owner: str
    labels: dict[str, str]
    type: str
    schedule: ScheduleShape | None


class JobShape(Answer):
    """A job and where its schedule stands."""

    id: str
    project: str
    name: str
    version: int
    etag: str
    description: str
    owner: str
    labels: dict[str, str]
    type: str
    enabled: bool
    paused: bool
    paused_by: str
    paused_until: datetime | None  # None: until it is resumed
    stuck_since: datetime | None  # None: no run of it waits in vain
    finished_at: datetime | None  # a `run_once` job that has fired
    schedule: ScheduleShape | None  # None: on demand only
    next_at: datetime | None
    set: str
    created_by: str
    created_at: datetime
    updated_at: datetime
    last_state: str | None  # None: never run
    last_ended_at: datetime | None
    expected_seconds: float | None
    status: Status

    @classmethod
    def of(cls, job: Job) -> JobShape:
        return cls(**_fields(job))


class LatenessShape(Answer):
    """How late the runs started that started last, in seconds."""

    count: int
    p50: float
    p95: float
    p99: float


class JobDetail(JobShape):
    """A job with its document."""

    document: dict[str, Any]  # in the job file's own vocabulary
    yaml: str  # the same as a job file
    lateness: LatenessShape | None  # None: no run has started yet

    @classmethod
    def with_lateness(cls, job: Job, lateness: Lateness | None) -> JobDetail:
        document = dict(job.document)
        return cls(
            **_fields(job),
            document=document,
            yaml=to_yaml([document]),
            lateness=None if lateness is None else LatenessShape.model_validate(lateness),
        )


class PauseBody(Body):
    """How long a pause lasts; without either, until the job is resumed."""

    until: AwareDatetime | None = None
    length: Duration | None = Field(default=None, alias="for")

    @model_validator(mode="after")
    def _one_at_most(self) -> PauseBody:
        if self.until is not None and self.length is not None:
            raise ValueError("give either `until` or `for`")
        return self


class LedgerShape(Answer):
    """The answer to one due time, or to a stretch of them."""

    first: datetime
    last: datetime
    count: int
    state: str
    cause: str
    run: str | None  # None: a stretch without runs
    backfilled_by: list[str]  # the newest runs that made up for it, newest first


class CalendarEffectShape(Answer):
    """A due time that a calendar skips or moves."""

    due: datetime
    calendar: str
    released_at: datetime | None  # when the run starts instead; None: there is none


class UpcomingShape(Answer):
    times: list[datetime]
    schedule: str  # in words; "" on demand
    clock_changes: list[str]
    calendars: list[CalendarEffectShape]  # those of the times that calendars skip or move
    problem: str  # why the job cannot fire: a calendar that the server cannot read

    @classmethod
    def of(cls, outlook: Outlook) -> UpcomingShape:
        return cls(
            times=list(outlook.times),
            schedule=outlook.words,
            clock_changes=list(outlook.clock_changes),
            calendars=[CalendarEffectShape.model_validate(it) for it in outlook.calendars],
            problem=outlook.problem,
        )


def _fields(job: Job) -> dict[str, Any]:
    definition = _definition(job)
    return {
        **dict(definition),
        "id": job.id,
        "project": job.project,
        "name": job.name,
        "version": job.version,
        "etag": job.digest,
        "enabled": job.enabled,
        "paused": job.paused,
        "paused_by": job.paused_by,
        "paused_until": job.paused_until,
        "stuck_since": job.stuck_since,
        "finished_at": job.finished_at,
        "next_at": job.next_at,
        "set": job.set_name,
        "created_by": job.created_by,
        "created_at": job.created_at,
        "updated_at": job.updated_at,
        "last_state": job.last_state,
        "last_ended_at": job.last_ended_at,
        "expected_seconds": job.expected_seconds,
        "status": _status(job, has_schedule=definition.schedule is not None),
    }


def _status(job: Job, *, has_schedule: bool) -> Status:
    if job.finished_at is not None:
        return "finished"
    if not job.enabled:
        return "disabled"
    if job.paused:
        return "paused"
    if not has_schedule:
        return "on demand"
    if job.stuck_since is not None:
        return "stuck"
    return "active" if job.next_at is not None or job.waits else "finished"


_MAX_KNOWN = 10_000
_known: dict[tuple[str, int], _Definition] = {}  # a version never changes


def _definition(job: Job) -> _Definition:
    """Reading a document and describing its schedule takes a millisecond, too long for a list."""
    key = (job.id, job.version)
    if key not in _known:
        if len(_known) >= _MAX_KNOWN:
            _known.clear()
        _known[key] = _describe(read_job(job.document), job.anchor)
    return _known[key]


def _describe(spec: JobSpec, anchor: datetime) -> _Definition:
    schedule = None
    if spec.schedule is not None:
        schedule = ScheduleShape(
            expressions=list(spec.schedule.expressions),
            timezone=spec.schedule.timezone,
            calendars=list(spec.schedule.calendars),
            words=words_of(spec, anchor),
        )
    return _Definition(
        description=spec.description,
        owner=spec.owner,
        labels=dict(spec.labels),
        type=spec.type,
        schedule=schedule,
    )
