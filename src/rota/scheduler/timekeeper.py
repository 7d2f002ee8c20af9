"""Fires schedules at their due instant."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from rota.domain.firing import FiringRules
from rota.domain.store_time import StoreTime
from rota.operations import firing
from rota.operations.backends import Backends
from rota.ports.clock import Clock
from rota.ports.queue import TIMES
from rota.ports.records import DueSchedule, Fired, Firing
from rota.scheduler.agenda import Agenda, Upcoming
from rota.scheduler.held_shards import HeldShards
from rota.scheduler.schedule_rules import ScheduleRules

_ROUNDED_SECONDS = 0.0005  # by which the event loop's timers may be late: they count milliseconds


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
    """Holds the schedules due in the next seconds and fires each at its instant, never early.

    It works on the shards of this server. Looking ahead and firing are two loops, so that a long
    look delays nothing that is already known.
    """

    name = "timekeeper"

    def __init__(
        self,
        backends: Backends,
        clock: Clock,
        shards: HeldShards,
        config: TimekeeperConfig | None = None,
    ) -> None:
        self._backends = backends
        self._clock = clock
        self._shards = shards
        self._config = config or TimekeeperConfig()
        self._rules = ScheduleRules(
            backends, self._config.grace, self._config.max_upcoming, self._let_others_go_on
        )
        self._agenda = Agenda()
        self._agenda_changed = asyncio.Event()
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
        """Look, and fire all that is due now; returns how many schedules that were."""
        await self.look()
        return await self.fire_due()

    async def _keep_listening(self) -> None:
        listener = self._backends.queue.listen(TIMES)
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
            await _wait(self._is_stale, self._config.look_again.total_seconds())

    async def _keep_firing(self) -> None:
        while True:
            self._agenda_changed.clear()
            await self.fire_due()
            await _wait(self._agenda_changed, self._seconds_to_next())

    async def look(self) -> None:
        """Replace what is in memory by what the store says is due soon."""
        store, config = self._backends.store, self._config
        now = await store.now()
        self._store_time = StoreTime(now, self._clock.monotonic())
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
                if schedule.next_at > self._now():  # what is overdue is fired together
                    await self._let_others_go_on()
        await self._let_others_go_on()

    def _offer(self, schedule: DueSchedule, rules: FiringRules) -> None:
        waited_for = self._agenda.next_at
        after = rules.timetable.next_after(schedule.next_at)
        self._agenda.offer(Upcoming(schedule, rules, after))
        if self._agenda.next_at != waited_for:
            self._agenda_changed.set()

    async def _let_others_go_on(self) -> None:
        """A firing needs the interpreter in many short pieces, and a busy loop is slow to part with
        it: a look makes one step between two firings."""
        await self._clock.sleep(timedelta(0))
        await self._is_calm.wait()

    async def fire_due(self) -> int:
        """Fire what is due by now; returns how many schedules that were."""
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
        fired = await firing.fire(self._backends, firings, ownership)
        self._agenda.settle(batch, self._following(batch, firings, fired))
        self._shards.lose(ownership, fired.lost_shards)
        if len(fired.accepted) < len(batch):
            self._is_stale.set()  # somebody moved a schedule, or has it now

    def _following(
        self, batch: list[Upcoming], firings: list[Firing], fired: Fired
    ) -> Iterator[Upcoming]:
        """Schedules that are due again soon stay in memory."""
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
    """How late a due time may be without being missed, where servers take over from one another.

    While the lease of a server that died runs out nobody may fire in its stead. That is no
    downtime: with `misfire: none`, too, every due time of it runs.
    """
    return server_lease + firing.MISFIRE_GRACE


async def _wait(event: asyncio.Event, seconds: float) -> None:
    """Until the event, or a little less than so long: who is too early looks again, and again."""
    with suppress(TimeoutError):
        async with asyncio.timeout(max(seconds - _ROUNDED_SECONDS, 0)):
            await event.wait()
