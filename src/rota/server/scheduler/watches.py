"""Slow loops: expired leases, congested jobs, predictions, older keys of the ring, unused files."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import timedelta
from random import uniform

import structlog

from rota.domain.ids import SessionId
from rota.domain.lease import Sight, is_silent, look_at
from rota.operations import files
from rota.operations.engine import Engine
from rota.operations.forecasts import predict_starts
from rota.operations.key_ring import rewrap_some
from rota.operations.workers import watch_congestion
from rota.ports.clock import Clock
from rota.server.scheduler.shards import HeldShards

log = structlog.get_logger()


class CongestionWatch:
    """Raises an alarm about jobs whose runs wait in vain."""

    name = "congestion-watch"

    def __init__(
        self,
        engine: Engine,
        clock: Clock,
        shards: HeldShards,
        interval: timedelta = timedelta(seconds=30),
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._shards = shards
        self._interval = interval

    async def run_once(self) -> int:
        return await watch_congestion(self._engine) if self._shards.is_leading else 0

    async def run(self) -> None:
        while True:
            await self.run_once()
            await self._clock.sleep(self._interval)


@dataclass(frozen=True, slots=True)
class StartPredictorConfig:
    interval: timedelta = timedelta(minutes=10)
    ahead: timedelta = timedelta(hours=1)  # how far it looks
    kept: timedelta = timedelta(days=2)  # how long predictions are remembered


class StartPredictor:
    """Records predicted starts of runs, to measure how accurate forecasts are."""

    name = "start-predictor"

    def __init__(
        self,
        engine: Engine,
        clock: Clock,
        shards: HeldShards,
        config: StartPredictorConfig | None = None,
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._shards = shards
        self._config = config or StartPredictorConfig()

    async def run_once(self) -> int:
        if not self._shards.is_leading:
            return 0
        return await predict_starts(self._engine, self._config.ahead, self._config.kept)

    async def run(self) -> None:
        while True:
            await self._clock.sleep(self._config.interval)
            await self.run_once()


class LeaseReaper:
    """Ends the sessions of workers whose lease has expired.

    Two conditions: the lease has expired by the store's clock, and this server has seen no beat for
    a whole lease by its own. Every server looks, each at its own pace: if a worker and a server die
    together, the worker's runs wait no longer.
    """

    name = "lease-reaper"

    def __init__(
        self, engine: Engine, clock: Clock, interval: timedelta = timedelta(seconds=1)
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._interval = interval
        self._sights: dict[SessionId, Sight] = {}

    async def run_once(self) -> int:
        """Look at all sessions; return how many were ended."""
        hearts = await self._engine.store.heartbeats()
        now, before = self._clock.monotonic(), self._sights
        self._sights = {h.session: look_at(before.get(h.session), h.beats, now) for h in hearts}
        silent = {
            h.session: h.beats for h in hearts if is_silent(self._sights[h.session], h.lease, now)
        }
        return len(await self._engine.store.reap(silent))

    async def run(self) -> None:
        while True:
            await self.run_once()
            await self._clock.sleep(self._interval * uniform(0.75, 1.25))  # noqa: S311 - no secret


@dataclass(frozen=True, slots=True)
class RewrapperConfig:
    interval: timedelta = timedelta(seconds=5)  # between two batches, and looks at the ring
    rest: timedelta = timedelta(minutes=10)  # after a pass: another server may have an older ring


class Rewrapper:
    """Wraps by the first key of the ring what older ones have sealed, a batch at a time."""

    name = "rewrapper"

    def __init__(
        self,
        engine: Engine,
        clock: Clock,
        shards: HeldShards,
        config: RewrapperConfig | None = None,
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._shards = shards
        self._config = config or RewrapperConfig()
        self._keys: tuple[str, ...] = ()  # of the ring in the latest pass
        self._after = ""
        self._unreadable: Counter[str] = Counter()  # in this pass, by the id of the missing key
        self._rests_until = 0.0

    async def run_once(self) -> int:
        """Do a batch, unless a pass is over with the same ring; return how many were wrapped."""
        ring = self._engine.key_ring
        if ring is None or not self._shards.is_leading:
            return 0
        if ring.ids != self._keys:  # a new ring: begin anew
            self._keys, self._after, self._rests_until = ring.ids, "", 0.0
            self._unreadable.clear()
        if self._clock.monotonic() < self._rests_until:
            return 0
        done = await rewrap_some(self._engine, self._after)
        self._unreadable.update(done.unreadable)
        if done.after is None:
            self._end_pass()
        else:
            self._after = done.after
        return done.count

    def _end_pass(self) -> None:
        for key, values in sorted(self._unreadable.items()):
            log.warning("key_ring.unreadable", key=key, of="logins", values=values, hint=_PUT_BACK)
        self._after = ""
        self._unreadable.clear()
        self._rests_until = self._clock.monotonic() + self._config.rest.total_seconds()

    async def run(self) -> None:
        while True:
            if count := await self.run_once():
                log.info("key_ring.rewrapped", values=count, key_id=self._keys[0])
            await self._clock.sleep(self._config.interval)


_PUT_BACK = "these people are not refreshed; put a missing key back below the others of the ring"


@dataclass(frozen=True, slots=True)
class FileCollectorConfig:
    interval: timedelta = timedelta(minutes=1)  # between two looks; a batch that was full goes on
    batch_size: int = 500  # files or artifacts in one step


class FileCollector:
    """Deletes files that nothing refers to any more, and artifacts whose time is over."""

    name = "file collector"

    def __init__(
        self,
        engine: Engine,
        clock: Clock,
        shards: HeldShards,
        config: FileCollectorConfig | None = None,
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._shards = shards
        self._config = config or FileCollectorConfig()

    async def run_once(self) -> int:
        """Do a batch of each; return how many were deleted, at most that of one batch."""
        if not self._shards.is_leading:
            return 0
        artifacts = await self._engine.store.forget_artifacts(self._config.batch_size)
        collected = await files.collect(self._engine, self._config.batch_size)
        return max(artifacts, collected)

    async def run(self) -> None:
        while True:
            if await self.run_once() < self._config.batch_size:
                await self._clock.sleep(self._config.interval)
