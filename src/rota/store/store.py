"""The store port on SQL: verbs bound to scripts, and what needs more than one transaction.

`claim = write(claims.claim)` is the whole verb `claim`: one transaction that runs the script
`claim` of `store/claims.py`. A module that shares its name with a verb is imported as
`job_scripts`, which is `store/jobs.py`. Verbs are written out below where they join callers, look
before they write, or try again without the rows that others keep locked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import TypeVar

from rota.domain.errors import Conflict, LockedTooLong
from rota.domain.ids import CartId, SessionId, instant, micros
from rota.domain.job import Job
from rota.domain.keys import Key
from rota.domain.run import Run
from rota.ports.carts import DueTemplate
from rota.ports.records import (
    Finished,
    Fired,
    Firing,
    FoundToken,
    Idempotency,
    JobQuery,
    NewRun,
    Ownership,
    Rearmed,
    Room,
    RunQuery,
    SeenPools,
    Submitted,
    SubmittedRun,
    Token,
)
from rota.ports.work import Report
from rota.store import (
    backfills,
    cart_commands,
    cart_views,
    claims,
    credentials,
    dependencies,
    ends,
    external,
    firing,
    forecasts,
    key_releases,
    limits,
    order,
    probes,
    releases,
    schedules,
    submissions,
)
from rota.store import calendars as calendar_scripts
from rota.store import carts as cart_scripts
from rota.store import files as file_scripts
from rota.store import jobs as job_scripts
from rota.store import logins as login_scripts
from rota.store import notes as note_scripts
from rota.store import principals as principal_scripts
from rota.store import projects as project_scripts
from rota.store import runs as run_scripts
from rota.store import sessions as session_scripts
from rota.store import shards as shard_scripts
from rota.store import tokens as token_scripts
from rota.store.gates import LockGates, lock_free_gates, lock_gates, lock_when_read
from rota.store.memory import Memory
from rota.store.script import Driver, Script, Urgency
from rota.store.sessions import Reaping, Silent
from rota.store.transactions import (
    AnswerAll,
    Joining,
    Publish,
    Transactions,
    read,
    read_at,
    tell_nobody,
    write,
)
from rota.store.tx import Tx

T = TypeVar("T")
U = TypeVar("U")
_SMALL = 10  # runs or jobs in one look
_MOST = 100  # calls that are served together
_REKEYED = 1_000  # runs in one transaction
_NOTE_USE_EVERY = timedelta(minutes=1)  # a token's last use is known this exactly


class SqlStore(Transactions):
    """Implements `rota.ports.store.Store`."""

    def __init__(
        self, driver: Driver, memory: Memory | None = None, publish: Publish = tell_nobody
    ) -> None:
        super().__init__(driver, memory, publish)
        self._reaping = Reaping(self._reap, self.now)
        self._swept_to = ""  # where the next sweep goes on
        self._key_cursor = key_releases.KeyCursor()  # where the next look at keys goes on
        self._submissions = Joining(self._submit_all, _MOST)
        self._jobs_by_id = Joining(self._look_together(job_scripts.jobs_by_id), _MOST)
        self._jobs_by_name = Joining(self._look_together(job_scripts.jobs_by_name), _MOST)
        self._runs_by_id = Joining(self._look_together(run_scripts.runs_by_id), _MOST)
        self._served_pools = Joining(
            self._look_together(session_scripts.served_pools_for_all), _MOST
        )
        self._seen_pools = Joining(self._look_together(session_scripts.seen_pools_for_all), _MOST)
        self._found_tokens = Joining(self._find_token, _MOST)
        self._clock = Joining(self._look_at_clock, _MOST)

    def shared_with(self, publish: Publish) -> SqlStore:
        """The access of another server in this process, on the same driver. It is not closed."""
        return SqlStore(self._driver, publish=publish)

    async def close(self) -> None:
        """Close the driver; whoever still waits gets `Unavailable`."""
        await self._driver.close()
        await asyncio.gather(
            self._submissions.close(),
            self._jobs_by_id.close(),
            self._jobs_by_name.close(),
            self._runs_by_id.close(),
            self._served_pools.close(),
            self._seen_pools.close(),
            self._found_tokens.close(),
            self._clock.close(),
        )

    # --- jobs

    save_jobs = write(job_scripts.save)
    move_schedules = write(job_scripts.move)
    names_of_jobs = read(job_scripts.names_of_jobs)
    deleted_job = read(job_scripts.deleted_job)
    last_runs = read(job_scripts.last_runs)
    documents = read(job_scripts.documents, Urgency.CLAIM)
    start_delays = read(run_scripts.start_delays)
    ledger = read(schedules.ledger)

    async def jobs(self, query: JobQuery, /) -> list[Job]:
        """A few by id or name are looked for together with those of other callers."""
        if _is_small(query.ids):
            return await self._jobs_by_id.ask(query.project, query)
        if query.ids is None and _is_small(query.names):
            return await self._jobs_by_name.ask(query.project, query)
        return await self._driver.read(lambda _: job_scripts.find(query))

    # --- calendars

    save_calendars = write(calendar_scripts.save)
    delete_calendar = write(calendar_scripts.delete)
    calendars = read(calendar_scripts.find)

    # --- schedules

    due_schedules = read(schedules.due_schedules, Urgency.FIRE)
    ended_waits = read(schedules.ended_waits, Urgency.FIRE)
    ended_pauses = read_at(schedules.ended_pauses, Urgency.FIRE)
    next_pause_end = read_at(schedules.next_pause_end, Urgency.FIRE)
    next_eligible_at = read(schedules.next_eligible_at, Urgency.FIRE)
    congested_jobs = read_at(schedules.congested_jobs)
    mark_stuck = write(schedules.mark_stuck)

    async def fire(
        self, firings: Sequence[Firing], ownership: Ownership, room: Room | None = None
    ) -> Fired:
        return await self._fire(
            lambda tx, locking: firing.fire(tx, firings, ownership, room, locking), lock_when_read
        )

    async def rearm(self, rearmed: Sequence[Rearmed]) -> None:
        await self._fire(lambda tx, locking: schedules.rearm(tx, rearmed, locking))

    async def release_eligible(self, limit: int) -> int:
        return await self._fire(lambda tx, locking: releases.release_eligible(tx, limit, locking))

    async def release_forgotten(self, limit: int) -> int:
        released, self._swept_to = await self.write(
            lambda tx: releases.sweep(tx, limit, self._swept_to)
        )
        return released

    async def _fire(
        self, make: Callable[[Tx, LockGates], Script[T]], locking: LockGates = lock_gates
    ) -> T:
        """Wait a second for gates; then go on without the jobs whose gates others have locked."""
        try:
            return await self.write(lambda tx: make(tx, locking), Urgency.FIRE)
        except LockedTooLong:
            return await self.write(lambda tx: make(tx, lock_free_gates), Urgency.FIRE)

    # --- runs

    submit_backfill = write(backfills.submit)
    due_runs = read(backfills.due_runs)
    claim = write(claims.claim, Urgency.CLAIM)
    any_queued = read(run_scripts.any_queued)
    start = write(session_scripts.start, Urgency.FINISH)
    cancel = write(run_scripts.cancel_all)
    resolve = write(probes.resolve)
    probes_about = read(probes.about)
    probed_by = read(probes.probed_by)
    record_progress = write(run_scripts.record_progress)
    keep_handles = write(run_scripts.keep_handles, Urgency.FINISH)
    attempts = read(run_scripts.attempts)
    late_results = read(run_scripts.late_results)
    runs_following = read(dependencies.runs_following)
    note_commits = write(session_scripts.note_commits, Urgency.FINISH)
    tell_notes = write(note_scripts.tell, Urgency.FINISH)
    notes = read(note_scripts.notes)
    forget_notes = write(note_scripts.forget)

    async def submit(
        self, runs: Sequence[NewRun], idempotency: Idempotency | None = None
    ) -> Submitted:
        requests = [submissions.Request(runs, idempotency)]
        [answer] = await self.write(lambda tx: submissions.submit(tx, requests))
        if isinstance(answer, Conflict):
            raise answer
        return answer

    async def submit_one(self, run: NewRun, idempotency: Idempotency | None = None) -> SubmittedRun:
        """With others of the same job, who would have to wait for the same gate anyway."""
        request = submissions.Request([run], idempotency)
        return await self._submissions.ask(run.job_id, request)

    async def _submit_all(
        self, requests: Sequence[submissions.Request]
    ) -> list[SubmittedRun | Conflict]:
        return await self.write(lambda tx: submissions.submit_and_show(tx, requests))

    async def finish(
        self, session: SessionId, report: Report, *, claim: int = 0, stream: int = 1
    ) -> Finished:
        wish = claims.Wish(claim, stream)
        try:
            return await self.write(
                lambda tx: ends.finish(tx, session, report, wish), Urgency.FINISH
            )
        except LockedTooLong:
            # Not in vain for the rest, and without the session's lock: while a gate keeps reports
            # waiting, the worker's renewals must get through, or it loses all that it has.
            return await self.write(
                lambda tx: ends.finish_free(tx, session, report), Urgency.FINISH
            )

    # --- work of other systems

    external_due = read_at(external.due, Urgency.CLAIM)
    begin_external = write(external.begin, Urgency.CLAIM)
    report_external = write(external.report)
    end_silent = write(external.end_silent, Urgency.FINISH)
    lease_announcements = write(external.lease_announcements, Urgency.FINISH)
    settle_announcements = write(external.settle_announcements, Urgency.FINISH)
    report_token = read(external.report_token, Urgency.GLANCE)
    forget_report_tokens = write(external.forget_report_tokens)
    external_attempt = read(external.external_attempt)

    # --- runs that wait

    hold_run = write(run_scripts.hold)
    let_go = write(run_scripts.let_go)
    set_priority = write(run_scripts.set_priority)
    followers = read(dependencies.followers)

    async def follow_ends(self, limit: int) -> int:
        if not await self._driver.read(lambda _: dependencies.any_ends(), Urgency.CLAIM):
            return 0
        try:
            return await self._follow(limit, lock_gates)
        except LockedTooLong:
            return await self._follow(limit, lock_free_gates)

    async def _follow(self, limit: int, locking: LockGates) -> int:
        return await self.write(lambda tx: dependencies.follow(tx, limit, locking), Urgency.CLAIM)

    async def settle_probes(self, limit: int) -> int:
        if not await self._driver.read(lambda _: probes.any_ended(), Urgency.CLAIM):
            return 0
        return await self.write(lambda tx: probes.settle(tx, limit), Urgency.CLAIM)

    async def release_fitting(self, limit: int) -> int:
        if not await self._driver.read(lambda _: releases.any_unfit(), Urgency.CLAIM):
            return 0
        try:
            return await self._release_fitting(limit, lock_gates)
        except LockedTooLong:
            return await self._release_fitting(limit, lock_free_gates)

    async def _release_fitting(self, limit: int, locking: LockGates) -> int:
        return await self.write(
            lambda tx: releases.release_fitting(tx, limit, locking), Urgency.CLAIM
        )

    async def runs(self, query: RunQuery, /) -> list[Run]:
        """A few by id are looked for together with those of other callers."""
        if _is_small(query.ids):
            return await self._runs_by_id.ask(query.project, query)
        return await self._driver.read(lambda _: run_scripts.find(query))

    # --- chains

    share_weights = read(order.share_weights)
    set_share_weight = write(order.set_weight)
    chains_of_pool = read(order.chains_of_pool)
    place_of = read_at(order.place_of)

    # --- shared keys

    declarations = read(limits.declarations)
    save_declarations = write(limits.save)
    delete_declaration = write(limits.delete)
    key_uses = read_at(limits.key_uses)
    project_counts = read(limits.counts_of)

    async def release_keys(self, limit: int) -> int:
        """Looks at all there is, a piece at a time, until something is found to do."""
        while True:
            released = await self._release_keys(limit, self._key_cursor)
            if self._key_cursor.is_rekeying:
                await self._rekey_runs()
            if released or self._key_cursor.is_start:
                return released

    async def _release_keys(self, limit: int, cursor: key_releases.KeyCursor) -> int:
        released, self._key_cursor = await self.write(
            lambda tx: key_releases.release(tx, limit, cursor), Urgency.CLAIM
        )
        return released

    async def _rekey_runs(self) -> None:
        """Let runs take the keys that were declared after them, all there are, some at a time."""
        while await self.write(lambda tx: limits.rekey(tx, _REKEYED)):
            pass

    async def forget_keys(self, limit: int) -> int:
        """Looks at all of them, so many at a time."""
        forgotten, place = await self._forget_keys("", limit)
        while place:
            more, place = await self._forget_keys(place, limit)
            forgotten += more
        return forgotten

    async def _forget_keys(self, after: Key, limit: int) -> tuple[int, Key]:
        return await self.write(lambda tx: key_releases.forget(tx, after, limit))

    async def next_key_at(self) -> datetime | None:
        looked_at = self._key_cursor.at
        return await self._driver.read(lambda _: limits.next_key_at(looked_at), Urgency.CLAIM)

    # --- carts

    create_cart = write(cart_commands.create)
    add_items = write(cart_commands.add_items)
    due_templates = read_at(cart_views.due, Urgency.CLAIM)
    pass_template = write(cart_views.pass_over)
    next_template_due = read(cart_views.next_due, Urgency.CLAIM)
    templates = read(cart_views.find)
    items = read(cart_views.items)
    versions_of_items = read(cart_views.versions)
    waves = read(cart_views.waves)
    overview = read(cart_views.overview)
    failure_groups = read(cart_views.failure_groups)
    cells = read(cart_views.cells)
    command_cart = write(cart_commands.command)
    carts_to_advance = read_at(cart_views.to_advance, Urgency.CLAIM)
    advance_cart = write(cart_scripts.advance, Urgency.CLAIM)
    next_cart_look = read(cart_views.next_look, Urgency.CLAIM)
    carts = read(cart_views.carts)

    async def submit_cart(
        self,
        cart: CartId,
        idempotency: Idempotency | None = None,
        due: DueTemplate | None = None,
    ) -> CartId:
        submitted = await self.write(lambda tx: cart_commands.submit(tx, cart, idempotency, due))
        if submitted != cart:  # a repeat: the first answer names the cart that was filled then
            await self.discard_cart(cart)
        return submitted

    async def discard_cart(self, cart: CartId) -> None:
        while await self.write(lambda tx: cart_commands.discard(tx, cart)):
            pass

    async def forget_loading_carts(self, before: datetime) -> int:
        carts = await self._driver.read(lambda _: cart_commands.forgotten(micros(before)))
        for cart in carts:
            await self.discard_cart(cart)
        return len(carts)

    # --- output

    open_outputs = read(run_scripts.open_outputs, Urgency.FINISH)
    add_chunks = write(run_scripts.add_chunks, Urgency.FINISH)
    chunks = read(run_scripts.chunks)
    arrived_output = read(run_scripts.arrived_output)
    inline_output = read(run_scripts.inline_output)

    # --- files

    begin_file = write(file_scripts.begin)
    grow_file = write(file_scripts.grow)
    finish_file = write(file_scripts.finish)
    forget_files = write(file_scripts.forget)
    touch_files = write(file_scripts.touch)
    spent_files = read_at(file_scripts.spent)
    needed_digests = read(file_scripts.needed)
    doom_files = write(file_scripts.doom)
    bytes_of_files = read(file_scripts.bytes_of)
    held_attempt = read(file_scripts.held_attempt)
    artifacts = read(file_scripts.artifacts)
    forget_artifacts = write(file_scripts.forget_artifacts)

    # --- sessions

    register = write(session_scripts.register, Urgency.RENEW)
    resume = write(session_scripts.resume, Urgency.RENEW)
    renew = write(session_scripts.renew, Urgency.RENEW)
    lose = write(session_scripts.lose_leased, Urgency.FINISH)
    end_session = write(session_scripts.end_session, Urgency.FINISH)
    cancels = read(session_scripts.cancels, Urgency.CLAIM)
    heartbeats = read(session_scripts.heartbeats, Urgency.FINISH)
    forget_sessions = write(session_scripts.forget)
    drain_worker = write(session_scripts.drain)
    undrain_worker = write(session_scripts.undrain)
    sessions = read(session_scripts.find, Urgency.FINISH)
    job_types = read(session_scripts.job_types)

    async def reap(self, expected_beats: Mapping[SessionId, int]) -> frozenset[SessionId]:
        orphaned = await self._driver.read(lambda _: session_scripts.orphaned(), Urgency.FINISH)
        return await self._reaping.reap({**dict.fromkeys(orphaned), **expected_beats})

    async def _reap(self, silent: Silent) -> frozenset[SessionId]:
        return await self.write(lambda tx: session_scripts.reap(tx, silent), Urgency.FINISH)

    closed_pools = read(session_scripts.closed_pools)

    async def served_pools(self) -> frozenset[str]:
        return await self._served_pools.ask(None, None)

    async def seen_pools(self, project: str, pool: str) -> SeenPools:
        return await self._seen_pools.ask(project, (project, pool))

    # --- servers

    join = write(shard_scripts.join, Urgency.RENEW)
    keep_shards = write(shard_scripts.keep, Urgency.RENEW)
    leave_cluster = write(shard_scripts.leave, Urgency.RENEW)
    servers = read(shard_scripts.servers)
    shards = read(shard_scripts.shards)

    # --- credentials of workers

    add_join_token = write(credentials.add_join_token)
    join_worker = write(credentials.join_worker)
    revoke_worker = write(credentials.revoke_worker)
    renew_credential = write(credentials.renew_credential)
    foreign_attempts = read(ends.foreign, Urgency.FINISH)
    record_refusals = write(credentials.record_refusals)

    async def begin_renewal(self, digest: str) -> bool:
        """Look before writing: most secrets that nobody knows are guesses."""
        if not await self._driver.read(lambda now: credentials.is_renewal(now, digest)):
            return False
        await self.write(lambda tx: credentials.begin_renewal(tx, digest))
        return True

    # --- projects and principals

    add_project = write(project_scripts.add)
    change_project = write(project_scripts.change)
    delete_project = write(project_scripts.delete)
    projects = read(project_scripts.find)
    existing_projects = read(project_scripts.existing, Urgency.GLANCE)
    project_facts = read(project_scripts.facts)
    jobs_beyond = read(project_scripts.jobs_beyond)
    pools = read(project_scripts.pools)
    give_pool = write(project_scripts.give_pool)
    most_of_pools = read(project_scripts.most_of_pools)
    wall_defaults = read(project_scripts.wall_defaults)
    settle_walls = write(project_scripts.settle_walls)
    change_walls = write(project_scripts.change_walls)
    principals = read(principal_scripts.find)
    disable_principal = write(principal_scripts.disable)
    bind = write(principal_scripts.bind)
    unbind = write(principal_scripts.unbind)
    bindings = read(principal_scripts.find_bindings)
    orphaned_jobs = read(principal_scripts.orphaned_jobs)

    # --- tokens

    add_token = write(token_scripts.add)
    revoke_token = write(token_scripts.revoke)
    rights_changes = read(token_scripts.rights_changes, Urgency.GLANCE)
    tokens = read(token_scripts.of_kind)
    old_tokens = read_at(token_scripts.old)

    async def token_by_digest(
        self, digest: str, *, uses_up_login: bool = False
    ) -> FoundToken | None:
        look = await self._found_tokens.ask(digest, digest)
        if look is None:
            return None
        found, now = look
        token = found.token
        if uses_up_login:
            is_first = token.kind == "login" and await self.revoke_token(token.id, actor=token.name)
            return found if is_first else None
        await self._note_use(token, now)
        return found

    async def _note_use(self, token: Token, now: datetime) -> None:
        if token.last_used_at is None or now - token.last_used_at > _NOTE_USE_EVERY:
            with suppress(LockedTooLong):  # no request waits or fails for a time of last use
                await self.write(lambda tx: token_scripts.note_use(tx, token.id), Urgency.GLANCE)

    async def _find_token(self, digests: Sequence[str]) -> list[token_scripts.Look | None]:
        """Find a token once for all who show the same secret."""
        digest = digests[0]
        found = await self._driver.read(lambda now: token_scripts.find(now, digest), Urgency.GLANCE)
        return [found] * len(digests)

    # --- logins

    begin_login = write(login_scripts.begin)
    finish_login = write(login_scripts.finish)
    sign_in = write(login_scripts.sign_in)
    find_person = read(login_scripts.find_person, Urgency.GLANCE)
    bind_admin_groups = write(login_scripts.bind_admin_groups)
    open_login = write(login_scripts.open_session)
    keep_login = write(login_scripts.keep, Urgency.GLANCE)
    take_refresh = write(login_scripts.take_refresh, Urgency.GLANCE)
    refresh_login = write(login_scripts.save_refresh, Urgency.GLANCE)
    end_refused_login = write(login_scripts.end_refused, Urgency.GLANCE)
    sealed_logins = read(login_scripts.sealed)
    reseal_logins = write(login_scripts.reseal)
    keys_of_logins = read(login_scripts.keys)
    id_token_of = read(login_scripts.id_token_of)
    end_logins = write(login_scripts.end)
    begin_device = write(login_scripts.begin_device)
    device_by_code = read_at(login_scripts.device_by_code)
    decide_device = write(login_scripts.decide_device)
    poll_device = write(login_scripts.poll_device)

    # --- forecasts

    pool_group = read(forecasts.pool_group)
    coming_jobs = read(forecasts.coming_jobs)
    open_runs = read(forecasts.open_runs)
    open_carts = read(forecasts.open_carts)
    latest_durations = read(forecasts.latest_durations)
    tokens_left = read(forecasts.tokens_left)
    completions = read(forecasts.completions)
    save_predictions = write(forecasts.save_predictions)
    forget_predictions = write(forecasts.forget_predictions)
    predicted_starts = read(forecasts.predicted_starts)

    # --- the whole

    events = read(run_scripts.events)
    position_before_latest = read(run_scripts.position_before_latest)
    last_event = read(run_scripts.last_event)
    names = read(run_scripts.names)
    counts = read(run_scripts.counts)
    check = write(run_scripts.check)

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
    """Whether to join it: large ones delay others, and text that no store can hold fails them."""
    return wanted is not None and len(wanted) <= _SMALL and all(map(str.isprintable, wanted))
