"""Store, queue and blob store that the settings name; opening retries while the store is away.

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
from rota.domain.identity import ProviderRules
from rota.operations.engine import Engine, Logins, Outside, Pools
from rota.ports.blobs import Blobs
from rota.ports.clock import Clock
from rota.ports.provider import Provider
from rota.ports.queue import Queue, publish
from rota.queue.local import LocalIdleWorkers
from rota.runtime.config import cloud_credentials
from rota.runtime.herald import open_herald
from rota.runtime.key_ring import load_key_ring
from rota.runtime.settings import FILES, POSTGRES_SCHEMES, QUEUE_ENTRY_POINTS, Settings
from rota.runtime.supervision import ungrouped_errors
from rota.store.store import SqlStore

log = structlog.get_logger()

_SET_POOLS = "rota pool set NAME --max cpu=16, and take ROTA_POOL_MAX out of the settings"

_NEEDS_EXTRA = frozenset({"asyncpg", "google", "grpc", "nats", "obstore"})


@asynccontextmanager
async def open_backends(settings: Settings, store: SqlStore) -> AsyncIterator[Engine]:
    """Open queue and blobs for a store that is open already; all three are closed at the end."""
    async with AsyncExitStack() as opened:
        opened.push_async_callback(store.close)
        blobs = await open_blobs(settings)
        opened.push_async_callback(blobs.close)
        queue = await open_queue(settings)
        opened.push_async_callback(queue.close)
        store.publish_with(partial(publish, queue))
        if settings.pool_max:
            log.warning("setting.going_out_of_use", setting="pool_max", instead=_SET_POOLS)
        yield Engine(
            store,
            queue,
            blobs,
            LocalIdleWorkers(),
            pools=Pools(largest=settings.largest),
            logins=Logins(
                await opened.enter_async_context(open_provider(settings)),
                settings.session_lifetime,
                settings.session_idle,
            ),
            outside=Outside(await opened.enter_async_context(open_herald(settings))),
            key_ring=await load_key_ring(settings),
        )


@asynccontextmanager
async def open_provider(settings: Settings) -> AsyncIterator[Provider | None]:
    """Open the identity provider that people log in with; None: there is none."""
    if not settings.oidc_issuer:
        yield None
        return
    from rota.identity import oidc

    rules = ProviderRules(
        issuer=settings.oidc_issuer,
        client_id=settings.oidc_client_id,
        audience=settings.oidc_audience,
        groups_claim=settings.oidc_groups_claim,
        access_token_typ=settings.oidc_access_token_typ,
        client_ids=frozenset(settings.oidc_client_ids),
    )
    client = oidc.OidcClient(rules, settings.oidc_client_secret, settings.oidc_scopes)
    async with oidc.open_provider(client) as provider:
        yield provider


async def open_store(settings: Settings, *, exclusive: bool) -> SqlStore:
    """Open SQLite or PostgreSQL; `exclusive` keeps other servers from one machine's file.

    Raise `Unavailable` with the code `store_away` for a PostgreSQL that may answer later.
    """
    if settings.is_alone:
        from rota.store.sqlite.opening import open_sqlite

        return await open_sqlite(settings.store_path, exclusive=exclusive)
    with needing_extra():
        from rota.store.postgres.connections import PoolSizes
        from rota.store.postgres.opening import open_postgres
    return await open_postgres(settings.store, sizes=PoolSizes(api=settings.store_pool))


async def open_blobs(settings: Settings) -> Blobs:
    """Open a folder or a bucket."""
    if settings.blobs.startswith(FILES) or not settings.blobs:
        from rota.blobs.files import open_files

        if not settings.blobs and not settings.is_alone:
            log.warning("blobs.on_this_machine", folder=str(settings.blobs_path))
        return await open_files(settings.blobs_path)
    with needing_extra():
        from rota.blobs.objects import open_objects
    return await open_objects(settings.blobs, cloud_credentials())


async def open_queue(settings: Settings) -> Queue:
    """Open the queue: of this process, PostgreSQL, NATS, or of an installed package."""
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
    """Raise an error that names the extra, for imports of drivers that are not installed."""
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


async def open_with_retries(
    open_store: Callable[[], Awaitable[SqlStore]], clock: Clock
) -> SqlStore:
    """Open the store, with retries until it answers; raise errors that are not about that."""
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
    """Return the result of `work`; None if `stop` came first, and `work` was cancelled."""
    with ungrouped_errors():
        async with asyncio.TaskGroup() as group:
            working = group.create_task(work)
            stopping = group.create_task(stop.wait())
            await asyncio.wait((working, stopping), return_when=asyncio.FIRST_COMPLETED)
            working.cancel()
            stopping.cancel()
    return None if working.cancelled() else working.result()


_NO_SUCH_BLOB = "probe/looks-for-nothing"


async def probe_blobs(blobs: Blobs) -> None:
    """Raise `Unavailable` if the store cannot be used; nothing is written."""
    try:
        await blobs.get(_NO_SUCH_BLOB)
    except NotFound:
        return


class BlobProbe:
    """Service that probes the object store once: a server starts, and runs go on, without it."""

    name = "blob-probe"

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs

    async def run(self) -> None:
        try:
            await probe_blobs(self._blobs)
        except Unavailable as error:
            log.warning(
                "blobs.away",
                error=error.message,
                hint=error.hint,
                effect="output waits on the workers",
            )


class ProviderProbe:
    """Service that asks the identity provider once: what is wrong is told before people find it."""

    name = "provider-probe"

    def __init__(self, provider: Provider | None) -> None:
        self._provider = provider

    async def run(self) -> None:
        try:
            if self._provider is not None:
                await self._provider.names_itself()
        except Unavailable as error:
            log.warning(
                "provider.away",
                error=error.message,
                hint=error.hint,
                effect="nobody can log in; sessions that are open go on",
            )
