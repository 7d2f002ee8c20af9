"""The pace of loops that are woken, and look by themselves as well."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta

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
