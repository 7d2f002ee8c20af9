"""The slow loops that make every wake-up optional."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from rota.domain.ids import SessionId
from rota.operations import firing, serving
from rota.operations.backends import Backends
from rota.ports.clock import Clock


@dataclass(frozen=True, slots=True)
class SweeperConfig:
    interval: timedelta = timedelta(seconds=5)
    batch_size: int = 1_000


class Sweeper:
    """Releases what a lost wake-up forgot and ends what passed its deadline."""

    name = "sweeper"

    def __init__(
        self, backends: Backends, clock: Clock, config: SweeperConfig | None = None
    ) -> None:
        self._backends = backends
        self._clock = clock
        self._config = config or SweeperConfig()

    async def run_once(self) -> int:
        return await firing.sweep(self._backends, self._config.batch_size)

    async def run(self) -> None:
        while True:
            await self.run_once()
            await self._clock.sleep(self._config.interval)


@dataclass(frozen=True, slots=True)
class _Sight:
    """A session's beat count and when it was first seen at that count."""

    beats: int
    since: float


class LeaseReaper:
    """Ends the sessions of workers that stopped renewing.

    Twice careful: the lease must have ended by the store's clock, and this node must have seen
    the beat count stand still for a whole lease on its own clock. So neither a store that was
    away nor a clock that jumped costs a healthy worker its runs.
    """

    name = "lease-reaper"

    def __init__(
        self, backends: Backends, clock: Clock, interval: timedelta = timedelta(seconds=1)
    ) -> None:
        self._backends = backends
        self._clock = clock
        self._interval = interval
        self._sights: dict[SessionId, _Sight] = {}

    async def run_once(self) -> int:
        sessions = await self._backends.store.sessions(alive_only=True)
        now = self._clock.monotonic()
        sights: dict[SessionId, _Sight] = {}
        overdue: dict[SessionId, int] = {}
        for session in sessions:
            seen = self._sights.get(session.id)
            if seen is None or seen.beats != session.beats:
                seen = _Sight(session.beats, now)
            sights[session.id] = seen
            if now - seen.since > session.lease.total_seconds():
                overdue[session.id] = session.beats
        self._sights = sights
        return len(await serving.reap(self._backends, overdue))

    async def run(self) -> None:
        while True:
            await self.run_once()
            await self._clock.sleep(self._interval)
