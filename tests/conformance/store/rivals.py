"""Transactions by hand, beside those of a store on PostgreSQL."""

from __future__ import annotations

import asyncio
from typing import TypeAlias

import asyncpg

from testkit.servers.postgres import PostgresServer

Rival: TypeAlias = "asyncpg.Connection[asyncpg.Record]"


async def until_somebody_waits(server: PostgresServer, *, many: int = 1) -> None:
    """For a lock that another transaction holds."""
    async with asyncio.timeout(20):
        while len(await server.execute("SELECT FROM pg_locks WHERE NOT granted")) < many:
            pass
