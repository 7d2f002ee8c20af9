"""A store that is away while a server starts is waited for, so nobody has to start it again."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine
from datetime import timedelta
from typing import Any, TypeVar

import structlog

from rota.adapters.store.store import SqlStore
from rota.domain.errors import Unavailable
from rota.ports.clock import Clock
from rota.runtime.supervision import told_alone

log = structlog.get_logger()

T = TypeVar("T")
_FIRST_PAUSE = timedelta(milliseconds=500)
_LONGEST_PAUSE = timedelta(seconds=5)


async def patiently(open_store: Callable[[], Awaitable[SqlStore]], clock: Clock) -> SqlStore:
    """The store, as soon as it answers. What time does not mend is raised."""
    pause = _FIRST_PAUSE
    while True:
        try:
            store = await open_store()
        except Unavailable as error:
            if error.code != "store_away":
                raise
            if pause == _FIRST_PAUSE:
                _tell(error)
        else:
            if pause > _FIRST_PAUSE:
                log.info("store.answers")
            return store
        # Servers that lost their store together shall not all come back in the same moment.
        await clock.sleep(pause * random.uniform(0.5, 1))  # noqa: S311 (guards nothing)
        pause = min(pause * 2, _LONGEST_PAUSE)


def _tell(error: Unavailable) -> None:
    effect = "this server keeps trying, and starts as soon as the store answers"
    log.warning("store.away", error=error.message, hint=error.hint, effect=effect)


async def unless_stopped(work: Coroutine[Any, Any, T], stop: asyncio.Event) -> T | None:
    """What `work` gives; None if `stop` came first, and `work` was cancelled."""
    with told_alone():
        async with asyncio.TaskGroup() as group:
            working = group.create_task(work)
            stopping = group.create_task(stop.wait())
            await asyncio.wait((working, stopping), return_when=asyncio.FIRST_COMPLETED)
            working.cancel()
            stopping.cancel()
    return None if working.cancelled() else working.result()
