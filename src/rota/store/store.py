"""The store port on SQL: verbs bound to scripts, and what needs more than one transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import TypeAlias, TypeVar

from rota.domain.errors import Conflict, HeldTooLong
from rota.domain.ids import CartId, SessionId, instant, micros
from rota.domain.job import Job
from rota.domain.keys import Key
from rota.domain.run import Run
from rota.ports.carts import DueTemplate
from rota.ports.records import (
    Finished,
    Fired,
    Firing,
    Idempotency,
    JobQuery,
    NewRun,
    Ownership,
    Rearmed,
    Room,
    RunQuery,
    Submitted,
    SubmittedRun,
    Token,
)
from rota.ports.work import Outcome
from rota.store.driving import Driver, Urgency
from rota.store.handle import Handle, Publish, read, read_at, tell_nobody, write
from rota.store.joining import AnswerAll, Joining
from rota.store.reaping import Reaping, Silent
from rota.store.script import Many, Script
from rota.store.scripts import (
    backfilling,
    calendars,
    claiming,
    defining,
    draining,
    finishing,
    firing,
    fitting,
    following_jobs,
    forecasting,
    glancing,
    places,
    printing,
    reading,
    releasing,
    running,
    sessions,
    shards,
    steering,
    submitting,
    sweeping,
    tokens,
    watching,
    weighing,
)
from rota.store.scripts.carts import advancing, commanding, loading, templates
from rota.store.scripts.carts import reading as cart_reading
from rota.store.scripts.gates import HoldGates, hold_free_gates, hold_gates, hold_when_read
from rota.store.scripts.keys import declaring, forgetting, quotas, rekeying
from rota.store.scripts.keys import releasing as key_releasing
from rota.store.scripts.memory import Memory
from rota.store.tx import Tx

T = TypeVar("T")
U = TypeVar("U")
FoundToken: TypeAlias = tuple[Token, str, datetime]  # its kind, and when it was looked for
_SMALL = 10  # runs or jobs in one look
_MOST = 100  # calls that are served together
_REKEYED = 1_000  # runs in one transaction
_NOTE_USE_EVERY = timedelta(minutes=1)  # a token's last use is known this exactly


class SqlStore(Handle):
    """Implements `rota.ports.store.Store`."""

    def __init__(
        self, driver: Driver, memory: Memory | None = None, publish: Publish = tell_nobody
    ) -> None:
        super().__init__(driver, memory, publish)
        self._reaping = Reaping(self._reap, self.now)
        self._swept_to = ""  # where the next sweep goes on
        self._key_place = key_releasing.Place()  # where the next look at keys goes on
        self._submissions = Joining(self._submit_all, _MOST)
        self._jobs_by_id = Joining(self._look_together(glancing.jobs_by_id), _MOST)
        self._jobs_by_name = Joining(self._look_together(glancing.jobs_by_name), _MOST)
        self._runs_by_id = Joining(self._look_together(glancing.runs_by_id), _MOST)
        self._served_pools = Joining(self._look_together(glancing.served_pools), _MOST)
        self._found_tokens = Joining(self._find_token, _MOST)
        self._clock = Joining(self._look_at_clock, _MOST)

    def shared_with(self, publish: Publish) -> SqlStore:
        """A handle for another server in this process, on the same driver. It is not closed."""
        return SqlStore(self._driver, publish=publish)

    async def close(self) -> None:
        """Whoever still waits hears that the store is closed."""
        await self._driver.close()
        await asyncio.gather(
            self._submissions.close(),
            self._jobs_by_id.close(),
            self._jobs_by_name.close(),
            self._runs_by_id.close(),
            self._served_pools.close(),
            self._found_tokens.close(),
            self._clock.close(),
        )

    # --- jobs

    save_jobs = write(defining.save)
    move_schedules = write(defining.move)
    documents = read(reading.documents, Urgency.CLAIM)
    start_delays = read(reading.start_delays)
    ledger = read(reading.ledger)

    async def jobs(self, query: JobQuery, /) -> list[Job]:
        """A few by id or name are looked for together with those of other callers."""
        if _is_small(query.ids):
            return await self._jobs_by_id.ask(query.project, query)
        if query.ids is None and _is_small(query.names):
            return await self._jobs_by_name.ask(query.project, query)
        return await self._driver.read(lambda _: reading.jobs(query))

    # --- calendars

    save_calendars = write(calendars.save)
    delete_calendar = write(calendars.delete)
    calendars = read(calendars.calendars)

    # --- schedules

    due_schedules = read(reading.due_schedules, Urgency.FIRE)
    ended_waits = read(reading.ended_waits, Urgency.FIRE)
    ended_pauses = read_at(reading.ended_pauses, Urgency.FIRE)
    next_pause_end = read_at(reading.next_pause_end, Urgency.FIRE)
    next_eligible_at = read(reading.next_eligible_at, Urgency.FIRE)
    congested_jobs = read_at(watching.congested_jobs)
    mark_stuck = write(watching.mark_stuck)

    async def fire(
        self, firings: Sequence[Firing], ownership: Ownership, room: Room | None = None
    ) -> Fired:
        return await self._fire(
            lambda tx, hold: firing.fire(tx, firings, ownership, room, hold), hold_when_read
        )

    async def rearm(self, rearmed: Sequence[Rearmed]) -> None:
        await self._fire(lambda tx, hold: firing.rearm(tx, rearmed, hold))

    async def release_eligible(self, limit: int) -> int:
        return await self._fire(lambda tx, hold: releasing.release_eligible(tx, limit, hold))

    async def release_forgotten(self, limit: int) -> int:
        released, self._swept_to = await self.write(
            lambda tx: sweeping.sweep(tx, limit, self._swept_to)
        )
        return released

    async def _fire(
        self, make: Callable[[Tx, HoldGates], Script[T]], hold: HoldGates = hold_gates
    ) -> T:
        """Wait for gates, but let no gate that somebody does not let go of stop the other jobs."""
        try:
            return await self.write(lambda tx: make(tx, hold), Urgency.FIRE)
        except HeldTooLong:
            return await self.write(lambda tx: make(tx, hold_free_gates), Urgency.FIRE)

    # --- runs

    submit_backfill = write(backfilling.submit)
    due_runs = read(backfilling.due_runs)
    claim = write(claiming.claim, Urgency.CLAIM)
    any_queued = read(reading.any_queued)
    start = write(sessions.start, Urgency.FINISH)
    cancel = write(running.cancel_runs)
    resolve = write(running.resolve)
    record_progress = write(running.record_progress)
    attempts = read(reading.attempts)
    late_results = read(reading.late_results)

    async def submit(
        self, runs: Sequence[NewRun], idempotency: Idempotency | None = None
    ) -> Submitted:
        requests = [submitting.Request(runs, idempotency)]
        [answer] = await self.write(lambda tx: submitting.submit(tx, requests))
        if isinstance(answer, Conflict):
            raise answer
        return answer

    async def submit_one(self, run: NewRun, idempotency: Idempotency | None = None) -> SubmittedRun:
        """With others of the same job, who would have to wait for the same gate anyway."""
        request = submitting.Request([run], idempotency)
        return await self._submissions.ask(run.job_id, request)

    async def _submit_all(
        self, requests: Sequence[submitting.Request]
    ) -> list[SubmittedRun | Conflict]:
        return await self.write(lambda tx: submitting.submit_and_show(tx, requests))

    async def finish(
        self, session: SessionId, outcomes: Sequence[Outcome], *, claim: int = 0, stream: int = 1
    ) -> Finished:
        wish = claiming.Wish(claim, stream)
        try:
            return await self.write(
                lambda tx: finishing.finish(tx, session, outcomes, wish), Urgency.FINISH
            )
        except HeldTooLong:
            return await self.write(
                lambda tx: finishing.finish_free(tx, session, outcomes), Urgency.FINISH
            )

    async def runs(self, query: RunQuery, /) -> list[Run]:
        """A few by id are looked for together with those of other callers."""
        if _is_small(query.ids):
            return await self._runs_by_id.ask(query.project, query)
        return await self._driver.read(lambda _: reading.runs(query))

    # --- runs that wait

    hold_run = write(steering.hold)
    let_go = write(steering.let_go)
    set_priority = write(steering.set_priority)
    followers = read(following_jobs.followers)

    async def follow_ends(self, limit: int) -> int:
        if not await self._driver.read(lambda _: following_jobs.any_ends(), Urgency.CLAIM):
            return 0
        try:
            return await self._follow(limit, hold_gates)
        except HeldTooLong:
            return await self._follow(limit, hold_free_gates)

    async def _follow(self, limit: int, hold: HoldGates) -> int:
        return await self.write(lambda tx: following_jobs.follow(tx, limit, hold), Urgency.CLAIM)

    async def release_fitting(self, limit: int) -> int:
        if not await self._driver.read(lambda _: fitting.any_unfit(), Urgency.CLAIM):
            return 0
        return await self.write(lambda tx: fitting.release_fitting(tx, limit), Urgency.CLAIM)

    # --- lines

    share_weights = read(weighing.share_weights)
    set_share_weight = write(weighing.set_weight)
    lines = read(weighing.lines)
    place_of = read_at(places.place_of)

    # --- shared keys

    declarations = read(declaring.declarations)
    save_declarations = write(declaring.save)
    delete_declaration = write(declaring.delete)
    key_uses = read_at(declaring.key_uses)
    project_counts = read(quotas.counts)

    async def release_keys(self, limit: int) -> int:
        """Looks at all there is, a piece at a time, until something is found to do."""
        while True:
            released = await self._release_keys(limit, self._key_place)
            if self._key_place.is_rekeying:
                await self._rekey_runs()
            if released or self._key_place.is_start:
                return released

    async def _release_keys(self, limit: int, place: key_releasing.Place) -> int:
        released, self._key_place = await self.write(
            lambda tx: key_releasing.release(tx, limit, place), Urgency.CLAIM
        )
        return released

    async def _rekey_runs(self) -> None:
        """Let runs take the keys that were declared after them, all there are, some at a time."""
        while await self.write(lambda tx: rekeying.rekey(tx, _REKEYED)):
            pass

    async def forget_keys(self, limit: int) -> int:
        """Looks at all of them, so many at a time."""
        forgotten, place = await self._forget_keys("", limit)
        while place:
            more, place = await self._forget_keys(place, limit)
            forgotten += more
        return forgotten

    async def _forget_keys(self, after: Key, limit: int) -> tuple[int, Key]:
        return await self.write(lambda tx: forgetting.forget(tx, after, limit))

    async def next_key_at(self) -> datetime | None:
        looked_at = self._key_place.at
        return await self._driver.read(lambda _: declaring.next_key_at(looked_at), Urgency.CLAIM)

    # --- carts

    create_cart = write(loading.create)
    add_items = write(loading.add_items)
    due_templates = read_at(templates.due, Urgency.CLAIM)
    pass_template = write(templates.pass_over)
    next_template_due = read(templates.next_due, Urgency.CLAIM)
    templates = read(templates.find)
    carts = read(cart_reading.carts)
    items = read(cart_reading.items)
    versions_of_items = read(cart_reading.versions)
    waves = read(cart_reading.waves)
    overview = read(cart_reading.overview)
    failure_groups = read(cart_reading.failure_groups)
    cells = read(cart_reading.cells)
    command_cart = write(commanding.command)
    carts_to_advance = read_at(cart_reading.to_advance, Urgency.CLAIM)
    advance_cart = write(advancing.advance, Urgency.CLAIM)
    next_cart_look = read(cart_reading.next_look, Urgency.CLAIM)

    async def submit_cart(
        self,
        cart: CartId,
        idempotency: Idempotency | None = None,
        due: DueTemplate | None = None,
    ) -> CartId:
        submitted = await self.write(lambda tx: loading.submit(tx, cart, idempotency, due))
        if submitted != cart:
            await self.discard_cart(cart)
        return submitted

    async def discard_cart(self, cart: CartId) -> None:
        while await self.write(lambda tx: loading.discard(tx, cart)):
            pass

    async def forget_loading_carts(self, before: datetime) -> int:
        carts = await self._driver.read(lambda _: loading.forgotten(micros(before)))
        for cart in carts:
            await self.discard_cart(cart)
        return len(carts)

    # --- output

    open_outputs = read(printing.open_outputs, Urgency.FINISH)
    add_chunks = write(printing.add_chunks, Urgency.FINISH)
    chunks = read(reading.chunks)
    inline_output = read(reading.inline_output)

    # --- sessions

    register = write(sessions.register, Urgency.RENEW)
    resume = write(sessions.resume, Urgency.RENEW)
    renew = write(sessions.renew, Urgency.RENEW)
    lose = write(sessions.lose_held, Urgency.FINISH)
    end_session = write(sessions.end_session, Urgency.FINISH)
    cancels = read(reading.cancels, Urgency.CLAIM)
    heartbeats = read(reading.heartbeats, Urgency.FINISH)
    forget_sessions = write(sessions.forget)
    drain_worker = write(draining.drain)
    undrain_worker = write(draining.undrain)
    sessions = read(reading.sessions, Urgency.FINISH)

    async def reap(self, expected_beats: Mapping[SessionId, int]) -> frozenset[SessionId]:
        orphaned = await self._driver.read(lambda _: sessions.orphaned(), Urgency.FINISH)
        return await self._reaping.reap({**dict.fromkeys(orphaned), **expected_beats})

    async def _reap(self, silent: Silent) -> frozenset[SessionId]:
        return await self.write(lambda tx: sessions.reap(tx, silent), Urgency.FINISH)

    async def served_pools(self) -> frozenset[str]:
        return await self._served_pools.ask(None, None)

    # --- servers

    join = write(shards.join, Urgency.RENEW)
    keep_shards = write(shards.keep, Urgency.RENEW)
    leave_cluster = write(shards.leave, Urgency.RENEW)
    servers = read(shards.servers)
    shards = read(shards.shards)

    # --- tokens

    add_token = write(tokens.add)
    revoke_token = write(tokens.revoke)
    tokens = read(reading.tokens)

    async def token_by_digest(
        self, digest: str, *, uses_up_login: bool = False
    ) -> tuple[Token, str] | None:
        found = await self._found_tokens.ask(digest, digest)
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
                await self.write(lambda tx: tokens.note_use(tx, token.id), Urgency.GLANCE)

    async def _find_token(self, digests: Sequence[str]) -> list[FoundToken | None]:
        """Once for all who show the same secret."""
        digest = digests[0]
        found = await self._driver.read(lambda now: tokens.find(now, digest), Urgency.GLANCE)
        return [found] * len(digests)

    # --- forecasts

    coming_jobs = read(forecasting.coming_jobs)
    open_runs = read(forecasting.open_runs)
    open_carts = read(forecasting.open_carts)
    latest_durations = read(forecasting.latest_durations)
    tokens_left = read(forecasting.tokens_left)
    completions = read(forecasting.completions)
    save_predictions = write(forecasting.save_predictions)
    forget_predictions = write(forecasting.forget_predictions)
    predicted_starts = read(forecasting.predicted_starts)

    # --- the whole

    events = read(reading.events)
    counts = read(reading.counts)

    async def check(self) -> None:
        def script(tx: Tx) -> Script[None]:
            yield Many("set_meta", [("checked_at", str(tx.now))])

        await self.write(script)

    async def now(self) -> datetime:
        return await self._clock.ask(None, None)

    async def _look_at_clock(self, callers: Sequence[None]) -> list[datetime]:
        def script(now: int) -> Script[datetime]:
            yield from ()
            return instant(now)

        return [await self._driver.read(script, Urgency.GLANCE)] * len(callers)

    def _look_together(self, look: Callable[[Sequence[T]], Script[Sequence[U]]]) -> AnswerAll[T, U]:
        return lambda queries: self._driver.read(lambda _: look(queries))


def _is_small(wanted: Sequence[str] | None) -> bool:
    """What is large would keep others waiting; what no store can hold would fail theirs."""
    return wanted is not None and len(wanted) <= _SMALL and all(map(str.isprintable, wanted))
