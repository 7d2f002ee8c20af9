"""Loops that release waiting runs: by time, key, worker, or upstream job; and the sweep."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from rota.operations import firing, pauses
from rota.operations.engine import Engine
from rota.ports.clock import Clock
from rota.ports.queue import FOLLOWED, KEYS, TIMES, WORKERS
from rota.server.scheduler.shards import HeldShards, at_each_wake


@dataclass(frozen=True, slots=True)
class ReleaserConfig:
    interval: timedelta = timedelta(seconds=1)  # how often the store is asked at least
    batch_size: int = 1_000  # runs and schedules in one transaction


class Releaser:
    """Releases runs whose time or back-off has come, ends pauses, and rearms schedules that count
    from the end of a run.
    """

    name = "releaser"

    def __init__(
        self,
        engine: Engine,
        clock: Clock,
        shards: HeldShards,
        config: ReleaserConfig | None = None,
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._shards = shards
        self._config = config or ReleaserConfig()
        self._pause = timedelta(0)

    async def run(self) -> None:
        await at_each_wake(self._engine.queue, TIMES, self.run_once, lambda: self._pause)

    async def run_once(self) -> int:
        """Do what is due; return how many runs, pauses and schedules that were."""
        self._pause = self._config.interval
        if not self._shards.is_leading:
            return 0
        done = await pauses.end_pauses(self._engine, self._config.batch_size)
        done += await firing.rearm(self._engine, self._config.batch_size)
        done += await self._release()
        return done

    async def _release(self) -> int:
        store = self._engine.store
        moments = [await store.next_eligible_at(), await store.next_pause_end()]
        now = await store.now()
        released = 0
        if moments[0] is not None and moments[0] <= now:
            released = await firing.release_eligible(self._engine, self._config.batch_size)
            moments[0] = await store.next_eligible_at()
        waits = [moment - now for moment in moments if moment is not None]
        self._pause = max(min([self._pause, *waits]), timedelta(0))
        return released


_KEYS_AT_ONCE = 200  # transactions that need one of them wait until these are checked


@dataclass(frozen=True, slots=True)
class SweeperConfig:
    interval: timedelta = timedelta(seconds=5)
    batch_size: int = 1_000
    forget_interval: timedelta = timedelta(hours=1)  # how often old rows are deleted
    notes_interval: timedelta = timedelta(minutes=1)  # the same for notes of attempts that ended
    load_within: timedelta = timedelta(hours=1)  # a cart whose items stopped coming is forgotten


class Sweeper:
    """Releases runs whose wake-up was lost, ends runs past their deadline, deletes what is old."""

    name = "sweeper"

    def __init__(
        self,
        engine: Engine,
        clock: Clock,
        shards: HeldShards,
        config: SweeperConfig | None = None,
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._shards = shards
        self._config = config or SweeperConfig()
        self._forgets_at = 0.0  # monotonic
        self._forgets_notes_at = 0.0  # monotonic

    async def run_once(self) -> int:
        if not self._shards.is_leading:
            return 0
        await self._forget()
        return await firing.sweep(self._engine, self._config.batch_size)

    async def _forget(self) -> None:
        now, limit = self._clock.monotonic(), self._config.batch_size
        store = self._engine.store
        if now >= self._forgets_notes_at and await store.forget_notes(limit) < limit:
            self._forgets_notes_at = now + self._config.notes_interval.total_seconds()
        if now < self._forgets_at:
            return
        await store.forget_loading_carts(await store.now() - self._config.load_within)
        await store.forget_keys(_KEYS_AT_ONCE)
        if await store.forget_sessions(limit) < limit:
            self._forgets_at = now + self._config.forget_interval.total_seconds()

    async def run(self) -> None:
        while True:
            await self.run_once()
            await self._clock.sleep(self._config.interval)


@dataclass(frozen=True, slots=True)
class FollowerConfig:
    interval: timedelta = timedelta(seconds=1)  # how often the store is asked at least
    batch_size: int = 500  # ends in one transaction


class _EndTaker:
    """Handles what ends of runs have left, on one server, as long as there is any."""

    def __init__(
        self, engine: Engine, shards: HeldShards, config: FollowerConfig | None = None
    ) -> None:
        self._engine = engine
        self._shards = shards
        self._config = config or FollowerConfig()
        self._pause = timedelta(0)

    async def run(self) -> None:
        await at_each_wake(self._engine.queue, FOLLOWED, self.run_once, lambda: self._pause)

    async def run_once(self) -> int:
        """Handle some of them; return how many."""
        self._pause = self._config.interval
        if not self._shards.is_leading:
            return 0
        handled = await self._take(self._config.batch_size)
        if handled == self._config.batch_size:
            self._pause = timedelta(0)
        return handled

    async def _take(self, limit: int) -> int:
        raise NotImplementedError


class Follower(_EndTaker):
    """Handles each run that has ended once, for all jobs that follow it.

    Two followers are harmless: each end is claimed by one, and the run that answers it has one id.
    """

    name = "follower"

    async def _take(self, limit: int) -> int:
        return await self._engine.store.follow_ends(limit)


class Prober(_EndTaker):
    """Resolves UNKNOWN runs as their probes say that have ended.

    Two probers are harmless: each answer is held against the run under its lock.
    """

    name = "prober"

    async def _take(self, limit: int) -> int:
        return await self._engine.store.settle_probes(limit)


_LEAST_PATIENCE = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class KeyKeeperConfig:
    interval: timedelta = timedelta(seconds=1)  # how often the store is asked at least
    patience: timedelta = timedelta(milliseconds=100)  # between looks while the queue stands still
    batch_size: int = 200  # runs in one step


class KeyKeeper:
    """Releases runs that wait for rate limits, named resources, quotas or `exclusive_by`.

    It reserves nothing: keys are taken when a run is claimed, so two keepers at once are harmless.
    Runs whose wake-up was lost are found by the next look.
    """

    name = "key keeper"

    def __init__(
        self,
        engine: Engine,
        shards: HeldShards,
        config: KeyKeeperConfig | None = None,
    ) -> None:
        self._engine = engine
        self._shards = shards
        self._config = config or KeyKeeperConfig()
        self._next_at: datetime | None = None  # when the next run may go, by the latest look
        self._patience = _LEAST_PATIENCE
        self.pause = timedelta(0)  # until the next look

    async def run(self) -> None:
        await at_each_wake(self._engine.queue, KEYS, self.run_once, lambda: self.pause)

    async def run_once(self) -> int:
        """Release runs as far as there is room; return how many."""
        self.pause = self._config.interval
        if not self._shards.is_leading:
            return 0
        released = await self._engine.store.release_keys(self._config.batch_size)
        if not released:
            self.pause = await self._until_next()
            return 0
        self._next_at, self._patience = None, _LEAST_PATIENCE
        self.pause = timedelta(0)
        return released

    async def _until_next(self) -> timedelta:
        """Return the time until the next look; back off while the run that is due has no room."""
        store = self._engine.store
        next_at, now = await store.next_key_at(), await store.now()
        if self._next_at is not None and self._next_at <= now:
            self._patience = min(2 * self._patience, self._config.patience)
        self._next_at = next_at
        wait = self._config.interval if next_at is None else next_at - now
        return max(min(wait, self._config.interval), self._patience)


@dataclass(frozen=True, slots=True)
class WorkerWatchConfig:
    interval: timedelta = timedelta(seconds=5)  # how often the store is asked at least
    batch_size: int = 1_000  # runs that ask for the same, in one transaction


class WorkerWatch:
    """Re-checks runs that no worker could take when they were queued."""

    name = "worker watch"

    def __init__(
        self, engine: Engine, shards: HeldShards, config: WorkerWatchConfig | None = None
    ) -> None:
        self._engine = engine
        self._shards = shards
        self._config = config or WorkerWatchConfig()
        self._pause = timedelta(0)

    async def run(self) -> None:
        await at_each_wake(self._engine.queue, WORKERS, self.run_once, lambda: self._pause)

    async def run_once(self) -> int:
        """Send runs that a worker can take now through the gates again; return how many."""
        self._pause = self._config.interval
        if not self._shards.is_leading:
            return 0
        released = await self._engine.store.release_fitting(self._config.batch_size)
        if released:
            self._pause = timedelta(0)  # there may be more
        return released
