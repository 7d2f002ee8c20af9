"""Connected workers of this server: claims runs for them and accepts their reports."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta

import structlog

from rota.domain.errors import LockedTooLong, NotFound, StaleStream
from rota.domain.ids import JobId, SessionId, micros
from rota.domain.lease import DEFAULT_LEASE
from rota.domain.run import AttemptResult
from rota.operations import output, workers
from rota.operations.engine import Engine
from rota.operations.specs import Ref
from rota.ports.queue import CANCELLED, FAVOURED, WATCHED, Taker, Ticket
from rota.ports.queue import output as output_topic
from rota.ports.records import Claimed, Finished
from rota.ports.work import (
    KNOWN_SPECS,
    Beat,
    BeatAnswer,
    Cancel,
    Dispatch,
    Fence,
    Hello,
    Order,
    Outcome,
    OutputChunk,
    Progress,
    ReportAnswer,
    SpecEntry,
    Start,
    StartAnswer,
    Watch,
    Welcome,
    Work,
)
from rota.server.dispatcher.desk import Desk, IdleDesk, moved

log = structlog.get_logger()

_REMEMBERED_ENDS = 10_000


@dataclass(frozen=True, slots=True)
class FloorConfig:
    lease: timedelta = DEFAULT_LEASE
    poll_interval: timedelta = timedelta(seconds=2)  # how often an idle worker is looked at anyway
    batch_size: int = 500  # runs claimed in one transaction
    known_specs: int = KNOWN_SPECS  # job versions that a worker is thought to know
    retire_within: timedelta = timedelta(seconds=3)  # to send what was claimed when it stops


class Floor:
    """Desks of all workers connected to this server."""

    name = "dispatcher"

    def __init__(self, engine: Engine, config: FloorConfig | None = None, server: str = "") -> None:
        self._engine = engine
        self._config = config or FloorConfig()
        self._server = server  # who we are, for the sessions of our workers
        self._desks: dict[str, Desk] = {}
        self._ended: deque[str] = deque(maxlen=_REMEMBERED_ENDS)  # the latest runs
        self._changed = asyncio.Event()
        self._is_retiring = False

    # --- what workers say

    async def register(self, hello: Hello) -> Welcome:
        session, welcome = await workers.register(
            self._engine, hello, self._config.lease, self._server
        )
        former = self._desks.get(session.id)
        if former is None or former.session.stream < session.stream:
            self._dismiss(former)
            desk = Desk.resumed(session) if hello.resumes else Desk(session)
            desk.is_retiring = self._is_retiring
            self._desks[session.id] = desk
            self._changed.set()
        return welcome

    async def beat(self, session: str, beat: Beat) -> BeatAnswer:
        desk = self._desk(session)
        if beat.stream not in (0, desk.session.stream):
            raise moved(session)
        desk.takes_nothing |= beat.stopping
        believed = frozenset(desk.held)
        renewal = await workers.renew(self._engine, SessionId(session), stopping=beat.stopping)
        now = micros(renewal.now)
        if not renewal.alive:
            return BeatAnswer(alive=False, store_now=now)
        if renewal.stream != desk.session.stream:
            self._dismiss(desk)
            raise moved(session)
        desk.takes_nothing = beat.stopping or renewal.draining
        ours, theirs = frozenset(renewal.held), frozenset(beat.held)
        lost = desk.never_arrived(ours, beat)
        desk.is_settled = True
        # The store's list is authoritative: a wrong one here costs a beat, not a slot.
        desk.drop(lost | (believed - ours))
        if lost:
            await workers.lose(self._engine, SessionId(session), tuple(lost))
        desk.has_room.set()
        return BeatAnswer(
            alive=True,
            store_now=now,
            cancel=renewal.cancel,
            unknown=tuple(theirs - ours),
            draining=renewal.draining,
        )

    async def start(self, session: str, starts: Sequence[Start]) -> StartAnswer:
        return await workers.start(self._engine, SessionId(session), starts)

    async def report(self, session: str, outcomes: Sequence[Outcome]) -> ReportAnswer:
        desk = self._desk(session)
        async with desk.taking_report:  # one at a time: two would wait for one another in the store
            finished = await self._finish_and_claim(desk, outcomes)
        desk.has_room.set()
        return ReportAnswer(finished.accepted, finished.fenced)

    async def _finish_and_claim(self, desk: Desk, outcomes: Sequence[Outcome]) -> Finished:
        room = max(min(desk.free(after=len(outcomes)), self._config.batch_size), 0)
        with desk.claiming():
            finished = await workers.finish(
                self._engine, desk.session.id, outcomes, claim=room, stream=desk.session.stream
            )
            self._drop_ended(desk, finished)
            if room:
                await self._dispatch(desk, list(finished.claimed), room)
        return finished

    async def output(self, session: str, chunks: Sequence[OutputChunk]) -> ReportAnswer:
        return await output.store_chunks(self._engine, SessionId(session), chunks)

    async def progress(self, session: str, items: Sequence[Progress]) -> None:
        await workers.record_progress(self._engine, SessionId(session), items)

    async def next_order(self, session: str, stream: int) -> Order:
        desk = self._desk(session)
        if desk.session.stream != stream:
            raise moved(session)
        return await desk.next_order()

    async def leave(self, session: str) -> None:
        """End the session of a worker that has stopped and holds nothing."""
        await workers.leave(self._engine, SessionId(session))
        self._dismiss(self._desks.get(session))

    async def disconnected(self, session: str, stream: int) -> None:
        """Forget a closed connection; the session ends when its lease expires."""
        desk = self._desks.get(session)
        if desk is not None and desk.session.stream == stream:
            self._dismiss(desk)

    def _dismiss(self, desk: Desk | None) -> None:
        if desk is not None and self._desks.get(desk.session.id) is desk:
            del self._desks[desk.session.id]
            desk.close()
            self._changed.set()

    def _desk(self, session: str) -> Desk:
        desk = self._desks.get(session)
        if desk is None:
            raise NotFound(f"no worker session {session}", code="session_not_found")
        return desk

    # --- what the server does unasked

    async def run(self) -> None:
        """Claim runs for every connected worker until cancelled."""
        feeders: dict[Desk, asyncio.Task[None]] = {}
        self._changed.set()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._pass_on_cancels())
            group.create_task(self._claim_for_favoured())
            group.create_task(self._pass_on_watches())
            while True:
                await self._changed.wait()
                self._changed.clear()
                desks = set(self._desks.values())
                for desk in feeders.keys() - desks:
                    feeders.pop(desk).cancel()
                for desk in desks - feeders.keys():
                    feeders[desk] = group.create_task(self._feed(desk))

    async def retire(self) -> None:
        """Stop claiming; return when all claimed work was sent to its workers, or after a grace.

        Work that is claimed but not sent when a server stops costs the run an attempt that never
        began.
        """
        self._is_retiring = True
        with suppress(TimeoutError):  # the workers' next server takes back what has not arrived
            async with asyncio.timeout(self._config.retire_within.total_seconds()):
                await asyncio.gather(*(desk.retire() for desk in self._desks.values()))

    async def _feed(self, desk: Desk) -> None:
        """Claim for one worker whenever runs are queued and it has room."""
        taker = self._engine.queue.takes(desk.session.pool)
        try:
            while True:
                await self._feed_or_back_off(desk, taker)
        except StaleStream:
            self._dismiss(desk)  # the worker is another server's
        finally:
            taker.close()

    async def _feed_or_back_off(self, desk: Desk, taker: Taker) -> None:
        """Claim once; if a lock is held for too long, back off for this worker only, then retry."""
        try:
            await self._feed_once(desk, taker)
        except LockedTooLong as error:
            if not desk.is_held_up:
                log.warning("claim.held_up", worker=desk.session.worker, error=str(error))
            desk.is_held_up = desk.has_backlog = True
            with suppress(TimeoutError):
                async with asyncio.timeout(self._config.poll_interval.total_seconds()):
                    await desk.wait_for_room()
        else:
            desk.is_held_up = False

    async def _feed_once(self, desk: Desk, taker: Taker) -> None:
        if desk.free() <= 0:
            await desk.wait_for_room()
        elif desk.has_backlog:
            await self._claim(desk)
        else:
            with self._engine.idle_workers.waiting(self._idle(desk)):
                ticket = await taker.take(self._config.poll_interval)
            if ticket is None:
                await self._claim(desk)
            else:
                await self._claim_by_ticket(ticket, desk, taker)

    def _idle(self, desk: Desk) -> IdleDesk:
        return IdleDesk(desk, self._config.batch_size, self._dispatch)

    async def _claim_by_ticket(self, ticket: Ticket, desk: Desk, taker: Taker) -> None:
        """Claim by a ticket; pass it on if other workers may still find runs by it."""
        is_useful = True  # also if the claim fails
        try:
            claimed = await self._claim(desk, ticket.runs)
            is_useful = ticket.is_sole and await self._is_useful(ticket, desk, claimed)
        finally:
            (taker.pass_on if is_useful else taker.done)(ticket)

    async def _is_useful(self, ticket: Ticket, desk: Desk, claimed: Claimed) -> bool:
        if not ticket.runs:
            return desk.has_backlog or desk.is_retiring
        # Workers for which this claim left runs were notified: they need no ticket.
        rest = set(ticket.runs) - {item.run for item in claimed.works} - claimed.left
        return bool(rest) and await workers.any_queued(self._engine, tuple(rest))

    async def claim_for(self, session: str) -> int:
        """Claim once for a connected worker; return how many runs it got."""
        return len((await self._claim(self._desk(session))).works)

    async def _claim(self, desk: Desk, runs: Sequence[str] = ()) -> Claimed:
        room = desk.room(self._config.batch_size)
        if room is None:
            return Claimed([])
        # Open before the claim commits: until its runs are ordered, a beat that does not name them
        # must not take them back.
        with desk.claiming():
            claimed = await workers.claim(self._engine, room.session, room.slots, room.stream, runs)
            await self._dispatch(desk, claimed.works, room.slots)
        return claimed

    async def _dispatch(self, desk: Desk, claimed: list[Work], asked: int) -> None:
        desk.give(claimed, asked)
        if not claimed:
            return
        refs = {(JobId(item.job_id), item.job_version) for item in claimed}
        specs = await self._new_specs(desk, refs)
        known = desk.known_specs
        held = desk.still_held(claimed)  # some may have been taken back meanwhile
        readable = [item for item in held if (item.job_id, item.job_version) in known]
        if readable or specs:
            desk.order(Dispatch(tuple(readable), specs))
            self._request_output(desk, readable)
        if len(readable) < len(held):
            await self._refuse(desk, [item for item in held if item not in readable])

    async def _new_specs(self, desk: Desk, refs: set[Ref]) -> tuple[SpecEntry, ...]:
        """Return the specs that the worker does not know; those sent long ago are sent again."""
        unseen = refs - desk.known_specs
        if len(desk.known_specs) + len(unseen) > self._config.known_specs:
            desk.known_specs.clear()
            unseen = refs
        specs = await self._engine.specs.find(self._engine.store, unseen)
        desk.known_specs |= specs.keys()
        return tuple(SpecEntry(*ref, spec) for ref, spec in specs.items())

    async def _refuse(self, desk: Desk, unreadable: Sequence[Work]) -> None:
        """Fail attempts whose definition this version cannot read, so that they block no other."""
        message = "this version of Rota cannot read the job's definition"
        outcomes = [
            Outcome(item.run, item.attempt, AttemptResult.FAILED, 0, 0, message=message)
            for item in unreadable
        ]
        log.error("run.unreadable", runs=[item.run for item in unreadable])
        finished = await workers.finish(self._engine, desk.session.id, outcomes)
        self._drop_ended(desk, finished)
        desk.has_room.set()

    def _drop_ended(self, desk: Desk, finished: Finished) -> None:
        """Drop ended attempts, and notify followers of their runs that no more output comes."""
        for fence in finished.accepted:
            topic = output_topic(fence.run)
            if fence.run in desk.watched or self._engine.queue.is_watched(topic):
                self._engine.queue.announce(topic)
        self._ended.extend(fence.run for fence in finished.accepted)
        desk.drop((*finished.accepted, *finished.fenced))

    async def _pass_on_cancels(self) -> None:
        listener = self._engine.queue.listen(CANCELLED)
        try:
            while True:
                for session in await listener.wait(self._config.poll_interval):
                    desk = self._desks.get(session)
                    if desk is not None:
                        fences = await self._engine.store.cancels(desk.session.id)
                        desk.order(Cancel(fences))
        finally:
            listener.close()

    async def _claim_for_favoured(self) -> None:
        """Claim for workers of this server to which other servers have left runs."""
        listener = self._engine.queue.listen(FAVOURED)
        try:
            while True:
                for session in await listener.wait(self._config.poll_interval):
                    desk = self._desks.get(session)
                    if desk is not None:
                        with suppress(LockedTooLong, StaleStream):  # the next poll sees to both
                            await self._claim(desk)
        finally:
            listener.close()

    async def _pass_on_watches(self) -> None:
        listener = self._engine.queue.listen(WATCHED)
        try:
            while True:
                announced = await listener.wait(self._config.poll_interval)
                for run in announced.intersection(self._ended):  # it ended before we heard of it
                    self._engine.queue.announce(output_topic(run))
                for desk in list(self._desks.values()):
                    self._request_output(desk, desk.held, announced)
        finally:
            listener.close()

    def _request_output(
        self,
        desk: Desk,
        attempts: Iterable[Fence | Work],
        announced: frozenset[str] = frozenset(),
    ) -> None:
        """Ask the worker for the output of runs that are followed; asking again is harmless."""
        is_followed_here = self._engine.queue.is_watched
        runs = [each.run for each in attempts]
        watched = [run for run in runs if run in announced or is_followed_here(output_topic(run))]
        if watched:
            desk.watched.update(watched)
            desk.order(Watch(tuple(watched)))
