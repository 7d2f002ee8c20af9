"""What is due soon is known beforehand, and looking ahead never delays what is known."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any, cast

import pytest

from rota.domain.ids import JobId
from rota.operations import pauses
from rota.ports.queue import TIMES
from rota.ports.store import Store
from rota.server.scheduler.timekeeper import Timekeeper, TimekeeperConfig
from rota.store.store import SqlStore
from rota.store.transactions import tell_nobody
from testkit.clock import FakeClock, FakeTicker
from testkit.waiting import boottime
from tests.unit.server.scheduler.timeline import Timeline

pytestmark = pytest.mark.anyio

SECOND = timedelta(seconds=1)
HOUR = timedelta(hours=1)


class YieldingClock(FakeClock):
    """One whose sleeps let other tasks run, as real ones do."""

    async def sleep(self, duration: timedelta) -> None:
        await asyncio.sleep(0)  # noqa: TID251 (no time passes)
        await super().sleep(duration)


class RunningClock(FakeClock):
    """One that has the store's fake clock follow real time whenever it is read."""

    def __init__(self, ticker: FakeTicker) -> None:
        super().__init__(ticker)
        self._ticker = ticker
        self._began, self._shown = boottime(), ticker.instant

    def monotonic(self) -> float:
        now = self._shown + timedelta(seconds=boottime() - self._began)
        self._ticker.advance(max(now - self._ticker.instant, timedelta(0)))
        return super().monotonic()


class CountingTimekeeper(Timekeeper):
    rounds = 0

    async def fire_due(self) -> int:
        self.rounds += 1
        return await super().fire_due()


class SlowDocuments:
    """A store that takes its time to read what jobs say, after so many quick answers."""

    def __init__(self, store: Store, quick_answers: int) -> None:
        self._store = store
        self._quick_answers = quick_answers
        self.is_asked = asyncio.Event()
        self.answers = asyncio.Event()
        self.asked_for: list[tuple[JobId, int]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def documents(self, refs: Any) -> Any:
        self.asked_for += refs
        self._quick_answers -= 1
        if self._quick_answers < 0:
            self.is_asked.set()
            await self.answers.wait()
        return await self._store.documents(refs)


def slow(timeline: Timeline, quick_answers: int, **config: Any) -> tuple[SlowDocuments, Timekeeper]:
    store = SlowDocuments(timeline.store, quick_answers)
    engine = replace(timeline.engine, store=cast("Store", store))
    clock = FakeClock(timeline.ticker)
    return store, Timekeeper(engine, clock, timeline.shards, TimekeeperConfig(**config))


@asynccontextmanager
async def slow_look(store: SlowDocuments, timekeeper: Timekeeper) -> AsyncIterator[None]:
    """A look that lasts as long as the block."""
    async with asyncio.TaskGroup() as group:
        group.create_task(timekeeper.look())
        async with asyncio.timeout(20):
            await store.is_asked.wait()
        yield
        store.answers.set()


async def test_what_is_known_is_fired_while_a_look_learns(timeline: Timeline) -> None:
    store, timekeeper = slow(timeline, quick_answers=1)
    await timeline.apply("every 1s", name="known", overlap="allow")
    await timekeeper.run_once()
    await timeline.apply("every 1s", name="new", overlap="allow")

    async with slow_look(store, timekeeper):
        for _ in range(2):
            timeline.be_down(SECOND)
            assert await timekeeper.fire_due() == 1

    assert await timekeeper.fire_due() == 1
    assert await timeline.due_times("known") == [SECOND, 2 * SECOND]
    assert await timeline.due_times("new") == [SECOND, 2 * SECOND]


async def test_what_a_look_read_before_a_firing_is_not_fired_again(timeline: Timeline) -> None:
    store, timekeeper = slow(timeline, quick_answers=1)
    await timeline.apply("every 1h", name="known")
    timeline.be_down(HOUR)
    await timekeeper.look()
    await timeline.apply("every 1s", name="new")

    async with slow_look(store, timekeeper):
        assert await timekeeper.fire_due() == 1

    assert await timekeeper.fire_due() == 0
    assert await timeline.due_times("known") == [HOUR]


async def test_what_a_look_has_learned_is_fired_before_it_ends(timeline: Timeline) -> None:
    store, timekeeper = slow(timeline, quick_answers=1, batch_size=1)
    await timeline.apply("every 1s", name="first")
    timeline.be_down(SECOND)
    await timeline.apply("every 1s", name="second")

    async with slow_look(store, timekeeper):
        assert await timekeeper.fire_due() == 1

    assert await timeline.due_times("first") == [SECOND]


async def test_a_thousand_due_at_once_are_fired_in_pieces(timeline: Timeline) -> None:
    config = TimekeeperConfig(batch_size=10)
    jobs = [{"name": f"job-{number}", "schedule": "every 1h"} for number in range(25)]
    await timeline.apply_all(jobs)
    clock = FakeClock(timeline.ticker)
    timekeeper = Timekeeper(timeline.engine, clock, timeline.shards, config)
    timeline.be_down(HOUR)
    before = await timeline.store.last_event()

    assert await timekeeper.run_once() == 25

    queued = [
        len(event.ids)
        for event in await timeline.store.events(before, 100)
        if event.kind == "run.queued"
    ]
    assert queued == [10, 10, 5]


async def test_what_a_look_finds_overdue_is_fired_together_while_it_looks(
    timeline: Timeline,
) -> None:
    config = TimekeeperConfig(batch_size=10)
    jobs = [{"name": f"job-{number}", "schedule": "every 1h"} for number in range(25)]
    await timeline.apply_all(jobs)
    clock = YieldingClock(timeline.ticker)
    timekeeper = Timekeeper(timeline.engine, clock, timeline.shards, config)
    timeline.be_down(HOUR)
    before = await timeline.store.last_event()
    running = asyncio.create_task(timekeeper.run())

    queued: list[int] = []
    async with asyncio.timeout(20):
        while sum(queued) < len(jobs):
            events = await timeline.store.events(before, 100)
            queued = [len(event.ids) for event in events if event.kind == "run.queued"]
    running.cancel()
    await asyncio.wait([running])

    assert queued == [10, 10, 5]


async def test_what_is_due_soon_fires_at_its_instant_without_another_look(
    timeline: Timeline,
) -> None:
    timekeeper = timeline.scheduler.timekeeper
    await timeline.apply("every 4s", name="soon")
    await timeline.apply("every 6s", name="later")
    await timekeeper.look()

    timeline.be_down(4 * SECOND)
    assert await timekeeper.fire_due() == 1
    timeline.be_down(2 * SECOND)
    assert await timekeeper.fire_due() == 0  # it was too far ahead

    assert await timekeeper.run_once() == 1
    assert await timeline.due_times("soon") == [4 * SECOND]


async def test_what_is_due_again_much_later_is_not_kept(timeline: Timeline) -> None:
    timekeeper = timeline.scheduler.timekeeper
    await timeline.apply("every 1h")
    timeline.be_down(HOUR)
    assert await timekeeper.run_once() == 1

    timeline.be_down(HOUR)

    assert await timekeeper.fire_due() == 0
    assert await timekeeper.run_once() == 1


class Looped:
    """A timekeeper whose loops run, and look at the store only when woken."""

    def __init__(self, timeline: Timeline) -> None:
        config = TimekeeperConfig(look_again=HOUR)
        self.timeline = timeline
        self.timekeeper = Timekeeper(
            timeline.engine, FakeClock(timeline.ticker), timeline.shards, config
        )
        # What is applied here wakes nobody.
        assert isinstance(timeline.store, SqlStore)
        deaf = replace(timeline.engine, store=timeline.store.shared_with(tell_nobody))
        self.elsewhere = replace(timeline, engine=deaf)

    async def until_due(self, name: str, *due: timedelta) -> None:
        async with asyncio.timeout(20):
            while await self.timeline.due_times(name) != list(due):
                pass


@pytest.fixture
async def looped(timeline: Timeline) -> AsyncIterator[Looped]:
    """It has fired the job `first`, and so has looked."""
    looped = Looped(timeline)
    await timeline.apply("every 1s", name="first", overlap="allow")
    timeline.be_down(SECOND)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(looped.timekeeper.run())
        await looped.until_due("first", SECOND)
        yield looped
        running.cancel()


async def test_a_wake_up_is_followed_by_a_look(looped: Looped) -> None:
    await looped.elsewhere.apply("every 1s", name="new")
    looped.timeline.be_down(SECOND)

    looped.timeline.engine.queue.announce(TIMES)

    await looped.until_due("new", 2 * SECOND)


async def test_a_firing_that_was_refused_is_followed_by_a_look(looped: Looped) -> None:
    """Its schedule moved unseen: it is read again now, not when a look is due anyway."""
    await looped.elsewhere.apply("every 1s", name="first", overlap="allow", priority=7)

    looped.timeline.be_down(SECOND)

    await looped.until_due("first", SECOND, 2 * SECOND)


async def see_versions(timeline: Timeline, timekeeper: Timekeeper, count: int) -> None:
    for number in range(count):
        await timeline.apply("every 1s", name="edited", description=f"the {number}th")
        timeline.be_down(SECOND)
        await timekeeper.run_once()


async def test_what_is_due_soon_is_read_once_however_much_is_seen_beside_it(
    timeline: Timeline,
) -> None:
    store, timekeeper = slow(timeline, quick_answers=1_000, max_upcoming=2)
    known = await timeline.apply("every 1s", name="known", overlap="allow")

    await see_versions(timeline, timekeeper, 10)

    assert store.asked_for.count((known.id, 1)) == 1
    assert len(await timeline.runs("known")) == 10


async def test_what_is_due_no_more_is_forgotten_some_day(timeline: Timeline) -> None:
    store, timekeeper = slow(timeline, quick_answers=1_000, max_upcoming=2)
    held = await timeline.apply("every 1s", name="held")
    await timekeeper.run_once()
    await pauses.pause(timeline.engine, held, actor="test")

    await see_versions(timeline, timekeeper, 10)
    await pauses.resume(timeline.engine, await timeline.job("held"), actor="test")
    await timekeeper.run_once()

    assert store.asked_for.count((held.id, 1)) == 2


class SlowFiring:
    """A store that takes its time to fire."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.is_asked = asyncio.Event()
        self.answers = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def fire(self, *arguments: Any) -> Any:
        self.is_asked.set()
        await self.answers.wait()
        return await self._store.fire(*arguments)


async def test_a_look_goes_on_when_a_firing_is_over(timeline: Timeline) -> None:
    store = SlowFiring(timeline.store)
    engine = replace(timeline.engine, store=cast("Store", store))
    timekeeper = Timekeeper(engine, FakeClock(timeline.ticker), timeline.shards)
    await timeline.apply("every 1s", name="known", overlap="allow")
    await timekeeper.look()
    await timeline.apply("every 1s", name="new", overlap="allow")
    timeline.be_down(SECOND)

    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        firing = group.create_task(timekeeper.fire_due())
        await store.is_asked.wait()
        look = group.create_task(timekeeper.look())
        await asyncio.wait([look], timeout=0.05)
        assert not look.done()
        store.answers.set()

    assert firing.result() + await timekeeper.fire_due() == 2


async def test_a_due_time_is_waited_for_without_keeping_a_processor_busy(
    timeline: Timeline,
) -> None:
    timekeeper = CountingTimekeeper(
        timeline.engine,
        RunningClock(timeline.ticker),
        timeline.shards,
        TimekeeperConfig(look_again=HOUR),
    )
    await timeline.apply("every 100ms", overlap="allow")
    running = asyncio.create_task(timekeeper.run())

    async with asyncio.timeout(20):
        while (fired := len(await timeline.runs())) < 5:
            pass
    running.cancel()
    await asyncio.wait([running])

    # One to see when it is due, one to fire it, and one if the estimate was too early.
    assert timekeeper.rounds <= 3 * fired + 5
