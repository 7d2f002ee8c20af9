"""Connected workers of this server: claims runs for them and accepts their reports."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta

import structlog

from rota.domain.errors import Conflict, Denied, LockedTooLong, NotFound, StaleStream, Unavailable
from rota.domain.ids import JobId, SessionId, micros
from rota.domain.lease import DEFAULT_LEASE
from rota.domain.run import AttemptResult
from rota.domain.spec import JobSpec, JobType
from rota.operations import credentials, output, workers
from rota.operations.engine import Engine
from rota.operations.specs import Ref
from rota.operations.worker_files import STALE_ATTEMPT, WorkerFiles
from rota.ports.files import BlobPiece, BlobRead, BlobWritten, SourceCommit
from rota.ports.queue import CANCELLED, FAVOURED, OUTPUT, WATCHED, Taker, Ticket
from rota.ports.queue import output as output_topic
from rota.ports.records import Claimed, Finished
from rota.ports.work import (
    KNOWN_SPECS,
    Beat,
    BeatAnswer,
    Cancel,
    Fence,
    Hello,
    Order,
    Outcome,
    OutputChunk,
    Progress,
    RemoteHandle,
    Report,
    ReportAnswer,
    SpecEntry,
    Start,
    StartAnswer,
    StepNote,
    Watch,
    Welcome,
    WorkBatch,
    WorkerIdentity,
)
from rota.server.dispatcher.desk import Desk, IdleDesk, moved

log = structlog.get_logger()

_REMEMBERED_ENDS = 10_000
_AWAITED = 10_000  # followed runs that are remembered until a worker has them,
_AWAITED_FOR = timedelta(seconds=15)  # and how long
_MAX_TROUBLE = 1_000  # characters


@dataclass(frozen=True, slots=True)
class FloorConfig:
    lease: timedelta = DEFAULT_LEASE
    poll_interval: timedelta = timedelta(seconds=2)  # how often an idle worker is looked at anyway
    batch_size: int = 1000  # runs claimed in one transaction
    known_specs: int = KNOWN_SPECS  # job versions that a worker is thought to know
    retire_within: timedelta = timedelta(seconds=3)  # to send what was claimed when it stops


class Floor:
    """Desks of all workers connected to this server."""

    name = "dispatcher"

    def __init__(self, engine: Engine, config: FloorConfig | None = None, server: str = "") -> None:
        self._engine = engine
        self._config = config or FloorConfig()
        self._server = server  # who we are, for the sessions of our workers
        self._refusals = workers.Refusals(engine)
        self._files = WorkerFiles(engine)
        self._desks: dict[str, Desk] = {}
        self._ended: deque[str] = deque(maxlen=_REMEMBERED_ENDS)  # the latest runs
        self._awaited: dict[str, float] = {}  # followed runs that no worker here has: until when
        self._changed = asyncio.Event()
        self._is_retiring = False

    # --- what workers say

    async def register(self, hello: Hello, identity: WorkerIdentity | None = None) -> Welcome:
        if identity is not None:
            await self._admit(hello, identity)
        session, welcome = await workers.register(
            self._engine, hello, self._config.lease, self._server, identity
        )
        # Two registrations of one worker may come back in either order: the later stream stays.
        former = self._desks.get(session.id)
        if former is None or former.session.stream < session.stream:
            self._dismiss(former)
            desk = Desk.resumed(session) if hello.resumes else Desk(session)
            desk.is_retiring = self._is_retiring
            self._desks[session.id] = desk
            self._changed.set()
        return welcome

    async def _admit(self, hello: Hello, identity: WorkerIdentity) -> None:
        try:
            credentials.admit(hello, identity)
        except Denied:
            await self._refusals.note(identity.credential or "", identity.name, "hello")
            raise

    async def beat(self, session: str, beat: Beat) -> BeatAnswer:
        desk = self._desk(session)
        if beat.stream not in (0, desk.session.stream):
            raise moved(session)
        desk.takes_nothing |= beat.stopping
        # Before the renewal: what is claimed while it is under way is not in its answer.
        believed = frozenset(desk.held)
        renewal = await self._engine.store.renew(
            SessionId(session), stopping=beat.stopping, trouble=_told(beat.trouble)
        )
        now = micros(renewal.now)
        if not renewal.alive:
            return BeatAnswer(alive=False, store_now=now)
        if renewal.stream != desk.session.stream:
            self._dismiss(desk)
            raise moved(session)
        # Claims know by themselves who is drained: remembered until the next beat, a worker that is
        # resumed would wait that long for work.
        desk.takes_nothing = beat.stopping
        ours, theirs = frozenset(renewal.held), frozenset(beat.held)
        given_up = ours.intersection(beat.given_up) - theirs
        lost = desk.never_arrived(ours, beat) - given_up
        desk.is_settled = True
        # The store's list is authoritative: a wrong one here costs a beat, not a slot.
        desk.drop(lost | given_up | (believed - ours))
        await self._take_back(desk, lost, given_up)
        await self._refusals.tell(desk.session.worker)
        desk.has_room.set()
        return BeatAnswer(
            alive=True,
            store_now=now,
            cancel=renewal.cancel,
            unknown=tuple(theirs - ours),
            draining=renewal.draining,
        )

    async def _take_back(
        self, desk: Desk, lost: frozenset[Fence], given_up: frozenset[Fence]
    ) -> None:
        """Lose what a worker does not have (any more).

        A run that cannot be changed now, perhaps for the reason that its end could not be taken,
        must not cost the worker its lease, and so all else that it runs. The next beat looks again.
        """
        try:
            if lost:
                await self._engine.store.lose(desk.session.id, tuple(lost))
            if given_up:
                await self._engine.store.lose(desk.session.id, tuple(given_up), is_untold=True)
        except (Conflict, Unavailable) as error:
            log.warning("worker.not_taken_back", worker=desk.session.worker, error=str(error))

    async def start(self, session: str, starts: Sequence[Start]) -> StartAnswer:
        answer = await self._engine.store.start(SessionId(session), starts)
        await self._note_refused(session, "start", answer.refused)
        self._tell_followers(session, answer.granted)
        return answer

    async def report(self, session: str, report: Report) -> ReportAnswer:
        desk = self._desk(session)
        async with desk.taking_report:  # one at a time: two would wait for one another in the store
            finished = await self._finish_and_claim(desk, report)
        desk.has_room.set()
        await self._note_refused(session, "report", finished.refused)
        return ReportAnswer(finished.refused, finished.again)

    async def _finish_and_claim(self, desk: Desk, report: Report) -> Finished:
        room = max(min(desk.free(after=len(report)), self._config.batch_size), 0)
        with desk.claiming():
            finished = await workers.finish(
                self._engine, desk.session.id, report, claim=room, stream=desk.session.stream
            )
            self._drop_ended(desk, report, finished)
            if room:
                await self._dispatch(desk, finished.claimed, room)
        return finished

    async def output(self, session: str, chunks: Sequence[OutputChunk]) -> ReportAnswer:
        answer = await output.store_chunks(self._engine, SessionId(session), chunks)
        await self._note_refused(session, "output", answer.refused)
        return answer

    async def commits(self, session: str, items: Sequence[SourceCommit]) -> ReportAnswer:
        refused = await self._engine.store.note_commits(SessionId(session), items)
        await self._note_refused(session, "commits", refused)
        return ReportAnswer(refused)

    async def read_blob(self, session: str, wish: BlobRead) -> BlobPiece:
        self._desk(session)
        try:
            return await self._files.read(SessionId(session), wish)
        except Conflict:
            await self._note_refused(session, "blob_read", [wish.fence])
            raise

    async def write_blob(self, session: str, piece: BlobPiece) -> BlobWritten:
        self._desk(session)
        try:
            return await self._files.write(SessionId(session), piece)
        except Conflict as error:
            if error.code == STALE_ATTEMPT:
                await self._note_refused(session, "blob_write", [piece.fence])
            raise

    async def _note_refused(self, session: str, act: str, fences: Sequence[Fence]) -> None:
        desk = self._desks.get(session)
        if fences and desk is not None:
            await self._refusals.note_acts(desk.session.id, desk.session.worker, act, fences)

    async def progress(self, session: str, items: Sequence[Progress]) -> None:
        refused = await self._engine.store.record_progress(SessionId(session), items)
        await self._note_refused(session, "progress", refused)
        self._tell_followers(session, [item.fence for item in items])

    async def note(self, session: str, items: Sequence[StepNote]) -> None:
        noted = await workers.note(self._engine, SessionId(session), items)
        refused = {item.fence for item in items} - noted
        await self._note_refused(session, "note", tuple(refused))
        self._tell_followers(session, noted)

    async def keep_handles(self, session: str, items: Sequence[RemoteHandle]) -> ReportAnswer:
        refused = await self._engine.store.keep_handles(SessionId(session), items)
        await self._note_refused(session, "handle", refused)
        return ReportAnswer(refused)

    def _tell_followers(self, session: str, fences: Collection[Fence]) -> None:
        """Notify those who follow these attempts that there is news."""
        desk = self._desks.get(session)
        if desk is not None and desk.watched:
            for run in desk.watched.intersection(fence.run for fence in fences):
                self._engine.queue.announce(output_topic(run))

    async def next_order(self, session: str, stream: int) -> Order:
        desk = self._desk(session)
        if desk.session.stream != stream:
            raise moved(session)
        return await desk.next_order()

    async def leave(self, session: str) -> None:
        """End the session of a worker that has stopped and holds nothing."""
        await self._engine.store.end_session(SessionId(session))
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
            await self._wait_for_room(desk)
        elif desk.has_backlog:
            await self._claim(desk)
        else:
            with self._engine.idle_workers.waiting(self._idle(desk)):
                ticket = await taker.take(self._config.poll_interval)
            if ticket is None:
                await self._claim(desk)
            else:
                await self._claim_by_ticket(ticket, desk, taker)

    async def _wait_for_room(self, desk: Desk) -> None:
        """Wait until a slot is free; from time to time look for work that needs none."""
        if not desk.free_for_http:
            await desk.wait_for_room()
            return
        try:
            async with asyncio.timeout(self._config.poll_interval.total_seconds()):
                await desk.wait_for_room()
        except TimeoutError:
            await self._claim(desk)

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
        rest = set(ticket.runs).difference(claimed.batch.runs, claimed.left)
        return bool(rest) and await self._engine.store.any_queued(tuple(rest))

    async def claim_for(self, session: str) -> int:
        """Claim once for a connected worker; return how many runs it got."""
        return len((await self._claim(self._desk(session))).batch)

    async def _claim(self, desk: Desk, runs: Sequence[str] = ()) -> Claimed:
        room = desk.room(self._config.batch_size)
        if room is None:
            return Claimed(WorkBatch())
        # Open before the claim commits: until its runs are ordered, a beat that does not name them
        # must not take them back.
        with desk.claiming():
            claimed = await self._engine.store.claim(room.session, room.slots, room.stream, runs)
            await self._dispatch(desk, claimed.batch, room.slots)
        return claimed

    async def _dispatch(self, desk: Desk, claimed: WorkBatch, asked: int) -> None:
        given = desk.give(claimed, asked)
        if not claimed:
            return
        refs = {(JobId(job), version) for job, version in claimed.jobs}
        specs, unreadable = await self._new_specs(desk, refs)
        if desk.http_jobs:
            desk.mark_http(given)
        if not unreadable:
            desk.send(given, specs)
            self._request_output(desk, claimed.runs, self._awaited)
        else:
            await self._dispatch_readable(desk, claimed, specs, unreadable)

    async def _dispatch_readable(
        self, desk: Desk, claimed: WorkBatch, specs: tuple[SpecEntry, ...], unreadable: set[Ref]
    ) -> None:
        """Send the part of a claim that the worker can be told what to do about."""
        held = [at for at, fence in enumerate(claimed.fences()) if fence in desk.held]
        refused = [at for at in held if claimed.job(at) in unreadable]
        readable = claimed.part([at for at in held if claimed.job(at) not in unreadable])
        if readable or specs:
            desk.send_part(readable, specs)
            self._request_output(desk, readable.runs, self._awaited)
        if refused:
            await self._refuse(desk, claimed.part(refused).fences())

    async def _new_specs(
        self, desk: Desk, refs: set[Ref]
    ) -> tuple[tuple[SpecEntry, ...], set[Ref]]:
        """Return the specs that the worker does not know, and which of them nobody can read.

        Those sent long ago are sent again.
        """
        found: dict[Ref, JobSpec] = {}
        unreadable: set[Ref] = set()
        # Another dispatch to the worker may forget what it knows while this one reads: look again.
        while unseen := refs - desk.known_specs - unreadable:
            if len(desk.known_specs) + len(unseen) > self._config.known_specs:
                desk.known_specs.clear()
                unseen = refs - unreadable
            specs = await self._engine.specs.find(self._engine.store, unseen)
            desk.known_specs |= specs.keys()
            desk.http_jobs |= {ref for ref, spec in specs.items() if spec.type == JobType.HTTP}
            found |= specs
            unreadable |= unseen - specs.keys()
        return tuple(SpecEntry(*ref, spec) for ref, spec in found.items()), unreadable

    async def _refuse(self, desk: Desk, unreadable: Sequence[Fence]) -> None:
        """Fail attempts whose definition this version cannot read, so that they block no other."""
        message = "this version of Rota cannot read the job's definition"
        outcomes = [
            Outcome(fence.run, fence.number, AttemptResult.FAILED, 0, 0, message=message)
            for fence in unreadable
        ]
        log.error("run.unreadable", runs=[fence.run for fence in unreadable])
        report = Report(outcomes=tuple(outcomes))
        finished = await workers.finish(self._engine, desk.session.id, report)
        self._drop_ended(desk, report, finished)
        desk.has_room.set()

    def _drop_ended(self, desk: Desk, report: Report, finished: Finished) -> None:
        """Drop ended attempts, and notify followers of their runs that no more output comes."""
        ended = _without(report.fences(), finished.again)
        runs = [fence.run for fence in _without(ended, finished.refused)]
        for run in self._followed(runs, desk.watched):
            self._engine.queue.announce(output_topic(run))
        self._ended.extend(runs)
        desk.drop(ended)

    async def _pass_on_cancels(self) -> None:
        listener = self._engine.queue.listen(CANCELLED)
        try:
            while True:
                for session in await listener.wait(self._config.poll_interval):
                    desk = self._desks.get(session)
                    if desk is not None:
                        fences = await self._engine.store.cancels(desk.session.id)
                        if fences is None:  # barred: it is told why when it dials again
                            self._dismiss(desk)
                        else:
                            desk.order(Cancel(fences))
        finally:
            listener.close()

    async def _claim_for_favoured(self) -> None:
        """Claim for workers of this server to which other servers have left runs."""
        listener = self._engine.queue.listen(FAVOURED)
        try:
            while True:
                for session in await listener.wait(self._config.poll_interval):
                    if session in self._desks:
                        with suppress(LockedTooLong, StaleStream):  # the next poll sees to both
                            await self.claim_for(session)
        finally:
            listener.close()

    async def _pass_on_watches(self) -> None:
        listener = self._engine.queue.listen(WATCHED)
        try:
            while True:
                announced = await listener.wait(self._config.poll_interval)
                self._await_runs(announced)
                for run in announced.intersection(self._ended):  # it ended before we heard of it
                    self._engine.queue.announce(output_topic(run))
                for desk in list(self._desks.values()):
                    self._request_output(desk, [fence.run for fence in desk.held], announced)
        finally:
            listener.close()

    def _await_runs(self, announced: Collection[str]) -> None:
        """Remember for a while who is followed, perhaps at another server: it may be claimed here.

        Whoever follows a run that waits announces it again and again.
        """
        now = asyncio.get_running_loop().time()
        self._awaited = {run: until for run, until in self._awaited.items() if until > now}
        for run in announced:
            if run in self._awaited or len(self._awaited) < _AWAITED:
                self._awaited[run] = now + _AWAITED_FOR.total_seconds()

    def _request_output(
        self,
        desk: Desk,
        runs: Sequence[str],
        announced: Collection[str] = frozenset(),
    ) -> None:
        """Ask the worker for the output of runs that are followed; asking again is harmless.

        Followers are notified: that a worker has a run is news, too.
        """
        watched = self._followed(runs, announced)
        if watched:
            new = set(watched) - desk.watched
            desk.watched |= new
            desk.order(Watch(tuple(watched)))
            for run in new:
                self._engine.queue.announce(output_topic(run))

    def _followed(self, runs: Sequence[str], known: Collection[str]) -> list[str]:
        """Return the runs whose output is followed: those known to be, and those followed here."""
        topics = self._engine.queue.watched(OUTPUT)
        if not topics and not known:  # asked once for all: nearly always nobody follows
            return []
        return [run for run in runs if run in known or output_topic(run) in topics]


def _told(text: str) -> str:
    """Return what a worker says in words, as much of it as people read and every store can hold."""
    return "".join(filter(str.isprintable, text[:_MAX_TROUBLE]))


def _without(fences: Sequence[Fence], left_out: Sequence[Fence]) -> Sequence[Fence]:
    if not left_out:
        return fences
    unwanted = set(left_out)
    return [fence for fence in fences if fence not in unwanted]
