"""Which faults of PostgreSQL time may mend, and which only a person; no place has secrets."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import asyncpg
import pytest

from rota.domain.errors import Unavailable
from rota.store.postgres.connections import is_away, place_of, translated
from rota.store.postgres.opening import open_postgres
from testkit.servers.ports import free_ports

pytestmark = pytest.mark.anyio
Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
PLACE = "db:5432/rota"
SOCKET = "/rota"


@pytest.mark.parametrize(
    "error",
    [
        ConnectionRefusedError(errno.ECONNREFUSED, "refused"),
        ConnectionResetError(errno.ECONNRESET, "reset"),
        ConnectionError("unexpected connection_lost() call"),
        TimeoutError(),
        OSError(errno.EHOSTUNREACH, "no route to host"),
        OSError("Multiple exceptions: refused, unreachable"),
        socket.gaierror(socket.EAI_NONAME, "Name or service not known"),
        socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution"),
        asyncpg.CannotConnectNowError("the database system is starting up"),
        asyncpg.AdminShutdownError("terminating connection"),
        asyncpg.CrashShutdownError("terminating connection"),
        asyncpg.ConnectionDoesNotExistError("closed in the middle of operation"),
        asyncpg.InternalClientError("unexpected state"),
    ],
    ids=repr,
)
def test_is_waited_for(error: BaseException) -> None:
    assert is_away(error, PLACE)


@pytest.mark.parametrize(
    "error", [asyncpg.InvalidSQLStatementNameError, asyncpg.DuplicatePreparedStatementError]
)
def test_a_pooler_that_keeps_nothing_prepared_is_told_apart(
    error: type[asyncpg.PostgresError],
) -> None:
    told = translated(error("prepared statement"))

    assert "start without statement_cache_size" in told.hint


def test_a_connection_that_was_closed_is_told_in_plain_words() -> None:
    told = translated(asyncpg.InternalClientError("got result for unknown protocol state 3"))

    assert "the connection was closed" in str(told)
    assert "protocol state" not in str(told)


@pytest.mark.parametrize(
    "error",
    [
        asyncpg.InvalidPasswordError("password authentication failed"),
        asyncpg.InvalidAuthorizationSpecificationError("no entry in pg_hba.conf"),
        asyncpg.InvalidCatalogNameError("database does not exist"),
        asyncpg.InsufficientPrivilegeError("permission denied"),
        asyncpg.TooManyConnectionsError("too many clients already"),
        asyncpg.DiskFullError("no space left on device"),
        asyncpg.UndefinedTableError("no such table"),
        asyncpg.ProtocolViolationError("unexpected message"),
        asyncpg.InterfaceError("unsupported authentication"),
        ssl.SSLCertVerificationError("certificate verify failed"),
        ConnectionError('PostgreSQL server at "db:5432" rejected SSL upgrade'),
        PermissionError(errno.EACCES, "permission denied"),
        FileNotFoundError(errno.ENOENT, "no such certificate"),
    ],
    ids=repr,
)
def test_is_not_waited_for(error: BaseException) -> None:
    assert not is_away(error, PLACE)


def test_socket_that_is_not_there_yet_is_waited_for() -> None:
    assert is_away(FileNotFoundError(errno.ENOENT, "no such file"), SOCKET)


@asynccontextmanager
async def listener(answer: Answer) -> AsyncIterator[str]:
    """Somebody who is no PostgreSQL: the address."""
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        yield f"postgresql://rota:secret@127.0.0.1:{port}/jobs"


async def speak_http(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(8)
    writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    await writer.drain()
    writer.close()


async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(8)
    writer.close()


async def code_of_opening(address: str) -> str:
    with pytest.raises(Unavailable) as refused:
        await open_postgres(address)
    return refused.value.code


class TestOpening:
    async def test_nobody_there_is_away(self) -> None:
        [port] = free_ports(1)

        assert await code_of_opening(f"postgresql://rota@127.0.0.1:{port}/jobs") == "store_away"

    async def test_a_balancer_without_a_database_behind_it_is_away(self) -> None:
        async with listener(hang_up) as address:
            assert await code_of_opening(address) == "store_away"

    async def test_who_speaks_another_language_is_not(self) -> None:
        async with listener(speak_http) as address:
            assert await code_of_opening(address) == "unavailable"

    async def test_a_socket_without_a_server_is_away(self) -> None:
        assert await code_of_opening("postgresql:///jobs?host=/nowhere") == "store_away"

    async def test_a_certificate_that_is_not_there_is_no_outage(self) -> None:
        query = "sslmode=verify-full&sslrootcert=/nowhere/ca.pem"

        assert await code_of_opening(f"postgresql://rota@127.0.0.1/jobs?{query}") == "unavailable"


@pytest.mark.parametrize(
    ("address", "place"),
    [
        ("postgresql://rota:secret@db:5432/rota?sslmode=require", "db:5432/rota"),
        ("postgresql://rota:s@cr@t@db/rota", "db/rota"),
        ("postgresql://rota:se/cr@db/rota", "db/rota"),
        ("postgresql://a:1,b:2/rota", "a:1,b:2/rota"),
        ("postgresql:///rota?password=secret", "/rota"),
    ],
)
def test_place_has_no_secrets(address: str, place: str) -> None:
    assert place_of(address) == place


async def test_store_that_is_down_is_named() -> None:
    [port] = free_ports(1)

    with pytest.raises(Unavailable) as refused:
        await open_postgres(f"postgresql://rota:secret@127.0.0.1:{port}/jobs")

    assert f"the store at 127.0.0.1:{port}/jobs cannot be used" in refused.value.message
    assert "secret" not in refused.value.message
