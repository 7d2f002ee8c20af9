"""The workers connected to this server: gives them work and takes their word.

Implements `rota.ports.link.WorkerDesk`; how a worker is connected is an adapter's business.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

import structlog

from rota.domain.errors import NotFound
from rota.domain.ids import JobId, SessionId, micros
from rota.domain.run import AttemptResult
from rota.operations import output, serving
from rota.operations.backends import Backends
from rota.ports.queue import CANCELLED, WATCHED, work
from rota.ports.queue import output as output_topic
from rota.ports.records import Session
from rota.ports.work import (
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

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class FloorConfig:
    lease: timedelta = timedelta(seconds=30)
    poll_interval: timedelta = timedelta(seconds=2)  # how often an idle worker is looked at anyway
    batch_size: int = 500  # runs claimed in one transaction


@dataclass(slots=True)
class _Desk:
    """One connected worker."""

    session: Session
    orders: asyncio.Queue[Order] = field(default_factory=asyncio.Queue)
    held: set[Fence] = field(default_factory=set)  # what this server believes it holds
    known_specs: set[tuple[str, int]] = field(default_factory=set)
    suspects: frozenset[Fence] = frozenset()  # held by the store's book, not by the worker's
    has_room: asyncio.Event = field(default_factory=asyncio.Event)
    is_stopping: bool = False

    def free(self, after: int = 0) -> int:
        """Slots that are free, or will be after that many attempts have ended."""
        return 0 if self.is_stopping else self.session.slots - len(self.held) + after


class Floor:
    """All desks of this server."""

    name = "dispatcher"

    def __init__(self, backends: Backends, config: FloorConfig | None = None) -> None:
        self._backends = backends
        self._config = config or FloorConfig()
        self._desks: dict[str, _Desk] = {}
        self._specs: dict[tuple[str, int], SpecEntry] = {}
        self._changed = asyncio.Event()

    # --- what workers say

    async def register(self, hello: Hello) -> Welcome:
        session, welcome = await serving.register(self._backends, hello, self._config.lease)
        self._desks[session.id] = _Desk(session)
        self._changed.set()
        return welcome

    async def beat(self, session: str, beat: Beat) -> BeatAnswer:
        desk = self._desk(session)
        desk.is_stopping = beat.stopping
        believed = frozenset(desk.held)
        renewal = await serving.renew(self._backends, SessionId(session), stopping=beat.stopping)
        now = micros(renewal.now)
        if not renewal.alive:
            return BeatAnswer(alive=False, store_now=now)
        ours, theirs = frozenset(renewal.held), frozenset(beat.held)
        # A dispatch may be on its way; what is missing twice in a row never arrived. A worker that
        # stops beats once more at once, which proves nothing: its leaving settles the rest.
        missing = frozenset[Fence]() if beat.stopping else ours - theirs
        lost = missing & desk.suspects
        desk.suspects = missing
        if lost:
            await serving.lose(self._backends, SessionId(session), tuple(lost))
        # The store's book is the true one: whatever went wrong here costs a beat, not a slot.
        desk.held -= lost | (believed - ours)
        desk.has_room.set()
        return BeatAnswer(
            alive=True, store_now=now, cancel=renewal.cancel, unknown=tuple(theirs - ours)
        )

    async def start(self, session: str, starts: Sequence[Start]) -> StartAnswer:
        return await serving.start(self._backends, SessionId(session), starts)

    async def report(self, session: str, outcomes: Sequence[Outcome]) -> ReportAnswer:
        desk = self._desk(session)
        room = min(desk.free(after=len(outcomes)), self._config.batch_size)
        finished = await serving.finish(
            self._backends, SessionId(session), outcomes, claim=max(room, 0)
        )
        desk.held.difference_update(finished.accepted, finished.fenced)
        await self._dispatch(desk, finished.claimed)
        desk.has_room.set()
        return ReportAnswer(finished.accepted, finished.fenced)

    async def output(self, session: str, chunks: Sequence[OutputChunk]) -> ReportAnswer:
        return await output.store_chunks(self._backends, SessionId(session), chunks)

    async def progress(self, session: str, items: Sequence[Progress]) -> None:
        await serving.record_progress(self._backends, SessionId(session), items)

    async def next_order(self, session: str) -> Order:
        return await self._desk(session).orders.get()

    async def leave(self, session: str) -> None:
        """The worker has stopped and holds nothing."""
        await serving.leave(self._backends, SessionId(session))
        await self.disconnected(session)

    async def disconnected(self, session: str) -> None:
        """The connection is gone; the lease decides about the session."""
        self._desks.pop(session, None)
        self._changed.set()

    def _desk(self, session: str) -> _Desk:
        desk = self._desks.get(session)
        if desk is None:
            raise NotFound(f"no worker session {session}", code="session_not_found")
        return desk

    # --- what the server does unasked

    async def run(self) -> None:
        """Keep every connected worker supplied, until cancelled."""
        feeders: dict[str, asyncio.Task[None]] = {}
        self._changed.set()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._pass_on_cancels())
            group.create_task(self._pass_on_watches())
            while True:
                await self._changed.wait()
                self._changed.clear()
                for session in feeders.keys() - self._desks.keys():
                    feeders.pop(session).cancel()
                for session in self._desks.keys() - feeders.keys():
                    feeders[session] = group.create_task(self._feed(session))

    async def _feed(self, session: str) -> None:
        """Claim for one worker whenever there is work and it has room."""
        desk = self._desks[session]
        listener = self._backends.queue.listen(work(desk.session.pool))
        try:
            while session in self._desks:
                claimed = await self.claim_for(session)
                if claimed and desk.free() > 0:
                    continue
                if desk.free() > 0:
                    await listener.wait(self._config.poll_interval)
                else:
                    desk.has_room.clear()
                    await desk.has_room.wait()
        finally:
            listener.close()

    async def claim_for(self, session: str) -> int:
        """One claim for a connected worker; returns how many runs it got."""
        desk = self._desk(session)
        slots = min(desk.free(), self._config.batch_size)
        if slots <= 0:
            return 0
        claimed = await serving.claim(self._backends, SessionId(session), slots)
        await self._dispatch(desk, claimed)
        return len(claimed)

    async def _dispatch(self, desk: _Desk, claimed: Sequence[Work]) -> None:
        if not claimed:
            return
        desk.held.update(item.fence for item in claimed)
        refs = {(item.job_id, item.job_version) for item in claimed}
        specs = await self._new_specs(desk, refs)
        known = desk.known_specs
        readable = [item for item in claimed if (item.job_id, item.job_version) in known]
        if readable:
            desk.orders.put_nowait(Dispatch(tuple(readable), specs))
            self._tell_watched(desk, readable)
        if len(readable) < len(claimed):
            await self._refuse(desk, [item for item in claimed if item not in readable])

    async def _new_specs(self, desk: _Desk, refs: set[tuple[str, int]]) -> tuple[SpecEntry, ...]:
        unseen = refs - desk.known_specs
        missing = [
            (JobId(job), version) for job, version in unseen if (job, version) not in self._specs
        ]
        if missing:
            for entry in await serving.specs(self._backends, missing):
                self._specs[entry.job_id, entry.job_version] = entry
        readable = unseen & self._specs.keys()
        desk.known_specs |= readable
        return tuple(self._specs[ref] for ref in readable)

    async def _refuse(self, desk: _Desk, unreadable: Sequence[Work]) -> None:
        """End what no worker could understand, so that it stands in nobody's way."""
        message = "this version of Rota cannot read the job's definition"
        outcomes = [
            Outcome(item.run, item.attempt, AttemptResult.FAILED, 0, 0, message=message)
            for item in unreadable
        ]
        log.error("run.unreadable", runs=[item.run for item in unreadable])
        finished = await serving.finish(self._backends, desk.session.id, outcomes)
        desk.held.difference_update(finished.accepted, finished.fenced)
        desk.has_room.set()

    async def _pass_on_cancels(self) -> None:
        listener = self._backends.queue.listen(CANCELLED)
        try:
            while True:
                for session in await listener.wait(self._config.poll_interval):
                    if session in self._desks:
                        fences = await self._backends.store.cancels(SessionId(session))
                        self._desks[session].orders.put_nowait(Cancel(fences))
        finally:
            listener.close()

    async def _pass_on_watches(self) -> None:
        listener = self._backends.queue.listen(WATCHED)
        try:
            while True:
                announced = await listener.wait(self._config.poll_interval)
                for desk in list(self._desks.values()):
                    self._tell_watched(desk, desk.held, announced)
        finally:
            listener.close()

    def _tell_watched(
        self,
        desk: _Desk,
        attempts: Iterable[Fence | Work],
        announced: frozenset[str] = frozenset(),
    ) -> None:
        """Ask for the output of runs that somebody follows; too often is harmless."""
        is_followed_here = self._backends.queue.is_watched
        runs = [each.run for each in attempts]
        watched = [run for run in runs if run in announced or is_followed_here(output_topic(run))]
        if watched:
            desk.orders.put_nowait(Watch(tuple(watched)))
