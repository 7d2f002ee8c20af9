"""Stand-in for the guardian where nothing has to be killed."""

from __future__ import annotations

from datetime import timedelta

from rota.ports.clock import Clock


class NoGuard:
    """Implements `rota.worker.session.LeaseGuard`; its deadlines end nothing."""

    def prolong(self, deadline: float) -> None: ...

    async def keep_watch(self, clock: Clock, silence: timedelta) -> None: ...
