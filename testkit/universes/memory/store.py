"""The decisions of the domain on a store in memory: no statements, no transactions, no disk.

It has the verbs that servers and workers of a universe need, with the promises of
`rota.ports.store`, so that thousands of universes pass while SQL would see a few.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from operator import attrgetter

from rota.domain.errors import StaleStream
from rota.domain.ids import JobId, RunId, SessionId, instant, micros, scheduled_run_id
from rota.domain.order import share_key
from rota.domain.resources import capacity_of
from rota.domain.retry import Ending, attempt_ended
from rota.domain.run import AttemptResult, Trigger
from rota.domain.states import LEASED_STATES, RunEvent, RunState
from rota.ports.records import (
    Claimed,
    DueSchedule,
    Finished,
    Fired,
    Firing,
    Heartbeat,
    LedgerEntry,
    NewRun,
    PlannedRun,
    Renewal,
    Session,
    Submitted,
)
from rota.ports.work import Fence, Hello, Outcome, Start, StartAnswer
from testkit.clock import START
from testkit.universes.catalogue import PROJECT, KnownJob
from testkit.universes.memory.claiming import Claims
from testkit.universes.memory.gating import Book
from testkit.universes.memory.rows import StoredRun, StoredSession
from testkit.universes.timeline import TrueTime

_RESOLVED = {
    RunState.COMPLETED: RunEvent.RESOLVED_COMPLETED,
    RunState.FAILED: RunEvent.RESOLVED_FAILED,
    RunState.SCHEDULED: RunEvent.RESOLVED_RETRY,
}


@dataclass(slots=True)
class _Cursor:
    """Where a schedule stands."""

    known: KnownJob
    next_at: datetime | None


class MemoryStore:
    """Every verb is done at once, so each is whole or not at all."""

    def __init__(self, clock: TrueTime, jobs: Mapping[JobId, KnownJob], *, has_quota: bool) -> None:
        self.book = Book(has_quota=has_quota)
        self._clock = clock
        self._jobs = jobs
        self._claims = Claims(self.book)
        self._sessions: dict[SessionId, StoredSession] = {}
        self._ledger: dict[JobId, list[LedgerEntry]] = {}
        self._cursors = {
            job: _Cursor(known, known.firing.timetable.next_after(START))
            for job, known in jobs.items()
            if known.firing is not None
        }

    # --- schedules

    async def due_schedules(self) -> list[DueSchedule]:
        """Those that are due by now."""
        return [
            DueSchedule(job, cursor.next_at, 1, 1, START, 0)
            for job, cursor in self._cursors.items()
            if cursor.next_at is not None and micros(cursor.next_at) <= self._clock.now()
        ]

    async def fire(self, firings: Sequence[Firing]) -> Fired:
        accepted = [firing for firing in firings if self._is_current(firing)]
        for firing in accepted:
            self._cursors[firing.job_id].next_at = firing.next_at
            answers = self._ledger.setdefault(firing.job_id, [])
            for it in firing.unanswered:
                answers.append(LedgerEntry(it.first, it.last, it.count, it.state, it.cause, None))
            for planned in firing.runs:
                run = self._insert_due(firing.job_id, planned)
                answers.append(LedgerEntry(run.due_at, run.due_at, 1, run.state, "", run.id))
        runs = sum(len(firing.runs) for firing in accepted)
        return Fired(frozenset(firing.job_id for firing in accepted), runs)

    def _is_current(self, firing: Firing) -> bool:
        is_due = micros(firing.claimed_next_at) <= self._clock.now()
        return is_due and self._cursors[firing.job_id].next_at == firing.claimed_next_at

    def _insert_due(self, job: JobId, planned: PlannedRun) -> StoredRun:
        run = StoredRun(
            scheduled_run_id(job, planned.due_at),
            self._jobs[job],
            Trigger.SCHEDULE,
            planned.due_at,
            share_key(PROJECT, "scheduler"),
            is_caught_up=planned.is_caught_up,
            eligible_at=micros(planned.release_at),
        )
        self.book.insert(run, self._clock.now())
        return run

    async def ledger(self, job: JobId) -> list[LedgerEntry]:
        return self._ledger.get(job, [])

    async def release(self) -> int:
        """What waits for its time, for its job or for a key goes, as far as it may."""
        now = self._clock.now()
        for run in sorted(self.book.live.values(), key=attrgetter("rank")):
            is_timely = run.state is RunState.SCHEDULED and run.eligible_at <= now
            if run.id in self.book.live and (is_timely or run.blocked_on in run.keys):
                self.book.admit(run, now)
        for known in self._jobs.values():
            self.book.release_waiting(known, now)
        return 0

    # --- runs

    async def submit(self, runs: Sequence[NewRun]) -> Submitted:
        for new in runs:
            run = StoredRun(
                new.id,
                self._jobs[new.job_id],
                new.trigger,
                new.at or self._clock.instant,
                share_key(PROJECT, new.created_by),
                inputs=new.inputs,
                eligible_at=micros(new.at) if new.at else 0,
            )
            self.book.insert(run, self._clock.now())
        return Submitted(tuple(new.id for new in runs))

    async def claim(
        self, session: SessionId, slots: int, stream: int = 1, runs: Sequence[str] = ()
    ) -> Claimed:
        found = self._sessions[session]
        if not found.alive or found.expires_at <= self._clock.now():
            return Claimed([])
        if found.stream != stream:
            raise StaleStream(f"the worker of session {session} has connected anew")
        taken = self._claims.take(found, slots, self._clock.now())
        return Claimed([run.as_work() for run in taken])

    async def start(self, session: SessionId, starts: Sequence[Start]) -> StartAnswer:
        granted: list[Fence] = []
        cancelled: list[Fence] = []
        refused: list[Fence] = []
        for item in starts:
            run, fence = self.book.runs[RunId(item.run)], Fence(item.run, item.attempt)
            if not _holds(run, session, fence):
                refused.append(fence)
            elif run.state is RunState.CLAIMED and run.is_cancel_requested:
                cancelled.append(fence)
            else:
                granted.append(fence)
                if run.state is RunState.CLAIMED:
                    run.move(RunEvent.STARTED)
        return StartAnswer(tuple(granted), tuple(cancelled), tuple(refused))

    async def finish(
        self, session: SessionId, outcomes: Sequence[Outcome], *, claim: int = 0, stream: int = 1
    ) -> Finished:
        accepted: list[Fence] = []
        fenced: list[Fence] = []
        for outcome in outcomes:
            run, fence = self.book.runs[RunId(outcome.run)], Fence(outcome.run, outcome.attempt)
            if _holds(run, session, fence):
                self._end(run, AttemptResult(outcome.result))
            holder, result = run.results.get(fence.attempt, (None, AttemptResult.LOST))
            is_own = holder == session and result is not AttemptResult.LOST
            (accepted if is_own else fenced).append(fence)
        found = self._sessions[session]
        may_claim = claim > 0 and found.stream == stream
        works = (await self.claim(session, claim, stream)).works if may_claim else []
        return Finished(tuple(accepted), tuple(fenced), tuple(works))

    def _end(self, run: StoredRun, result: AttemptResult, *, counts: bool = True) -> None:
        """An attempt is over, and the run goes on or not."""
        assert run.session is not None
        run.results[run.attempt] = (run.session, result)
        ending = Ending(
            run.state,
            result,
            self._clock.instant,
            failures=run.failures,
            losses=run.losses,
            counts=counts,
            delivery=run.known.rules.delivery,
            is_cancel_requested=run.is_cancel_requested,
        )
        rules = run.known.rules
        verdict = attempt_ended(ending, rules.retry, rules.max_losses, 0.0)
        run.failures += result in (AttemptResult.FAILED, AttemptResult.TIMED_OUT)
        run.losses += result is AttemptResult.LOST and counts
        run.move(verdict.event)
        if verdict.eligible_at is not None:
            run.eligible_at = micros(verdict.eligible_at)
        self.book.settle(run, self._clock.now())
        self.book.release_waiting(run.known, self._clock.now())

    async def cancel(self, runs: Sequence[RunId], *, actor: str) -> frozenset[RunId]:
        concerned = [
            run
            for run in map(self.book.live.get, runs)
            if run is not None and run.state is not RunState.UNKNOWN
        ]
        for run in concerned:
            self.book.cancel(run, self._clock.now())
            self.book.release_waiting(run.known, self._clock.now())
        return frozenset(run.id for run in concerned)

    async def resolve(self, run: RunId, state: RunState, *, actor: str) -> None:
        found = self.book.runs[run]
        found.move(_RESOLVED[state])
        found.is_cancel_requested = False
        self.book.settle(found, self._clock.now())
        self.book.release_waiting(found.known, self._clock.now())

    # --- sessions

    async def register(self, hello: Hello, lease: timedelta, server: str = "") -> Session:
        earlier = self._sessions.get(SessionId(hello.succeeds))
        if earlier is not None:
            self._lose_all(earlier)
        now, length = self._clock.now(), lease // timedelta(microseconds=1)
        new = StoredSession(
            SessionId(f"w_{len(self._sessions)}"),
            hello.worker,
            capacity_of(hello.slots, hello.resources),
            hello.slots,
            length,
            now + length,
            now,
            server=server,
        )
        self._sessions[new.id] = new
        return _session(new)

    async def resume(self, hello: Hello, server: str = "") -> Session | None:
        found = self._sessions[SessionId(hello.resumes)]
        if not found.alive:
            return None
        found.stream += 1
        found.beats += 1
        found.server = server
        found.expires_at = self._clock.now() + found.lease
        return _session(found)

    async def renew(self, session: SessionId, *, stopping: bool) -> Renewal:
        found, now = self._sessions[session], self._clock.instant
        if not found.alive:
            return Renewal(alive=False, now=now)
        found.beats += 1
        found.expires_at = self._clock.now() + found.lease
        held = self._held(session)
        cancel = tuple(run.fence for run in held if run.is_cancel_requested)
        fences = tuple(run.fence for run in held)
        return Renewal(alive=True, now=now, cancel=cancel, held=fences, stream=found.stream)

    async def heartbeats(self) -> list[Heartbeat]:
        return [
            Heartbeat(session.id, session.beats, timedelta(microseconds=session.lease))
            for session in self._sessions.values()
            if session.alive
        ]

    async def reap(self, expected_beats: Mapping[SessionId, int]) -> frozenset[SessionId]:
        gone = [
            session
            for session in map(self._sessions.__getitem__, expected_beats)
            if session.alive
            and session.expires_at < self._clock.now()
            and session.beats == expected_beats[session.id]
        ]
        for session in gone:
            self._lose_all(session)
        return frozenset(session.id for session in gone)

    async def lose(self, session: SessionId, fences: Sequence[Fence]) -> None:
        for fence in fences:
            run = self.book.runs[RunId(fence.run)]
            if _holds(run, session, fence):
                self._end(run, AttemptResult.LOST, counts=False)

    def _lose_all(self, session: StoredSession) -> None:
        session.alive = False
        for run in self._held(session.id):
            self._end(run, AttemptResult.LOST)

    def _held(self, session: SessionId) -> list[StoredRun]:
        return [
            run
            for run in self.book.live.values()
            if run.session == session and run.state in LEASED_STATES
        ]


def _holds(run: StoredRun, session: SessionId, fence: Fence) -> bool:
    return run.state in LEASED_STATES and (run.session, run.attempt) == (session, fence.attempt)


def _session(row: StoredSession) -> Session:
    return Session(
        id=row.id,
        worker=row.worker,
        pool="default",
        slots=row.slots,
        labels={},
        functions=(),
        guard_mode="",
        version="",
        lease=timedelta(microseconds=row.lease),
        registered_at=instant(row.registered_at),
        expires_at=instant(row.expires_at),
        beats=row.beats,
        alive=row.alive,
        stopping=False,
        server=row.server,
        stream=row.stream,
    )
