"""Connections by urgency, and the driver's errors in Rota's words."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, TypeAlias
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import asyncpg

from rota.domain.errors import Conflict, Invalid, LockedTooLong, RotaError, Unavailable
from rota.store.script import Urgency

Connection: TypeAlias = "asyncpg.pool.PoolConnectionProxy[asyncpg.Record]"
NOW = "SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS BIGINT)"  # microseconds
DRIVER_ERRORS = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # it has read the reason of a connection's end, not yet the end
    OSError,
    TimeoutError,
)
_CLOSED_MEANWHILE = (asyncpg.ConnectionDoesNotExistError, asyncpg.InternalClientError)
_AWAY = (
    asyncpg.PostgresConnectionError,
    asyncpg.CannotConnectNowError,  # it starts, stops or recovers
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.InternalClientError,  # closed meanwhile, or no host is a primary now
)
# What asyncpg says of an answer by who is no PostgreSQL, or has not the TLS that was asked for.
_NO_TLS = "rejected SSL upgrade"
_BY_STATEMENT = "statement pooling mode"  # what pgbouncer says that knows no transactions
_CACHED_STATEMENTS = 640  # more than there are
# Statistics tell that a table has grown only after a while, or never: a plan that was made when it
# was small is not kept for long.
_PLANS_KEPT_SECONDS = 60
_APPLICATION = "rota"
_POOLER_SETTING = "statement_cache_size"
_CONNECT_SECONDS = 10.0
_ACQUIRE_SECONDS = 15.0
_COMMAND_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class PoolSizes:
    """How many connections each kind of work may use at once."""

    renewals: int = 2  # leases of workers and servers: they never wait behind anybody else
    firing: int = 2
    glances: int = 2  # short looks that wait for no lock
    work: int = 4  # claims and ends of attempts
    api: int = 6  # people and programs


class Pools:
    """Pools by urgency, so that whoever is most urgent never waits behind the others.

    A connection carries no state from one transaction to the next but prepared statements, so a
    pooler that hands it to others between transactions is fine: there nothing is prepared.
    """

    def __init__(self, address: str, sizes: PoolSizes, *, prepares: bool) -> None:
        settings = connect_settings(address, cached=_CACHED_STATEMENTS if prepares else 0)
        work = _pool(settings, sizes.work)
        self._pools = {
            Urgency.RENEW: _pool(settings, sizes.renewals),
            Urgency.FIRE: _pool(settings, sizes.firing),
            Urgency.GLANCE: _pool(settings, sizes.glances),
            Urgency.CLAIM: work,
            Urgency.FINISH: work,
            Urgency.API: _pool(settings, sizes.api),
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


def _pool(settings: dict[str, Any], size: int) -> Any:
    return asyncpg.create_pool(
        **settings,
        min_size=0,
        max_size=size,
        max_cached_statement_lifetime=_PLANS_KEPT_SECONDS,
        reset=_forget_nothing,
    )


async def _forget_nothing(connection: Any) -> None:
    """Instead of asyncpg's own reset: a round trip to forget state that is not there."""


class ClosedMeanwhile(ConnectionError):
    """PostgreSQL had closed the connection while nobody used it: nothing has happened yet."""


async def begin(connection: Connection, statement: str) -> None:
    """Begin a transaction. `ClosedMeanwhile` if there is no connection any more."""
    try:
        await connection.execute(statement)
    except _CLOSED_MEANWHILE as error:
        _give_up(connection)
        raise ClosedMeanwhile(str(error)) from error


async def undo(connection: Connection) -> None:
    """End the transaction without a trace; a connection that cannot even do that is given up.

    Whoever was cancelled while it began does not know whether there is one.
    """
    try:
        await connection.execute("ROLLBACK")
    except DRIVER_ERRORS:
        _give_up(connection)


def _give_up(connection: Connection) -> None:
    with suppress(asyncpg.InterfaceError):  # the pool may have done so already
        connection.terminate()


def connect_settings(address: str, *, cached: int = 0) -> dict[str, Any]:
    """Settings for asyncpg; those for the driver itself are taken out of the address.

    So many prepared statements are kept, unless the address says otherwise.
    """
    parts = urlsplit(address)
    options = dict(parse_qsl(parts.query))
    told = options.pop(_POOLER_SETTING, str(cached))
    if not told.isdigit():
        raise Invalid(f"{_POOLER_SETTING} in ROTA_STORE must be a number, not {told!r}")
    return {
        "dsn": urlunsplit(parts._replace(query=urlencode(options))),
        "statement_cache_size": int(told),
        "timeout": _CONNECT_SECONDS,
        "command_timeout": _COMMAND_SECONDS,
        "server_settings": {"application_name": _APPLICATION},
    }


async def has_pooler(connection: asyncpg.Connection[asyncpg.Record]) -> bool:
    """Whether somebody between PostgreSQL and us may give the connection to others, too.

    Whoever cancels a statement names the process that runs it: for that, a pooler tells a number
    of its own.
    """
    process: int = await connection.fetchval("SELECT pg_backend_pid()")
    return process != connection.get_server_pid()


def application_name(server: str) -> str:
    """The name of a server in its transactions."""
    return f"{_APPLICATION} {server}"


def place_of(address: str) -> str:
    """Hosts and database of an address, without who may use them."""
    parts = urlsplit(address)
    return f"{parts.netloc}{parts.path}".rpartition("@")[2]


def is_away(error: BaseException, place: str) -> bool:
    """Whether PostgreSQL may answer later, though nobody changes a setting of Rota's or its own."""
    match error:
        case ssl.SSLError() | PermissionError():
            return False
        case _ if _BY_STATEMENT in str(error):
            return False
        case FileNotFoundError():
            return place.startswith("/")  # no socket yet; elsewhere it is a certificate
        case OSError():  # refused, reset, unreachable, unknown host, too slow
            return _NO_TLS not in str(error)
        case asyncpg.ProtocolViolationError() | asyncpg.ProtocolError():
            return False
        case _:
            return isinstance(error, _AWAY)


def _words_of(error: BaseException) -> str:
    if type(error) is asyncpg.InternalClientError:  # not what is derived from it, which says more
        return "the connection was closed"
    return str(error) or "no answer in time"


def translated(error: BaseException, place: str = "", code: str = "") -> RotaError:
    """A driver's exception as one of Rota's, which says what to do."""
    if isinstance(error, asyncpg.IntegrityConstraintViolationError):
        return Conflict(f"the store has it already: {error}", code="already_exists")
    if isinstance(error, asyncpg.LockNotAvailableError):
        return LockedTooLong("others are changing the same", hint="try again")
    said = _words_of(error)
    store = f"the store at {place}" if place else "the store"
    return Unavailable(f"{store} cannot be used: {said}", code=code, hint=_advice(error))


def _advice(error: BaseException) -> str:
    match error:
        case asyncpg.InvalidPasswordError() | asyncpg.InvalidAuthorizationSpecificationError():
            return "check user and password in ROTA_STORE"
        case asyncpg.InvalidCatalogNameError():
            return "create the database, or name another one in ROTA_STORE"
        case asyncpg.InsufficientPrivilegeError():
            return "the user of ROTA_STORE must own its database"
        case asyncpg.InvalidSQLStatementNameError() | asyncpg.DuplicatePreparedStatementError():
            return f"its pooler forgets what is prepared: start without {_POOLER_SETTING}"
        case asyncpg.TooManyConnectionsError():
            return "raise max_connections of PostgreSQL, or lower ROTA_STORE_POOL"
        case asyncpg.DiskFullError():
            return "free some space for PostgreSQL"
        case TimeoutError():
            return "PostgreSQL answers too slowly: look at its load and at transactions held open"
        case _ if _BY_STATEMENT in str(error):
            return "let the pooler hand out connections by transaction (pool_mode = transaction)"
        case _:
            return "check that PostgreSQL runs and can be reached (rota doctor)"
