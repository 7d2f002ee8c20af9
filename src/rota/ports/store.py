"""The durable truth, in domain verbs. Every verb is a batch and one transaction.

Promises, kept by every adapter and proven by the conformance suite:

- *Durable*: when a write returns, it survives a crash of the process and of the machine.
- *Guarded*: a state changes only if run, expected state, attempt and session are still those the
  caller saw; what was stale is left out of the answer and never fails its neighbours.
- *One clock*: due times, leases and expiries are compared with the store's own clock.
- *Recorded*: a transition and its event are written together.

Errors: `Invalid`, `NotFound`, `Conflict` for the caller; `Unavailable` when the store cannot be
reached or cannot write. After `Unavailable` from a write its effect is unknown.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Protocol

from rota.domain.backfill import Backfill, DueRun
from rota.domain.congestion import Congestion
from rota.domain.ids import BackfillId, JobId, RunId, SessionId
from rota.domain.job import Job, RunRules
from rota.domain.run import Attempt, LateResult, Reason, Run, Trigger
from rota.domain.states import RunState
from rota.ports.calendars import NewCalendar, StoredCalendar
from rota.ports.work import (
    ChunkMeta,
    Fence,
    Hello,
    Outcome,
    Progress,
    Start,
    StartAnswer,
    Work,
)


@dataclass(frozen=True, slots=True)
class NewJob:
    """A job to create, or a new version of one."""

    id: JobId
    project: str
    name: str
    document: Mapping[str, Any]
    digest: str
    rules: RunRules
    set_name: str
    next_at: datetime | None
    held_from: datetime | None  # set while paused or disabled
    anchor: datetime
    enabled: bool
    expected_version: int = 0  # the version this replaces; 0: the job must not exist
    restarts: bool = True  # the due times changed: a finished `run_once` may fire again
    # Where the schedule stood, if that is what it moves on from; anything else means: stale. While
    # neither this nor `restarts` is set, the schedule of an existing job stays where it is.
    claimed_cursor: datetime | None = None
    unanswered: Sequence[Unanswered] = ()  # due times that the old schedule left without a run
    calendars: Sequence[str] = ()  # names of those that its schedule uses


@dataclass(frozen=True, slots=True)
class ScheduleMove:
    """A pause, resume, enable, disable or skip of a job, with its effect on the schedule."""

    kind: str  # paused, resumed, enabled, disabled, skipped
    job_id: JobId
    expected_schedule_version: int
    expected_next_at: datetime | None  # has it fired meanwhile, this is stale
    enabled: bool
    paused: bool
    next_at: datetime | None
    held_from: datetime | None
    paused_until: datetime | None = None  # when the pause ends by itself; None: never
    ranges: Sequence[Unanswered] = ()  # due times that the hold left without a run


@dataclass(frozen=True, slots=True)
class Unanswered:
    """A stretch of due times that got no run, as one row of the fire ledger."""

    first: datetime
    last: datetime
    count: int
    state: RunState  # SKIPPED or MISSED
    cause: str  # downtime, paused, disabled, calendar NAME, …
    previous: datetime | None = None  # an entry of this state and cause that ends here goes on


@dataclass(frozen=True, slots=True)
class DueSchedule:
    """A schedule whose next due time comes soon."""

    job_id: JobId
    next_at: datetime
    schedule_version: int
    job_version: int
    anchor: datetime


@dataclass(frozen=True, slots=True)
class PlannedRun:
    due_at: datetime
    release_at: datetime  # due time (or the end of a blackout) plus spread and jitter
    reason: Reason | None = None  # the calendar that keeps it until then; None: none does


@dataclass(frozen=True, slots=True)
class Firing:
    """One step of one schedule: what became due, and where the schedule goes from here."""

    job_id: JobId
    job_version: int
    schedule_version: int
    claimed_next_at: datetime  # the due time that was read; anything else means: stale
    runs: Sequence[PlannedRun]
    unanswered: Sequence[Unanswered]
    next_at: datetime | None
    finishes_job: bool = False  # a `run_once` that has now fired
    waits: bool = False  # the due time after this one depends on the end of its run


@dataclass(frozen=True, slots=True)
class EndedWait:
    """A schedule whose next due time can be told, now that its latest run has ended."""

    job_id: JobId
    schedule_version: int
    job_version: int
    anchor: datetime
    ended_at: datetime


@dataclass(frozen=True, slots=True)
class Rearmed:
    """The due time after a run that has ended."""

    job_id: JobId
    schedule_version: int
    next_at: datetime | None  # None: the schedule is over


@dataclass(frozen=True, slots=True)
class NewRun:
    """A run that no schedule asked for."""

    id: RunId
    job_id: JobId
    job_version: int
    trigger: Trigger
    created_by: str
    inputs: Mapping[str, Any] | None = None
    at: datetime | None = None  # not before; None: now
    priority: int | None = None  # None: the job's
    retry_of: RunId | None = None
    due_at: datetime | None = None  # of a backfill's run, in the past; None: the same as `at`


@dataclass(frozen=True, slots=True)
class Idempotency:
    """A caller's key: the same key and body give the same answer, another body is refused."""

    key: str
    digest: str


@dataclass(frozen=True, slots=True)
class Wakes:
    """Whom a write concerns; the caller announces it once the write is durable."""

    pools: frozenset[str] = frozenset()
    sessions: frozenset[SessionId] = frozenset()  # have something to cancel
    times: bool = False  # something may be due earlier than the scheduler thinks


@dataclass(frozen=True, slots=True)
class Fired:
    accepted: frozenset[JobId]
    wakes: Wakes
    run_count: int


@dataclass(frozen=True, slots=True)
class Submitted:
    runs: tuple[RunId, ...]
    wakes: Wakes
    is_repeat: bool = False  # the idempotency key was seen before: these are the first answer's


@dataclass(frozen=True, slots=True)
class SubmittedBackfill:
    backfill: Backfill
    wakes: Wakes
    is_repeat: bool = False  # the idempotency key was seen before: this is the first answer's


@dataclass(frozen=True, slots=True)
class Released:
    count: int
    wakes: Wakes


@dataclass(frozen=True, slots=True)
class Finished:
    accepted: tuple[Fence, ...]
    fenced: tuple[Fence, ...]
    wakes: Wakes
    claimed: tuple[Work, ...] = ()


@dataclass(frozen=True, slots=True)
class Session:
    """A live or past presence of a worker."""

    id: SessionId
    worker: str
    pool: str
    slots: int
    labels: Mapping[str, str]
    functions: tuple[str, ...]
    guard_mode: str
    version: str
    lease: timedelta
    registered_at: datetime
    expires_at: datetime
    beats: int
    alive: bool
    stopping: bool
    held: int = 0  # attempts it holds now


@dataclass(frozen=True, slots=True)
class Renewal:
    alive: bool
    now: datetime
    cancel: tuple[Fence, ...] = ()
    held: tuple[Fence, ...] = ()  # what the store believes the session holds
    wakes: Wakes = Wakes()


@dataclass(frozen=True, slots=True)
class JobQuery:
    project: str = "default"
    names: Sequence[str] | None = None
    ids: Sequence[JobId] | None = None
    name_like: str | None = None  # with `*` wildcards
    set_name: str | None = None
    calendar: str | None = None  # those whose schedules use it
    after_name: str = ""  # cursor
    limit: int = 100


@dataclass(frozen=True, slots=True)
class RunQuery:
    project: str = "default"
    ids: Sequence[str] | None = None
    id_prefix: str | None = None
    job_id: JobId | None = None
    job_like: str | None = None  # with `*` wildcards
    states: Sequence[RunState] = ()
    trigger: Trigger | None = None
    backfill: BackfillId | None = None
    since: datetime | None = None  # by creation
    until: datetime | None = None
    before_seq: int | None = None  # cursor: newest first
    limit: int = 100


@dataclass(frozen=True, slots=True)
class Event:
    """One batch transition or change, as it was recorded."""

    seq: int
    kind: str  # run.queued, run.claimed, job.applied, worker.registered, …
    at: datetime
    actor: str
    project: str
    ids: tuple[str, ...]
    data: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """The answer to one due time, or to a stretch of them."""

    first: datetime
    last: datetime
    count: int
    state: str
    cause: str
    run: RunId | None  # None: a stretch without runs
    backfilled_by: tuple[RunId, ...] = ()  # the newest runs that made up for it, newest first


class Role(StrEnum):
    """What a user or token may do in a project; each includes those before it."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    EDITOR = "editor"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True)
class Token:
    id: str
    name: str
    role: Role
    created_at: datetime
    created_by: str
    expires_at: datetime | None
    last_used_at: datetime | None
    revoked_at: datetime | None


@dataclass(frozen=True, slots=True)
class NewToken:
    id: str
    name: str
    role: Role
    digest: str  # of the secret; the secret itself is never stored
    kind: str  # api, login (works once), session
    created_by: str
    lifetime: timedelta | None  # None: never expires
    parent: str | None = None  # a token that must be valid too; None: it stands by itself


@dataclass(frozen=True, slots=True)
class Counts:
    """A look at the whole, for metrics and health."""

    runs: Mapping[tuple[str, str], int]  # (state, pool) of what is not final
    oldest_queued_at: Mapping[str, datetime]  # by pool
    sessions: Mapping[tuple[str, str], int]  # (alive or lost, pool)
    finished: Mapping[tuple[str, str], int]  # (job, state) since the store was made
    # (pool, upper bound in seconds) of runs that have ended: how many, their delays together
    start_delays: Mapping[tuple[str, float], tuple[int, float]] = field(default_factory=dict)
    last_event: int = 0


@dataclass(frozen=True, slots=True)
class StoredChunk:
    meta: ChunkMeta
    key: str


class JobStore(Protocol):
    async def save_jobs(
        self,
        jobs: Sequence[NewJob],
        *,
        removed: Sequence[JobId],
        actor: str,
        calendars: Sequence[NewCalendar] = (),
    ) -> Wakes:
        """Create, change and delete jobs, and save calendars, all or none.

        `Conflict` if one is not as expected, or if a job uses a calendar that is not there.
        """
        ...

    async def move_schedules(self, moves: Sequence[ScheduleMove], *, actor: str) -> Wakes:
        """Pause, resume, enable, disable or skip, all or none. `Conflict` if one has moved on."""
        ...

    async def jobs(self, query: JobQuery) -> list[Job]: ...

    async def documents(
        self, refs: Sequence[tuple[JobId, int]]
    ) -> dict[tuple[JobId, int], Mapping[str, Any]]:
        """Job documents by (job, version); never changes for a version."""
        ...

    async def start_delays(self, job: JobId, limit: int) -> list[float]:
        """Seconds from release to start of a job's runs that started last, newest first."""
        ...

    async def ledger(
        self, job: JobId, since: datetime, until: datetime, limit: int
    ) -> list[LedgerEntry]: ...


class CalendarStore(Protocol):
    async def calendars(
        self, project: str, names: Sequence[str] | None = None
    ) -> list[StoredCalendar]:
        """The calendars of a project by name; with `names`, those of them that there are."""
        ...

    async def save_calendars(self, new: Sequence[NewCalendar], *, actor: str) -> Wakes:
        """Create and change calendars, all or none. `Conflict` if one is not as expected.

        A firing that was planned with an earlier version is stale from here on.
        """
        ...

    async def delete_calendar(
        self, project: str, name: str, *, expected_version: int, actor: str
    ) -> Wakes:
        """`Conflict` if a job uses it, or if it is not as expected."""
        ...


class ScheduleStore(Protocol):
    async def due_schedules(self, before: datetime, limit: int) -> list[DueSchedule]:
        """Schedules with a due time before the given one, by due time."""
        ...

    async def fire(self, firings: Sequence[Firing]) -> Fired:
        """Insert the runs and advance the schedules, in one transaction for each firing or none.

        A firing whose schedule moved on meanwhile, or whose time has not come by the store's
        clock, is left out of `accepted`.
        """
        ...

    async def ended_waits(self, limit: int) -> list[EndedWait]:
        """Schedules that waited for the end of a run that has ended."""
        ...

    async def rearm(self, rearmed: Sequence[Rearmed]) -> None:
        """Give such schedules their next due time, held if the job is; what moved meanwhile is
        left alone."""
        ...

    async def ended_pauses(self, limit: int) -> list[Job]:
        """Jobs that are paused until a time that has come."""
        ...

    async def next_pause_end(self) -> datetime | None:
        """When the next pause ends by itself; None: none does."""
        ...

    async def congested_jobs(self) -> dict[JobId, Congestion]:
        """Jobs whose scheduled runs wait for one another, or have been active for long."""
        ...

    async def mark_stuck(
        self, stuck: Mapping[JobId, Congestion], congested: Collection[JobId]
    ) -> list[JobId]:
        """Record that jobs are stuck, once an episode; it ends when a job is not `congested`.

        Returns those whose episode begins.
        """
        ...

    async def next_eligible_at(self) -> datetime | None:
        """When the next SCHEDULED run may be released; None: there is none."""
        ...

    async def release_eligible(self, limit: int) -> Released:
        """Pass SCHEDULED runs whose time has come through the gates."""
        ...

    async def release_forgotten(self, limit: int) -> Released:
        """The sweep: release what a lost wake-up forgot, end what passed its deadline."""
        ...


class RunStore(Protocol):
    async def submit(
        self, runs: Sequence[NewRun], idempotency: Idempotency | None = None
    ) -> Submitted: ...

    async def submit_backfill(
        self, backfill: Backfill, runs: Sequence[NewRun], idempotency: Idempotency | None = None
    ) -> SubmittedBackfill:
        """Insert a backfill and its runs. `Conflict` if a due time is being backfilled already."""
        ...

    async def due_runs(self, job: JobId, due: Sequence[datetime]) -> list[DueRun]:
        """The runs that a job has for these due times, of its schedule and of backfills, by age.

        `due` is in order.
        """
        ...

    async def claim(self, session: SessionId, slots: int) -> list[Work]:
        """Give up to `slots` queued runs to a session in order of service, each a new attempt."""
        ...

    async def start(self, session: SessionId, starts: Sequence[Start]) -> StartAnswer: ...

    async def finish(
        self, session: SessionId, outcomes: Sequence[Outcome], *, claim: int = 0
    ) -> Finished:
        """End attempts. What is fenced is kept as a late result; a repeated report is accepted.

        With `claim`, up to that many runs are given to the session in the same transaction.
        """
        ...

    async def cancel(self, runs: Sequence[RunId], *, actor: str) -> tuple[frozenset[RunId], Wakes]:
        """Cancel what waits, ask what is live to stop. Returns the runs that were not final."""
        ...

    async def resolve(self, run: RunId, state: RunState, *, actor: str) -> Wakes:
        """End the doubt about an UNKNOWN run: COMPLETED, FAILED, or SCHEDULED (try again)."""
        ...

    async def record_progress(self, session: SessionId, items: Sequence[Progress]) -> None: ...

    async def runs(self, query: RunQuery) -> list[Run]: ...

    async def attempts(self, run: RunId) -> list[Attempt]: ...

    async def late_results(self, run: RunId) -> list[LateResult]: ...

    async def queue_position(self, run: RunId) -> int | None:
        """How many queued runs of its pool go first, roughly; None: it is not queued."""
        ...


class OutputStore(Protocol):
    async def add_chunks(
        self, session: SessionId, chunks: Sequence[tuple[Fence, StoredChunk]]
    ) -> tuple[Fence, ...]:
        """Record stored chunks. Returns the fences that were refused."""
        ...

    async def chunks(self, run: RunId, attempt: int) -> list[StoredChunk]: ...

    async def inline_output(self, run: RunId, attempt: int) -> bytes: ...


class SessionStore(Protocol):
    async def register(self, hello: Hello, lease: timedelta) -> tuple[Session, Wakes]: ...

    async def renew(self, session: SessionId, *, stopping: bool) -> Renewal: ...

    async def reap(
        self, expected_beats: Mapping[SessionId, int]
    ) -> tuple[frozenset[SessionId], Wakes]:
        """End sessions whose lease has expired by the store's clock and whose beat count is still
        the expected one; their attempts are lost."""
        ...

    async def lose(self, session: SessionId, fences: Sequence[Fence]) -> Wakes:
        """Attempts that the store believes held, but their live worker does not know."""
        ...

    async def end_session(self, session: SessionId) -> Wakes:
        """The worker said goodbye: whatever it still held is lost now."""
        ...

    async def cancels(self, session: SessionId) -> tuple[Fence, ...]:
        """Attempts of a session that somebody asked to stop."""
        ...

    async def sessions(self, *, alive_only: bool) -> list[Session]: ...


class TokenStore(Protocol):
    async def add_token(self, token: NewToken) -> None: ...

    async def token_by_digest(
        self, digest: str, *, uses_up_login: bool = False
    ) -> tuple[Token, str] | None:
        """A valid token and its kind; None if unknown, expired, revoked or used up."""
        ...

    async def tokens(self) -> list[Token]: ...

    async def revoke_token(self, token_id: str, *, actor: str) -> bool: ...


class Store(
    JobStore,
    CalendarStore,
    ScheduleStore,
    RunStore,
    OutputStore,
    SessionStore,
    TokenStore,
    Protocol,
):
    """All of it. Components ask for the part they need."""

    async def now(self) -> datetime:
        """The store's clock: the only one that decides."""
        ...

    async def events(self, after: int, limit: int, *, ids: Sequence[str] = ()) -> list[Event]:
        """Events past a position, in order, none skipped; `ids` keeps those that name one."""
        ...

    async def counts(self) -> Counts: ...

    async def check(self) -> None:
        """Raise `Unavailable` unless reads and writes work."""
        ...

    async def close(self) -> None: ...
