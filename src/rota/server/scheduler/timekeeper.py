"""Firing of schedules at their due instant."""

from __future__ import annotations

import asyncio
import heapq
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

import structlog

from rota.domain.calendars import Blackout, Calendar, compile_calendar
from rota.domain.errors import Invalid
from rota.domain.firing import FiringRules
from rota.domain.ids import JobId
from rota.domain.jobfile import read_job
from rota.domain.lease import StoreTime
from rota.operations import firing
from rota.operations.engine import Engine
from rota.operations.specs import timetable
from rota.ports.clock import AlarmClock
from rota.ports.queue import TIMES
from rota.ports.records import DueSchedule, Fired, Firing
from rota.ports.store import CalendarStore
from rota.server.scheduler.shards import HeldShards

log = structlog.get_logger()

_CalendarRef = tuple[str, str]  # project and name


class Blackouts:
    """Compiled calendars, as the store had them at the latest look."""

    def __init__(self, store: CalendarStore) -> None:
        self._store = store
        self._known: dict[_CalendarRef, tuple[Calendar, Blackout | None]] = {}
        self._earlier: dict[_CalendarRef, tuple[Calendar, Blackout | None]] = {}

    def begin_look(self) -> None:
        """Begin a look; calendars that are not read during it are forgotten."""
        self._earlier, self._known = self._known, {}

    async def look(self, refs: Iterable[_CalendarRef]) -> None:
        """Read calendars that this look has not read yet; compile those that have changed."""
        names: dict[str, list[str]] = defaultdict(list)
        for project, name in set(refs) - self._known.keys():
            names[project].append(name)
        for project, wanted in names.items():
            for stored in await self._store.calendars(project, wanted):
                ref, calendar = (project, stored.calendar.name), stored.calendar
                known = self._earlier.get(ref)
                if known is None or known[0] != calendar:
                    known = calendar, await _compiled(project, calendar)
                self._known[ref] = known

    def of(self, project: str, names: Sequence[str]) -> tuple[Blackout, ...] | None:
        """Return the calendars of a schedule; None: one cannot be read, so nothing may be fired."""
        found = [self._known.get((project, name), (None, None))[1] for name in names]
        known = tuple(blackout for blackout in found if blackout is not None)
        return known if len(known) == len(found) else None


async def _compiled(project: str, calendar: Calendar) -> Blackout | None:
    try:
        # The first calendar with holidays imports their package, which takes a while.
        return await asyncio.to_thread(compile_calendar, calendar)
    except Invalid as error:
        log.error(
            "calendar.unreadable",
            project=project,
            calendar=calendar.name,
            error="; ".join(map(str, error.problems)),
            effect="the schedules that use it do not fire",
        )
        return None


@dataclass(frozen=True, slots=True)
class Upcoming:
    """Schedule that is due soon, with its firing prepared."""

    due: DueSchedule
    rules: FiringRules
    after: datetime | None  # the due time after this one

    @property
    def job_id(self) -> JobId:
        return self.due.job_id


class Agenda:
    """Schedules that are due soon, one entry per job, ordered by due time.

    A look at the store takes a while, and firing goes on meanwhile. Entries taken since the look
    began are newer than what the look has read, and win; the rest is replaced by what was read.
    """

    def __init__(self) -> None:
        self._entries: dict[JobId, Upcoming] = {}
        self._order: list[tuple[datetime, JobId]] = []  # a heap; may have entries that were removed
        self._taken: set[JobId] = set()  # and not settled yet
        self._moved: set[JobId] = set()  # taken before the look ended
        self._read: set[JobId] = set()  # by the look that is under way

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def next_at(self) -> datetime | None:
        """Return when the next entry is due; None: there is none."""
        while self._order:
            next_at, job = self._order[0]
            if self._is_current(next_at, job):
                return next_at
            heapq.heappop(self._order)
        return None

    def take_due(self, now: datetime, limit: int, shards: Collection[int]) -> list[Upcoming]:
        """Take entries to fire now, to be settled afterwards; those of other shards are dropped."""
        batch: list[Upcoming] = []
        while len(batch) < limit and (next_at := self.next_at) is not None and next_at <= now:
            _, job = heapq.heappop(self._order)
            entry = self._entries.pop(job)
            if entry.due.shard in shards:
                batch.append(entry)
        self._taken.update(entry.job_id for entry in batch)
        self._moved.update(entry.job_id for entry in batch)
        return batch

    def settle(self, taken: Iterable[Upcoming], following: Iterable[Upcoming]) -> None:
        """Record that these were fired, and add those that are due again soon."""
        self._taken.difference_update(entry.job_id for entry in taken)
        for entry in following:
            self._put(entry)

    def begin_look(self) -> None:
        """Begin a look: the store is read from here on."""
        self._moved = set(self._taken)
        self._read = set()

    def has(self, due: DueSchedule, rules: FiringRules) -> bool:
        """Return whether an offer would change nothing; the entry then counts as read."""
        if due.job_id in self._moved:
            return True
        known = self._entries.get(due.job_id)
        if known is None or known.due != due or known.rules is not rules:
            return False
        self._read.add(due.job_id)
        return True

    def offer(self, entry: Upcoming) -> None:
        """Add an entry as the store has it."""
        if entry.job_id not in self._moved:
            self._read.add(entry.job_id)
            self._put(entry)

    def end_look(self) -> None:
        """End a look: drop entries that were neither read nor moved meanwhile."""
        for job in self._entries.keys() - self._read - self._moved:
            del self._entries[job]

    def _put(self, entry: Upcoming) -> None:
        before = self._entries.get(entry.job_id)
        self._entries[entry.job_id] = entry
        if before is None or before.due.next_at != entry.due.next_at:
            heapq.heappush(self._order, (entry.due.next_at, entry.job_id))

    def _is_current(self, next_at: datetime, job: JobId) -> bool:
        entry = self._entries.get(job)
        return entry is not None and entry.due.next_at == next_at


_Ref = tuple[JobId, int]  # a job and its version


@dataclass(slots=True)
class _Version:
    """Readable version of a job, with rules for its calendars as last read."""

    rules: FiringRules
    project: str
    calendars: tuple[str, ...]

    def under(self, blackouts: tuple[Blackout, ...]) -> FiringRules:
        if self.rules.blackouts != blackouts:
            self.rules = replace(self.rules, blackouts=blackouts)
        return self.rules


class ScheduleRules:
    """Firing rules of schedules, cached by job version.

    About `max_kept` versions are kept, and always those that the latest look has found.
    """

    def __init__(
        self,
        engine: Engine,
        grace: timedelta,
        max_kept: int,
        yield_to_firings: Callable[[], Awaitable[None]],
    ) -> None:
        self._store = engine.store
        self._specs = engine.specs
        self._grace = grace
        self._max_kept = max_kept
        self._yield_to_firings = yield_to_firings
        self._versions: dict[_Ref, _Version | None] = {}  # None: it is not readable
        self._found: set[_Ref] = set()  # by the latest look
        self._blackouts = Blackouts(engine.store)

    def begin_look(self) -> None:
        """Begin a look: calendars are read again from here on."""
        self._blackouts.begin_look()
        if len(self._versions) > self._max_kept:
            self._versions = {
                ref: version for ref, version in self._versions.items() if ref in self._found
            }
        self._found.clear()

    async def learn(self, due: Sequence[DueSchedule]) -> None:
        """Compile job versions seen for the first time, and read the calendars of all.

        Yields to other tasks between two versions.
        """
        found = {(d.job_id, d.job_version): d for d in due}
        self._found.update(found)
        unknown = [ref for ref in found if ref not in self._versions]
        documents = await self._store.documents(unknown) if unknown else {}
        for ref, document in documents.items():
            self._versions[ref] = self._compiled(document, found[ref])
            await self._yield_to_firings()
        versions = [self._versions.get((d.job_id, d.job_version)) for d in due]
        await self._blackouts.look(
            {(v.project, name) for v in versions if v for name in v.calendars}
        )

    def of(self, due: DueSchedule) -> FiringRules | None:
        """Return the rules, the same object while unchanged; None: unreadable, must not fire."""
        version = self._versions.get((due.job_id, due.job_version))
        if version is None or not version.calendars:
            return version.rules if version else None
        blackouts = self._blackouts.of(version.project, version.calendars)
        return None if blackouts is None else version.under(blackouts)

    def _compiled(self, document: Mapping[str, Any], due: DueSchedule) -> _Version | None:
        """Compile a version; None if this release cannot read it: other jobs must still fire."""
        try:
            spec = read_job(document)
            self._specs.remember((due.job_id, due.job_version), spec)  # it is dispatched soon
            table = timetable(spec, due.anchor)
        except Invalid as error:
            log.error(
                "schedule.unreadable", job_id=due.job_id, version=due.job_version, error=str(error)
            )
            return None
        if table is None or spec.schedule is None:
            return None
        rules = FiringRules(table, spec.schedule.misfire, self._grace)
        return _Version(rules, spec.project, spec.schedule.calendars)


@dataclass(frozen=True, slots=True)
class TimekeeperConfig:
    look_ahead: timedelta = timedelta(seconds=5)  # schedules due this soon are kept in memory
    look_again: timedelta = timedelta(seconds=2)  # how often the store is asked for them
    batch_size: int = 100  # firings in one transaction: the first start while the rest is fired
    max_upcoming: int = 20_000  # schedules kept in memory
    # What is less late than this was not missed. Where other servers take over, it includes the
    # time that nobody fires for a server that died: see `grace_of`.
    grace: timedelta = firing.MISFIRE_GRACE


class Timekeeper:
    """Keeps schedules due in the next seconds and fires each at its instant, never early.

    It works on the shards of this server. Looking ahead and firing are two loops, so that a long
    look delays nothing that is already known.
    """

    name = "timekeeper"

    def __init__(
        self,
        engine: Engine,
        clock: AlarmClock,
        shards: HeldShards,
        config: TimekeeperConfig | None = None,
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._shards = shards
        self._config = config or TimekeeperConfig()
        self._rules = ScheduleRules(
            engine, self._config.grace, self._config.max_upcoming, self._yield_to_firings
        )
        self._agenda = Agenda()
        self._is_time = asyncio.Event()  # to fire, or to see when that will be
        self._is_stale = asyncio.Event()  # the agenda is, so that a look is needed now
        self._is_calm = asyncio.Event()  # nothing is being fired
        self._is_calm.set()
        self._store_time: StoreTime | None = None  # None before the first look
        shards.on_gain(self._is_stale.set)

    async def run(self) -> None:
        self._agenda = Agenda()  # an earlier run may have ended between taking and settling
        async with asyncio.TaskGroup() as group:
            group.create_task(self._keep_listening())
            group.create_task(self._keep_looking())
            group.create_task(self._keep_firing())

    async def run_once(self) -> int:
        """Look, and fire all that is due now; return how many schedules that were."""
        await self.look()
        return await self.fire_due()

    async def _keep_listening(self) -> None:
        listener = self._engine.queue.listen(TIMES)
        try:
            while True:
                if await listener.wait(self._config.look_again):
                    self._is_stale.set()
        finally:
            listener.close()

    async def _keep_looking(self) -> None:
        while True:
            self._is_stale.clear()
            await self.look()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._config.look_again.total_seconds()):
                    await self._is_stale.wait()

    async def _keep_firing(self) -> None:
        with self._clock.alarm(self._is_time.set) as alarm:
            while True:
                self._is_time.clear()
                await self.fire_due()
                alarm.set(self._seconds_to_next())
                await self._is_time.wait()

    async def look(self) -> None:
        """Replace the agenda by the schedules that the store has as due soon."""
        store, config = self._engine.store, self._config
        now = await store.now()
        self._store_time = StoreTime(now, self._clock.monotonic())
        # Before the store is read: what is fired meanwhile is newer than what the read returns.
        self._agenda.begin_look()
        self._rules.begin_look()
        due = await store.due_schedules(
            now + config.look_ahead, config.max_upcoming, list(self._shards.epochs)
        )
        for start in range(0, len(due), config.batch_size):
            await self._learn(due[start : start + config.batch_size])
        self._agenda.end_look()

    async def _learn(self, due: list[DueSchedule]) -> None:
        await self._rules.learn(due)
        for schedule in due:
            rules = self._rules.of(schedule)
            if rules is not None and not self._agenda.has(schedule, rules):
                self._offer(schedule, rules)
                if schedule.next_at > self._now():  # overdue ones are fired in one batch
                    await self._yield_to_firings()
        await self._yield_to_firings()

    def _offer(self, schedule: DueSchedule, rules: FiringRules) -> None:
        waited_for = self._agenda.next_at
        after = rules.timetable.next_after(schedule.next_at)
        self._agenda.offer(Upcoming(schedule, rules, after))
        if self._agenda.next_at != waited_for:
            self._is_time.set()

    async def _yield_to_firings(self) -> None:
        """Yield to the event loop, and wait while schedules are being fired.

        A firing needs the interpreter in many short pieces and is slowed down by a busy loop, so a
        look makes one step between two firings.
        """
        await self._clock.sleep(timedelta(0))
        await self._is_calm.wait()

    async def fire_due(self) -> int:
        """Fire what is due by now; return how many schedules that were."""
        done = 0
        while batch := self._take_due():
            self._is_calm.clear()
            try:
                await self._fire(batch)
            finally:
                self._is_calm.set()
            done += len(batch)
        return done

    def _take_due(self) -> list[Upcoming]:
        if self._store_time is None:
            return []
        return self._agenda.take_due(self._now(), self._config.batch_size, self._shards.epochs)

    async def _fire(self, batch: list[Upcoming]) -> None:
        now = self._now()
        firings = [
            await firing.planned_firing(entry.due, entry.rules, entry.after, now) for entry in batch
        ]
        ownership = self._shards.ownership()
        fired = await firing.fire(self._engine, firings, ownership)
        self._agenda.settle(batch, self._following(batch, firings, fired))
        self._shards.lose(ownership, fired.lost_shards)
        if len(fired.accepted) < len(batch):
            self._is_stale.set()  # a schedule was changed, or has another owner

    def _following(
        self, batch: list[Upcoming], firings: list[Firing], fired: Fired
    ) -> Iterator[Upcoming]:
        """Yield the schedules that are due again soon, to be kept in memory."""
        horizon = self._now() + self._config.look_ahead
        for entry, planned in zip(batch, firings, strict=True):
            next_at = planned.next_at
            if entry.job_id in fired.accepted and next_at is not None and next_at <= horizon:
                after = entry.rules.timetable.next_after(next_at)
                yield Upcoming(replace(entry.due, next_at=next_at), entry.rules, after)

    def _now(self) -> datetime:
        assert self._store_time is not None
        return self._store_time.at(self._clock.monotonic())

    def _seconds_to_next(self) -> float:
        next_at = self._agenda.next_at
        if next_at is None or self._store_time is None:
            return self._config.look_again.total_seconds()
        return self._store_time.monotonic_at(next_at) - self._clock.monotonic()


def grace_of(server_lease: timedelta) -> timedelta:
    """Return how late a due time may be without being missed, where servers take over shards.

    Until the lease of a dead server expires nobody may fire in its place. That is no downtime:
    with `misfire: none`, too, every due time of it runs.
    """
    return server_lease + firing.MISFIRE_GRACE
