"""Builders for what tests pass to a store, with a default for all that they leave out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

import msgspec

from rota.domain.backfill import Backfill
from rota.domain.calendars import Calendar
from rota.domain.gates import ClosableJob, Closing, Gate, closing_reason
from rota.domain.ids import (
    SHARD_COUNT,
    BackfillId,
    JobId,
    RunId,
    ServerId,
    SessionId,
    micros,
    new_backfill_id,
    new_job_id,
    new_run_id,
    shard_of,
)
from rota.domain.job import Job, RunRules
from rota.domain.policy import Policy
from rota.domain.run import AttemptResult, Reason, Run, Trigger
from rota.domain.shards import SCHEDULER
from rota.domain.states import RunState
from rota.ports.projects import NewProject
from rota.ports.records import (
    Finished,
    Fired,
    Firing,
    Idempotency,
    JobQuery,
    NewCalendar,
    NewJob,
    NewRun,
    NewServer,
    Ownership,
    PlannedRun,
    RunQuery,
    ScheduleMove,
    Submitted,
    SubmittedBackfill,
)
from rota.ports.store import Store
from rota.ports.work import EndBatch, Fence, Hello, Outcome, Report, Start, StartAnswer, Work
from testkit.clock import FakeTicker

LEASE = timedelta(hours=1)  # long enough not to matter
MINUTE = timedelta(minutes=1)
SERVER = ServerId("s_test")
ALL_SHARDS = range(SHARD_COUNT)


def new_job(
    name: str,
    now: datetime,
    *,
    job_id: JobId | None = None,
    next_at: datetime | None = None,
    expected_version: int = 0,
    project: str = "default",
    set_name: str = "file",
    calendars: Sequence[str] = (),
    **rules: Any,
) -> NewJob:
    """Build a job, or the next version of one; `rules` are fields of `RunRules`."""
    return NewJob(
        id=job_id or new_job_id(),
        project=project,
        name=name,
        document={"name": name, "steps": [{"run": "true"}]},
        digest=f"{name}-{expected_version + 1}",
        rules=RunRules(name, project, is_scheduled=next_at is not None, **rules),
        set_name=set_name,
        next_at=next_at,
        held_from=None,
        anchor=now,
        enabled=True,
        expected_version=expected_version,
        calendars=calendars,
    )


def new_calendar(name: str = "nights", *windows: str, expected_version: int = 0) -> NewCalendar:
    """Build a calendar, or the next version of one."""
    calendar = Calendar(name, windows or ("daily 22:00-06:00",))
    return NewCalendar("default", calendar, expected_version)


def hello(worker: str = "worker", *, slots: int = 10, **fields: Any) -> Hello:
    """Build the hello of a worker."""
    return Hello(worker=worker, pool=fields.pop("pool", "default"), slots=slots, **fields)


def new_server(
    server: str = SERVER,
    *,
    lease: timedelta = LEASE,
    roles: tuple[str, ...] = (SCHEDULER,),
    **fields: Any,
) -> NewServer:
    """Build a server with the scheduler role, named like its id."""
    return NewServer(ServerId(server), server, lease, roles, **fields)


def outcome(
    fence: Fence | Work, result: str = AttemptResult.COMPLETED, *, at: int = 0, **fields: Any
) -> Outcome:
    """Build the outcome of an attempt; `at` is its start and its end."""
    return Outcome(fence.run, fence.number, result, at, at, **fields)


def reported(*outcomes: Outcome) -> Report:
    """Build a report as workers do: what completed and has no more to tell goes in columns."""
    plain = [each for each in outcomes if _is_plain(each)]
    rest = tuple(each for each in outcomes if not _is_plain(each))
    return Report(ends(*plain), rest)


def ends(*outcomes: Outcome) -> EndBatch:
    """Build a batch of ends; of these outcomes it has only what such a batch can tell."""
    return EndBatch(
        [each.run for each in outcomes],
        [each.number for each in outcomes],
        [each.started_at for each in outcomes],
        [each.ended_at for each in outcomes],
        [round(each.cpu_seconds * 1e6) for each in outcomes],
        {
            at: msgspec.json.encode(each.outputs).decode()
            for at, each in enumerate(outcomes)
            if each.outputs is not None
        },
    )


def _is_plain(outcome: Outcome) -> bool:
    shown = msgspec.structs.replace(outcome, outputs=None, cpu_seconds=0.0)
    return shown == Outcome(
        outcome.run,
        outcome.number,
        AttemptResult.COMPLETED,
        outcome.started_at,
        outcome.ended_at,
    )


def firing_of(job: Job, *due: datetime, next_at: datetime | None = None, **fields: Any) -> Firing:
    """Build the firing of a job that is due; without `due`, of its next due time."""
    assert job.next_at is not None
    return Firing(
        job_id=job.id,
        shard=shard_of(job.id),
        job_version=job.version,
        schedule_version=job.schedule_version,
        claimed_next_at=job.next_at,
        runs=fields.pop("runs", [PlannedRun(at, at) for at in due or (job.next_at,)]),
        answered=fields.pop("answered", ()),
        next_at=next_at,
        **fields,
    )


def closed_until(at: datetime) -> Closing:
    """Build a gate that closes every job until then, for `gates.CLOSINGS`."""

    def reason(job: ClosableJob, now: datetime) -> Reason | None:
        if now >= at:
            return None
        return closing_reason(Gate.CALENDAR, job, "closed for a while", opens_at=at, action="")

    return Closing(Gate.CALENDAR, lambda _: True, reason)


@dataclass(frozen=True, slots=True)
class Scene:
    """Store with a clock to move, and the actions of people, schedulers and workers on it."""

    store: Store
    clock: FakeTicker
    home: str = "default"  # the project in which things happen

    def advance(self, duration: timedelta) -> datetime:
        return self.clock.advance(duration)

    async def project(self, name: str, policy: Policy = Policy()) -> str:  # noqa: B008 (frozen)
        """Make a project; return its name."""
        await self.store.add_project(NewProject(name, policy=policy), actor="admin")
        return name

    async def in_project(self, name: str) -> Scene:
        """Make a project; return the scene of what happens there."""
        return replace(self, home=await self.project(name))

    async def job(self, name: str = "job", **fields: Any) -> JobId:
        """Save a new job."""
        job = new_job(name, self.clock.instant, **{"project": self.home, **fields})
        await self.store.save_jobs([job], removed=(), actor="editor")
        return job.id

    async def change(self, job_id: JobId, **fields: Any) -> Job:
        """Save the next version of a job."""
        old = await self.show_job(job_id)
        new = new_job(
            old.name,
            self.clock.instant,
            project=self.home,
            job_id=job_id,
            expected_version=old.version,
            **fields,
        )
        await self.store.save_jobs([new], removed=(), actor="editor")
        return await self.show_job(job_id)

    async def show_job(self, job_id: JobId) -> Job:
        [job] = await self.store.jobs(JobQuery(project=self.home, ids=[job_id]))
        return job

    async def move(self, kind: str, job_id: JobId, *, next_at: datetime | None = None) -> Job:
        """Pause, resume, enable or disable a job."""
        job = await self.show_job(job_id)
        move = ScheduleMove(
            kind=kind,
            job_id=job_id,
            expected_schedule_version=job.schedule_version,
            expected_next_at=job.next_at,
            enabled=job.enabled if kind in ("paused", "resumed") else kind == "enabled",
            paused=job.paused if kind in ("enabled", "disabled") else kind == "paused",
            next_at=next_at,
            held_from=None,
        )
        await self.store.move_schedules([move], actor="operator")
        return await self.show_job(job_id)

    async def submit(self, job_id: JobId, count: int = 1, **fields: Any) -> Submitted:
        job = await self.show_job(job_id)
        return await self.store.submit(
            [
                NewRun(
                    id=new_run_id(self.clock.instant),
                    job_id=job_id,
                    job_version=job.version,
                    trigger=Trigger.MANUAL,
                    created_by="user",
                    **fields,
                )
                for _ in range(count)
            ]
        )

    async def trigger(self, job_id: JobId, count: int = 1, **fields: Any) -> list[RunId]:
        """Trigger runs by hand."""
        return list((await self.submit(job_id, count, **fields)).runs)

    async def backfill(
        self,
        job_id: JobId,
        due: Sequence[datetime],
        *,
        max_parallel: int = 1,
        key: Idempotency | None = None,
        **fields: Any,
    ) -> SubmittedBackfill:
        """Backfill these due times of the past; `fields` are those of every run."""
        job = await self.show_job(job_id)
        backfill = Backfill(
            id=new_backfill_id(),
            job_id=job_id,
            max_parallel=max_parallel,
            created_by="user",
            runs=len(due),
            first=due[0] if due else None,
            last=due[-1] if due else None,
        )
        runs = [
            NewRun(
                id=new_run_id(self.clock.instant),
                job_id=job_id,
                job_version=job.version,
                trigger=Trigger.BACKFILL,
                created_by="user",
                due_at=at,
                **fields,
            )
            for at in due
        ]
        return await self.store.submit_backfill(backfill, runs, key)

    async def backfilled(self, backfill: BackfillId) -> list[Run]:
        """List the runs of a backfill, in order of their due times."""
        runs = await self.store.runs(RunQuery(backfill=backfill, limit=1_000))
        return sorted(runs, key=lambda run: run.due_at)

    async def fire(self, job_id: JobId, *, every: timedelta = MINUTE, **fields: Any) -> Fired:
        """Fire a job's next due time and move its schedule on."""
        job = await self.show_job(job_id)
        assert job.next_at is not None
        fields.setdefault("next_at", job.next_at + every)
        return await self.fire_all([firing_of(job, **fields)])

    async def fire_all(self, firings: Sequence[Firing]) -> Fired:
        """Fire as the only server."""
        return await self.store.fire(firings, await self.ownership())

    async def ownership(self, server: str = SERVER) -> Ownership:
        """Return the shards of a server, which registers if it has not yet."""
        holding = await self.store.keep_shards(ServerId(server), stopping=False)
        if not holding.alive:
            await self.store.join(new_server(server))
            holding = await self.store.keep_shards(ServerId(server), stopping=False)
        return Ownership(ServerId(server), holding.shards)

    async def scheduled_run(self, job_id: JobId, *, every: timedelta = MINUTE) -> Run:
        """Advance until a job is due, fire it, and return the run."""
        job = await self.show_job(job_id)
        assert job.next_at is not None
        self.advance(max(job.next_at - self.clock.instant, timedelta(0)))
        await self.fire(job_id, every=every)
        query = RunQuery(project=self.home, job_id=job_id, limit=1)
        [newest] = await self.store.runs(query)
        return newest

    async def worker(
        self, name: str = "worker", *, lease: timedelta = LEASE, **fields: Any
    ) -> SessionId:
        session = await self.store.register(hello(name, **fields), lease)
        return session.id

    async def vanish(self, session: SessionId) -> None:
        """Advance until the lease of a silent worker has expired, and end its session."""
        [beats] = [s.beats for s in await self.store.sessions(alive_only=True) if s.id == session]
        self.advance(LEASE + MINUTE)
        await self.store.reap({session: beats})

    async def claim(
        self, session: SessionId, slots: int = 100, *, stream: int = 1, runs: Sequence[str] = ()
    ) -> list[Work]:
        return list((await self.store.claim(session, slots, stream, runs)).batch.works())

    async def start(self, session: SessionId, attempts: Iterable[Fence | Work]) -> StartAnswer:
        """Ask for the permit to execute, or report the start."""
        at = micros(self.clock.instant)
        return await self.store.start(session, [Start(f.run, f.number, at) for f in attempts])

    async def finish(
        self,
        session: SessionId,
        attempts: Iterable[Fence | Work],
        result: str = AttemptResult.COMPLETED,
        **fields: Any,
    ) -> Finished:
        """Report the end of attempts, all alike."""
        at = micros(self.clock.instant)
        return await self.store.finish(
            session, reported(*(outcome(fence, result, at=at, **fields) for fence in attempts))
        )

    async def release(self) -> int:
        return await self.store.release_eligible(1_000)

    async def show(self, run_id: str) -> Run:
        [run] = await self.store.runs(RunQuery(project=self.home, ids=[run_id]))
        return run

    async def state(self, run_id: str) -> RunState:
        return (await self.show(run_id)).state

    async def states(self, runs: Sequence[str]) -> list[RunState]:
        return [await self.state(run) for run in runs]
