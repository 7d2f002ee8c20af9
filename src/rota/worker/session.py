"""A worker's session: registers, renews the lease, receives work, reports ends."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

import msgspec
import structlog

from rota.domain.errors import NotFound, RotaError, Unavailable
from rota.domain.lease import RENEWALS_PER_LEASE, guard_margin, renewal_interval
from rota.ports.clock import Clock
from rota.ports.work import Cancel, Dispatch, Hello, Outcome, Start, Watch, Welcome, WorkerLink
from rota.worker.attempts import Attempts, Held

log = structlog.get_logger()

LONGEST_DELAY = timedelta(seconds=2)
_TELL_AGAIN = timedelta(minutes=1)
_DIALS_PER_RENEWAL = 2  # what is left of a lease must be enough for this many


class Reconnecting:
    """Failures since the worker was last connected."""

    def __init__(self, clock: Clock, first_delay: timedelta) -> None:
        self._clock = clock
        self._first_delay = first_delay
        self._delay = first_delay
        self._told_at: dict[str, float] = {}  # by reason

    def succeeded(self) -> None:
        """Reset after a connect: the next failure is logged again."""
        self._delay = self._first_delay
        self._told_at.clear()

    def failed(self, reason: str, lease: timedelta | None) -> timedelta:
        """Return how long to wait before the next retry, which must come within the lease if any.

        A reason is logged when it is new, and then once a minute.
        """
        self._tell(reason)
        longest = LONGEST_DELAY
        if lease is not None:
            longest = min(longest, lease / (RENEWALS_PER_LEASE * _DIALS_PER_RENEWAL))
        delay = min(self._delay, longest)
        self._delay = min(self._delay * 2, LONGEST_DELAY)
        return delay * random.uniform(0.5, 1)  # noqa: S311 (spreads workers, guards nothing)

    def _tell(self, reason: str) -> None:
        now = self._clock.monotonic()
        told_at = self._told_at.get(reason)
        if told_at is None or now - told_at >= _TELL_AGAIN.total_seconds():
            log.warning("worker.disconnected", error=reason)
            self._told_at[reason] = now


_REPORTS = 2  # under way at once: while the server stores one, the next is already there


@dataclass(frozen=True, slots=True)
class SessionConfig:
    announce_after: timedelta = timedelta(
        milliseconds=200
    )  # shorter attempts only report their end
    reconnect_delay: timedelta = timedelta(milliseconds=500)  # the first; later ones are longer
    report_again: timedelta = timedelta(seconds=2)  # what a server could not take yet
    tick: timedelta = timedelta(milliseconds=100)
    stop_grace: timedelta = timedelta(seconds=10)  # how long attempts may finish after a stop


class LeaseGuard(Protocol):
    """Enforcer of the lease: ends every process here when it is not renewed."""

    def prolong(self, deadline: float) -> None:
        """Extend the lease to this monotonic time."""
        ...

    async def keep_watch(self, clock: Clock, silence: timedelta) -> None:
        """Watch the enforcer; if it is silent for so long, end it and this process."""
        ...


class WorkerSession:
    """Runs until stopped. It reconnects when the connection breaks; running attempts go on."""

    def __init__(
        self,
        connect: Callable[[], Awaitable[WorkerLink]],
        attempts: Attempts,
        hello: Hello,
        guard: LeaseGuard,
        clock: Clock,
        config: SessionConfig | None = None,
        note_session: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._connect = connect
        self._attempts = attempts
        self._hello = hello
        self._guard = guard
        self._clock = clock
        self._config = config or SessionConfig()
        self._note_session = note_session
        self._link: WorkerLink | None = None
        self._reconnecting = Reconnecting(clock, self._config.reconnect_delay)
        self._lease = timedelta(0)
        self._stream = 0  # of the session, as its server counts
        self._under_way = 0  # outcomes in reports that are not answered yet
        self._is_draining = False
        self._stopping = asyncio.Event()
        self._beat_now = asyncio.Event()

    def stop(self) -> None:
        """Take no new work; finish running attempts within the grace."""
        self._stopping.set()
        self._beat_now.set()

    @property
    def link(self) -> WorkerLink:
        """Return the current connection; raise `Unavailable` while it is broken."""
        if self._link is None:
            raise Unavailable("not connected to a server")
        return self._link

    async def run(self) -> None:
        """Serve until stopped and no attempt is left."""
        while not self._is_done():
            try:
                await self._serve()
            except* (Unavailable, NotFound) as group:
                self._link = None
                reason = str(group.exceptions[0])
                await self._clock.sleep(self._reconnecting.failed(reason, self._lease or None))

    def _is_done(self) -> bool:
        is_idle = not self._attempts.held and self._attempts.spool.is_empty
        return self._stopping.is_set() and is_idle

    async def _serve(self) -> None:
        link = await self._connect()
        try:
            await self._register(link)
            self._link = link
            self._attempts.spool.wants_delivery.set()
            self._under_way = 0
            async with asyncio.TaskGroup() as group:
                loops = [
                    group.create_task(loop)
                    for loop in (
                        self._renew(link),
                        self._receive(link, group),
                        *(self._report(link) for _ in range(_REPORTS)),
                        self._tick(link),
                        self._guard.keep_watch(self._clock, renewal_interval(self._lease)),
                    )
                ]
                group.create_task(self._end_when_done(link, loops))
                if unpermitted := self._attempts.unpermitted():
                    group.create_task(self._begin_with_permit(link, unpermitted))
        finally:
            await link.close()

    async def _register(self, link: WorkerLink) -> None:
        sent_at = self._clock.monotonic()
        welcome: Welcome = await link.register(self._hello)
        self._lease = timedelta(seconds=welcome.lease_seconds)
        if self._hello.resumes and welcome.session != self._hello.resumes:
            raise SessionLost("the session ended while the worker was away")
        if not self._hello.resumes:
            self._note_session(welcome.session)
        self._hello = msgspec.structs.replace(self._hello, resumes=welcome.session)
        self._stream = welcome.stream
        self._attempts.begin_stream()
        self._attempts.learn_time(welcome.store_now, self._clock.monotonic())
        self._extend(sent_at)
        self._reconnecting.succeeded()
        log.info("worker.registered", session=welcome.session, lease=welcome.lease_seconds)

    def _extend(self, sent_at: float) -> None:
        """Extend the lease, counted from the send: to expire here before the store."""
        self._guard.prolong(sent_at + (self._lease - guard_margin(self._lease)).total_seconds())

    async def _renew(self, link: WorkerLink) -> None:
        interval = renewal_interval(self._lease).total_seconds()
        while True:
            sent_at = self._clock.monotonic()
            beat = self._attempts.beat(self._stream, stopping=self._stopping.is_set())
            answer = await link.beat(beat)
            if not answer.alive:
                raise SessionLost("the server ended this worker's session")
            self._extend(sent_at)
            self._attempts.learn_time(answer.store_now, self._clock.monotonic())
            self._attempts.cancel(answer.cancel)
            self._attempts.cancel(answer.unknown)
            self._note_drain(answer.draining)
            await self._until_next_beat(sent_at + interval)

    async def _until_next_beat(self, at: float) -> None:
        """Wait until the next beat, counted from the last send: a slow answer does not delay it."""
        self._beat_now.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(at - self._clock.monotonic()):
                await self._beat_now.wait()

    def _note_drain(self, is_draining: bool) -> None:
        if is_draining != self._is_draining:
            log.info("worker.draining" if is_draining else "worker.undrained")
        self._is_draining = is_draining

    async def _receive(self, link: WorkerLink, group: asyncio.TaskGroup) -> None:
        while True:
            match await link.receive():
                case Dispatch() as dispatch:
                    free, guarded = self._attempts.accept(dispatch)
                    if self._stopping.is_set():  # once we have left, others begin it
                        self._attempts.give_back([*free, *guarded])
                        continue
                    self._attempts.begin(free)
                    if guarded:
                        group.create_task(self._begin_with_permit(link, guarded))
                case Cancel(fences=fences):
                    self._attempts.cancel(fences)
                case Watch(runs=runs):
                    self._attempts.watch(runs)

    async def _begin_with_permit(self, link: WorkerLink, guarded: list[Held]) -> None:
        """Begin at-most-once attempts: PROCESSING is committed before anything is executed."""
        now = self._attempts.store_micros()
        items = {held.assignment.work.fence: held for held in guarded}
        answer = await link.start([Start(fence.run, fence.attempt, now) for fence in items])
        self._attempts.mark_announced(answer.granted)
        self._attempts.begin([items[fence] for fence in answer.granted])
        self._attempts.withdraw(answer.cancelled)
        self._attempts.forget(answer.refused)

    async def _report(self, link: WorkerLink) -> None:
        while True:
            if outcomes := self._next_report():
                self._attempts.mark_sent(outcomes)
                self._under_way += len(outcomes)
                await self._tell_progress(link)  # a report that has been accepted ends all writing
                answer = await link.report(outcomes)
                self._under_way -= len(outcomes)
                self._attempts.forget(answer.accepted)
                self._attempts.forget(answer.fenced)
                self._attempts.put_off(outcomes, self._config.report_again)
                if answer.fenced:
                    log.warning("worker.fenced", runs=[fence.run for fence in answer.fenced])
                continue
            self._attempts.has_news.clear()
            with suppress(TimeoutError):  # outcomes that were put off do not set the event
                async with asyncio.timeout(self._config.report_again.total_seconds()):
                    await self._attempts.has_news.wait()

    def _next_report(self) -> list[Outcome]:
        """Return outcomes to report; none while more are being sent than wait, to batch them."""
        is_worth_it = self._attempts.unreported_count >= self._under_way
        return self._attempts.unreported() if is_worth_it else []

    async def _tick(self, link: WorkerLink) -> None:
        """Send what may wait a little: starts of longer attempts, progress, output that is due."""
        while True:
            await self._clock.sleep(self._config.tick)
            starts = self._attempts.starts_to_report(self._config.announce_after.total_seconds())
            if starts:
                answer = await link.start(starts)
                self._attempts.mark_announced(answer.granted)
                self._attempts.cancel(answer.cancelled)
            await self._tell_progress(link)
            self._attempts.post_due_output()

    async def _tell_progress(self, link: WorkerLink) -> None:
        if self._attempts.progress:
            items, self._attempts.progress = list(self._attempts.progress.values()), {}
            await link.progress(items)

    async def _end_when_done(self, link: WorkerLink, loops: list[asyncio.Task[None]]) -> None:
        """Wait for a stop; let attempts finish within the grace, then end them, then leave."""
        await self._stopping.wait()
        try:
            async with asyncio.timeout(self._config.stop_grace.total_seconds()):
                await self._until_empty()
                await self._attempts.spool.emptied()
        except TimeoutError:
            self._attempts.interrupt()
            await self._until_empty()
        self._attempts.spool.discard()  # after leaving, no server accepts it
        await link.leave()
        for loop in loops:
            loop.cancel()

    async def _until_empty(self) -> None:
        while self._attempts.held:
            await self._clock.sleep(timedelta(milliseconds=20))


class SessionLost(RotaError):
    """The session expired or was ended: everything it runs must end before it registers again."""

    code = "session_lost"
