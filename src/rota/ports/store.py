"""Store: the durable truth, in domain verbs. Every verb is a batch and one transaction.

Promises, kept by every adapter and proven by the conformance suite:

- *Durable*: when a write returns, it survives a crash of the process and of the machine.
- *Guarded*: a state changes only if run, expected state, attempt and session are still those the
  caller saw; what was stale is left out of the answer and never fails its neighbours.
- *One clock*: due times, leases and expiries are compared with the store's own clock.
- *Recorded*: a transition and its event are written together.
- *Notified*: listeners that a write concerns are notified after its commit, also if the caller was
  cancelled while it waited: a write that has begun goes on without it.

Errors: `Invalid`, `NotFound`, `Conflict` for the caller; `Unavailable` when the store cannot be
reached or cannot write. After `Unavailable` from a write its effect is unknown.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Protocol

from rota.domain.backfill import Backfill, DueRun
from rota.domain.ids import JobId, RunId, ServerId, SessionId
from rota.domain.job import Job
from rota.domain.keys import Declaration
from rota.domain.lateness import Congestion
from rota.domain.probes import ProbeOf
from rota.domain.run import Attempt, LateResult, Note, Run
from rota.domain.shards import Server, Shard
from rota.domain.states import RunState
from rota.ports.carts import NO_TEMPLATES, CartStore, TemplateChanges
from rota.ports.credentials import CredentialStore, TokenStore
from rota.ports.external import ExternalStore
from rota.ports.files import FileStore
from rota.ports.forecasts import ChainStore, ForecastStore
from rota.ports.limits import LimitStore, WaitingStore
from rota.ports.logins import LoginStore
from rota.ports.projects import PrincipalStore, ProjectStore
from rota.ports.records import (
    ArrivedOutput,
    Claimed,
    Counts,
    DueSchedule,
    EndedWait,
    Event,
    Finished,
    Fired,
    Firing,
    FollowingRun,
    Heartbeat,
    Idempotency,
    JobQuery,
    KnownType,
    LedgerEntry,
    NewCalendar,
    NewJob,
    NewRun,
    NewServer,
    OwnedShards,
    Ownership,
    Rearmed,
    RemovedJob,
    Renewal,
    Room,
    RunQuery,
    ScheduleMove,
    SeenPools,
    Session,
    StoredCalendar,
    StoredChunk,
    Submitted,
    SubmittedBackfill,
    SubmittedRun,
)
from rota.ports.work import (
    Fence,
    Hello,
    Progress,
    RemoteHandle,
    Report,
    Start,
    StartAnswer,
    StepNote,
)


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
        """List names of jobs, those with the same first letter as `like` before the others."""
        ...

    async def deleted_job(self, project: str, name_or_id: str) -> Job | None:
        """Find the job of this name or id that was deleted last; its history outlives it."""
        ...

    async def last_runs(
        self, jobs: Collection[JobId], /
    ) -> dict[JobId, tuple[str, datetime | None]]:
        """Return state and end of each job's newest run that is over or with a worker, if any.

        It walks past all newer runs that wait: for pages that people read, not for each trigger.
        """
        ...

    async def documents(
        self, refs: Sequence[tuple[JobId, int]]
    ) -> dict[tuple[JobId, int], Mapping[str, Any]]:
        """Return job documents by (job, version); a version's document never changes."""
        ...

    async def start_delays(self, job: JobId, limit: int) -> list[float]:
        """Return seconds from release to start of a job's latest started runs, newest first."""
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
        """List answers to due times of since ≤ due ≤ until by their first due time.

        A stretch that reaches into the range from before it belongs to it.
        """
        ...


class CalendarStore(Protocol):
    async def calendars(
        self, project: str, names: Sequence[str] | None = None
    ) -> list[StoredCalendar]:
        """List the calendars of a project by name; with `names`, those of them that exist."""
        ...

    async def save_calendars(self, new: Sequence[NewCalendar], *, actor: str) -> None:
        """Create and change calendars, all or none. `Conflict` if one is not as expected.

        A firing that was planned with an earlier version is stale from here on.
        """
        ...

    async def delete_calendar(
        self, project: str, name: str, *, expected_version: int, actor: str
    ) -> None:
        """Delete a calendar. `Conflict` if a job uses it, or if it is not as expected."""
        ...


class ScheduleStore(Protocol):
    async def due_schedules(
        self, before: datetime, limit: int, shards: Collection[int]
    ) -> list[DueSchedule]:
        """List schedules of these shards with a due time before the given one, by due time."""
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
        """List schedules that waited for the end of a run that has ended."""
        ...

    async def rearm(self, rearmed: Sequence[Rearmed]) -> None:
        """Give such schedules their next due time, held if the job is; skip those that moved."""
        ...

    async def ended_pauses(self, limit: int) -> list[Job]:
        """List jobs whose pause has reached its end."""
        ...

    async def next_pause_end(self) -> datetime | None:
        """Return when the next pause ends by itself; None: none does."""
        ...

    async def congested_jobs(self) -> dict[JobId, Congestion]:
        """Return jobs whose scheduled runs wait for one another, or have been active for long."""
        ...

    async def mark_stuck(
        self, stuck: Mapping[JobId, Congestion], congested: Collection[JobId]
    ) -> list[JobId]:
        """Record that jobs are stuck, once an episode; it ends when a job is not `congested`.

        Returns those whose episode begins.
        """
        ...

    async def next_eligible_at(self) -> datetime | None:
        """Return when the next SCHEDULED run may be released; None: there is none."""
        ...

    async def release_eligible(self, limit: int) -> int:
        """Pass SCHEDULED runs whose time has come through the gates; return how many."""
        ...

    async def release_forgotten(self, limit: int) -> int:
        """Release runs that a lost wake-up left waiting, and end runs that passed their deadline.

        Returns how many.
        """
        ...


class RunStore(Protocol):
    async def submit(
        self, runs: Sequence[NewRun], idempotency: Idempotency | None = None
    ) -> Submitted:
        """Insert runs, all or none; or return the first answer if the key was seen before."""
        ...

    async def submit_one(self, run: NewRun, idempotency: Idempotency | None = None) -> SubmittedRun:
        """Insert one run. Many such calls at the same time cost little more than one."""
        ...

    async def submit_backfill(
        self, backfill: Backfill, runs: Sequence[NewRun], idempotency: Idempotency | None = None
    ) -> SubmittedBackfill:
        """Insert a backfill and its runs. `Conflict` if a due time is being backfilled already."""
        ...

    async def due_runs(self, job: JobId, due: Sequence[datetime]) -> list[DueRun]:
        """List the runs that a job has for these due times, of its schedule and of backfills, by
        age.

        `due` is in order.
        """
        ...

    async def claim(
        self, session: SessionId, slots: int, stream: int = 1, runs: Sequence[str] = ()
    ) -> Claimed:
        """Lease up to `slots` queued runs to a session, each as a new attempt.

        `runs` go first, as far as they are queued and fit, then others in order of service. For its
        first second a run is left to the worker with room where it leaves least over.
        `StaleStream` if the worker has connected anew since: only its latest server may claim.
        """
        ...

    async def any_queued(self, runs: Sequence[str]) -> bool:
        """Return whether one of these runs is still queued."""
        ...

    async def start(self, session: SessionId, starts: Sequence[Start]) -> StartAnswer: ...

    async def finish(
        self, session: SessionId, report: Report, *, claim: int = 0, stream: int = 1
    ) -> Finished:
        """End attempts. A report that is too late is kept as a late result, a repeat is accepted.

        An attempt whose rows stay locked by others is to be reported again.
        With `claim`, up to that many runs are given to the session in the same transaction, none
        if the stream is stale.
        """
        ...

    async def cancel(self, runs: Sequence[RunId], *, actor: str) -> frozenset[RunId]:
        """Cancel waiting runs, ask live ones to stop. Return the runs that were not final."""
        ...

    async def resolve(self, run: RunId, state: RunState, *, actor: str) -> None:
        """Resolve an UNKNOWN run: COMPLETED, FAILED, or SCHEDULED (try again)."""
        ...

    async def settle_probes(self, limit: int) -> int:
        """Resolve UNKNOWN runs as their probes say that have ended; return how many had."""
        ...

    async def probes_about(self, run: RunId) -> list[ProbeOf]:
        """List the probes that asked about a run, the latest last."""
        ...

    async def probed_by(self, run: RunId) -> RunId | None:
        """Return the run that a probe asks about; None: it is no probe."""
        ...

    # What a session tells of its attempts: how far they are, what names their work elsewhere.
    # Returned are those that it has not leased (any more), but by `tell_notes` those that it has.
    async def record_progress(
        self, session: SessionId, items: Sequence[Progress]
    ) -> tuple[Fence, ...]: ...
    async def keep_handles(
        self, session: SessionId, items: Sequence[RemoteHandle]
    ) -> tuple[Fence, ...]: ...
    async def tell_notes(
        self, session: SessionId, notes: Sequence[StepNote]
    ) -> frozenset[Fence]: ...

    # Of attempts that go on; and the end of those that are over, which returns how many they were.
    async def notes(self, runs: Collection[str]) -> dict[RunId, Note]: ...
    async def forget_notes(self, limit: int) -> int: ...

    async def runs(self, query: RunQuery, /) -> list[Run]: ...
    async def attempts(self, run: RunId) -> list[Attempt]: ...
    async def late_results(self, run: RunId) -> list[LateResult]: ...
    async def runs_following(self, run: RunId, limit: int) -> list[FollowingRun]: ...


class OutputStore(Protocol):
    async def open_outputs(self, session: SessionId, runs: Collection[str]) -> frozenset[Fence]:
        """Return attempts at these runs whose output the session may still send."""
        ...

    async def add_chunks(
        self, session: SessionId, chunks: Sequence[tuple[Fence, StoredChunk]]
    ) -> tuple[Fence, ...]:
        """Record stored chunks. Return the fences that were refused."""
        ...

    async def chunks(
        self, run: RunId, attempt: int, from_line: int = 0, limit: int = ...
    ) -> list[StoredChunk]:
        """Return chunks in order, from the one on that has a line; lines count what has arrived."""
        ...

    async def arrived_output(self, run: RunId, attempt: int) -> ArrivedOutput: ...

    async def inline_output(self, run: RunId, attempt: int) -> bytes: ...


class SessionStore(Protocol):
    async def register(
        self, hello: Hello, lease: timedelta, server: str = "", credential: str | None = None
    ) -> Session:
        """Register a worker at a server, in a session of its own.

        `Denied` if its credential is revoked by now: no session outlives the revocation of the
        credential that opened it.
        """
        ...

    async def resume(
        self, hello: Hello, server: str = "", credential: str | None = None
    ) -> Session | None:
        """Resume the live session of a worker, perhaps at another server: its stream grows by
        one and its lease is renewed. None if the session is over or barred, or another worker's;
        `Denied` as for `register`.
        """
        ...

    async def renew(self, session: SessionId, *, stopping: bool, trouble: str = "") -> Renewal:
        """Renew the lease of a session, and keep what its worker says it cannot do."""
        ...

    async def reap(self, expected_beats: Mapping[SessionId, int]) -> frozenset[SessionId]:
        """End sessions whose lease has expired by the store's clock and whose beat count is still
        the expected one; their attempts are lost."""
        ...

    async def lose(
        self, session: SessionId, fences: Sequence[Fence], *, is_untold: bool = False
    ) -> None:
        """End attempts as lost that are leased, but that their live worker does not have.

        They never reached it; or, if untold, it could not report their end, which counts towards
        the losses of their runs.
        """
        ...

    async def end_session(self, session: SessionId) -> None:
        """End the session of a worker that stops: all that it still has leased is lost now."""
        ...

    async def cancels(self, session: SessionId) -> tuple[Fence, ...] | None:
        """List attempts of a session that somebody asked to stop; None: the session is barred."""
        ...

    async def sessions(self, *, alive_only: bool) -> list[Session]:
        """List sessions for people to read: the newest thousand."""
        ...

    async def job_types(self) -> list[KnownType]:
        """List the types of plug-ins that workers have ever offered, by name."""
        ...

    async def served_pools(self) -> frozenset[str]:
        """Return the pools that have workers which do not stop."""
        ...

    async def seen_pools(self, project: str, pool: str) -> SeenPools:
        """Return whether a pool has workers that do not stop, and which others of a project do."""
        ...

    async def closed_pools(self, projects: Collection[str]) -> frozenset[str]:
        """Return the pools that none of these projects may use.

        They are given to others only, or no policy of these allows them.
        """
        ...

    async def heartbeats(self) -> list[Heartbeat]:
        """List the heartbeats of all live sessions."""
        ...

    async def forget_sessions(self, limit: int) -> int:
        """Delete sessions that ended months ago; return how many, at most `limit`.

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
        """Register a server, new or back; if it is alone, all earlier ones are over."""
        ...

    async def keep_shards(self, server: ServerId, *, stopping: bool) -> OwnedShards:
        """Renew a server's lease, take the shards assigned to it, and give up those of others.

        A lease that has ended cannot be renewed: such a server joins anew. Two servers that
        believe to own a shard are harmless: it grows an epoch older each time that it is taken,
        and `fire` obeys only the latest.
        """
        ...

    async def leave_cluster(self, server: ServerId) -> None:
        """Remove a server that stops: its shards are free."""
        ...

    async def servers(self) -> list[Server]:
        """List servers of the last day, those that are over too, the newest first."""
        ...

    async def shards(self) -> list[Shard]:
        """List all shards, by number."""
        ...


class Store(
    JobStore,
    CalendarStore,
    ScheduleStore,
    RunStore,
    CartStore,
    OutputStore,
    FileStore,
    SessionStore,
    ServerStore,
    ExternalStore,
    CredentialStore,
    LoginStore,
    TokenStore,
    ProjectStore,
    PrincipalStore,
    ForecastStore,
    LimitStore,
    ChainStore,
    WaitingStore,
    Protocol,
):
    """Whole store. Components ask for the part they need."""

    async def now(self) -> datetime:
        """Return the time of the store's clock: the only one that decides."""
        ...

    async def events(
        self,
        after: int,
        limit: int,
        *,
        ids: Sequence[str] = (),
        projects: Collection[str] | None = None,
    ) -> list[Event]:
        """List events past a position, in order, none skipped; `ids` keeps those that name one.

        Only what is of these projects is read; None: all, and the installation's, which have "".
        """
        ...

    async def position_before_latest(
        self, count: int, *, ids: Sequence[str] = (), projects: Collection[str] | None = None
    ) -> int:
        """Return the position past which so many such events are, the latest; 0: there are fewer.

        Positions have gaps, so that it cannot be told from the last one.
        """
        ...

    async def last_event(self) -> int:
        """Return the position of the latest event that can be listed; 0: there is none."""
        ...

    async def names(
        self, ids: Sequence[str], *, projects: Collection[str] | None = None
    ) -> dict[str, str]:
        """Return names of runs (their jobs'), jobs, carts and sessions (their workers') by id."""
        ...

    async def counts(self) -> Counts: ...

    async def check(self) -> None:
        """Raise `Unavailable` unless reads and writes work."""
        ...

    async def close(self) -> None: ...
