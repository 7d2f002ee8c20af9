"""A look at a PostgreSQL database, in a transaction that may not write."""

from __future__ import annotations

import asyncpg

from rota.domain.errors import Invalid
from rota.store.inspection import StoreInspection
from rota.store.postgres.connections import (
    DRIVER_ERRORS,
    NOW,
    connect_settings,
    has_pooler,
    translated,
)

_HAS_SCHEMA = "SELECT to_regclass('meta') IS NOT NULL"
_SCHEMA = "SELECT value FROM meta WHERE key = 'schema'"


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
