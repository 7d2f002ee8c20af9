"""The machine's clocks: the only module that may read them."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta


class SystemClock:
    """Implements `rota.ports.clock.Clock`."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        # Counts on while the machine is suspended, unlike CLOCK_MONOTONIC.
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    async def sleep(self, duration: timedelta) -> None:
        await asyncio.sleep(max(duration.total_seconds(), 0))
