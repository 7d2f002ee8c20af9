"""The pace of loops that are woken, and look by themselves as well."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta

from rota.ports.queue import Queue


async def at_each_wake(
    queue: Queue,
    topic: str,
    run_once: Callable[[], Awaitable[object]],
    pause: Callable[[], timedelta],
) -> None:
    """For ever: do it, then wait for the topic, for as long as `pause` says by then at most."""
    listener = queue.listen(topic)
    try:
        while True:
            await run_once()
            await listener.wait(pause())
    finally:
        listener.close()


def until_next(
    next_at: datetime | None, looked_at: datetime, now: datetime, most: timedelta
) -> timedelta:
    """How long to wait after a look, if something is due next at this time.

    What was due at the look already, and still is, is another server's or cannot be read. What
    fell due since then is ours.
    """
    if next_at is None or next_at <= looked_at:
        return most
    return min(most, max(next_at - now, timedelta(0)))
