"""A worker's session: registers, renews the lease, receives work, reports ends."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

import msgspec
import structlog

from rota.domain.errors import Conflict, NotFound, RotaError, Unavailable
from rota.domain.lease import RENEWALS_PER_LEASE, guard_margin, renewal_interval
from rota.ports.clock import Clock
from rota.ports.files import COMMITS, SourceCommit
from rota.ports.work import (
    CREDENTIAL,
    HANDLES,
    STEPS,
    Cancel,
    Credential,
    Dispatch,
    Fence,
    Hello,
    Move,
    OutputChunk,
    Refused,
    ReportAnswer,
    Start,
    StartAnswer,
    Watch,
    Welcome,
    WorkerLink,
)
from rota.worker.attempts import REPORT_AGAIN, Attempts
from rota.worker.ends import Sending
from rota.worker.spool import NotSent

log = structlog.get_logger()

LONGEST_DELAY = timedelta(seconds=2)
AT_ONCE = timedelta(milliseconds=50)  # the longest delay after a connection that was of use
_TELL_AGAIN = timedelta(minutes=1)
_LOOK_AGAIN = timedelta(hours=1)  # at a credential, whether it is to be renewed
_DIALS_PER_RENEWAL = 2  # what is left of a lease must be enough for this many


class Reconnecting:
    """Failures since a connection of the worker was last of use."""

    def __init__(self, clock: Clock, first_delay: timedelta) -> None:
        self._clock = clock
        self._first_delay = first_delay
        self._delay = first_delay
        self._told_at: dict[str, float] = {}  # by reason
        self._was_of_use = False  # the connection that broke

    def succeeded(self) -> None:
        """Reset once something was acknowledged: the next failure is logged again.

        Not after a connection that was of use, which may be cut again and again.
        """
        self._delay = self._first_delay
        if not self._was_of_use:
            self._told_at.clear()

    def failed(
        self, reason: str, lease: timedelta | None, *, was_of_use: bool = False
    ) -> timedelta:
        """Return how long to wait before the next retry, which must come within the lease if any.

        A connection was of use if something got through: the next one follows at once, so that a
        link that is cut again and again gets on. A reason is logged when it is new, and then once a
        minute.
        """
        self._was_of_use = was_of_use
        self._tell(reason)
        if was_of_use:
            return self.at_once()
        longest = LONGEST_DELAY
        if lease is not None:
            longest = min(longest, lease / (RENEWALS_PER_LEASE * _DIALS_PER_RENEWAL))
        delay = min(self._delay, longest)
        self._delay = min(self._delay * 2, LONGEST_DELAY)
        return delay * random.uniform(0.5, 1)  # noqa: S311 (spreads workers, guards nothing)

    def at_once(self) -> timedelta:
        return AT_ONCE * random.uniform(0.2, 1)  # noqa: S311 (spreads workers, guards nothing)

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
    report_again: timedelta = REPORT_AGAIN
    report_wait: timedelta = timedelta(milliseconds=5)  # how long ends wait for one another
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


class OwnCredential(Protocol):
    """Credential of a worker that has joined, which is renewed over the stream."""

    @property
    def renew_at(self) -> int:
        """Return when to ask for the next one, in microseconds by the store's clock."""
        ...

    def keep(self, credential: Credential, now: int) -> None:
        """Write the next one down, to be shown from now on; `OSError` if that is not possible."""
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
        credential: OwnCredential | None = None,
    ) -> None:
        self._connect = connect
        self._attempts = attempts
        self._hello = hello
        self._guard = guard
        self._clock = clock
        self._config = config or SessionConfig()
        self._note_session = note_session
        self._credential = credential
        self._requests: tuple[str, ...] = ()  # optional ones that its server answers
        self._link: WorkerLink | None = None
        self._reconnecting = Reconnecting(clock, self._config.reconnect_delay)
        self._lease = timedelta(0)
        self._stream = 0  # of the session, as its server counts
        self._connections = 0
        self._was_of_use = False  # something was acknowledged in this connection
        self._was_moved = False  # it was made because a server said so
        self._is_broken = True  # the connection before ended without an answer, as far as is known
        self._outputs = 0  # messages with output that are under way
        self._has_answer = asyncio.Event()  # to a report or output, or it will not come
        self._is_draining = False
        self._stopping = asyncio.Event()
        self._stop_by = 0.0  # monotonic: when the grace of a stop ends
        self._beat_now = asyncio.Event()

    def stop(self) -> None:
        """Take no new work; finish running attempts within the grace."""
        if not self._stopping.is_set():
            self._stop_by = self._clock.monotonic() + self._config.stop_grace.total_seconds()
        self._stopping.set()
        self._beat_now.set()

    def beat_now(self) -> None:
        """Tell the server at once how the worker is."""
        self._beat_now.set()

    @property
    def link(self) -> WorkerLink:
        """Return the current connection; raise `Unavailable` while it is broken."""
        if self._link is None:
            raise NotSent("not connected to a server")
        return self._link

    def serving(self) -> tuple[WorkerLink, tuple[str, ...]]:
        """Return the current connection, and which optional requests its server answers."""
        return self.link, self._requests

    @property
    def connection(self) -> int:
        """Return the number of the connection, which grows with each; 0 while it is broken."""
        return self._connections if self._link is not None else 0

    async def send_output(self, chunks: Sequence[OutputChunk]) -> ReportAnswer:
        """Send output, after the ends that were on their way when the link broke.

        So it is known which of the two broke it, if it breaks again.
        """
        link = self.link
        while self._attempts.has_suspects and self._link is link:
            self._has_answer.clear()
            await self._has_answer.wait()
        if self._link is not link:
            raise NotSent("the connection broke meanwhile")
        self._outputs += 1
        try:
            answer = await link.output(chunks)
        finally:
            self._outputs -= 1
            self._has_answer.set()
        self._note_use()
        return answer

    async def record_commit(self, fence: Fence, commit: str) -> None:
        """Return once a server keeps what an attempt was fetched at.

        `Conflict`: the attempt is not this worker's any more.
        """
        item = SourceCommit(fence.run, fence.number, commit)
        while True:
            link = self._link
            if link is not None and COMMITS not in self._requests:
                return  # a server of an earlier release, which has no such jobs of its own
            with suppress(Unavailable, NotFound):  # the link is dialled anew, by others
                if link is not None:
                    answer = await link.commits([item])
                    if fence in answer.refused:
                        raise Conflict("the attempt is not this worker's any more")
                    if fence not in answer.again:
                        return
            await self._clock.sleep(self._config.tick)

    def _note_use(self) -> None:
        """Note that something was acknowledged in this connection."""
        if not self._was_of_use:
            self._was_of_use = True
            self._reconnecting.succeeded()

    async def run(self) -> None:
        """Serve until stopped and no attempt is left."""
        while not self._is_done():
            try:
                await self._serve()
            except* (Unavailable, NotFound) as group:
                await self._clock.sleep(self._disconnected(group))
                self._attempts.stop_stalled()  # as `_tick` does while there is a link

    def _disconnected(self, group: BaseExceptionGroup[RotaError]) -> timedelta:
        """Note the end of a connection; return the pause until the next one."""
        self._link = None
        self._has_answer.set()
        errors = list(leaves(group))
        was_of_use, self._was_of_use = self._was_of_use, False
        was_moved, self._was_moved = self._was_moved, isinstance(errors[0], Moved)
        if self._was_moved and not was_moved:
            log.info("worker.moved", reason=str(errors[0]))
            return self._reconnecting.at_once()
        reason, lease = str(errors[0]), self._lease or None
        return self._reconnecting.failed(reason, lease, was_of_use=was_of_use)

    def _is_done(self) -> bool:
        is_idle = not self._attempts.held and self._attempts.spool.is_empty
        return self._stopping.is_set() and is_idle

    async def _serve(self) -> None:
        link = await self._connect()
        try:
            await self._register(link)
            self._link = link
            self._connections += 1
            self._attempts.spool.wants_delivery.set()
            async with asyncio.TaskGroup() as group:
                loops = [
                    group.create_task(loop)
                    for loop in (
                        self._renew(link),
                        self._receive(link, group),
                        *(self._report(link) for _ in range(_REPORTS)),
                        self._tick(link),
                        self._tell_handles(link),
                        self._renew_credential(link),
                        self._guard.keep_watch(self._clock, renewal_interval(self._lease)),
                    )
                ]
                group.create_task(self._end_when_done(link, loops))
                if unpermitted := self._attempts.unpermitted():
                    loops.append(group.create_task(self._begin_with_permit(link, unpermitted)))
        except BaseExceptionGroup as group_of_errors:
            self._is_broken = any(map(_is_break, leaves(group_of_errors)))
            raise
        finally:
            self._link = None
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
        self._stream, self._requests = welcome.stream, welcome.requests
        self._attempts.begin_stream(after_break=self._is_broken)
        self._attempts.learn_time(welcome.store_now, self._clock.monotonic())
        self._extend(sent_at)
        log.info("worker.registered", session=welcome.session, lease=welcome.lease_seconds)

    def _extend(self, sent_at: float) -> None:
        """Extend the lease, counted from the send: to expire here before the store."""
        self._guard.prolong(sent_at + (self._lease - guard_margin(self._lease)).total_seconds())

    async def _renew(self, link: WorkerLink) -> None:
        interval = renewal_interval(self._lease).total_seconds()
        for beats in itertools.count():
            self._beat_now.clear()  # before the beat is built: a stop after that wants another one
            sent_at = self._clock.monotonic()
            beat = self._attempts.beat(self._stream, stopping=self._stopping.is_set())
            answer = await link.beat(beat)
            if not answer.alive:
                raise SessionLost("the server ended this worker's session")
            self._attempts.beaten(beat)
            if beats:  # the connection has lasted
                self._reconnecting.succeeded()
            self._extend(sent_at)
            self._attempts.learn_time(answer.store_now, self._clock.monotonic())
            self._attempts.cancel(answer.cancel)
            self._attempts.drop(answer.unknown)
            self._note_drain(answer.draining)
            await self._until_next_beat(sent_at + interval)

    async def _renew_credential(self, link: WorkerLink) -> None:
        """Ask for the next credential in time, keep it, and connect anew with it."""
        if self._credential is None or CREDENTIAL not in self._requests:
            return
        while True:
            left = self._credential.renew_at - self._attempts.store_micros()
            if left > 0:
                await self._clock.sleep(min(timedelta(microseconds=left), _LOOK_AGAIN))
                continue
            try:
                renewed = await link.renew_credential()
                self._credential.keep(renewed, self._attempts.store_micros())
            except (Refused, OSError) as error:  # the present one is good for days to come
                log.warning("worker.credential_not_renewed", error=str(error))
                await self._clock.sleep(_LOOK_AGAIN)
            else:
                raise Moved("its credential was renewed")

    async def _until_next_beat(self, at: float) -> None:
        """Wait until the next beat, counted from the last send: a slow answer does not delay it."""
        with suppress(TimeoutError):
            async with asyncio.timeout(at - self._clock.monotonic()):
                await self._beat_now.wait()

    def _note_drain(self, is_draining: bool) -> None:
        if is_draining != self._is_draining:
            log.info("worker.draining" if is_draining else "worker.undrained")
        self._is_draining = is_draining

    async def _receive(self, link: WorkerLink, group: asyncio.TaskGroup) -> None:
        asking: set[asyncio.Task[None]] = set()
        try:
            while True:
                match await link.receive():
                    case Dispatch() as dispatch:
                        if guarded := self._begin(dispatch):
                            task = group.create_task(self._begin_with_permit(link, guarded))
                            asking.add(task)
                            task.add_done_callback(asking.discard)
                    case Cancel(fences=fences):
                        self._attempts.cancel(fences)
                    case Watch(runs=runs):
                        self._attempts.watch(runs)
                    case Move():
                        raise Moved("the server sent this worker to another one")
        finally:
            for task in asking:
                task.cancel()

    def _begin(self, dispatch: Dispatch) -> list[Fence]:
        """Begin what may begin at once; return what needs a permit first."""
        free, guarded = self._attempts.accept(dispatch)
        if self._stopping.is_set():  # once we have left, others begin it
            self._attempts.give_back([*free, *guarded])
            return []
        self._attempts.begin(free)
        return [fence for held in guarded for fence in held.job.fences]

    async def _begin_with_permit(self, link: WorkerLink, fences: Sequence[Fence]) -> None:
        """Begin at-most-once attempts: PROCESSING is committed before anything is executed.

        Only what the answer grants is begun. What it does not name is asked for again.
        """
        open_fences = list(fences)
        while open_fences:
            answer = await self._announce(link, open_fences)
            asked = set(open_fences)
            self._attempts.permitted([fence for fence in answer.granted if fence in asked])
            self._attempts.withdraw([fence for fence in answer.cancelled if fence in asked])
            self._attempts.forget([fence for fence in answer.refused if fence in asked])
            still = set(self._attempts.unpermitted())
            open_fences = [fence for fence in open_fences if fence in still]
            if open_fences:
                await self._clock.sleep(self._config.report_again)

    async def _announce(self, link: WorkerLink, fences: Sequence[Fence]) -> StartAnswer:
        now = self._attempts.store_micros()
        return await link.start([Start(f.run, f.number, now) for f in fences])

    async def _report(self, link: WorkerLink) -> None:
        while True:
            if self._attempts.may_wait:
                await self._gather_ends()
            if self._attempts.has_suspects:
                await self._until_output_is_answered()
            if sending := self._attempts.next_report():
                # A report that has been accepted ends all writing.
                await self._tell_progress(link, sending)
                await self._send_report(link, sending)
                continue
            self._attempts.has_news.clear()
            with suppress(TimeoutError):  # ends that were put off do not set the event
                async with asyncio.timeout(self._config.report_again.total_seconds()):
                    await self._attempts.has_news.wait()

    async def _send_report(self, link: WorkerLink, sending: Sending) -> None:
        try:
            answer = await link.report(sending.report)
        except Refused as error:
            self._attempts.put_off(sending, str(error), self._config.report_again)
        else:
            self._attempts.answered(sending, answer, self._config.report_again)
            self._note_use()
            if answer.refused:
                log.warning("worker.fenced", runs=[fence.run for fence in answer.refused])
        self._has_answer.set()

    async def _until_output_is_answered(self) -> None:
        """Wait until no output is under way, which would be blamed for what an end may do."""
        while self._outputs:
            self._has_answer.clear()
            await self._has_answer.wait()

    async def _gather_ends(self) -> None:
        """Let ends wait a moment for more of them."""
        self._attempts.has_enough.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(self._config.report_wait.total_seconds()):
                await self._attempts.has_enough.wait()

    async def _tick(self, link: WorkerLink) -> None:
        """Send what may wait a little: starts of longer attempts, what they tell, due output."""
        while True:
            await self._clock.sleep(self._config.tick)
            starts = self._attempts.starts_to_report(self._config.announce_after.total_seconds())
            if starts:
                answer = await link.start(starts)
                self._attempts.mark_announced([*answer.granted, *answer.cancelled, *answer.refused])
                self._attempts.cancel(answer.cancelled)
            await self._tell_progress(link)
            await self._tell_notes(link)  # before the output: a step is known before its lines
            self._attempts.post_due_output()
            self._attempts.stop_stalled()

    async def _tell_handles(self, link: WorkerLink) -> None:
        """Have remote handles kept: their attempts do not go on before that."""
        while HANDLES in self._requests:
            items = self._attempts.untold_handles()
            if not items:
                self._attempts.has_handles.clear()
                await self._attempts.has_handles.wait()
                continue
            try:
                answer = await link.keep_handles(items)
            except Refused:
                await self._clock.sleep(self._config.report_again)
            else:
                self._attempts.handles_answered(items, frozenset(answer.refused))

    async def _tell_progress(self, link: WorkerLink, ending: Sending | None = None) -> None:
        if items := self._attempts.due_progress(ending):
            with suppress(Refused):  # a hint, which may be lost
                await link.progress(items)

    async def _tell_notes(self, link: WorkerLink) -> None:
        if STEPS not in self._requests:
            return
        if notes := self._attempts.due_notes():
            try:
                await link.note(notes)
            except Refused:
                self._attempts.put_off_notes(notes)
            else:
                self._attempts.noted(notes)

    async def _end_when_done(self, link: WorkerLink, loops: list[asyncio.Task[None]]) -> None:
        """Wait for a stop; let attempts finish within the grace, then end them, then leave."""
        await self._stopping.wait()
        grace = self._stop_by - self._clock.monotonic()  # one for all connections of a stop
        try:
            async with asyncio.timeout(grace):
                await self._until(lambda: not self._attempts.held and self._attempts.spool.is_empty)
        except TimeoutError:
            self._attempts.interrupt()
            await self._until(lambda: not self._attempts.held)
        self._attempts.spool.discard()  # after leaving, no server accepts it
        # Before leaving: once we have left, nobody may give back work or send output.
        self._link = None
        for loop in loops:
            loop.cancel()
        await link.leave()

    async def _until(self, claim: Callable[[], bool]) -> None:
        while not claim():
            await self._clock.sleep(timedelta(milliseconds=20))


class Moved(Unavailable):
    """A server sent the worker to another one: its attempts go on."""


def _is_break(error: BaseException) -> bool:
    """Return whether a connection died without an answer: perhaps by what was on its way."""
    return isinstance(error, Unavailable) and not isinstance(error, (Moved, Refused))


def leaves(group: BaseExceptionGroup[RotaError]) -> Iterator[RotaError]:
    """Yield the errors of a group and of the groups in it."""
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from leaves(error)
        else:
            yield error


class SessionLost(RotaError):
    """The session expired or was ended: everything it runs must end before it registers again."""

    code = "session_lost"
