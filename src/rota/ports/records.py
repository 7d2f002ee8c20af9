"""Values that the store takes and returns, one a concept."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from rota.domain.access import ProjectSet, Rights, Role, Verb
from rota.domain.backfill import Backfill
from rota.domain.calendars import Calendar
from rota.domain.ids import BackfillId, CartId, JobId, RunId, ServerId, SessionId
from rota.domain.job import RunRules
from rota.domain.keys import Declaration, KeyState
from rota.domain.resources import HTTP_SLOTS, UNIT, capacity_of
from rota.domain.run import Reason, Run, Trigger
from rota.domain.shape import all_labels
from rota.domain.shards import Server
from rota.domain.states import RunState
from rota.ports.work import ChunkMeta, Fence, Offer, WorkBatch


@dataclass(frozen=True, slots=True)
class FollowingRun:
    """A run that follows another one."""

    id: RunId
    job: str
    state: RunState


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
    expected_schedule_version: int | None = None  # how the schedule was seen; None: never mind
    overdue: Firing | None = None  # what the version before owed; answered first
    restarts: bool = True  # the due times changed: a finished `run_once` may fire again
    # Where the schedule stood once that is answered, if that is what it moves on from; anything
    # else means: stale. While neither this nor `restarts` is set, the schedule of an existing job
    # stays where it is.
    claimed_cursor: datetime | None = None
    answered: Sequence[Answered] = ()  # due times that the old schedule left without a run
    calendars: Sequence[str] = ()  # names of those that its schedule uses


@dataclass(frozen=True, slots=True)
class RemovedJob:
    """A job to take out of service."""

    id: JobId
    expected_schedule_version: int | None = None  # how the schedule was seen; None: never mind
    claimed_cursor: datetime | None = None  # where it stood, if `answered` begins there
    answered: Sequence[Answered] = ()  # due times that its schedule leaves without a run


@dataclass(frozen=True, slots=True)
class ScheduleMove:
    """Pause, resume, enable, disable or skip of a job, with its effect on the schedule."""

    kind: str  # paused, resumed, enabled, disabled, skipped
    job_id: JobId
    expected_schedule_version: int
    expected_next_at: datetime | None  # once `overdue` is answered; else it fired meanwhile
    enabled: bool
    paused: bool
    next_at: datetime | None
    held_from: datetime | None
    paused_until: datetime | None = None  # when the pause ends by itself; None: never
    answered: Sequence[Answered] = ()  # due times that the hold left without a run
    overdue: Firing | None = None  # what the schedule owed before it moves; answered first


@dataclass(frozen=True, slots=True)
class Answered:
    """Neighbouring due times that got their answer without a run: one row of the fire ledger."""

    first: datetime
    last: datetime
    count: int
    state: RunState  # SKIPPED or MISSED
    cause: str  # a `Cause`, or `calendar NAME`
    previous: datetime | None = None  # an entry of this state and cause that ends here goes on


@dataclass(frozen=True, slots=True)
class DueSchedule:
    """A schedule whose next due time comes soon."""

    job_id: JobId
    next_at: datetime
    schedule_version: int
    job_version: int
    anchor: datetime
    shard: int


@dataclass(frozen=True, slots=True)
class PlannedRun:
    due_at: datetime
    release_at: datetime  # due time (or the end of a blackout) plus spread and jitter
    reason: Reason | None = None  # the calendar that keeps it until then; None: none does
    is_caught_up: bool = False  # it must run: no other of its job skips, ends or cancels it


@dataclass(frozen=True, slots=True)
class Firing:
    """Step of one schedule: what became due, and where the schedule goes from here."""

    job_id: JobId
    shard: int  # of the job
    job_version: int
    schedule_version: int
    claimed_next_at: datetime  # the due time that was read; anything else means: stale
    runs: Sequence[PlannedRun]
    answered: Sequence[Answered]
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
    """Caller's key: the same key and body give the same answer, another body is refused."""

    key: str
    digest: str


@dataclass(frozen=True, slots=True)
class Room:
    """Free slots of a worker, as the server that it is connected to knows them."""

    session: SessionId
    slots: int
    stream: int = 1  # in which that server believes it to be connected


@dataclass(frozen=True, slots=True)
class Fired:
    accepted: frozenset[JobId]
    run_count: int
    lost_shards: frozenset[int] = frozenset()  # not the caller's any more: nothing of them fired
    claimed: WorkBatch = WorkBatch()


@dataclass(frozen=True, slots=True)
class Submitted:
    runs: tuple[RunId, ...]
    is_repeat: bool = False  # the idempotency key was seen before: these are the first answer's


@dataclass(frozen=True, slots=True)
class SubmittedRun:
    run: Run | None  # as it stands; None: a repeat whose run is not kept any more
    is_repeat: bool = False  # the idempotency key was seen before: this is the first answer's


@dataclass(frozen=True, slots=True)
class SubmittedBackfill:
    backfill: Backfill
    is_repeat: bool = False  # the idempotency key was seen before: this is the first answer's


@dataclass(frozen=True, slots=True)
class Claimed:
    batch: WorkBatch
    left: frozenset[str] = frozenset()  # runs that go to workers which they fit better


@dataclass(frozen=True, slots=True)
class Finished:
    """Result of a report: what is not named was accepted, now or before."""

    refused: tuple[Fence, ...] = ()
    again: tuple[Fence, ...] = ()  # left as they were: their gates were not free
    claimed: WorkBatch = WorkBatch()


def offered(offers: Iterable[Offer]) -> frozenset[str]:
    """Return what a worker has of what it told, as `kind/name`."""
    return frozenset(f"{offer.kind}/{offer.name}" for offer in offers if not offer.reason)


@dataclass(frozen=True, slots=True)
class KnownType:
    """Type of plug-in that a worker has offered once, whether or not one does now."""

    name: str
    api_version: int  # of its plug-in; 0: not told
    schema: Mapping[str, Any]  # of its parameters, checked; {}: they are not
    worker: str  # that told this
    offered_at: datetime


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
    server: str = ""  # the one it talks to; "": not told
    stream: int = 1  # how often it connected: what another server claims for it is stale
    draining: bool = False  # somebody asked it to finish what it has leased and take nothing new
    held: int = 0  # attempts that are leased to it now
    resources: Mapping[str, int] = field(default_factory=dict)  # thousandths it offers
    used: Mapping[str, int] = field(default_factory=dict)  # of these, by its leased attempts
    offers: tuple[Offer, ...] = ()
    trouble: str = ""  # what its worker cannot do at present, by its latest beat
    credential: str | None = None  # id of the token that opened it; None: it came by the socket
    credential_expires_at: datetime | None = None  # None: never, or there is none
    barred: bool = False  # its credential was revoked: it gets nothing more, and is not renewed

    @property
    def all_labels(self) -> Mapping[str, str]:
        """Its labels, with that of Rota's own."""
        return all_labels(self.worker, self.labels)

    @property
    def capacity(self) -> Mapping[str, int]:
        """Capacity of its worker, the slots too."""
        return capacity_of(self.slots, self.resources)

    @property
    def http_slots(self) -> int:
        """How many attempts it takes besides its slots, at work that other systems do."""
        return self.resources.get(HTTP_SLOTS, 0) // UNIT

    @property
    def offered(self) -> frozenset[str]:
        """Offers of its worker that it really has, as `kind/name`."""
        return offered(self.offers)


@dataclass(frozen=True, slots=True)
class SeenPools:
    """Pools as a run of a project is seen by: no worker may serve its own."""

    is_served: bool  # the pool of the run
    others: frozenset[str]  # with workers, and open to the project: named to help


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Number of renewals of a live session."""

    session: SessionId
    beats: int
    lease: timedelta


@dataclass(frozen=True, slots=True)
class Renewal:
    alive: bool
    now: datetime
    cancel: tuple[Fence, ...] = ()
    held: tuple[Fence, ...] = ()  # attempts that the store has leased to the session
    stream: int = 0  # the connection that the store knows of
    draining: bool = False


@dataclass(frozen=True, slots=True)
class NewServer:
    """A server that arrives, or comes back after its lease has ended."""

    id: ServerId
    name: str
    lease: timedelta
    roles: tuple[str, ...]
    url: str = ""
    zone: str = ""
    version: str = ""
    is_alone: bool = False  # no other process can be a server on this store


@dataclass(frozen=True, slots=True)
class Ownership:
    """Right of a server to fire: its shards, and the epoch in which it took each."""

    server: ServerId
    epochs: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class OwnedShards:
    """Shards that a server owns after it has renewed its lease."""

    alive: bool  # False: the lease had ended, and the rest says nothing
    now: datetime
    shards: Mapping[int, int] = field(default_factory=dict)  # number and epoch of those it owns
    servers: tuple[Server, ...] = ()  # those whose lease lasts
    given: tuple[int, ...] = ()  # shards that it has just given up for others to take


@dataclass(frozen=True, slots=True)
class JobQuery:
    project: ProjectSet = "default"  # several only without ids, names or a calendar
    names: Sequence[str] | None = None
    ids: Sequence[JobId] | None = None
    name_like: str | None = None  # with `*` wildcards
    set_name: str | None = None
    created_by: str | None = None
    calendar: str | None = None  # those whose schedules use it
    after_name: str = ""  # cursor
    after_project: str = ""  # cursor, where there are several projects
    limit: int = 100


@dataclass(frozen=True, slots=True)
class RunQuery:
    project: ProjectSet = "default"  # several only without a prefix of the id, and without a cart
    ids: Sequence[str] | None = None
    id_prefix: str | None = None
    job_id: JobId | None = None
    job_like: str | None = None  # with `*` wildcards
    states: Sequence[RunState] = ()
    # The pools with workers: a run that is QUEUED elsewhere counts as BLOCKED. None: as it is kept.
    served: Collection[str] | None = None
    trigger: Trigger | None = None
    backfill: BackfillId | None = None
    cart: CartId | None = None
    since: datetime | None = None  # by creation
    until: datetime | None = None
    # Who asked for them; of those that a schedule or another job made, who made their job.
    created_by: str | None = None
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


@dataclass(frozen=True, slots=True)
class Counts:
    """Counts over the whole store, for metrics and health."""

    runs: Mapping[tuple[str, str], int]  # (state, pool) of what is not final
    oldest_queued_at: Mapping[str, datetime]  # by pool
    sessions: Mapping[tuple[str, str], int]  # (alive or lost, pool)
    finished: Mapping[tuple[str, str], int]  # (job, state) since the store was made
    # (pool, upper bound in seconds) of runs that have ended: how many, their delays together
    start_delays: Mapping[tuple[str, float], tuple[int, float]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StoredChunk:
    meta: ChunkMeta
    key: str
    begins_at: int = field(default=0, compare=False)  # lines that arrived before it; read only


@dataclass(frozen=True, slots=True)
class ArrivedOutput:
    """Output of an attempt that is in the blob store."""

    lines: int
    bytes: int  # as printed


@dataclass(frozen=True, slots=True)
class StoredCalendar:
    """A calendar of a project."""

    project: str
    calendar: Calendar
    version: int
    updated_by: str
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class NewCalendar:
    """A calendar to create, or a new version of one."""

    project: str
    calendar: Calendar
    expected_version: int = 0  # the version this replaces; 0: it must not exist


@dataclass(frozen=True, slots=True)
class Declared:
    """Declaration as it stands."""

    declaration: Declaration
    updated_by: str
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class KeyUse:
    """State of a key, and the runs that have it."""

    state: KeyState
    holders: tuple[RunId, ...] = ()  # live runs, the oldest first; at most 10
    waiting: int = 0  # runs that are BLOCKED on it


@dataclass(frozen=True, slots=True)
class ProjectCounts:
    """Counts of a project that its quota bounds by refusing more."""

    jobs: int
    waiting: int  # runs, of all who asked for them


@dataclass(frozen=True, slots=True)
class Token:
    """A right to call, without its secret."""

    id: str
    name: str
    role: Role  # the most that it may do
    created_at: datetime
    created_by: str
    expires_at: datetime | None
    last_used_at: datetime | None
    revoked_at: datetime | None
    pool: str | None = None  # the only one a worker with it may serve; None: any
    uses_left: int | None = None  # of one that lets workers join
    is_renewable: bool = False  # a worker's that joined: it gets the next one over its stream
    kind: str = "api"  # api, login (works once), session, terminal, worker, join
    principal: str = ""  # for whom it acts; "": made before there were principals
    project: str | None = None  # the only one it is for; None: any
    verbs: frozenset[Verb] | None = None  # all that it may do; None: what the role allows
    shown: str = ""  # the beginning of its secret; "": not known


@dataclass(frozen=True, slots=True)
class LoginSession:
    """Session of a person, as far as it is more than a token."""

    seen_at: datetime  # by the store's clock
    refreshed_at: datetime  # when the provider was last asked about the person
    idle_until: datetime
    is_refreshable: bool = False  # there is a refresh token, and no server uses it just now
    issuer: str = ""  # that knows the person; "": nobody does, they came by a link or a token


@dataclass(frozen=True, slots=True)
class FoundToken:
    """A valid token, and what whoever shows it may do."""

    token: Token
    rights: Rights
    principal_kind: str = ""  # user, service, worker, system; "": made before there were principals
    session: LoginSession | None = None  # None: no provider has vouched for whoever shows it
    ends_in: timedelta | None = None  # by itself, at the earliest, from the look on; None: never


@dataclass(frozen=True, slots=True)
class NewToken:
    id: str
    name: str
    role: Role
    digest: str  # of the secret; the secret itself is never stored
    kind: str  # api, login (works once), session, terminal, worker, join
    created_by: str
    lifetime: timedelta | None  # None: never expires
    parent: str | None = None  # a token that must be valid too; None: it stands by itself
    pool: str | None = None  # the only one a worker with it may serve; None: any
    principal: str = ""  # for whom it acts; "": for nobody, with its role in all projects
    project: str | None = None  # the only one it is for; None: any
    verbs: frozenset[Verb] | None = None  # all that it may do; None: what the role allows
    shown: str = ""  # the beginning of its secret
    # Rights of whoever makes it: the principal becomes a service with this role, if it is none yet.
    # None: the principal is there, and keeps the roles that it has.
    given_by: Rights | None = None
