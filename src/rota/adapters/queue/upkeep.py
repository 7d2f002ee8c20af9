"""Loops behind a queue that nothing ends."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta

import structlog

from rota.ports.clock import Clock

log = structlog.get_logger()

_PAUSE = timedelta(seconds=1)


async def keep_up(name: str, loop: Callable[[], Awaitable[None]], clock: Clock) -> None:
    """Run a loop until cancelled. An error that it did not foresee is told, and it begins anew.

    A queue is a hint, which the server can do without: so this does not end it, as a bug elsewhere
    would.
    """
    while True:
        try:
            await loop()
        except Exception:  # (the edge of a loop)
            log.exception("queue.broken", loop=name, effect="work is found by polling meanwhile")
        await clock.sleep(_PAUSE)
