"""Jobs, and what becomes of their due times."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal

from pydantic import Field, model_validator

from rota.domain.errors import Invalid
from rota.domain.job import Job
from rota.domain.jobfile import read_job, to_yaml
from rota.domain.lateness import Lateness
from rota.domain.schedule import Kind, describe
from rota.domain.spec import JobSpec
from rota.operations.pauses import Moved
from rota.operations.previews import Outlook
from rota.operations.timetables import timetable
from rota.server.gateway.instants import TimeText, zone_of
from rota.server.gateway.shapes.models import Answer, Body, Duration
from rota.server.gateway.shapes.preview import ClockChangeShape

Status = Literal["active", "stuck", "paused", "disabled", "finished", "on demand", "deleted"]


class ScheduleShape(Answer):
    expressions: list[str]
    timezone: str
    calendars: list[str]
    words: str
    kinds: list[Kind]  # of each expression: how it behaves when clocks are changed
    spread_seconds: float  # by how much the job's spread delays each of its runs
    jitter_seconds: float  # by how much its jitter may delay one


class _Definition(Answer):
    """What a version of a job says about itself."""

    description: str
    owner: str
    labels: dict[str, str]
    type: str
    schedule: ScheduleShape | None
    follows: list[str]
    unreadable: str = ""


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
    schedule: ScheduleShape | None  # None: on demand only, or unreadable
    follows: list[str]  # names of the jobs that it comes after
    unreadable: str  # why this server cannot read it, so that it does not fire; "": it can
    next_at: datetime | None  # the next due time that runs, with the offset of the schedule's zone
    set: str
    created_by: str
    created_at: datetime
    updated_at: datetime
    last_state: str | None  # None: never run
    last_ended_at: datetime | None
    expected_seconds: float | None
    status: Status

    @classmethod
    def of(cls, job: Job, next_at: datetime | None) -> JobShape:
        return cls(**_fields(job, next_at))


class AnsweredShape(Answer):
    """Due times that got their answer together, without a run."""

    first: datetime
    last: datetime
    count: int
    state: str
    cause: str


class MovedJobShape(JobShape):
    """A job after a change of its schedule's standing."""

    answered: list[AnsweredShape]  # what the change wrote into the ledger

    @classmethod
    def after(cls, moved: Moved, next_at: datetime | None) -> MovedJobShape:
        answered = [AnsweredShape.model_validate(stretch) for stretch in moved.answered]
        return cls(**_fields(moved.job, next_at), answered=answered)


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
    followed_by: list[str]  # jobs that come after it

    @classmethod
    def in_full(
        cls,
        job: Job,
        next_at: datetime | None,
        lateness: Lateness | None,
        followers: Sequence[str],
    ) -> JobDetail:
        document = dict(job.document)
        return cls(
            **_fields(job, next_at),
            document=document,
            yaml=to_yaml([document]),
            lateness=None if lateness is None else LatenessShape.model_validate(lateness),
            followed_by=list(followers),
        )


class PauseBody(Body):
    """How long a pause lasts; without either, until the job is resumed."""

    until: TimeText | None = None  # also 11:00: the next time that it is so late
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
    times: list[datetime]  # with the offset of the schedule's zone
    schedule: str  # in words; "" on demand
    clock_changes: list[ClockChangeShape]
    calendars: list[CalendarEffectShape]  # those of the times that calendars skip or move
    answered: list[AnsweredShape]  # coming due times that are skipped already
    problem: str  # why the job cannot fire: a calendar that the server cannot read

    @classmethod
    def of(cls, job: Job, outlook: Outlook) -> UpcomingShape:
        return cls(
            times=[_on_clocks(job, time) for time in outlook.times],
            schedule=outlook.words,
            clock_changes=[ClockChangeShape.model_validate(it) for it in outlook.clock_changes],
            calendars=[CalendarEffectShape.model_validate(it) for it in outlook.calendars],
            answered=[AnsweredShape.model_validate(it) for it in outlook.answered],
            problem=outlook.problem,
        )


def _on_clocks(job: Job, time: datetime) -> datetime:
    zone = zone_of(job)
    return zone.local(time) if zone else time


def _fields(job: Job, next_at: datetime | None) -> dict[str, Any]:
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
        "next_at": _on_clocks(job, next_at) if next_at else None,
        "set": job.set_name,
        "created_by": job.created_by,
        "created_at": job.created_at,
        "updated_at": job.updated_at,
        "last_state": job.last_state,
        "last_ended_at": job.last_ended_at,
        "expected_seconds": job.expected_seconds,
        "status": _status(job, definition),
    }


def _status(job: Job, definition: _Definition) -> Status:
    if job.deleted_at is not None:
        return "deleted"
    if job.finished_at is not None:
        return "finished"
    if not job.enabled:
        return "disabled"
    if job.paused:
        return "paused"
    if definition.schedule is None and not definition.unreadable:
        return "active" if definition.follows else "on demand"
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
        _known[key] = _read(job)
    return _known[key]


def _read(job: Job) -> _Definition:
    """One job that a newer release wrote, or in a zone unknown here, must not hide the others."""
    try:
        return _describe(read_job(job.document), job.anchor)
    except Invalid as error:
        reasons = "; ".join(map(str, error.problems)) or str(error)
    return _Definition(
        description="", owner="", labels={}, type="", schedule=None, follows=[], unreadable=reasons
    )


def _describe(spec: JobSpec, anchor: datetime) -> _Definition:
    return _Definition(
        description=spec.description,
        owner=spec.owner,
        labels=dict(spec.labels),
        type=spec.type,
        schedule=_schedule(spec, anchor),
        follows=list(spec.after.jobs),
    )


def _schedule(spec: JobSpec, anchor: datetime) -> ScheduleShape | None:
    table = timetable(spec, anchor)
    if spec.schedule is None or table is None:
        return None
    return ScheduleShape(
        expressions=list(spec.schedule.expressions),
        timezone=spec.schedule.timezone,
        calendars=list(spec.schedule.calendars),
        words=describe(table),
        kinds=list(table.kinds),
        spread_seconds=table.spread_delay.total_seconds(),
        jitter_seconds=spec.schedule.jitter.total_seconds(),
    )
