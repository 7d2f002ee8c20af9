"""The loop that notices workers which are gone."""

from __future__ import annotations

from datetime import timedelta
from random import uniform

from rota.domain.ids import SessionId
from rota.domain.lease import Sight, is_silent, look_at
from rota.operations import workers
from rota.operations.engine import Engine
from rota.ports.clock import Clock


class LeaseReaper:
    """Ends the sessions of workers that stopped renewing.

    Twice careful: the lease must have ended by the store's clock, and this server must have seen
    no beat for a whole lease on its own. Every server looks, each at a pace of its own: so a
    worker and a server may die together, and its runs wait no longer.
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
        """Look at all sessions; returns how many ended."""
        hearts = await self._engine.store.heartbeats()
        now, before = self._clock.monotonic(), self._sights
        self._sights = {h.session: look_at(before.get(h.session), h.beats, now) for h in hearts}
        silent = {
            h.session: h.beats for h in hearts if is_silent(self._sights[h.session], h.lease, now)
        }
        return len(await workers.reap(self._engine, silent))

    async def run(self) -> None:
        while True:
            await self.run_once()
            await self._clock.sleep(self._interval * uniform(0.75, 1.25))  # noqa: S311 - no secret
