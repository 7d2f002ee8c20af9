"""Fires schedules at their due instant and releases runs whose time has come."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

import structlog

from rota.domain.calendars import FiringRules
from rota.domain.errors import Invalid
from rota.domain.ids import JobId
from rota.domain.jobfile import read_job
from rota.domain.store_time import StoreTime
from rota.operations import firing
from rota.operations.backends import Backends
from rota.operations.definitions import timetable
from rota.ports.clock import Clock
from rota.ports.queue import TIMES
from rota.ports.records import DueSchedule
from rota.scheduler.blackouts import Blackouts

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class TimekeeperConfig:
    look_ahead: timedelta = timedelta(seconds=5)  # schedules due this soon are kept in memory
    look_again: timedelta = timedelta(seconds=2)  # how often the store is asked for them
    batch_size: int = 1_000  # firings and releases in one transaction
    max_upcoming: int = 20_000  # schedules kept in memory


@dataclass(order=True, slots=True)
class _Upcoming:
    """A schedule that is due soon, with the answer prepared."""

    next_at: datetime
    job_id: JobId
    due: DueSchedule = field(compare=False)
    rules: FiringRules = field(compare=False)
    after: datetime | None = field(compare=False)  # the due time after this one


@dataclass(frozen=True, slots=True)
class _Version:
    """What a version of a job says about its schedule."""

    rules: FiringRules  # without blackouts, which may change under it
    project: str
    calendars: tuple[str, ...]


class Timekeeper:
    """Holds the schedules due in the next seconds and fires each at its instant, never early."""

    name = "timekeeper"

    def __init__(
        self, backends: Backends, clock: Clock, config: TimekeeperConfig | None = None
    ) -> None:
        self._backends = backends
        self._clock = clock
        self._config = config or TimekeeperConfig()
        self._upcoming: list[_Upcoming] = []
        self._versions: dict[tuple[JobId, int], _Version | None] = {}  # None: it is not readable
        self._blackouts = Blackouts(backends.store)
        self._store_time: StoreTime | None = None
        self._look_at: float = 0.0  # monotonic: when to ask the store again
        self._eligible_at: datetime | None = None

    async def run(self) -> None:
        listener = self._backends.queue.listen(TIMES)
        try:
            while True:
                await self.run_once()
                if await listener.wait(self._pause()):
                    self._look_at = 0.0
        finally:
            listener.close()

    async def run_once(self) -> int:
        """Fire and release all that is due now; returns how many schedules and runs that were."""
        if self._clock.monotonic() >= self._look_at:
            await self._look()
        done = 0
        while batch := self._take_due():
            await self._fire(batch)
            done += len(batch)
        if self._eligible_at is not None and self._eligible_at <= self._now():
            done += await firing.release_eligible(self._backends, self._config.batch_size)
            self._eligible_at = await self._backends.store.next_eligible_at()
        return done

    def _now(self) -> datetime:
        assert self._store_time is not None
        return self._store_time.at(self._clock.monotonic())

    def _pause(self) -> timedelta:
        """Until the next due instant, or until the store is asked again."""
        wake_at = self._look_at
        moments = [self._upcoming[0].next_at] if self._upcoming else []
        if self._eligible_at is not None:
            moments.append(self._eligible_at)
        if moments and self._store_time is not None:
            wake_at = min(wake_at, self._store_time.monotonic_at(min(moments)))
        return timedelta(seconds=max(wake_at - self._clock.monotonic(), 0))

    async def _look(self) -> None:
        """Replace what is in memory by what the store says is due soon."""
        await firing.end_pauses(self._backends, self._config.batch_size)
        await firing.rearm(self._backends, self._config.batch_size)
        store = self._backends.store
        now = await store.now()
        self._store_time = StoreTime(now, self._clock.monotonic())
        due = await store.due_schedules(now + self._config.look_ahead, self._config.max_upcoming)
        await self._learn(due)
        self._upcoming = [entry for entry in map(self._prepare, due) if entry is not None]
        heapq.heapify(self._upcoming)
        self._eligible_at = await store.next_eligible_at()
        self._look_at = self._clock.monotonic() + self._config.look_again.total_seconds()
        pause_end = await store.next_pause_end()
        if pause_end is not None:
            self._look_at = min(self._look_at, self._store_time.monotonic_at(pause_end))

    async def _learn(self, due: Sequence[DueSchedule]) -> None:
        """Compile job versions seen for the first time, and read the calendars of all."""
        new = {
            (d.job_id, d.job_version): d
            for d in due
            if (d.job_id, d.job_version) not in self._versions
        }
        if len(self._versions) > self._config.max_upcoming:
            self._versions.clear()
        documents = await self._backends.store.documents(list(new)) if new else {}
        for ref, document in documents.items():
            self._versions[ref] = _compiled(document, new[ref])
        versions = [self._versions.get((d.job_id, d.job_version)) for d in due]
        await self._blackouts.look(
            {(v.project, name) for v in versions if v for name in v.calendars}
        )

    def _prepare(self, due: DueSchedule) -> _Upcoming | None:
        version = self._versions.get((due.job_id, due.job_version))
        if version is None:
            return None
        rules = version.rules
        if version.calendars:
            blackouts = self._blackouts.of(version.project, version.calendars)
            if blackouts is None:
                return None
            rules = replace(rules, blackouts=blackouts)
        after = rules.timetable.next_after(due.next_at)
        return _Upcoming(due.next_at, due.job_id, due, rules, after)

    def _take_due(self) -> list[_Upcoming]:
        batch: list[_Upcoming] = []
        now = self._now()
        while self._upcoming and len(batch) < self._config.batch_size:
            if self._upcoming[0].next_at > now:
                break
            batch.append(heapq.heappop(self._upcoming))
        return batch

    async def _fire(self, batch: list[_Upcoming]) -> None:
        now = self._now()
        firings = [firing.plan_firing(entry.due, entry.rules, entry.after, now) for entry in batch]
        fired = await firing.fire(self._backends, firings)
        for entry, planned in zip(batch, firings, strict=True):
            if entry.job_id in fired.accepted and planned.next_at is not None:
                self._keep(entry, planned.next_at)
        if len(fired.accepted) < len(batch):
            self._look_at = 0.0  # somebody moved a schedule: what is in memory is stale

    def _keep(self, entry: _Upcoming, next_at: datetime) -> None:
        """A schedule that is due again soon stays in memory."""
        if next_at > self._now() + self._config.look_ahead:
            return
        due = DueSchedule(
            entry.job_id,
            next_at,
            entry.due.schedule_version,
            entry.due.job_version,
            entry.due.anchor,
        )
        heapq.heappush(
            self._upcoming,
            _Upcoming(
                next_at,
                entry.job_id,
                due,
                entry.rules,
                entry.rules.timetable.next_after(next_at),
            ),
        )


def _compiled(document: Mapping[str, Any], due: DueSchedule) -> _Version | None:
    """The rules of a schedule; None if this version cannot read it: the others must go on."""
    try:
        spec = read_job(document)
        table = timetable(spec, due.anchor)
    except Invalid as error:
        log.error(
            "schedule.unreadable", job_id=due.job_id, version=due.job_version, error=str(error)
        )
        return None
    if table is None or spec.schedule is None:
        return None
    rules = FiringRules(table, spec.schedule.misfire, firing.MISFIRE_GRACE)
    return _Version(rules, spec.project, spec.schedule.calendars)
