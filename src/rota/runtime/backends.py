"""The store, queue and blob store that the settings name, waited for while they are away.

Drivers are imported when their address is in use: a server on SQLite stays small.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from datetime import timedelta
from functools import partial
from importlib.metadata import entry_points
from typing import Any, TypeVar

import structlog

from rota.domain.errors import NotFound, Unavailable
from rota.operations.engine import Engine, Pools
from rota.ports.blobs import Blobs
from rota.ports.clock import Clock
from rota.ports.queue import Queue, publish
from rota.queue.local import LocalIdleWorkers
from rota.runtime.config import cloud_credentials
from rota.runtime.settings import FILES, POSTGRES_SCHEMES, QUEUE_ENTRY_POINTS, Settings
from rota.runtime.supervision import told_alone
from rota.store.store import SqlStore

log = structlog.get_logger()

_NEEDS_EXTRA = frozenset({"asyncpg", "google", "grpc", "nats", "obstore"})


@asynccontextmanager
async def open_backends(settings: Settings, store: SqlStore) -> AsyncIterator[Engine]:
    """All three, where the store is open already; in the end it is closed like the others."""
    async with AsyncExitStack() as opened:
        opened.push_async_callback(store.close)
        blobs = await open_blobs(settings)
        opened.push_async_callback(blobs.close)
        queue = await open_queue(settings)
        opened.push_async_callback(queue.close)
        store.publish_with(partial(publish, queue))
        yield Engine(store, queue, blobs, LocalIdleWorkers(), pools=Pools(largest=settings.largest))


async def open_store(settings: Settings, *, exclusive: bool) -> SqlStore:
    """SQLite or PostgreSQL; `exclusive` keeps other servers from one machine's file.

    A PostgreSQL that may answer later is `Unavailable` with the code `store_away`.
    """
    if settings.is_alone:
        from rota.store.sqlite.opening import open_sqlite

        return await open_sqlite(settings.store_path, exclusive=exclusive)
    with needing_extra():
        from rota.store.postgres.connections import PoolSizes
        from rota.store.postgres.opening import open_postgres
    return await open_postgres(settings.store, sizes=PoolSizes(api=settings.store_pool))


async def open_blobs(settings: Settings) -> Blobs:
    """A folder or a bucket."""
    if settings.blobs.startswith(FILES) or not settings.blobs:
        from rota.blobs.files import open_files

        if not settings.blobs and not settings.is_alone:
            log.warning("blobs.on_this_machine", folder=str(settings.blobs_path))
        return await open_files(settings.blobs_path)
    with needing_extra():
        from rota.blobs.objects import open_objects
    return await open_objects(settings.blobs, cloud_credentials())


async def open_queue(settings: Settings) -> Queue:
    """The process itself, PostgreSQL, NATS, or what an installed package brings."""
    scheme = settings.queue.partition("://")[0]
    if scheme == "nats":
        with needing_extra():
            from rota.queue.nats import open_nats
        return open_nats(settings.queue)
    if scheme in POSTGRES_SCHEMES or not (scheme or settings.is_alone):
        with needing_extra():
            from rota.queue.notify import open_notify
        return open_notify(settings.queue or settings.store)
    if scheme:
        [found] = entry_points(group=QUEUE_ENTRY_POINTS, name=scheme)
        queue: Queue = await found.load()(settings.queue)
        return queue
    from rota.queue.local import LocalQueue

    return LocalQueue()


@contextmanager
def needing_extra() -> Iterator[None]:
    """Imports of drivers that a plain installation does not have."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _NEEDS_EXTRA:
            raise
        raise Unavailable(
            f"this needs the package {error.name}, which is not installed",
            code="extra_missing",
            hint='pip install "rota[cluster]"',
        ) from error


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


_NO_SUCH_BLOB = "probe/looks-for-nothing"


async def ask_for_nothing(blobs: Blobs) -> None:
    """`Unavailable` if the store cannot be used; nothing is written."""
    try:
        await blobs.get(_NO_SUCH_BLOB)
    except NotFound:
        return


class BlobProbe:
    """A service that ends at once: a server starts, and runs go on, without an object store."""

    name = "blob-probe"

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs

    async def run(self) -> None:
        try:
            await ask_for_nothing(self._blobs)
        except Unavailable as error:
            log.warning(
                "blobs.away",
                error=error.message,
                hint=error.hint,
                effect="output waits on the workers",
            )
