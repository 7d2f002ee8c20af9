"""The durable truth, in domain verbs. Every verb is a batch and one transaction.

Promises, kept by every adapter and proven by the conformance suite:

- *Durable*: when a write returns, it survives a crash of the process and of the machine.
- *Guarded*: a state changes only if run, expected state, attempt and session are still those the
  caller saw; what was stale is left out of the answer and never fails its neighbours.
- *One clock*: due times, leases and expiries are compared with the store's own clock.
- *Recorded*: a transition and its event are written together.
- *Told*: whom a write concerns is notified after its commit, also if the caller was cancelled while
  it waited: a write that has begun goes on without it.

Errors: `Invalid`, `NotFound`, `Conflict` for the caller; `Unavailable` when the store cannot be
reached or cannot write. After `Unavailable` from a write its effect is unknown.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Protocol

from rota.domain.backfill import Backfill, DueRun
from rota.domain.ids import JobId, RunId, ServerId, SessionId
from rota.domain.job import Job
from rota.domain.keys import Declaration, Key, KeyKind, KeyState
from rota.domain.lateness import Congestion
from rota.domain.run import Attempt, LateResult, Run
from rota.domain.shards import Server, Shard
from rota.domain.states import RunState
from rota.ports.carts import NO_TEMPLATES, CartStore, TemplateChanges
from rota.ports.forecasts import ForecastStore, LineStore
from rota.ports.records import (
    Claimed,
    Counts,
    DueSchedule,
    EndedWait,
    Event,
    Finished,
    Fired,
    Firing,
    Heartbeat,
    Holding,
    Idempotency,
    JobQuery,
    LedgerEntry,
    NewCalendar,
    NewJob,
    NewRun,
    NewServer,
    Ownership,
    Rearmed,
    RemovedJob,
    Renewal,
    Room,
    RunQuery,
    ScheduleMove,
    Session,
    StoredCalendar,
    StoredChunk,
    Submitted,
    SubmittedBackfill,
    SubmittedRun,
    TokenStore,
)
from rota.ports.work import Fence, Hello, Outcome, Progress, Start, StartAnswer


@dataclass(frozen=True, slots=True)
class Declared:
    """A declaration as it stands."""

    declaration: Declaration
    updated_by: str
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class KeyUse:
    """How a key stands and who has it."""

    state: KeyState
    holders: tuple[RunId, ...] = ()  # live runs, the oldest first; at most 10
    waiting: int = 0  # runs that are BLOCKED on it


@dataclass(frozen=True, slots=True)
class ProjectCounts:
    """What a project has, of what its quota bounds by refusing more."""

    jobs: int
    waiting: int  # runs, of all who asked for them


class LimitStore(Protocol):
    """Part of `rota.ports.store.Store`."""

    async def declarations(
        self, project: str | None = None, kind: KeyKind | None = None
    ) -> list[Declared]:
        """By kind, project and name; all projects without one."""
        ...

    async def save_declarations(self, new: Sequence[Declaration], *, actor: str) -> None:
        """Create or replace; acts at once on what waits."""
        ...

    async def delete_declaration(
        self, kind: KeyKind, project: str, name: str, *, actor: str
    ) -> bool:
        """Whether there was one. A resource that a job uses is refused (Conflict)."""
        ...

    async def key_uses(self, keys: Collection[Key]) -> Mapping[Key, KeyUse]:
        """How these keys stand. Those without a rule are left out."""
        ...

    async def project_counts(self, project: str) -> ProjectCounts: ...

    async def release_keys(self, limit: int) -> int:
        """Let runs go that waited for a shared key, as far as there is room; forget old holds.

        Returns how many went or wait for something else now.
        """
        ...

    async def forget_keys(self, limit: int) -> int:
        """Forget keys that stand as if nobody had ever used them; returns how many.

        `limit` is how many are looked at in one transaction.
        """
        ...

    async def next_key_at(self) -> datetime | None:
        """When the next run that waits for tokens may go; None: none waits.

        Those that could not go by the latest `release_keys`, although it was time, are left out.
        """
        ...


class WaitingStore(Protocol):
    """Part of `rota.ports.store.Store`."""

    async def hold_run(self, run: RunId, *, actor: str) -> None:
        """A waiting run goes nowhere until it is let go. Conflict: it does not wait."""
        ...

    async def let_go(self, run: RunId, *, actor: str) -> None:
        """The end of such a hold. Conflict: nobody holds it."""
        ...

    async def set_priority(self, run: RunId, priority: int, *, actor: str) -> None:
        """Of a run that waits. Conflict: it does not."""
        ...

    async def follow_ends(self, limit: int) -> int:
        """Answer up to `limit` completed runs that others follow, each once; returns how many.

        Jobs without a schedule get a run; due runs that waited pass the gates again.
        """
        ...

    async def followers(
        self, project: str, upstreams: Collection[str]
    ) -> dict[str, tuple[str, ...]]:
        """The jobs that follow these, in order; by the name of the one that they follow."""
        ...

    async def release_fitting(self, limit: int) -> int:
        """Runs that no worker could ever take pass the gates again, if one has come that can.

        Returns how many, at most `limit` of those that ask for the same.
        """
        ...


class JobStore(Protocol):
    async def save_jobs(
        self,
        jobs: Sequence[NewJob],
        *,
        removed: Sequence[RemovedJob],
        actor: str,
        calendars: Sequence[NewCalendar] = (),
        templates: TemplateChanges = NO_TEMPLATES,
        declarations: Sequence[Declaration] = (),
        shares: Sequence[str] = (),
    ) -> None:
        """Create, change and delete jobs and templates of carts, all or none.

        Calendars, and what is declared about shared keys, are saved with them. Those of `shares`
        that have no weight yet get 1.

        `Conflict` if one is not as expected, or if a job uses a calendar that is not there.
        """
        ...

    async def move_schedules(self, moves: Sequence[ScheduleMove], *, actor: str) -> None:
        """Pause, resume, enable, disable or skip, all or none. `Conflict` if one has moved on."""
        ...

    async def jobs(self, query: JobQuery, /) -> list[Job]: ...

    async def names_of_jobs(self, project: str, like: str, limit: int) -> list[str]:
        """Names of jobs, those with the same first letter as `like` before the others."""
        ...

    async def deleted_job(self, project: str, name_or_id: str) -> Job | None:
        """The job of this name or id that was deleted last; its history outlives it."""
        ...

    async def documents(
        self, refs: Sequence[tuple[JobId, int]]
    ) -> dict[tuple[JobId, int], Mapping[str, Any]]:
        """Job documents by (job, version); never changes for a version."""
        ...

    async def start_delays(self, job: JobId, limit: int) -> list[float]:
        """Seconds from release to start of a job's runs that started last, newest first."""
        ...

    async def ledger(
        self,
        job: JobId,
        since: datetime,
        until: datetime,
        limit: int,
        *,
        newest_first: bool = False,
    ) -> list[LedgerEntry]:
        """Answers to due times of since ≤ due ≤ until by their first due time.

        A stretch that reaches into the range from before it belongs to it.
        """
        ...


class CalendarStore(Protocol):
    async def calendars(
        self, project: str, names: Sequence[str] | None = None
    ) -> list[StoredCalendar]:
        """The calendars of a project by name; with `names`, those of them that there are."""
        ...

    async def save_calendars(self, new: Sequence[NewCalendar], *, actor: str) -> None:
        """Create and change calendars, all or none. `Conflict` if one is not as expected.

        A firing that was planned with an earlier version is stale from here on.
        """
        ...

    async def delete_calendar(
        self, project: str, name: str, *, expected_version: int, actor: str
    ) -> None:
        """`Conflict` if a job uses it, or if it is not as expected."""
        ...


class ScheduleStore(Protocol):
    async def due_schedules(
        self, before: datetime, limit: int, shards: Collection[int]
    ) -> list[DueSchedule]:
        """Schedules of these shards with a due time before the given one, by due time."""
        ...

    async def fire(
        self, firings: Sequence[Firing], ownership: Ownership, room: Room | None = None
    ) -> Fired:
        """Insert the runs and advance the schedules, in one transaction for each firing or none.

        A firing whose schedule moved on meanwhile, or whose time has not come by the store's
        clock, is left out of `accepted`; so are all those of a shard that has another owner or
        epoch by now. A take-over waits for a firing that is under way.

        If a worker has `room`, what then waits is claimed for it in the same transaction, in order
        of service. Nothing is, and all else is the same, if its server is mistaken about it or if
        others are busy with it.
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

    async def release_eligible(self, limit: int) -> int:
        """Pass SCHEDULED runs whose time has come through the gates; returns how many."""
        ...

    async def release_forgotten(self, limit: int) -> int:
        """The sweep: release what a lost wake-up forgot, end what passed its deadline.

        Returns how many.
        """
        ...


class RunStore(Protocol):
    async def submit(
        self, runs: Sequence[NewRun], idempotency: Idempotency | None = None
    ) -> Submitted:
        """Insert runs, all or none; or answer as the first time if the key was seen before."""
        ...

    async def submit_one(self, run: NewRun, idempotency: Idempotency | None = None) -> SubmittedRun:
        """The same for one run. Many such calls at the same time cost little more than one."""
        ...

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

    async def claim(
        self, session: SessionId, slots: int, stream: int = 1, runs: Sequence[str] = ()
    ) -> Claimed:
        """Give up to `slots` queued runs to a session, each a new attempt.

        `runs` go first, as far as they are queued and fit, then others in order of service. For its
        first second a run is left to the worker with room where it leaves least over.
        `StaleStream` if the worker has connected anew since: only its latest server may claim.
        """
        ...

    async def any_queued(self, runs: Sequence[str]) -> bool:
        """Whether one of these runs still waits for a worker."""
        ...

    async def start(self, session: SessionId, starts: Sequence[Start]) -> StartAnswer: ...

    async def finish(
        self, session: SessionId, outcomes: Sequence[Outcome], *, claim: int = 0, stream: int = 1
    ) -> Finished:
        """End attempts. What comes too late is kept as a late result, a repeat is accepted.

        What somebody else holds up for long is neither accepted nor fenced: report it again.
        With `claim`, up to that many runs are given to the session in the same transaction, none
        if the stream is stale.
        """
        ...

    async def cancel(self, runs: Sequence[RunId], *, actor: str) -> frozenset[RunId]:
        """Cancel what waits, ask what is live to stop. Returns the runs that were not final."""
        ...

    async def resolve(self, run: RunId, state: RunState, *, actor: str) -> None:
        """End the doubt about an UNKNOWN run: COMPLETED, FAILED, or SCHEDULED (try again)."""
        ...

    async def record_progress(self, session: SessionId, items: Sequence[Progress]) -> None: ...

    async def runs(self, query: RunQuery, /) -> list[Run]: ...

    async def attempts(self, run: RunId) -> list[Attempt]: ...

    async def late_results(self, run: RunId) -> list[LateResult]: ...


class OutputStore(Protocol):
    async def open_outputs(self, session: SessionId, runs: Collection[str]) -> frozenset[Fence]:
        """Attempts at these runs whose output the session may still send."""
        ...

    async def add_chunks(
        self, session: SessionId, chunks: Sequence[tuple[Fence, StoredChunk]]
    ) -> tuple[Fence, ...]:
        """Record stored chunks. Returns the fences that were refused."""
        ...

    async def chunks(self, run: RunId, attempt: int) -> list[StoredChunk]: ...

    async def inline_output(self, run: RunId, attempt: int) -> bytes: ...


class SessionStore(Protocol):
    async def register(self, hello: Hello, lease: timedelta, server: str = "") -> Session:
        """A worker arrives at a server, in a session of its own."""
        ...

    async def resume(self, hello: Hello, server: str = "") -> Session | None:
        """A worker comes back to a live session, perhaps at another server: its stream grows by
        one and its lease is prolonged. None if the session is over, or another worker's."""
        ...

    async def renew(self, session: SessionId, *, stopping: bool) -> Renewal: ...

    async def reap(self, expected_beats: Mapping[SessionId, int]) -> frozenset[SessionId]:
        """End sessions whose lease has expired by the store's clock and whose beat count is still
        the expected one; their attempts are lost."""
        ...

    async def lose(self, session: SessionId, fences: Sequence[Fence]) -> None:
        """Attempts that the store believes held, but their live worker does not know."""
        ...

    async def end_session(self, session: SessionId) -> None:
        """The worker said goodbye: whatever it still held is lost now."""
        ...

    async def cancels(self, session: SessionId) -> tuple[Fence, ...]:
        """Attempts of a session that somebody asked to stop."""
        ...

    async def sessions(self, *, alive_only: bool) -> list[Session]:
        """For people to read: the newest thousand."""
        ...

    async def served_pools(self) -> frozenset[str]:
        """The pools that have workers which do not stop."""
        ...

    async def heartbeats(self) -> list[Heartbeat]:
        """Of all live sessions."""
        ...

    async def forget_sessions(self, limit: int) -> int:
        """Forget presences that ended months ago; returns how many, at most `limit`.

        And what runs asked for that lost theirs again and again, once the last of them has ended.
        """
        ...

    async def drain_worker(self, name: str, *, actor: str) -> None:
        """Give a worker nothing new, also after it restarts. `NotFound` if none has this name."""
        ...

    async def undrain_worker(self, name: str, *, actor: str) -> None:
        """Let a drained worker have work again."""
        ...


class ServerStore(Protocol):
    async def join(self, server: NewServer) -> None:
        """A server arrives, or comes back; if it is alone, all earlier ones are over."""
        ...

    async def keep_shards(self, server: ServerId, *, stopping: bool) -> Holding:
        """Renew a server's lease, take what falls to it, and give up what falls to others.

        A lease that has ended cannot be renewed: such a server joins anew. Two servers that
        believe to own a shard are harmless: it grows an epoch older each time that it is taken,
        and `fire` obeys only the latest.
        """
        ...

    async def leave_cluster(self, server: ServerId) -> None:
        """A server says goodbye: its shards are free."""
        ...

    async def servers(self) -> list[Server]:
        """Servers of the last day, those that are over too, the newest first."""
        ...

    async def shards(self) -> list[Shard]:
        """All shards, by number."""
        ...


class Store(
    JobStore,
    CalendarStore,
    ScheduleStore,
    RunStore,
    CartStore,
    OutputStore,
    SessionStore,
    ServerStore,
    TokenStore,
    ForecastStore,
    LimitStore,
    LineStore,
    WaitingStore,
    Protocol,
):
    """All of it. Components ask for the part they need."""

    async def now(self) -> datetime:
        """The store's clock: the only one that decides."""
        ...

    async def events(self, after: int, limit: int, *, ids: Sequence[str] = ()) -> list[Event]:
        """Events past a position, in order, none skipped; `ids` keeps those that name one."""
        ...

    async def names(self, ids: Sequence[str]) -> dict[str, str]:
        """How people call what ids of runs, jobs, carts and sessions stand for.

        A run has the name of its job, a session that of its worker. Unknown ids are left out.
        """
        ...

    async def counts(self) -> Counts: ...

    async def check(self) -> None:
        """Raise `Unavailable` unless reads and writes work."""
        ...

    async def close(self) -> None: ...
