"""Takes output from the spool to a server, for as long as that takes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from rota.domain.errors import NotFound, Unavailable
from rota.ports.work import OutputChunk, ReportAnswer
from rota.worker.spool import OutputSpool

SendChunks = Callable[[Sequence[OutputChunk]], Awaitable[ReportAnswer]]


@dataclass(frozen=True, slots=True)
class DeliveryPacing:
    """How long to wait after a failure; doubled each time."""

    first_pause: timedelta = timedelta(milliseconds=100)
    longest_pause: timedelta = timedelta(seconds=5)


class OutputDeliverer:
    """One a worker: chunks of an attempt arrive in order, the next after the last was answered."""

    name = "output-deliverer"

    def __init__(
        self, spool: OutputSpool, send: SendChunks, pacing: DeliveryPacing | None = None
    ) -> None:
        self._spool = spool
        self._send = send
        self._pacing = pacing or DeliveryPacing()

    async def run(self) -> None:
        """Until cancelled. Connections may break and sessions be resumed meanwhile."""
        pause = self._pacing.first_pause
        while True:
            await self._spool.has_parcels.wait()
            try:
                await self.run_once()
                pause = self._pacing.first_pause
            except (Unavailable, NotFound) as error:
                self._spool.stalled(str(error))
                await self._wait(pause)
                pause = min(2 * pause, self._pacing.longest_pause)

    async def run_once(self) -> int:
        """Deliver one batch; how many chunks it had. `Unavailable`: nothing was lost."""
        batch = self._spool.next_batch()
        if batch.chunks:
            answer = await self._send(batch.chunks)
            self._spool.delivered(batch, answer.fenced)
        return len(batch.chunks)

    async def _wait(self, pause: timedelta) -> None:
        self._spool.wants_delivery.clear()
        try:
            async with asyncio.timeout(pause.total_seconds()):
                await self._spool.wants_delivery.wait()
        except TimeoutError:
            pass
