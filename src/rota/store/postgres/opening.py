"""Opening a database: migrations under a lock, pools; and a look at one from outside."""

from __future__ import annotations

from contextlib import suppress
from importlib import resources

import asyncpg

from rota.domain.errors import Conflict, Invalid, RotaError, Unavailable
from rota.domain.ids import ServerId
from rota.ports.records import NewServer, OwnedShards
from rota.store.memory import Memory
from rota.store.postgres.connections import (
    DRIVER_ERRORS,
    NOW,
    Pools,
    PoolSizes,
    connect_settings,
    has_pooler,
    is_away,
    place_of,
    translated,
)
from rota.store.postgres.driver import PostgresDriver
from rota.store.script import Script, StoreInspection, Ticker, Urgency, query
from rota.store.store import SqlStore
from rota.store.tx import Tx

_MIGRATIONS = resources.files("rota.store.postgres").joinpath("migrations")
_MIGRATION_LOCK = 7_682_001  # any number, the same in every version
_MIGRATION_SECONDS = 24 * 3600.0  # with a big store it takes its time, also that of another server
_DEFAULT_SIZES = PoolSizes()
_HAS_SCHEMA = "SELECT to_regclass('meta') IS NOT NULL"
_SCHEMA = "SELECT value FROM meta WHERE key = 'schema'"
_TRUST = 500_000  # microseconds: what is over is gone through twice a second, not by every claim


class PostgresStore(SqlStore):
    """A store in PostgreSQL, shared by any number of servers."""

    def __init__(self, driver: PostgresDriver) -> None:
        super().__init__(driver, Memory(_TRUST))
        self._act_for = driver.act_for

    async def join(self, server: NewServer) -> None:
        await super().join(server)
        self._act_for(server.id)

    async def keep_shards(self, server: ServerId, *, stopping: bool) -> OwnedShards:
        """Renew, and end the transactions of servers whose lease is over.

        PostgreSQL ends transactions in which nothing happens. One whose server was stopped in the
        middle of a statement is work for it, which no timeout ends; its locks would stay for ever.
        """
        holding = await super().keep_shards(server, stopping=stopping)
        if holding.alive:
            with suppress(Unavailable):  # there is a next time
                await self.write(_end_transactions, Urgency.RENEW)
        return holding


def _end_transactions(tx: Tx) -> Script[None]:
    yield query("end_transactions", now=tx.now)


async def open_postgres(
    address: str, *, clock: Ticker | None = None, sizes: PoolSizes = _DEFAULT_SIZES
) -> PostgresStore:
    """Open the store, and create or bring up to date its schema.

    Without a `clock` PostgreSQL's own decides. `Unavailable` if the database cannot be used, with
    the code `store_away` if that may pass by itself; `Conflict` if a newer Rota has it.
    """
    try:
        is_pooled = await _bring_up_to_date(address)
        pools = Pools(address, sizes, prepares=not is_pooled)
        await pools.open()
    except (*DRIVER_ERRORS, ValueError) as error:
        raise _refusal(error, place_of(address)) from error
    return PostgresStore(PostgresDriver(pools, clock))


def _refusal(error: Exception, place: str) -> RotaError:
    # A certificate that cannot be trusted is a ValueError as well.
    if isinstance(error, ValueError) and not isinstance(error, OSError):
        return Invalid(
            "ROTA_STORE is no address of a database",
            hint="write it as postgresql://USER:PASSWORD@HOST:PORT/DATABASE",
        )
    return translated(error, place, "store_away" if is_away(error, place) else "")


async def _bring_up_to_date(address: str) -> bool:
    """Migrate the schema; whether the way there leads through a pooler."""
    connection = await asyncpg.connect(**connect_settings(address))
    try:
        await migrate(connection)
        async with connection.transaction():  # which not every pooler allows
            is_pooled = await has_pooler(connection)
    except BaseException:
        connection.terminate()  # a polite end would wait for whoever does not answer
        raise
    await connection.close()
    return is_pooled


async def migrate(connection: asyncpg.Connection[asyncpg.Record]) -> None:
    """Apply the migrations that are missing, all or none; a second server waits for the first."""
    migrations = {int(file.name.split("_")[0]): file for file in _MIGRATIONS.iterdir()}
    newest = max(migrations)
    version = await _version(connection)
    if version < newest:
        # Whoever waited for the lock has to see what its holder did, whatever a database's default.
        async with connection.transaction(isolation="read_committed"):
            lock = "SELECT pg_advisory_xact_lock($1)"
            await connection.execute(lock, _MIGRATION_LOCK, timeout=_MIGRATION_SECONDS)
            version = await _version(connection)
            for number in sorted(each for each in migrations if each > version):
                script = migrations[number].read_text("utf-8")
                await connection.execute(script, timeout=_MIGRATION_SECONDS)
                await _set_version(connection, number)
    if version > newest:
        raise Conflict(
            f"the store was made by a newer Rota (schema {version}, this one knows {newest})",
            code="store_is_newer",
            hint="upgrade Rota",
        )


async def _version(connection: asyncpg.Connection[asyncpg.Record]) -> int:
    if await connection.fetchval("SELECT to_regclass('meta') IS NULL"):
        return 0
    return int(await connection.fetchval("SELECT value FROM meta WHERE key = 'schema'") or 0)


async def _set_version(connection: asyncpg.Connection[asyncpg.Record], number: int) -> None:
    await connection.execute(
        "INSERT INTO meta (key, value) VALUES ('schema', $1)"
        " ON CONFLICT (key) DO UPDATE SET value = excluded.value",
        str(number),
    )


async def inspect_postgres(address: str) -> StoreInspection:
    """`Unavailable` where it cannot be reached or read."""
    try:
        connection = await asyncpg.connect(**connect_settings(address))
        try:
            return await _look(connection)
        finally:
            await connection.close()
    except asyncpg.ClientConfigurationError as error:
        raise Invalid(f"ROTA_STORE is no address of a database: {error}") from error
    except DRIVER_ERRORS as error:
        raise translated(error) from error


async def _look(connection: asyncpg.Connection[asyncpg.Record]) -> StoreInspection:
    async with connection.transaction(readonly=True):
        has_schema = await connection.fetchval(_HAS_SCHEMA)
        schema = await connection.fetchval(_SCHEMA) if has_schema else None
        version = ".".join(map(str, connection.get_server_version()[:2]))
        now = await connection.fetchval(NOW)
        is_pooled = await has_pooler(connection)
    return StoreInspection(
        f"PostgreSQL {version}{' through a pooler' if is_pooled else ''}",
        schema=int(schema or 0),
        now=now,
        is_pooled=is_pooled,
    )
