"""The store, queue and blob store that the settings name.

Drivers are imported when their address is in use: a server on SQLite stays small.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from importlib.metadata import entry_points

import structlog

from rota.adapters.store.store import SqlStore
from rota.domain.errors import Unavailable
from rota.operations.backends import Backends
from rota.ports.blobs import Blobs
from rota.ports.queue import Queue
from rota.runtime.config import cloud_credentials
from rota.runtime.setting_values import POSTGRES_SCHEMES, QUEUE_ENTRY_POINTS
from rota.runtime.settings import FILES, Settings

log = structlog.get_logger()

_NEEDS_EXTRA = frozenset({"asyncpg", "google", "grpc", "nats", "obstore"})


@asynccontextmanager
async def open_backends(settings: Settings, store: SqlStore) -> AsyncIterator[Backends]:
    """All three, where the store is open already; in the end it is closed like the others."""
    async with AsyncExitStack() as opened:
        opened.push_async_callback(store.close)
        blobs = await open_blobs(settings)
        opened.push_async_callback(blobs.close)
        queue = await open_queue(settings)
        opened.push_async_callback(queue.close)
        yield Backends(store, queue, blobs, largest=settings.largest)


async def open_store(settings: Settings, *, exclusive: bool) -> SqlStore:
    """SQLite or PostgreSQL; `exclusive` keeps other servers from one machine's file.

    A PostgreSQL that may answer later is `Unavailable` with the code `store_away`.
    """
    if settings.is_alone:
        from rota.adapters.store.sqlite.opening import open_sqlite

        return await open_sqlite(settings.store_path, exclusive=exclusive)
    with needing_extra():
        from rota.adapters.store.postgres.connections import PoolSizes
        from rota.adapters.store.postgres.opening import open_postgres
    return await open_postgres(settings.store, sizes=PoolSizes(api=settings.store_pool))


async def open_blobs(settings: Settings) -> Blobs:
    """A folder or a bucket."""
    if settings.blobs.startswith(FILES) or not settings.blobs:
        from rota.adapters.blobs.files import open_files

        if not settings.blobs and not settings.is_alone:
            log.warning("blobs.on_this_machine", folder=str(settings.blobs_path))
        return await open_files(settings.blobs_path)
    with needing_extra():
        from rota.adapters.blobs.objects import open_objects
    return await open_objects(settings.blobs, cloud_credentials())


async def open_queue(settings: Settings) -> Queue:
    """The process itself, PostgreSQL, NATS, or what an installed package brings."""
    scheme = settings.queue.partition("://")[0]
    if scheme == "nats":
        with needing_extra():
            from rota.adapters.queue.nats import open_nats
        return open_nats(settings.queue)
    if scheme in POSTGRES_SCHEMES or not (scheme or settings.is_alone):
        with needing_extra():
            from rota.adapters.queue.notify import open_notify
        return open_notify(settings.queue or settings.store)
    if scheme:
        [found] = entry_points(group=QUEUE_ENTRY_POINTS, name=scheme)
        queue: Queue = await found.load()(settings.queue)
        return queue
    from rota.adapters.queue.local import LocalQueue

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
