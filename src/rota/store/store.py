"""The store port on SQL: every verb hands a script to a driver."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, TypeVar

from rota.domain.backfill import Backfill, DueRun
from rota.domain.errors import HeldTooLong
from rota.domain.ids import JobId, RunId, ServerId, SessionId
from rota.domain.job import Job
from rota.domain.keys import Declaration
from rota.domain.lateness import Congestion
from rota.domain.run import Attempt, LateResult
from rota.domain.shards import Server, Shard
from rota.domain.states import RunState
from rota.ports import records as port
from rota.ports.carts import NO_TEMPLATES, TemplateChanges
from rota.ports.records import NewCalendar, NewToken, StoredCalendar, Token
from rota.ports.work import Fence, Hello, Outcome, Progress, Start, StartAnswer
from rota.store.cart_verbs import CartVerbs
from rota.store.driving import Driver, Urgency
from rota.store.forecast_verbs import ForecastVerbs
from rota.store.joined_verbs import JoinedVerbs
from rota.store.limit_verbs import LimitVerbs
from rota.store.line_verbs import LineVerbs
from rota.store.reaping import Reaped, Reaping, Silent
from rota.store.script import MakeScript, Many, Script
from rota.store.scripts import (
    backfilling,
    calendars,
    claiming,
    defining,
    draining,
    finishing,
    firing,
    printing,
    reading,
    releasing,
    running,
    sessions,
    shards,
    sweeping,
    tokens,
    watching,
)
from rota.store.scripts.gates import HoldGates, hold_free_gates, hold_gates, hold_when_read
from rota.store.scripts.memory import Memory
from rota.store.scripts.rules import RulesBook
from rota.store.waiting_verbs import WaitingVerbs

T = TypeVar("T")
_NOTE_USE_EVERY = timedelta(minutes=1)  # a token's last use is known this exactly


class SqlStore(JoinedVerbs, CartVerbs, ForecastVerbs, LimitVerbs, LineVerbs, WaitingVerbs):
    """Implements `rota.ports.store.Store`."""

    def __init__(self, driver: Driver, memory: Memory | None = None) -> None:
        super().__init__(driver, RulesBook(), memory or Memory())
        self._reaping = Reaping(self._reap, self.now)
        self._swept_to = ""  # where the next sweep goes on

    # --- jobs

    async def save_jobs(
        self,
        jobs: Sequence[port.NewJob],
        *,
        removed: Sequence[port.RemovedJob] = (),
        actor: str,
        calendars: Sequence[NewCalendar] = (),
        templates: TemplateChanges = NO_TEMPLATES,
        declarations: Sequence[Declaration] = (),
        shares: Sequence[str] = (),
    ) -> port.Wakes:
        new = defining.Definitions(jobs, removed, calendars, templates, declarations, shares)
        return await self._write(lambda now: defining.save(now, new, actor, self._book))

    async def move_schedules(self, moves: Sequence[port.ScheduleMove], *, actor: str) -> port.Wakes:
        return await self._write(lambda now: defining.move(now, moves, actor, self._book))

    async def documents(
        self, refs: Sequence[tuple[JobId, int]]
    ) -> dict[tuple[JobId, int], Mapping[str, Any]]:
        return await self._driver.read(lambda _: reading.documents(refs), Urgency.CLAIM)

    async def start_delays(self, job: JobId, limit: int) -> list[float]:
        return await self._driver.read(lambda _: reading.start_delays(job, limit))

    async def ledger(
        self,
        job: JobId,
        since: datetime,
        until: datetime,
        limit: int,
        *,
        newest_first: bool = False,
    ) -> list[port.LedgerEntry]:
        part = reading.LedgerPart(job, since, until, limit, newest_first=newest_first)
        return await self._driver.read(lambda _: reading.ledger(part))

    # --- calendars

    async def calendars(
        self, project: str, names: Sequence[str] | None = None
    ) -> list[StoredCalendar]:
        return await self._driver.read(lambda _: calendars.calendars(project, names))

    async def save_calendars(self, new: Sequence[NewCalendar], *, actor: str) -> port.Wakes:
        return await self._write(lambda now: calendars.save(now, new, actor))

    async def delete_calendar(
        self, project: str, name: str, *, expected_version: int, actor: str
    ) -> port.Wakes:
        return await self._write(
            lambda now: calendars.delete(now, project, name, expected_version, actor)
        )

    # --- schedules

    async def due_schedules(
        self, before: datetime, limit: int, shards: Collection[int]
    ) -> list[port.DueSchedule]:
        return await self._driver.read(
            lambda _: reading.due_schedules(before, limit, shards), Urgency.FIRE
        )

    async def fire(
        self,
        firings: Sequence[port.Firing],
        ownership: port.Ownership,
        room: port.Room | None = None,
    ) -> port.Fired:
        return await self._fire(
            lambda now, hold: firing.fire(
                now, firings, ownership, room, self._book, self._memory, hold
            ),
            hold_when_read,
        )

    async def ended_waits(self, limit: int) -> list[port.EndedWait]:
        return await self._driver.read(lambda _: reading.ended_waits(limit), Urgency.FIRE)

    async def rearm(self, rearmed: Sequence[port.Rearmed]) -> None:
        await self._fire(lambda _, hold: firing.rearm(rearmed, hold))

    async def ended_pauses(self, limit: int) -> list[Job]:
        return await self._driver.read(lambda now: reading.ended_pauses(now, limit), Urgency.FIRE)

    async def next_pause_end(self) -> datetime | None:
        return await self._driver.read(reading.next_pause_end, Urgency.FIRE)

    async def congested_jobs(self) -> dict[JobId, Congestion]:
        return await self._driver.read(watching.congested_jobs)

    async def mark_stuck(
        self, stuck: Mapping[JobId, Congestion], congested: Collection[JobId]
    ) -> list[JobId]:
        return await self._write(lambda now: watching.mark_stuck(now, stuck, congested))

    async def next_eligible_at(self) -> datetime | None:
        return await self._driver.read(lambda _: reading.next_eligible_at(), Urgency.FIRE)

    async def release_eligible(self, limit: int) -> port.Released:
        return await self._fire(
            lambda now, hold: releasing.release_eligible(now, limit, hold, self._memory)
        )

    async def release_forgotten(self, limit: int) -> port.Released:
        released, self._swept_to = await self._write(
            lambda now: sweeping.sweep(now, limit, self._swept_to)
        )
        return released

    # --- runs

    async def submit_backfill(
        self,
        backfill: Backfill,
        runs: Sequence[port.NewRun],
        idempotency: port.Idempotency | None = None,
    ) -> port.SubmittedBackfill:
        return await self._write(
            lambda now: backfilling.submit(now, backfill, runs, idempotency, self._book)
        )

    async def due_runs(self, job: JobId, due: Sequence[datetime]) -> list[DueRun]:
        return await self._driver.read(lambda _: backfilling.due_runs(job, due))

    async def claim(
        self, session: SessionId, slots: int, stream: int = 1, runs: Sequence[str] = ()
    ) -> port.Claimed:
        wish = claiming.Wish(slots, stream, runs)
        return await self._write(
            lambda now: claiming.claim(now, session, wish, self._memory), Urgency.CLAIM
        )

    async def any_queued(self, runs: Sequence[str]) -> bool:
        return await self._driver.read(lambda _: reading.any_queued(runs))

    async def start(self, session: SessionId, starts: Sequence[Start]) -> StartAnswer:
        return await self._write(lambda now: sessions.start(now, session, starts), Urgency.FINISH)

    async def finish(
        self, session: SessionId, outcomes: Sequence[Outcome], *, claim: int = 0, stream: int = 1
    ) -> port.Finished:
        wish, book, memory = claiming.Wish(claim, stream), self._book, self._memory
        try:
            return await self._write(
                lambda now: finishing.finish(now, session, outcomes, wish, book, memory),
                Urgency.FINISH,
            )
        except HeldTooLong:
            return await self._write(
                lambda now: finishing.finish_free(now, session, outcomes, book, memory),
                Urgency.FINISH,
            )

    async def cancel(
        self, runs: Sequence[RunId], *, actor: str
    ) -> tuple[frozenset[RunId], port.Wakes]:
        return await self._write(lambda now: running.cancel_runs(now, runs, actor))

    async def resolve(self, run: RunId, state: RunState, *, actor: str) -> port.Wakes:
        return await self._write(lambda now: running.resolve(now, run, state, actor))

    async def record_progress(self, session: SessionId, items: Sequence[Progress]) -> None:
        await self._write(lambda _: running.record_progress(session, items))

    async def attempts(self, run: RunId) -> list[Attempt]:
        return await self._driver.read(lambda _: reading.attempts(run))

    async def late_results(self, run: RunId) -> list[LateResult]:
        return await self._driver.read(lambda _: reading.late_results(run))

    # --- output

    async def open_outputs(self, session: SessionId, runs: Collection[str]) -> frozenset[Fence]:
        return await self._driver.read(
            lambda _: printing.open_outputs(session, runs), Urgency.FINISH
        )

    async def add_chunks(
        self, session: SessionId, chunks: Sequence[tuple[Fence, port.StoredChunk]]
    ) -> tuple[Fence, ...]:
        return await self._write(lambda _: printing.add_chunks(session, chunks), Urgency.FINISH)

    async def chunks(self, run: RunId, attempt: int) -> list[port.StoredChunk]:
        return await self._driver.read(lambda _: reading.chunks(run, attempt))

    async def inline_output(self, run: RunId, attempt: int) -> bytes:
        return await self._driver.read(lambda _: reading.inline_output(run, attempt))

    # --- sessions

    async def register(
        self, hello: Hello, lease: timedelta, server: str = ""
    ) -> tuple[port.Session, port.Wakes]:
        return await self._write(
            lambda now: sessions.register(now, hello, lease, server, self._book), Urgency.RENEW
        )

    async def resume(self, hello: Hello, server: str = "") -> port.Session | None:
        return await self._write(lambda now: sessions.resume(now, hello, server), Urgency.RENEW)

    async def renew(self, session: SessionId, *, stopping: bool) -> port.Renewal:
        return await self._write(lambda now: sessions.renew(now, session, stopping), Urgency.RENEW)

    async def reap(
        self, expected_beats: Mapping[SessionId, int]
    ) -> tuple[frozenset[SessionId], port.Wakes]:
        orphaned = await self._driver.read(lambda _: sessions.orphaned(), Urgency.FINISH)
        return await self._reaping.reap({**dict.fromkeys(orphaned), **expected_beats})

    async def _reap(self, silent: Silent) -> Reaped:
        return await self._write(lambda now: sessions.reap(now, silent, self._book), Urgency.FINISH)

    async def lose(self, session: SessionId, fences: Sequence[Fence]) -> port.Wakes:
        return await self._write(
            lambda now: sessions.lose_held(now, session, fences, self._book), Urgency.FINISH
        )

    async def end_session(self, session: SessionId) -> port.Wakes:
        return await self._write(
            lambda now: sessions.end_session(now, session, self._book), Urgency.FINISH
        )

    async def cancels(self, session: SessionId) -> tuple[Fence, ...]:
        return await self._driver.read(lambda _: reading.cancels(session), Urgency.CLAIM)

    async def sessions(self, *, alive_only: bool) -> list[port.Session]:
        return await self._driver.read(lambda _: reading.sessions(alive_only), Urgency.FINISH)

    async def heartbeats(self) -> list[port.Heartbeat]:
        return await self._driver.read(lambda _: reading.heartbeats(), Urgency.FINISH)

    async def forget_sessions(self, limit: int) -> int:
        return await self._write(lambda now: sessions.forget(now, limit))

    async def drain_worker(self, name: str, *, actor: str) -> None:
        await self._write(lambda now: draining.drain(now, name, actor))

    async def undrain_worker(self, name: str, *, actor: str) -> port.Wakes:
        return await self._write(lambda now: draining.undrain(now, name, actor))

    # --- servers

    async def join(self, server: port.NewServer) -> None:
        await self._write(lambda now: shards.join(now, server), Urgency.RENEW)

    async def keep_shards(self, server: ServerId, *, stopping: bool) -> port.Holding:
        return await self._write(lambda now: shards.keep(now, server, stopping), Urgency.RENEW)

    async def leave_cluster(self, server: ServerId) -> None:
        await self._write(lambda now: shards.leave(now, server), Urgency.RENEW)

    async def servers(self) -> list[Server]:
        return await self._driver.read(lambda _: shards.servers())

    async def shards(self) -> list[Shard]:
        return await self._driver.read(lambda _: shards.shards())

    # --- tokens

    async def add_token(self, token: NewToken) -> None:
        await self._write(lambda now: tokens.add(now, token))

    async def token_by_digest(
        self, digest: str, *, uses_up_login: bool = False
    ) -> tuple[Token, str] | None:
        found = await self._token(digest)
        if found is None:
            return None
        token, kind, now = found
        if uses_up_login:
            is_first = kind == "login" and await self.revoke_token(token.id, actor=token.name)
            return (token, kind) if is_first else None
        await self._note_use(token, now)
        return token, kind

    async def _note_use(self, token: Token, now: datetime) -> None:
        if token.last_used_at is None or now - token.last_used_at > _NOTE_USE_EVERY:
            with suppress(HeldTooLong):
                await self._write(lambda now: tokens.note_use(now, token.id), Urgency.GLANCE)

    async def tokens(self, kind: str = "api") -> list[Token]:
        return await self._driver.read(lambda _: reading.tokens(kind))

    async def revoke_token(self, token_id: str, *, actor: str) -> bool:
        return await self._write(lambda now: tokens.revoke(now, token_id, actor))

    # --- the whole

    async def events(self, after: int, limit: int, *, ids: Sequence[str] = ()) -> list[port.Event]:
        return await self._driver.read(lambda _: reading.events(after, limit, ids))

    async def names(self, ids: Sequence[str]) -> dict[str, str]:
        return await self._driver.read(lambda _: reading.names(ids))

    async def counts(self) -> port.Counts:
        return await self._driver.read(lambda _: reading.counts())

    async def check(self) -> None:
        def script(now: int) -> Script[None]:
            yield Many("set_meta", [("checked_at", str(now))])

        await self._write(script)

    async def _fire(
        self, make: Callable[[int, HoldGates], Script[T]], hold: HoldGates = hold_gates
    ) -> T:
        """Wait for gates, but let no gate that somebody does not let go of stop the other jobs."""
        try:
            return await self._write(lambda now: make(now, hold), Urgency.FIRE)
        except HeldTooLong:
            return await self._write(lambda now: make(now, hold_free_gates), Urgency.FIRE)

    async def _write(self, make: MakeScript[T], urgency: Urgency = Urgency.API) -> T:
        return await self._driver.write(make, urgency)
