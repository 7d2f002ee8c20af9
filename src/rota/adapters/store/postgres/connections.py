"""Connections by urgency, and the driver's errors in Rota's words."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import asyncpg

from rota.adapters.store.store import Urgency
from rota.domain.errors import Conflict, Invalid, RotaError, Unavailable

Connection: TypeAlias = "asyncpg.pool.PoolConnectionProxy[asyncpg.Record]"
DRIVER_ERRORS = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # PostgreSQL is about to close a connection that was idle
    OSError,
    TimeoutError,
)
_CACHED_STATEMENTS = 256  # more than there are
_POOLER_SETTING = "statement_cache_size"
_CONNECT_SECONDS = 10.0
_ACQUIRE_SECONDS = 15.0
_COMMAND_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class PoolSizes:
    """How many connections each kind of work may use at once."""

    leases: int = 2  # renewals and firing: they never wait behind anybody else
    work: int = 4  # claims and ends of attempts
    api: int = 6  # people and programs


class Pools:
    """Three pools, so that whoever is most urgent never waits behind the others.

    A connection carries no state from one transaction to the next, so a pooler that hands it to
    others between transactions is fine. One that cannot keep prepared statements apart needs
    `?statement_cache_size=0` at the end of the address.
    """

    def __init__(self, address: str, sizes: PoolSizes) -> None:
        settings = connect_settings(address)
        leases, work, api = (
            asyncpg.create_pool(
                **settings,
                min_size=0,
                max_size=size,
                max_cached_statement_lifetime=0,
                reset=_forget_nothing,
            )
            for size in (sizes.leases, sizes.work, sizes.api)
        )
        self._pools = {
            Urgency.RENEW: leases,
            Urgency.FIRE: leases,
            Urgency.CLAIM: work,
            Urgency.FINISH: work,
            Urgency.API: api,
        }

    async def open(self) -> None:
        for pool in self._all():
            await pool

    @asynccontextmanager
    async def connection(self, urgency: Urgency) -> AsyncIterator[Connection]:
        async with self._pools[urgency].acquire(timeout=_ACQUIRE_SECONDS) as connection:
            yield connection

    async def close(self) -> None:
        """Wait for transactions under way."""
        for pool in self._all():
            await pool.close()

    def _all(self) -> list[Any]:
        return list(dict.fromkeys(self._pools.values()))


async def _forget_nothing(connection: Any) -> None:
    """Instead of asyncpg's own reset: a round trip to forget state that is not there."""


async def undo(connection: Connection, error: BaseException) -> None:
    """End the transaction without a trace; a connection that cannot even do that is given up."""
    try:
        if isinstance(error, asyncpg.InternalClientError):
            connection.terminate()
        elif connection.is_in_transaction():
            await connection.execute("ROLLBACK")
    except DRIVER_ERRORS:
        connection.terminate()


def connect_settings(address: str) -> dict[str, Any]:
    """What asyncpg needs to know; settings for the driver itself are taken out of the address."""
    parts = urlsplit(address)
    options = dict(parse_qsl(parts.query))
    cached = options.pop(_POOLER_SETTING, str(_CACHED_STATEMENTS))
    if not cached.isdigit():
        raise Invalid(f"{_POOLER_SETTING} in ROTA_STORE must be a number, not {cached!r}")
    return {
        "dsn": urlunsplit(parts._replace(query=urlencode(options))),
        "statement_cache_size": int(cached),
        "timeout": _CONNECT_SECONDS,
        "command_timeout": _COMMAND_SECONDS,
        "server_settings": {"application_name": "rota"},
    }


def translated(error: BaseException) -> RotaError:
    """A driver's exception as one of Rota's, which says what to do."""
    match error:
        case asyncpg.IntegrityConstraintViolationError():
            return Conflict(f"the store has it already: {error}", code="already_exists")
        case asyncpg.InvalidPasswordError() | asyncpg.InvalidAuthorizationSpecificationError():
            hint = "check user and password in ROTA_STORE"
        case asyncpg.InvalidCatalogNameError():
            hint = "create the database, or name another one in ROTA_STORE"
        case asyncpg.InsufficientPrivilegeError():
            hint = "the user of ROTA_STORE must own its database"
        case asyncpg.TooManyConnectionsError():
            hint = "raise max_connections of PostgreSQL, or lower ROTA_STORE_POOL"
        case asyncpg.DiskFullError():
            hint = "free some space for PostgreSQL"
        case TimeoutError():
            hint = "PostgreSQL answers too slowly: look at its load and at transactions held open"
        case _:
            hint = "check that PostgreSQL runs and can be reached (rota doctor)"
    said = str(error) or "no answer in time"
    return Unavailable(f"the store cannot be used: {said}", hint=hint)
